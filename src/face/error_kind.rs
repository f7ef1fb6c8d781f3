//! What a program does about an error: a few kinds, in place of every family's variants.

use crate::base::error::{
    DeviceError, DriverError, Error, FailureCause, IntegrationError, MemoryError, ProgramError,
    RuntimeError, StreamError, StreamFailure,
};

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
