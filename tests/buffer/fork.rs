//! Forks: in a child, buffers of the parent are dropped without a trace and refuse everything else.
//!
//! The test runs this binary again as a program, which forks: the test binary has too many threads.
#![expect(unsafe_code, reason = "fork, waitpid and alarm are the C library's")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

use accelrt::backend::fault::Method;
use accelrt::{Error, RuntimeError};

use crate::support::{CPU, Gate, Machine};

const PROGRAM: &str = "ACCELRT_TEST_PROGRAM";

/// Seconds after which a child that hangs is killed. Only a hang lasts as long.
const HANG_S: u32 = 10;

#[test]
fn a_child_frees_nothing_and_refuses_every_use() {
    let binary = std::env::current_exe().unwrap();
    let arguments = ["fork::program", "--exact", "--ignored", "--nocapture"];
    let output = Command::new(binary).args(arguments).env(PROGRAM, "fork").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {said}", output.status);
}

#[test]
#[ignore = "a program that the other test starts"]
fn program() {
    if std::env::var_os(PROGRAM).is_none() {
        return;
    }
    let machine = Machine::cpu(1);
    let (stream, buffer) = (machine.stream(), machine.runtime.zeros(100, CPU).unwrap());
    let (view, export) = (buffer.slice(5..).unwrap(), buffer.export().unwrap());
    let gate = Gate::shut(&stream);
    let transfer = buffer.fill(1, &stream).unwrap();
    let released = machine.backend.calls(Method::Release);
    in_child(|| {
        let refusals = [
            buffer.fill(1, &stream).map(drop),
            buffer.copy_from_slice(&[0; 100], &stream),
            buffer.record_use(&stream),
            buffer.wait_for_host(),
            buffer.release(),
            buffer.export().map(drop),
            transfer.wait(),
            machine.runtime.empty(1, CPU).map(drop),
        ];
        for (place, refused) in refusals.into_iter().enumerate() {
            assert!(
                matches!(refused, Err(Error::Runtime(RuntimeError::BadFork))),
                "{place}: {refused:?}"
            );
        }
        assert!(buffer.address().unwrap() != 0 && !buffer.is_released());
        drop((buffer, view, export, transfer));
        assert_eq!(machine.backend.calls(Method::Release), released);
    });
    gate.open();
}

/// Forks; the child runs `child` and exits; waits for it. Panics when it did not end well.
fn in_child(child: impl FnOnce()) {
    // SAFETY: the child runs on in this thread alone. It allocates and exits, which the C library
    // allows after a fork; of our own state it uses what this test is about.
    let process = unsafe { libc::fork() };
    assert!(process >= 0, "the system forks");
    if process == 0 {
        // SAFETY: sets a timer whose signal kills this child.
        unsafe { libc::alarm(HANG_S) };
        let outcome = catch_unwind(AssertUnwindSafe(child));
        // SAFETY: ends the child without running handlers of the parent.
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    let mut status = 0;
    // SAFETY: the child is ours and was not waited for; the pointer is to a number of this frame.
    let waited = unsafe { libc::waitpid(process, &raw mut status, 0) };
    assert_eq!(waited, process);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "status {status:#x}");
}
