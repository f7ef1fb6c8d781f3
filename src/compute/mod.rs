//! Programs: kernels that a backend compiles for a device and runs in stream order.
//!
//! * [`handle`]: the public [`Program`] and its [`Kernel`]s
//! * [`launch`]: a launch as a task of a stream, with its arguments and its number of work-items

mod handle;
mod launch;

pub use crate::backend::contract::{KernelParameter, ParameterClass, ProgramSource};
pub use handle::{Kernel, Program};
pub use launch::KernelArgument;
