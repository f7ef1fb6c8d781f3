//! Programs: kernels that a backend compiles for a device and runs in stream order.
//!
//! * [`handle`]: the public [`Program`] and its [`Kernel`]s
//! * [`argument`]: the arguments of a launch, checked against a kernel's parameters
//! * [`launch`]: a launch as a task of a stream, with its number of work-items

mod argument;
mod handle;
mod launch;

pub use crate::backend::contract::{KernelParameter, ParameterClass, ProgramSource};
pub use argument::KernelArgument;
pub use handle::{Kernel, Program};
