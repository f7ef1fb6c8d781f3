//! Random numbers: Philox 4x32-10 on every kind of device, bit for bit the same.
//!
//! A generator is a seed and an offset. The seed names a sequence of 2^64 words of 32 bits, the
//! offset says how many of them are used. A number thus depends only on its place in the sequence,
//! not on threads, chunks or the device. `docs/generators.md` has the mapping from words to
//! numbers.
//!
//! * [`philox`], `philox_avx2`: four words from a counter and a key
//! * [`normal`]: normal numbers, with a logarithm, a sine and a root of our own
//! * [`values`]: turns words into numbers, with vector instructions
//! * [`handle`], [`state`]: the public [`Generator`], its seed and its offset
//! * [`fill`]: the checks before a fill is enqueued, and the words that it uses
//! * [`host`], [`shares`]: a fill in chunks, on the workers of a kind that has them
//! * [`kit`]: a fill by a kernel (`fill.cl`) elsewhere
//! * [`defaults`]: the default generators of a runtime's devices

mod defaults;
mod fill;
mod handle;
mod host;
mod kit;
#[cfg(all(test, loom))]
mod loom_tests;
mod normal;
mod philox;
#[cfg(target_arch = "x86_64")]
mod philox_avx2;
mod shares;
mod state;
mod values;

pub(crate) use defaults::Defaults;
pub use fill::{FloatType, RawType};
pub use handle::Generator;
