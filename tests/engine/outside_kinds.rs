//! Kinds from outside of the crate: registered by name and code, then used as ours are.

use std::sync::Arc;

use accelrt::backend::contract::Backend;
use accelrt::backend::register;
use accelrt::backend::registry::register_backend;
use accelrt::{
    Config, Device, DeviceError, DeviceKind, Error, Event, Runtime, StreamGuard, parse_device,
};
use accelrt_testing::fault::{Fault, FaultBackend, FaultError, Method};
use accelrt_testing::null::{NullBackend, NullConfig};

use crate::process::{self, stderr_of_success};
use crate::support::{CPU, finishes, workers};

/// A kind as a crate outside would bring one.
fn registered(name: &str, type_code: u8) -> DeviceKind {
    DeviceKind::register(name, type_code).unwrap()
}

fn backend(kind: DeviceKind) -> Arc<NullBackend> {
    NullBackend::new(NullConfig { kind, device_count: 2, ..NullConfig::default() })
}

fn runtime_with(kind: DeviceKind) -> Runtime {
    Runtime::with_backends(Config::default(), [backend(kind) as Arc<dyn Backend>]).unwrap()
}

#[test]
fn a_kind_from_outside_has_streams_events_and_buffers_as_ours_have() {
    finishes(|| {
        let kind = registered("outside_use", 80);
        let (runtime, device) = (runtime_with(kind), Device::new(kind, 1).unwrap());
        assert_eq!(runtime.device_count(kind).unwrap(), 2);
        let (stream, other) = (runtime.stream(device).unwrap(), runtime.stream(device).unwrap());
        let source = runtime.zeros(4096, device).unwrap();
        let target = runtime.empty(4096, device).unwrap();
        source.fill(7, &stream).unwrap();
        let filled = stream.record_event().unwrap();
        other.wait_event(&filled).unwrap();
        target.copy_from(&source, &other).unwrap();
        runtime.synchronize(device).unwrap();
        assert!(filled.is_done() && other.is_done());
        assert_eq!([stream.device(), target.device(), filled.device().unwrap()], [device; 3]);
        assert_eq!(runtime.memory_statistics(device).unwrap().allocated_bytes.all.current, 8192);
        let _guard = StreamGuard::new(&runtime, &other).unwrap();
        assert_eq!(runtime.current_stream_of(device).unwrap(), other);
        assert_eq!(runtime.current_device_of(kind).unwrap(), device);
    });
}

#[test]
fn errors_name_a_kind_from_outside() {
    let kind = registered("outside_errors", 81);
    let faults = FaultBackend::new(backend(kind));
    let backends = [Arc::clone(&faults) as Arc<dyn Backend>];
    let runtime = Runtime::with_backends(Config::default(), backends).unwrap();
    let device = Device::new(kind, 0).unwrap();
    let stream = runtime.stream(device).unwrap();
    faults.plan(Fault::nth(Method::StreamCreate, 1, FaultError::Driver));
    let failed = runtime.stream(device).unwrap_err();
    let absent = runtime.stream(Device::new(kind, 2).unwrap()).unwrap_err();
    let host_task = stream.enqueue(|| ()).unwrap_err();
    let elsewhere = runtime.stream(CPU).unwrap();
    let unreached = runtime.empty(64, device).unwrap().fill(0, &elsewhere).unwrap_err();
    let mismatch = elsewhere.record(&Event::for_kind(kind, false)).unwrap_err();
    let far = Device::new(kind, 128).unwrap_err();
    for error in [failed, absent, host_task, unreached, mismatch, far] {
        assert!(error.to_string().contains("outside_errors"), "{error}");
    }
}

#[test]
fn a_device_of_a_kind_from_outside_is_written_and_read_as_ours() {
    let kind = registered("outside_2names", 82);
    for index in [0, 1, 127] {
        let device = Device::new(kind, index).unwrap();
        let text = format!("outside_2names:{index}");
        assert_eq!(device.to_string(), text);
        assert_eq!(text.parse::<Device>().unwrap(), device);
    }
    assert_eq!(parse_device("outside_2names").unwrap(), (kind, None));
    for wrong in ["outside_2names:", "outside_2names:01", "outside_2names:-1"] {
        let refused = wrong.parse::<Device>().unwrap_err();
        assert!(matches!(refused, Error::Device(DeviceError::InvalidString { .. })), "{refused}");
    }
}

