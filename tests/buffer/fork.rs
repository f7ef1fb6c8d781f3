//! Forks: in a child, buffers of the parent are dropped without a trace and refuse everything else.
//!
//! The test runs this binary again as a program, which forks: the test binary has too many threads.

use std::process::Command;

use accelrt::{Error, RuntimeError};
use accelrt_testing::fault::Method;

use crate::child::{End, in_child};
use crate::gate::Gate;
use crate::support::{CPU, Machine};

const PROGRAM: &str = "ACCELRT_TEST_PROGRAM";

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
    in_child(End { runs_handlers: false }, || {
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
