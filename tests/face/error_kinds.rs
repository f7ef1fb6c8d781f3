//! Kinds of errors, of errors that calls really return.

use std::time::Duration;

use accelrt::{Config, Device, DeviceKind, ErrorKind, Result, Runtime};
use accelrt_testing::null::{NullBackend, NullConfig};

use crate::gate::Gate;
use crate::support::{CPU, finishes, streams, workers};

fn kind<T: std::fmt::Debug>(outcome: Result<T>) -> ErrorKind {
    outcome.unwrap_err().kind()
}

#[test]
fn waits_that_end_early_and_work_that_did_not_run_have_kinds_of_their_own() {
    finishes(|| {
        let runtime = workers(1);
        let [stream, waiting] = streams(&runtime);
        let gate = Gate::shut(&stream);
        stream.enqueue(|| ()).unwrap();
        assert_eq!(kind(stream.synchronize_timeout(Duration::ZERO)), ErrorKind::TimedOut);
        assert_eq!(kind(stream.synchronize_unless(&mut || true)), ErrorKind::Interrupted);
        stream.cancel().unwrap();
        waiting.wait_stream(&stream).unwrap();
        gate.open();
        assert_eq!(kind(waiting.synchronize()), ErrorKind::Cancelled, "an inherited one too");
        assert_eq!(kind(stream.synchronize()), ErrorKind::Cancelled);
        let gate = Gate::shut(&stream);
        waiting.wait_stream(&stream).unwrap();
        for stream in [&stream, &waiting] {
            stream.enqueue(|| ()).unwrap();
            stream.cancel().unwrap();
        }
        gate.open();
        assert_eq!(kind(runtime.synchronize(CPU)), ErrorKind::Cancelled, "of both");
        stream.enqueue(|| Err::<(), _>("an error")).unwrap();
        waiting.enqueue(|| panic!("a panic")).unwrap();
        assert_eq!(kind(runtime.synchronize(CPU)), ErrorKind::TaskFailed, "of both");
        runtime.shutdown();
        assert_eq!(kind(stream.enqueue(|| ())), ErrorKind::ShutDown);
    });
}

#[test]
fn what_is_not_there_cannot_be_done_or_is_a_mistake_is_told_apart() {
    let null = NullBackend::new(NullConfig { capacity_bytes: 64 << 20, ..NullConfig::default() });
    let runtime = Runtime::with_backends(Config::default(), [null as _]).unwrap();
    let device = Device::new(DeviceKind::NULL, 0).unwrap();
    let stream = runtime.stream(device).unwrap();
    let buffer = runtime.empty(8, device).unwrap();
    buffer.release().unwrap();
    let outcomes: [(Result<()>, ErrorKind); 6] = [
        (runtime.empty(1 << 30, device).map(drop), ErrorKind::OutOfMemory),
        (runtime.stream(Device::cpu(7)).map(drop), ErrorKind::NotFound),
        (runtime.stream_by_id(CPU, 99).map(drop), ErrorKind::NotFound),
        (stream.enqueue(|| ()), ErrorKind::Unsupported),
        (buffer.address().map(drop), ErrorKind::Invalid),
        ("cuda:x".parse::<Device>().map(drop), ErrorKind::Invalid),
    ];
    for (outcome, expected) in outcomes {
        assert_eq!(kind(outcome), expected);
    }
}
