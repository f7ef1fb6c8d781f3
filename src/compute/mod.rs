//! Programs: kernels that a backend compiles for a device and runs in stream order.
//!
//! * [`handle`]: the public [`Program`] and its [`Kernel`]s
//! * [`argument`]: the arguments of a launch, checked against a kernel's parameters
//! * [`size`]: the number of work-items of a launch
//! * [`launch`]: a launch as a task of a stream

mod argument;
mod handle;
mod launch;
mod size;

pub use crate::backend::contract::{KernelParameter, ParameterClass, ProgramSource};
pub use argument::KernelArgument;
pub use handle::{Kernel, Program};
