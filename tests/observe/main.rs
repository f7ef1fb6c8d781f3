//! The runtime's own verbose lines. They belong to the process, so each test is one of its own.
#![cfg(not(loom))] // models lack verbose scopes

use std::time::Duration;

use accelrt::backend::null::{NullBackend, NullConfig};
use accelrt::backend::registry::register_backend;
use accelrt::{Device, DeviceKind, Runtime, VerboseLibrary, VerboseScope};

#[path = "../common/process.rs"]
mod process;
#[path = "../common/watchdog.rs"]
mod watchdog;

const HANG: Duration = Duration::from_secs(20);

#[test]
fn a_scope_of_level_0_creates_no_runtime() {
    let output = process::run("program", "silence", &[]);
    assert_eq!(process::stderr_of_success(&output), "");
}

#[test]
#[ignore = "run by others, in a process of its own"]
fn program() {
    let act = match process::program().as_deref() {
        Some("silence") => register_inside_a_scope_of_level_0,
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
