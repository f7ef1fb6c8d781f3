//! Buffers with a home stream that the caller names.

use accelrt::{Config, Device, Error, Runtime, RuntimeError};

use crate::gate::Gate;
use crate::support::{CPU, finishes, streams, workers};

#[test]
fn a_buffer_is_at_home_on_the_named_stream_and_nothing_becomes_current() {
    let runtime = Runtime::new(Config::builder().cpu_devices(2).build().unwrap()).unwrap();
    let home = runtime.stream(Device::cpu(1)).unwrap();
    let buffers = [runtime.empty_on(100, &home).unwrap(), runtime.zeros_on(100, &home).unwrap()];
    for buffer in &buffers {
        assert_eq!((buffer.stream(), buffer.device()), (home.clone(), Device::cpu(1)));
    }
    assert_eq!(buffers[1].read_to_vec().unwrap(), [0; 100]);
    assert_eq!(runtime.current_stream().unwrap(), runtime.default_stream(CPU).unwrap());
}

#[test]
fn zeros_stand_behind_the_work_of_their_home() {
    finishes(|| {
        let runtime = workers(2);
        let [home] = streams(&runtime);
        let gate = Gate::shut(&home);
        let buffer = runtime.zeros_on(8, &home).unwrap();
        assert!(!home.is_done());
        gate.open();
        assert_eq!(buffer.read_to_vec().unwrap(), [0; 8]);
    });
}

#[test]
fn a_stream_of_another_runtime_is_no_home() {
    let (runtime, other) = (workers(1), workers(1));
    let [home] = streams(&other);
    let refused = runtime.empty_on(8, &home).unwrap_err();
    assert!(matches!(refused, Error::Runtime(RuntimeError::OtherRuntime { .. })), "{refused}");
}
