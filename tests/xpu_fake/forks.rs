//! Forks: a vendor whose threads began with a question makes a child raise, not hang.
//!
//! Each test runs a program, which forks: the test binary itself has other tests' threads.
#![expect(unsafe_code, reason = "fork, waitpid and alarm are the C library's")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use accelrt::{DeviceKind, Error, RuntimeError};

use crate::fake::Fake;
use crate::process;
use crate::support::{bytes_of, runtime, xpu};

/// Seconds after which a child that hangs is killed. Only a hang lasts as long.
const HANG_S: u32 = 10;

/// Forks; the child runs `child` and ends at once; waits for it. Panics when it did not end well.
fn in_child(child: impl FnOnce()) {
    // SAFETY: the child runs on in this thread alone. It allocates and exits, which the C library
    // allows after a fork.
    let process = unsafe { libc::fork() };
    assert!(process >= 0, "the system forks");
    if process == 0 {
        // SAFETY: sets a timer whose signal kills this child.
        unsafe { libc::alarm(HANG_S) };
        let outcome = catch_unwind(AssertUnwindSafe(child));
        // SAFETY: ends the process without what the parent's threads would have to do.
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    let mut status = 0;
    // SAFETY: the child is ours and was not waited for; the pointer is to a number of this frame.
    let waited = unsafe { libc::waitpid(process, &raw mut status, 0) };
    assert_eq!(waited, process);
    assert!(!libc::WIFSIGNALED(status), "killed by signal {}: a hang", libc::WTERMSIG(status));
    assert_eq!(libc::WEXITSTATUS(status), 0, "the child failed");
}

#[test]
#[ignore = "a program that the other tests start"]
fn program() {
    match process::program().as_deref() {
        Some("threads") => threads(),
        Some("no threads") => no_threads(),
        Some("used") => used(),
        Some(other) => panic!("no program {other}"),
        None => {}
    }
}

/// Runs a program, which must end well.
fn assert_succeeds(name: &str) {
    process::stderr_of_success(&process::run("forks::program", name, &[]));
}

#[test]
fn a_child_behind_a_vendor_with_threads_may_ask_and_is_refused_the_rest() {
    assert_succeeds("threads");
}

fn threads() {
    let fake = Fake::new("threads_at_probe=1");
    let runtime = runtime(&fake);
    assert_eq!(runtime.device_count(DeviceKind::XPU).unwrap(), 1);
    assert!(fake.live("threads") > 0, "the vendor has a thread");
    in_child(|| {
        assert_eq!(runtime.device_count(DeviceKind::XPU).unwrap(), 1);
        runtime.properties(xpu(0)).unwrap();
        runtime.memory_info(xpu(0)).unwrap();
        for refused in [
            runtime.stream(xpu(0)).map(drop),
            runtime.empty(1, xpu(0)).map(drop),
            runtime.empty_pinned(1).map(drop),
            runtime.empty_shared(1, xpu(0)).map(drop),
        ] {
            let error = refused.unwrap_err();
            assert!(matches!(error, Error::Runtime(RuntimeError::BadFork)), "{error}");
        }
    });
    runtime.stream(xpu(0)).unwrap().synchronize().unwrap();
}

#[test]
fn a_child_behind_a_vendor_without_threads_uses_the_device() {
    assert_succeeds("no threads");
}

fn no_threads() {
    let fake = Fake::new("");
    let runtime = runtime(&fake);
    assert_eq!(runtime.device_count(DeviceKind::XPU).unwrap(), 1);
    in_child(|| {
        let buffer = runtime.zeros(100, xpu(0)).unwrap();
        assert_eq!(bytes_of(&buffer), [0; 100]);
    });
    runtime.stream(xpu(0)).unwrap().synchronize().unwrap();
}

#[test]
fn a_child_of_a_process_that_used_the_device_is_refused_and_drops_nothing() {
    assert_succeeds("used");
}

fn used() {
    let fake = Fake::new("");
    let runtime = runtime(&fake);
    let stream = runtime.dedicated_stream(xpu(0), 0).unwrap();
    let buffer = runtime.zeros(100, xpu(0)).unwrap();
    in_child(|| {
        assert!(matches!(stream.record_event(), Err(Error::Runtime(RuntimeError::BadFork))));
        assert!(matches!(runtime.empty(1, xpu(0)), Err(Error::Runtime(RuntimeError::BadFork))));
        let released = ["clReleaseCommandQueue", "clMemFreeINTEL", "clReleaseContext"];
        let before = released.map(|call| fake.live(&format!("calls:{call}")));
        drop((buffer.slice(..10), stream.clone(), runtime.clone()));
        assert_eq!(released.map(|call| fake.live(&format!("calls:{call}"))), before);
    });
    assert_eq!(bytes_of(&buffer), [0; 100]);
    stream.synchronize().unwrap();
}
