//! The status that every function returns, and the last error of each thread.
#![expect(unsafe_code, reason = "exports functions by name")]

use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};

use accelrt::internal::{catch_panic, panic_cause};
use accelrt::{
    DeviceError, DriverError, Error, EventError, FailureCause, MemoryError, ProgramError,
    RuntimeError, StreamError,
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
    let is_lost = |cause: &FailureCause| {
        matches!(cause, FailureCause::Backend(Error::Driver(DriverError::DeviceLost { .. })))
    };
    if failures.iter().any(|failure| is_lost(failure.root().failure())) {
        Status::DeviceLost
    } else {
        Status::StreamFailed
    }
}

// The last error of each thread, and the guard around every function: no panic leaves one.

struct LastError {
    status: Status,
    text: CString,
}

thread_local! {
    static LAST: RefCell<LastError> =
        RefCell::new(LastError { status: Status::Ok, text: CString::default() });
}

/// Calls the body of a function. What it refuses, and a panic, become the thread's last error.
#[inline(always)]
pub(super) fn guard(body: impl FnOnce() -> Outcome) -> Status {
    match catch_panic(body) {
        Ok(Ok(())) => Status::Ok,
        Ok(Err(refused)) => refuse(refused),
        Err(panic) => refuse(of_panic(panic)),
    }
}

#[cold]
#[inline(never)]
fn refuse(Refused { status, text }: Refused) -> Status {
    // A text has no zero inside, but what a program gave may be quoted in it.
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    // Without an effect on a thread whose variables were destroyed.
    let _ = LAST.try_with(|last| last.replace(LastError { status, text }));
    status
}

#[cold]
fn of_panic(panic: Box<dyn std::any::Any + Send>) -> Refused {
    let text = match panic_cause(panic) {
        FailureCause::Panicked(text) => text,
        other => other.to_string(),
    };
    Refused::new(Status::Internal, format!("accelrt panicked, which is a defect of it: {text}"))
}

/// The status of the last function that failed on this thread; `ACCELRT_STATUS_OK` before the first
/// and behind `accelrt_error_clear`. A function that succeeds leaves it as it is.
///
/// Never blocks, never fails.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_error_status() -> Status {
    LAST.try_with(|last| last.borrow().status).unwrap_or(Status::Ok)
}

/// The text of the last error on this thread, in UTF-8; empty where there is none. The pointer is
/// valid until the next function that fails on this thread, a call of `accelrt_error_clear`, or the
/// end of the thread.
///
/// Never blocks, never fails.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_error_text() -> *const c_char {
    const NOTHING: &CStr = c"";
    LAST.try_with(|last| last.borrow().text.as_ptr()).unwrap_or(NOTHING.as_ptr())
}

/// Forgets the last error of this thread.
///
/// Never blocks, never fails.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_error_clear() {
    refuse(Refused::new(Status::Ok, ""));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_status_with_its_text() {
        assert_eq!(guard(|| panic!("on purpose")), Status::Internal);
        assert_eq!(accelrt_error_status(), Status::Internal);
        let told = || LAST.with(|last| last.borrow().text.to_string_lossy().into_owned());
        assert!(told().ends_with("on purpose"), "{}", told());
        assert_eq!(guard(|| Ok(())), Status::Ok);
        assert!(told().ends_with("on purpose"), "a success leaves it");
        refuse(Refused::argument("with a \0 inside"));
        assert_eq!(told(), "with a   inside");
        accelrt_error_clear();
        assert_eq!((accelrt_error_status(), told().as_str()), (Status::Ok, ""));
    }
}
