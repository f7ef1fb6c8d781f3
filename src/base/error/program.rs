//! Errors of programs: kernels, native functions and their launch arguments.

use crate::base::device::Device;

/// A call that a program, a kernel or a native function refuses.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field without a comment is explained by its error's text")]
#[non_exhaustive]
pub enum ProgramError {
    /// A program that the compiler refused; `log` is the compiler's output.
    #[error("Building the program for {device} failed: {log}")]
    BuildFailed { device: Device, log: String },
    /// A search for a kernel by a name that the program does not have.
    #[error("The program has no kernel {name:?}: it has {}", listed(names))]
    NoSuchKernel { name: String, names: Vec<String> },
    /// A launch with more or fewer arguments than the kernel takes.
    #[error("Kernel {kernel} takes {expected} arguments: {given} were given")]
    ArgumentCount { kernel: String, expected: usize, given: usize },
    /// An argument of a launch that does not fit the kernel's parameter.
    #[error(
        "Argument {} of kernel {kernel}{} must be {expected}, not {given}",
        index + 1, in_commas(declared)
    )]
    InvalidArgument {
        kernel: String,
        /// The argument's index, from 0.
        index: usize,
        /// Type and name of the parameter, if the program reports them.
        declared: String,
        expected: &'static str,
        given: String,
    },
    /// A global or local size that no launch can have.
    #[error("Kernel {kernel} cannot run with {what} of {given:?}: {allowed}")]
    LaunchSize { kernel: String, what: &'static str, given: Vec<usize>, allowed: &'static str },
    /// A launch of a kernel on a stream of another device or another runtime.
    #[error("Kernel {kernel} was compiled for {compiled}: a stream of {stream} cannot run it")]
    DeviceMismatch {
        kernel: String,
        compiled: Device,
        stream: Device,
        /// True when the stream runs on the host, where it executes functions but no kernels.
        on_host: bool,
    },
    /// A native call whose function address is null.
    #[error("A native call needs a function: its address is null")]
    NullFunction,
    /// A native call with more than `most` arguments.
    #[error("A native call takes at most {most} arguments: {count} were given")]
    TooManyArguments { count: usize, most: usize },
}

/// Quotes names and joins them with commas; `none` for an empty list.
fn listed(names: &[String]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
    if quoted.is_empty() { "none".to_owned() } else { quoted.join(", ") }
}

/// Puts a text between commas and backticks; an empty text stays empty.
fn in_commas(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(", `{text}`,") }
}
