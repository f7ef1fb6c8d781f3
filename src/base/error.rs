//! The crate's error type: one family of errors per component, with the values of the failed call.
//!
//! The runtime detects its own bugs by assertions, which panic.

mod memory;
mod stream;

use std::fmt;
use std::time::Duration;

use crate::base::device::{Device, DeviceKind};

pub use memory::MemoryError;
pub use stream::{FailureCause, StreamError, StreamFailure};

/// The result of every call that can fail. A bug of the runtime panics instead.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error that a user's task returns. The stream then fails with [`FailureCause::Returned`].
pub type TaskError = Box<dyn std::error::Error + Send + Sync + 'static>;

/// An error of the runtime. Each variant holds the errors of one component.
///
/// ```
/// use accelrt::{Config, Device, DeviceError, Error, Runtime};
/// let runtime = Runtime::new(Config::default())?;
/// match runtime.empty(1, Device::cpu(7)) {
///     Err(Error::Device(DeviceError::NotFound { count, .. })) => assert_eq!(count, 1),
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), Error>(())
/// ```
/// As debug text it is its sentence, which a `main` that returns [`Result`] prints.
#[derive(Clone, thiserror::Error)]
#[error(transparent)]
#[non_exhaustive]
pub enum Error {
    /// An invalid device name, or a missing device.
    Device(#[from] DeviceError),
    /// A call that a device, its driver or the operating system refused, or does not support.
    Driver(#[from] DriverError),
    /// A setting that is not allowed.
    Config(#[from] ConfigError),
    /// A forked or shut down runtime, an object of another runtime, or an interrupted wait.
    Runtime(#[from] RuntimeError),
    /// Failed work of a stream, or an invalid use of a stream.
    Stream(#[from] StreamError),
    /// An invalid record of an event, wait for an event, or time between events.
    Event(#[from] EventError),
    /// Missing memory, or an invalid use of memory.
    Memory(#[from] MemoryError),
    /// An invalid use of a random generator.
    Generator(#[from] GeneratorError),
    /// A program, a kernel or a native function that cannot be built or launched.
    Program(#[from] ProgramError),
    /// A refusal by another library of the process.
    Integration(#[from] IntegrationError),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_ends_main_is_a_sentence() {
        let (name, allowed) = ("exit_timeout", "up to 86400000 ms");
        let error = ConfigError::InvalidSetting { name, value: "soon".to_owned(), allowed };
        let error = Error::from(error);
        assert_eq!(format!("{error:?}"), error.to_string());
        assert!(error.to_string().starts_with("exit_timeout=\"soon\" is not valid"), "{error}");
    }
}

/// A setting, in the environment or in the code, that is not allowed.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field without a comment is explained by its error's text")]
#[non_exhaustive]
pub enum ConfigError {
    /// An environment variable or setting whose value is malformed or out of range.
    #[error("{name}={value:?} is not valid: allowed is {allowed}")]
    InvalidSetting { name: &'static str, value: String, allowed: &'static str },
    /// An allocator's setting that is malformed, out of range or repeated.
    #[error("Allocator setting {key:?} with value {value:?} is not valid: allowed is {allowed}")]
    InvalidAllocatorSetting { key: String, value: String, allowed: String },
    /// A key in an allocator's settings that neither PyTorch nor this runtime has.
    #[error("Unrecognized key '{key}' in allocator settings: allowed are {allowed}")]
    UnknownAllocatorSetting { key: String, allowed: String },
    /// A key that would change nothing: the runtime or the selected policy never reads it.
    #[error("Allocator setting '{key}' would have no effect: {reason}. Leave it out")]
    AllocatorSettingWithoutEffect { key: String, reason: &'static str },
    /// An environment variable whose text contains an invalid setting: `ACCELRT_ALLOC_CONF`.
    #[error("{name}: {source}")]
    InvalidVariable { name: &'static str, source: Box<ConfigError> },
}

/// An invalid name of a device, or a device that cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field without a comment is explained by its error's text")]
#[non_exhaustive]
pub enum DeviceError {
    /// A device string without any character.
    #[error("Device string must not be empty")]
    EmptyString,
    /// A device string whose part after the colon is not a plain decimal number.
    #[error("Invalid device string: '{given}'")]
    InvalidString { given: String },
    /// A device index above `usize::MAX`.
    #[error("Could not parse device index '{digits}' in device string '{given}'")]
    UnparsableIndex { digits: String, given: String },
    /// A name under which no kind is registered.
    #[error(
        "Expected one of {} device type at start of device string: {given}",
        DeviceKind::names()
    )]
    UnknownKind { given: String },
    /// A registration of a kind whose name or type code is invalid or taken.
    #[error("Device kind {name:?} with type code {type_code} is refused: {reason}")]
    KindRefused { name: String, type_code: u8, reason: String },
    /// A library of a kind that cannot be used.
    #[error("{library} brings no kind of device: {reason}")]
    LibraryRefused { library: String, reason: String },
    /// A registration of a second backend for a kind.
    #[error("A backend is registered for kind {kind}: a kind has one")]
    BackendRegistered { kind: DeviceKind },
    /// A device index above [`MAX_DEVICE_INDEX`](crate::MAX_DEVICE_INDEX).
    #[error("Device index {index} of {kind} is out of range: an index is at most 127")]
    IndexTooLarge { kind: DeviceKind, index: usize },
    /// A device whose index is not below the number of devices of its kind.
    #[error(
        "Device {device} does not exist: there {}",
        devices(device.kind(), *count)
    )]
    NotFound { device: Device, count: usize },
    /// A kind without a usable backend, driver or device in this process.
    #[error("No {kind} device is available: {reason}")]
    KindUnavailable { kind: DeviceKind, reason: String },
}

fn devices(kind: DeviceKind, count: usize) -> String {
    match count {
        0 => format!("are 0 {kind} devices"),
        1 => format!("is 1 {kind} device, index 0"),
        count => format!("are {count} {kind} devices, indices 0 to {}", count - 1),
    }
}

/// An error from a device, its driver or the operating system.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field without a comment is explained by its error's text")]
#[non_exhaustive]
pub enum DriverError {
    /// A driver or the operating system refused a call.
    #[error("{call} failed on {kind} with code {code}: {message}")]
    Refused { kind: DeviceKind, call: &'static str, code: i64, message: String },
    /// The driver reported that the device is permanently lost.
    #[error("Device {device} is lost: {reason}")]
    DeviceLost { device: Device, reason: String },
    /// A capability that this kind does not have.
    #[error("{kind} devices do not support {capability}")]
    Unsupported { kind: DeviceKind, capability: &'static str },
}

impl Error {
    /// Creates [`DriverError::Refused`] from the driver's or the operating system's error code.
    #[doc(hidden)]
    #[must_use]
    pub fn refused(
        kind: DeviceKind,
        call: &'static str,
        code: impl Into<i64>,
        message: impl Into<String>,
    ) -> Self {
        let (code, message) = (code.into(), message.into());
        Self::Driver(DriverError::Refused { kind, call, code, message })
    }
}

/// An invalid record of an event, wait for an event, or time between two events.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field without a comment is explained by its error's text")]
#[non_exhaustive]
pub enum EventError {
    /// A record or a wait that joins an event to a stream of another kind.
    #[error("Event device type {event} does not match {role} stream's device type {stream}.")]
    KindMismatch {
        event: DeviceKind,
        /// `recording` for a record, `blocking` for a wait.
        role: &'static str,
        stream: DeviceKind,
    },
    /// A call recorded the event on another device than that of the event's first record.
    #[error("Event device index {event} does not match recording stream's device index {stream}.")]
    DeviceMismatch { event: usize, stream: usize },
    /// A call asked for the time between events of two kinds.
    #[error("Event device type {this} does not match other's device type {other}.")]
    ElapsedKindMismatch { this: DeviceKind, other: DeviceKind },
    /// A call asked for the time of an event without timing.
    #[error("Both events must be created with timing.")]
    WithoutTiming,
    /// A call asked for the time of an event without a record.
    #[error("Both events must be recorded before calculating elapsed time.")]
    NotRecorded,
    /// A call asked for the time of an event that the device has not reached.
    #[error("Both events must be completed before calculating elapsed time.")]
    NotComplete,
}

/// A call that a random generator refuses.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field without a comment is explained by its error's text")]
#[non_exhaustive]
pub enum GeneratorError {
    /// A fill of a buffer by a generator of another kind of device.
    #[error("Expected a '{expected}' device type for generator but found '{generator}'")]
    KindMismatch { expected: DeviceKind, generator: DeviceKind },
    /// An offset that is not a multiple of 4, the number of words in a block.
    #[error("The offset of a generator must be a multiple of 4: {offset} is not")]
    InvalidOffset {
        /// The offset that the caller passed, directly or inside a state.
        offset: u64,
    },
    /// A request of more words than follow the offset in the sequence of 2^64 words.
    #[error(
        "Cannot take {words} words of random numbers at offset {offset}: the offset afterwards \
         must be at most {last}", last = u64::MAX - 3
    )]
    SequenceEnd {
        /// The generator's offset, in words of 32 bits.
        offset: u64,
        /// The requested words, rounded up to a multiple of 4.
        words: u128,
    },
    /// A fill of a buffer whose size or address is not a multiple of the number type's size.
    #[error(
        "Cannot fill {bytes} bytes at {address:#x} with numbers of {item_bytes} bytes: size and \
         address must be multiples of that"
    )]
    FillAlignment { address: u64, bytes: usize, item_bytes: usize },
}

/// A refusal by another library in the process, or by the standard output.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field without a comment is explained by its error's text")]
#[non_exhaustive]
pub enum IntegrationError {
    /// The search for a library with verbose lines found none.
    #[error("No {library} was found whose verbose level could be set: searched were {searched}")]
    LibraryMissing { library: &'static str, searched: String },
    /// A verbose level that a library does not have or refused.
    #[error("{library} does not take the verbose level {level}: {reason}")]
    VerboseLevel {
        library: &'static str,
        level: i32,
        /// The refusing component, or the accepted levels.
        reason: String,
    },
    /// An allocator that oneMKL cannot use or does not use.
    #[error("oneMKL does not get its memory from {allocator}: {reason}")]
    MklAllocator {
        allocator: &'static str,
        /// The missing library or symbol, or the failed probe of oneMKL.
        reason: String,
    },
    /// The system refused a call that captures the standard output: the call and its error.
    #[error("The standard output cannot be captured: {0}")]
    Capture(String),
}

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

/// A reason for which the runtime refuses a call on any device.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field without a comment is explained by its error's text")]
#[non_exhaustive]
pub enum RuntimeError {
    /// One call received handles of two runtimes. Runtimes share no handles.
    #[error("{what} of runtime {given} was given to runtime {own}: runtimes do not share handles")]
    OtherRuntime {
        what: &'static str,
        /// The [id](crate::Runtime::id) of the handle's runtime.
        given: u64,
        /// The id of the runtime that received the handle.
        own: u64,
    },
    /// The runtime is used in a child that was forked from an initialised process.
    #[error(
        "The runtime was initialised before this process was forked: it works in the parent, and \
         in a program that the child executes"
    )]
    BadFork,
    /// A call came after the shutdown, or the shutdown cancelled the work that a call waited for.
    #[error("The runtime is shut down: it takes no new work")]
    ShutDown,
    /// A wait ended because its interrupt check returned true. The work continues.
    #[error("The wait was interrupted; the work goes on")]
    Interrupted,
    /// A wait with a limit ended before the work was done. The work continues.
    #[error("The wait ended after its limit of {timeout:?}; the work is not done and goes on")]
    TimedOut { timeout: Duration },
}

/// What a program does about an [`Error`]: see [`Error::kind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Too little memory: free some, or ask for less.
    OutOfMemory,
    /// The device is gone for good: use another one, or start the process anew.
    DeviceLost,
    /// Work failed on a stream: by its own error or panic, or a failed wait. The call is right.
    TaskFailed,
    /// Work did not run because its stream was cancelled.
    Cancelled,
    /// The wait ended before the work did: wait again.
    TimedOut,
    /// The wait's check said so: wait again, or go on.
    Interrupted,
    /// The runtime is shut down: it takes no new work.
    ShutDown,
    /// The call is not possible in a forked child: start processes in another way.
    BadFork,
    /// A device, stream, kind, kernel or library that is not there.
    NotFound,
    /// The kind of device cannot do it.
    Unsupported,
    /// A driver, a compiler or the operating system refused the call.
    Refused,
    /// The call does not fit its objects, or they are in a state in which it makes no sense: a
    /// mistake in the program or its settings.
    Invalid,
}

impl Error {
    /// What a program does about this error. The error's variant and its text say which object was
    /// wrong, and how.
    ///
    /// ```
    /// use accelrt::{Config, Device, ErrorKind, Runtime};
    /// let config = Config::builder().cpu_memory_bytes(64 << 20).build()?;
    /// let (runtime, device) = (Runtime::new(config)?, Device::cpu(0));
    /// let buffer = match runtime.empty(1 << 30, device) {
    ///     Err(error) if error.kind() == ErrorKind::OutOfMemory => runtime.empty(1 << 20, device)?,
    ///     other => other?,
    /// };
    /// assert_eq!(buffer.nbytes(), 1 << 20);
    /// assert_eq!(Device::new(device.kind(), 1000).unwrap_err().kind(), ErrorKind::Invalid);
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Memory(MemoryError::OutOfMemory { .. }) => ErrorKind::OutOfMemory,
            Self::Driver(DriverError::DeviceLost { .. }) => ErrorKind::DeviceLost,
            Self::Driver(DriverError::Unsupported { .. }) => ErrorKind::Unsupported,
            Self::Stream(StreamError::Failed(failure)) => kind_of(failure),
            Self::Stream(StreamError::SeveralFailed { errors, .. }) => {
                errors.first().map_or(ErrorKind::TaskFailed, |first| kind_of(first))
            }
            Self::Runtime(RuntimeError::TimedOut { .. }) => ErrorKind::TimedOut,
            Self::Runtime(RuntimeError::Interrupted) => ErrorKind::Interrupted,
            Self::Runtime(RuntimeError::ShutDown) => ErrorKind::ShutDown,
            Self::Runtime(RuntimeError::BadFork) => ErrorKind::BadFork,
            Self::Device(
                DeviceError::NotFound { .. }
                | DeviceError::KindUnavailable { .. }
                | DeviceError::UnknownKind { .. },
            )
            | Self::Stream(StreamError::NotFound { .. })
            | Self::Integration(IntegrationError::LibraryMissing { .. })
            | Self::Program(ProgramError::NoSuchKernel { .. }) => ErrorKind::NotFound,
            Self::Driver(_)
            | Self::Integration(_)
            | Self::Program(ProgramError::BuildFailed { .. }) => ErrorKind::Refused,
            Self::Config(_)
            | Self::Device(_)
            | Self::Event(_)
            | Self::Generator(_)
            | Self::Memory(_)
            | Self::Program(_)
            | Self::Runtime(_)
            | Self::Stream(_) => ErrorKind::Invalid,
        }
    }
}

/// A lost device and missing memory stay what they are also when a task met them.
fn kind_of(failure: &StreamFailure) -> ErrorKind {
    match failure.root().failure() {
        FailureCause::StreamCancelled => ErrorKind::Cancelled,
        FailureCause::Cancelled => ErrorKind::ShutDown,
        FailureCause::Backend(error) => match error.kind() {
            kind @ (ErrorKind::DeviceLost | ErrorKind::OutOfMemory) => kind,
            _ => ErrorKind::TaskFailed,
        },
        _ => ErrorKind::TaskFailed,
    }
}
