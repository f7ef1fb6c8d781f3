//! FFI calls: the address of a C function, and arguments placed as the C convention requires.
//!
//! * [`argument`]: a value as one 64-bit word
//! * [`abi`]: the register or stack slot of each word, and calls that fit every signature
//! * [`call`]: the public [`FfiCall`]

pub(crate) mod abi;
mod argument;
mod call;

pub use argument::Argument;
pub use call::FfiCall;
pub(crate) use call::PlacedArguments;
