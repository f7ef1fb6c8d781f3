//! The last error of each thread, and the guard around every function: no panic leaves one.
#![expect(unsafe_code, reason = "exports functions by name")]

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};

use accelrt::FailureCause;
use accelrt::internal::{catch_panic, panic_cause};

use crate::status::{Outcome, Refused, Status};

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
