//! The runtime's own verbose lines. They belong to the process, so each test is one of its own.

use std::io::{Write, stdout};
use std::sync::mpsc;
use std::time::Duration;

use accelrt::backend::registry::register_backend;
use accelrt::{Device, DeviceKind, Runtime};
use accelrt_mkl::{VerboseLibrary, VerboseScope};
use accelrt_testing::null::{NullBackend, NullConfig};

#[path = "../../../tests/common/process.rs"]
mod process;
#[path = "../../../tests/common/watchdog.rs"]
mod watchdog;

const HANG: Duration = Duration::from_secs(20);

#[test]
fn a_scope_of_level_0_creates_no_runtime() {
    let output = process::run("program", "silence", &[]);
    assert_eq!(process::stderr_of_success(&output), "");
}

#[test]
fn a_thread_that_holds_the_standard_output_may_wait_for_a_task_with_a_line() {
    let output = process::run("program", "locked output", &[]);
    assert_eq!(process::stderr_of_success(&output), "");
    let stdout = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = stdout.lines().filter(|line| line.contains("accelrt_")).collect();
    assert!(lines.iter().all(|line| line.starts_with("accelrt_verbose,cpu,0,")), "{lines:?}");
    assert_eq!(lines.len(), 2, "{lines:?}");
}

#[test]
#[ignore = "run by others, in a process of its own"]
fn program() {
    let act = match process::program().as_deref() {
        Some("silence") => register_inside_a_scope_of_level_0,
        Some("locked output") => wait_with_the_output_locked,
        other => panic!("{other:?} is no program"),
    };
    watchdog::finishes_within(HANG, act);
}

fn register_inside_a_scope_of_level_0() {
    let silent = VerboseScope::enter(VerboseLibrary::Accelrt, 0, &[]).unwrap();
    let kind = DeviceKind::register("observed", 64).unwrap();
    let make = move || NullBackend::new(NullConfig { kind, ..NullConfig::default() });
    register_backend(kind, move |_config| Ok(make())).unwrap();
    drop(silent);
    // Neither end of the scope has created the runtime, which would lack the backend.
    Runtime::global().unwrap().stream(Device::new(kind, 0).unwrap()).unwrap();
}

fn wait_with_the_output_locked() {
    let stream = Runtime::global().unwrap().stream(Device::cpu(0)).unwrap();
    let _lines = VerboseScope::enter(VerboseLibrary::Accelrt, 1, &[]).unwrap();
    let mut output = stdout().lock();
    writeln!(output).unwrap(); // libtest leaves its line open
    let (tell, told) = mpsc::channel();
    for _ in 0..2 {
        let tell = tell.clone();
        stream.enqueue(move || tell.send(()).unwrap()).unwrap();
        told.recv().unwrap(); // a worker runs the task, and prints its line
    }
    stream.synchronize().unwrap();
    writeln!(output, "done").unwrap();
}
