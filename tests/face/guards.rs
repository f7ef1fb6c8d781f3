//! Guards that may start without a device or a stream.

use accelrt::{
    Config, Device, Error, OptionalDeviceGuard, OptionalStreamGuard, Runtime, RuntimeError,
};

use crate::support::CPU;

fn devices(count: usize) -> Runtime {
    Runtime::new(Config::builder().cpu_devices(count).build().unwrap()).unwrap()
}

fn current(runtime: &Runtime) -> usize {
    runtime.current_device().unwrap().index()
}

#[test]
fn an_optional_device_guard_restores_the_first_device_it_replaced() {
    let runtime = devices(3);
    let mut guard = OptionalDeviceGuard::new(&runtime, None).unwrap();
    assert_eq!(current(&runtime), 0);
    guard.set(&runtime, Device::cpu(1)).unwrap();
    guard.set(&runtime, Device::cpu(2)).unwrap();
    assert_eq!(current(&runtime), 2);
    guard.reset();
    assert_eq!(current(&runtime), 0);
    drop(OptionalDeviceGuard::new(&runtime, Some(Device::cpu(1))).unwrap());
    assert_eq!(current(&runtime), 0);
}

#[test]
fn an_optional_stream_guard_restores_before_it_takes_another_stream() {
    let runtime = devices(2);
    let (here, there) = (runtime.stream(CPU).unwrap(), runtime.stream(Device::cpu(1)).unwrap());
    let mut guard = OptionalStreamGuard::new(&runtime, None).unwrap();
    assert_eq!(runtime.current_stream().unwrap().id(), 0);
    guard.set(&runtime, &there).unwrap();
    assert_eq!(runtime.current_stream().unwrap(), there);
    guard.set(&runtime, &here).unwrap();
    assert_eq!(runtime.current_stream().unwrap(), here);
    assert_eq!(runtime.current_stream_of(Device::cpu(1)).unwrap().id(), 0);
    guard.reset();
    assert_eq!((current(&runtime), runtime.current_stream().unwrap().id()), (0, 0));
}

#[test]
fn an_optional_guard_takes_no_stream_of_another_runtime() {
    let (ours, theirs) = (devices(1), devices(1));
    let stream = theirs.stream(CPU).unwrap();
    let mut guard = OptionalStreamGuard::default();
    for refused in
        [OptionalStreamGuard::new(&ours, Some(&stream)).map(drop), guard.set(&ours, &stream)]
    {
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::Runtime(RuntimeError::OtherRuntime { .. })), "{error}");
        assert_eq!(ours.current_stream().unwrap().id(), 0);
    }
}
