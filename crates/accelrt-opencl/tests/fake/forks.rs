//! Forks: a vendor whose threads began with a question makes a child raise, not hang.
//!
//! Each test runs a program, which forks: the test binary itself has other tests' threads.

use accelrt::{DeviceKind, Error, RuntimeError};

use crate::child::{End, in_child};
use crate::fake::Fake;
use crate::process;
use crate::support::{bytes_of, runtime, xpu};

const AT_ONCE: End = End { runs_handlers: false };

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
    in_child(AT_ONCE, || {
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
    in_child(AT_ONCE, || {
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
    let stream = runtime.stream(xpu(0)).unwrap();
    let buffer = runtime.zeros(100, xpu(0)).unwrap();
    in_child(AT_ONCE, || {
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
