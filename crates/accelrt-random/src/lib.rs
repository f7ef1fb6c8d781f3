//! Random numbers: Philox 4x32-10, bitwise equal on every kind of device.
//!
//! A generator is a seed and an offset. The seed selects a sequence of 2^64 words of 32 bits; the
//! offset is the number of used words. A number thus depends only on its position in the sequence,
//! not on threads, chunks or the device. `docs/generators.md` specifies the mapping to numbers.
//!
//! ```
//! use accelrt::{Config, Device, Runtime};
//! use accelrt_random::{FloatType, RuntimeExt};
//!
//! let runtime = Runtime::new(Config::default())?;
//! let stream = runtime.current_stream()?;
//! let buffer = runtime.empty(1024, Device::cpu(0))?;
//! let generator = runtime.generator(Device::cpu(0))?;
//! generator.fill_uniform(&buffer, FloatType::Float32, &stream)?; // a task of the stream
//! stream.synchronize()?;
//! # Ok::<(), accelrt::Error>(())
//! ```
//!
//! * `runtime_ext`: [`RuntimeExt`], the generators of a runtime; `defaults`: the default ones
//! * `handle`, `state`: [`Generator`], its seed and its offset
//! * `fill`: the checks before a fill is enqueued, and the number of used words
//! * `host`: fills in chunks, on kinds that run tasks on the host
//! * `fill_cache`: fills by a kernel (`fill.cl`) on driver kinds
//! * `philox`, `philox_avx2`: four words from a counter and a key
//! * `values`: conversion of words into numbers, with vector instructions
//! * `normal`: normally distributed numbers, with this crate's own logarithm, sine and root

mod defaults;
mod fill;
mod fill_cache;
mod handle;
mod host;
mod normal;
mod philox;
#[cfg(target_arch = "x86_64")]
mod philox_avx2;
mod runtime_ext;
mod state;
mod values;

pub use fill::{FloatType, RawType};
pub use handle::Generator;
pub use runtime_ext::RuntimeExt;