#[test]
fn a_name_that_is_not_registered_is_refused_with_those_that_are() {
    registered("outside_listed", 83);
    let refused = "outside_missing:1".parse::<Device>().unwrap_err().to_string();
    for part in ["Expected one of cpu, cuda, xpu, ", "outside_listed", ": outside_missing"] {
        assert!(refused.contains(part), "{part:?} in {refused}");
    }
    assert!(!refused.contains("null"), "{refused}");
}

#[test]
fn a_kind_from_outside_without_a_backend_has_no_devices_and_its_use_is_an_error() {
    let kind = registered("outside_bare", 84);
    let runtime = workers(1);
    assert_eq!(runtime.device_count(kind).unwrap(), 0);
    let refused = runtime.stream(Device::new(kind, 0).unwrap()).unwrap_err().to_string();
    assert_eq!(
        refused,
        "No outside_bare device is available: no outside_bare backend is registered"
    );
}

#[test]
fn a_kind_from_outside_is_the_accelerator_when_it_is_named() {
    let kind = registered("outside_named", 85);
    let gpu = NullBackend::new(NullConfig { kind, is_gpu: true, ..NullConfig::default() });
    let config = |accelerator| Config::builder().accelerator(accelerator).build().unwrap();
    let chosen = |accelerator| {
        let backends = [Arc::clone(&gpu) as Arc<dyn Backend>];
        let runtime = Runtime::with_backends(config(accelerator), backends).unwrap();
        runtime.accelerator().unwrap()
    };
    assert_eq!((chosen(None), chosen(Some(kind))), (DeviceKind::CPU, kind));
}

#[test]
fn a_registered_backend_is_in_the_runtime_of_the_process() {
    for name in ["registered", "registered late"] {
        let variables = [("ACCELRT_ACCELERATOR", "outside_global")];
        let output = process::run("outside_kinds::program", name, &variables);
        assert!(stderr_of_success(&output).is_empty());
    }
}

#[test]
#[ignore = "run by others, in a process of its own"]
fn program() {
    match process::program().as_deref() {
        Some("registered") => backend_before_the_runtime(),
        Some("registered late") => backend_after_the_runtime(),
        other => panic!("{other:?} is no program"),
    }
}

fn backend_before_the_runtime() {
    let unknown = Runtime::global().unwrap_err().to_string();
    assert!(unknown.contains("outside_global"), "{unknown}");
    let kind = register("outside_global", 100, |kind, _config| Ok(backend(kind))).unwrap();
    for taken in [kind, DeviceKind::CPU] {
        let refused = register_backend(taken, move |_config| Ok(backend(taken))).unwrap_err();
        let Error::Device(DeviceError::BackendRegistered { kind }) = refused else {
            panic!("{refused}")
        };
        assert_eq!(kind, taken);
    }
    let runtime = Runtime::global().unwrap();
    assert_eq!(runtime.accelerator().unwrap(), kind);
    assert_eq!(runtime.current_device().unwrap().to_string(), "outside_global:0");
    let stream = runtime.current_stream().unwrap();
    stream.record_event().unwrap().synchronize().unwrap();
}

fn backend_after_the_runtime() {
    let kind = registered("outside_global", 100);
    let (runtime, device) = (Runtime::global().unwrap(), Device::new(kind, 0).unwrap());
    register_backend(kind, move |_config| Ok(backend(kind))).unwrap();
    let refused = runtime.stream(device).unwrap_err().to_string();
    assert!(refused.contains("made before the outside_global backend"), "{refused}");
    // A kind of this crate whose backend another crate brings.
    register_backend(DeviceKind::CUDA, |_config| Ok(backend(DeviceKind::CUDA))).unwrap();
    let refused = runtime.stream("cuda:1".parse().unwrap()).unwrap_err().to_string();
    assert!(refused.contains("made before the cuda backend"), "{refused}");
    let later = Runtime::new(Config::default()).unwrap();
    later.stream(device).unwrap();
    let wrong = registered("outside_wrong", 101);
    register_backend(wrong, move |_config| Ok(backend(kind))).unwrap();
    let refused = Runtime::new(Config::default()).unwrap_err().to_string();
    for part in ["outside_wrong", "outside_global"] {
        assert!(refused.contains(part), "{part:?} in {refused}");
    }
}
