//! The status that every function returns, and which error of the runtime is which status.

use std::borrow::Cow;

use accelrt::{
    DeviceError, DriverError, Error, EventError, MemoryError, ProgramError, RuntimeError,
    StreamError,
};

/// What a function came to. Every function returns one unless it cannot fail. Numbers keep their
/// meaning; later versions may add some, so a program treats a number that it does not know as an
/// error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// The function did what it says.
    Ok = 0,
    /// An argument is NULL where a pointer is needed, out of range, malformed, or does not fit the
    /// other ones, as a stream of another kind of device. Nothing was done.
    InvalidArgument = 1,
    /// A handle that was destroyed, or that no function has returned.
    StaleHandle = 2,
    /// The device, or the limit set on it, has no room for a request.
    OutOfMemory = 3,
    /// Work of a stream failed: a task returned an error, or the device refused it. The text has
    /// the cause.
    StreamFailed = 4,
    /// The device is gone for good.
    DeviceLost = 5,
    /// A wait reached its limit. The work goes on.
    TimedOut = 6,
    /// The work has not got that far: the time between events that are not done.
    NotReady = 7,
    /// The kind of device, or this build, cannot do that.
    Unsupported = 8,
    /// There is no such device, stream, kernel or allocation.
    NotFound = 9,
    /// The driver or the operating system refused a call.
    DriverRefused = 10,
    /// A setting or a limit with a value that is not allowed.
    InvalidSetting = 11,
    /// The object cannot do that now: memory that was released or is exported, an event without
    /// timing or record, a setting behind the first use of the runtime.
    InvalidState = 12,
    /// The runtime was shut down.
    ShutDown = 13,
    /// The process was forked from one that had used the runtime. The parent and a new program can
    /// use it.
    Forked = 14,
    /// A task asked to wait for its own stream, which would never end.
    WouldDeadlock = 15,
    /// The compiler refused a program. The text has its log.
    BuildFailed = 16,
    /// A defect of accelrt: a panic was caught. Please report it with its text.
    Internal = 17,
}

/// Why a function did nothing: what it returns, and the text for the thread's last error.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) status: Status,
    pub(super) text: Cow<'static, str>,
}

pub(super) type Outcome<T = ()> = Result<T, Refused>;

impl Refused {
    #[cold]
    pub(super) fn new(status: Status, text: impl Into<Cow<'static, str>>) -> Self {
        Self { status, text: text.into() }
    }

    #[cold]
    pub(super) fn argument(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Status::InvalidArgument, text)
    }
}

impl From<Error> for Refused {
    #[cold]
    fn from(error: Error) -> Self {
        Self::new(status_of(&error), error.to_string())
    }
}

fn status_of(error: &Error) -> Status {
    match error {
        Error::Device(DeviceError::NotFound { .. } | DeviceError::KindUnavailable { .. }) => {
            Status::NotFound
        }
        Error::Driver(DriverError::DeviceLost { .. }) => Status::DeviceLost,
        Error::Driver(DriverError::Unsupported { .. }) => Status::Unsupported,
        Error::Driver(DriverError::Refused { .. }) | Error::Integration(_) => Status::DriverRefused,
        Error::Config(_) => Status::InvalidSetting,
        Error::Runtime(error) => of_runtime(error),
        Error::Stream(error) => of_stream(error),
        Error::Event(EventError::NotComplete) => Status::NotReady,
        Error::Event(EventError::WithoutTiming | EventError::NotRecorded)
        | Error::Memory(MemoryError::Released { .. } | MemoryError::Exported { .. }) => {
            Status::InvalidState
        }
        Error::Memory(MemoryError::OutOfMemory { .. }) => Status::OutOfMemory,
        Error::Program(ProgramError::BuildFailed { .. }) => Status::BuildFailed,
        Error::Program(ProgramError::NoSuchKernel { .. }) => Status::NotFound,
        _ => Status::InvalidArgument,
    }
}

fn of_runtime(error: &RuntimeError) -> Status {
    match error {
        RuntimeError::BadFork => Status::Forked,
        RuntimeError::ShutDown => Status::ShutDown,
        RuntimeError::Interrupted | RuntimeError::TimedOut { .. } => Status::TimedOut,
        _ => Status::InvalidArgument,
    }
}

fn of_stream(error: &StreamError) -> Status {
    let failures = match error {
        StreamError::NotFound { .. } => return Status::NotFound,
        StreamError::WaitInsideTask { .. } => return Status::WouldDeadlock,
        StreamError::Failed(failure) => std::slice::from_ref(failure),
        StreamError::SeveralFailed { errors, .. } => errors,
        _ => return Status::InvalidArgument,
    };
    // A loss is for good, so it is told whatever failed besides.
    let is_lost = |cause: &accelrt::FailureCause| {
        matches!(
            cause,
            accelrt::FailureCause::Backend(Error::Driver(DriverError::DeviceLost { .. }))
        )
    };
    if failures.iter().any(|failure| is_lost(failure.root().failure())) {
        Status::DeviceLost
    } else {
        Status::StreamFailed
    }
}
