//! Random numbers: Philox 4x32-10, bitwise equal on every kind of device.
//!
//! A generator is a seed and an offset. The seed selects a sequence of 2^64 words of 32 bits; the
//! offset is the number of used words. A number thus depends only on its position in the sequence,
//! not on threads, chunks or the device. `docs/generators.md` specifies the mapping to numbers.
//!
//! * [`philox`], `philox_avx2`: four words from a counter and a key
//! * [`normal`]: normally distributed numbers, with this crate's own logarithm, sine and root
//! * [`values`]: conversion of words into numbers, with vector instructions
//! * [`handle`], [`state`]: the public [`Generator`], its seed and its offset
//! * [`fill`]: the checks before a fill is enqueued, and the number of used words
//! * [`host`], [`task_parts`]: fills in chunks, on kinds that run tasks on the host
//! * [`fill_cache`]: fills by a kernel (`fill.cl`) on driver kinds
//! * [`defaults`]: the default generators of a runtime's devices

mod defaults;
mod fill;
mod fill_cache;
mod handle;
mod host;
#[cfg(all(test, loom))]
mod loom_tests;
mod normal;
mod philox;
#[cfg(target_arch = "x86_64")]
mod philox_avx2;
mod state;
mod task_parts;
mod values;

pub(crate) use defaults::Defaults;
pub use fill::{FloatType, RawType};
pub use handle::Generator;
