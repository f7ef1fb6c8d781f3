//! Native calls: a function address with arguments, placed as the machine's C convention wants.
//!
//! * [`argument`]: a value as one 64-bit word
//! * [`abi`]: which word stands in which register, and the calls that fit every signature
//! * [`call`]: the public [`NativeCall`]

pub(crate) mod abi;
mod argument;
mod call;

pub use argument::Argument;
pub use call::NativeCall;
pub(crate) use call::PlacedArguments;
