//! Programs: kernels, native functions and what they are launched with.

use crate::base::device::Device;

/// What a program, its kernels, or a native function refuses.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// A program that the compiler refused.
    #[error("Building the program for {device} failed: {log}")]
    BuildFailed {
        /// The device that it was compiled for.
        device: Device,
        /// What the compiler said.
        log: String,
    },
    /// A kernel that a program does not have.
    #[error("The program has no kernel {name:?}: it has {}", listed(names))]
    NoSuchKernel {
        /// The name asked for.
        name: String,
        /// The names of its kernels.
        names: Vec<String>,
    },
    /// A launch with more or fewer arguments than the kernel takes.
    #[error("Kernel {kernel} takes {expected} arguments: {given} were given")]
    ArgumentCount {
        /// The kernel's name.
        kernel: String,
        /// How many it takes.
        expected: usize,
        /// How many were given.
        given: usize,
    },
    /// An argument of a launch that does not fit what the kernel declares.
    #[error(
        "Argument {} of kernel {kernel}{} must be {expected}, not {given}",
        index + 1, in_commas(declared)
    )]
    InvalidArgument {
        /// The kernel's name.
        kernel: String,
        /// The argument's place, from 0.
        index: usize,
        /// Type and name of the parameter, where the program tells.
        declared: String,
        /// What would fit.
        expected: &'static str,
        /// What was given.
        given: String,
    },
    /// A number of work-items that no launch can have.
    #[error("Kernel {kernel} cannot run with {what} of {given:?}: {allowed}")]
    LaunchSize {
        /// The kernel's name.
        kernel: String,
        /// Which size.
        what: &'static str,
        /// What was given.
        given: Vec<usize>,
        /// What would be accepted.
        allowed: &'static str,
    },
    /// A kernel that was given to a stream of another device, or another runtime's.
    #[error("Kernel {kernel} was compiled for {compiled}: a stream of {stream} cannot run it")]
    DeviceMismatch {
        /// The kernel's name.
        kernel: String,
        /// The device that it was compiled for.
        compiled: Device,
        /// The stream's device.
        stream: Device,
        /// True when the stream runs on the host: functions, not kernels.
        on_host: bool,
    },
    /// A native call of the null address.
    #[error("A native call needs a function: its address is null")]
    NullFunction,
    /// A native call with more arguments than are placed.
    #[error("A native call takes at most {most} arguments: {count} were given")]
    TooManyArguments {
        /// How many were given.
        count: usize,
        /// How many are possible.
        most: usize,
    },
}

/// Names for a sentence.
fn listed(names: &[String]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
    if quoted.is_empty() { "none".to_owned() } else { quoted.join(", ") }
}

/// An addition between commas, if there is one.
fn in_commas(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(", `{text}`,") }
}
