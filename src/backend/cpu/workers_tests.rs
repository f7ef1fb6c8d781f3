//! Tests of workers that cannot be started: an error of the call, and the next call tries again.

use std::sync::Arc;
use std::sync::mpsc::channel;

use crate::backend::contract::Backend;
use crate::backend::cpu::{CpuBackend, faults};
use crate::backend::fault::{Fault, FaultBackend, FaultError, Method};
use crate::config::Config;
use crate::device::Device;
use crate::error::Error;
use crate::event::Event;
use crate::runtime::Runtime;
use crate::stream::Stream;

/// A runtime with two devices of one worker each, none of which is there yet.
fn runtime() -> Runtime {
    Runtime::new(Config { cpu_devices: 2, cpu_threads: Some(1), ..Config::default() }).unwrap()
}

fn stream(runtime: &Runtime, device_index: u8) -> Stream {
    runtime.dedicated_stream(Device::cpu(device_index), 0).unwrap()
}

/// Has the next start of a worker by this thread refused.
fn refuse_the_next_worker() {
    faults::refuse_after(0, || ());
}

fn assert_is_refusal(outcome: &Result<(), Error>) {
    let code = i64::from(libc::EAGAIN);
    assert!(matches!(outcome, Err(Error::Driver { code: given, .. }) if *given == code));
    assert!(!faults::clear(), "a worker was asked for");
}

#[test]
fn a_worker_that_cannot_be_started_is_an_error_of_the_call_and_the_next_one_tries_again() {
    let runtime = runtime();
    let stream = stream(&runtime, 0);
    let (tell, told) = channel();
    for _ in 0..3 {
        refuse_the_next_worker();
        let (tell, held) = (tell.clone(), Arc::new(()));
        let task = Arc::clone(&held);
        assert_is_refusal(&stream.enqueue(move || tell.send(Arc::strong_count(&task)).unwrap()));
        assert_eq!(Arc::strong_count(&held), 1, "the task was dropped");
    }
    assert!(stream.query() && stream.is_quiet(), "nothing is queued, and nothing failed");
    stream.enqueue(move || tell.send(7).unwrap()).unwrap();
    assert_eq!(told.iter().collect::<Vec<_>>(), [7], "what was refused did not run");
    stream.synchronize().unwrap();
}

#[test]
fn records_and_synchronises_need_no_worker() {
    let runtime = runtime();
    let stream = stream(&runtime, 0);
    refuse_the_next_worker();
    let event = stream.record_event().unwrap();
    assert!(!faults::clear(), "a worker was asked for");
    assert!(event.query());
    stream.synchronize().unwrap();
}

#[test]
fn a_record_that_panics_where_no_worker_can_be_started_fails_its_stream_and_hangs_no_thread() {
    let config = Config { cpu_threads: Some(1), ..Config::default() };
    let backend = FaultBackend::new(CpuBackend::new(&config).unwrap());
    let backends = [Arc::<FaultBackend>::clone(&backend) as Arc<dyn Backend>];
    let runtime = Runtime::with_backends(config, backends).unwrap();
    let (stream, event) = (stream(&runtime, 0), Event::timed());
    refuse_the_next_worker();
    backend.plan(Fault::nth(Method::Mark, 1, FaultError::Panic));
    stream.record(&event).unwrap();
    assert!(!faults::clear(), "a worker was asked for");
    assert_eq!(backend.failures(Method::Mark), 1);
    assert!(event.query());
    assert!(matches!(event.synchronize(), Err(Error::Stream(_))));
    assert!(matches!(stream.synchronize(), Err(Error::Stream(_))));
    stream.synchronize().unwrap();
}

#[test]
fn a_wait_for_pending_work_is_refused_and_leaves_the_order_as_it_was() {
    let runtime = runtime();
    let [source, waiting] = [0, 1].map(|index| stream(&runtime, index));
    let (open, opened) = channel::<()>();
    source.enqueue(move || opened.recv().unwrap_or_default()).unwrap();
    let event = source.record_event().unwrap();
    refuse_the_next_worker();
    assert_is_refusal(&waiting.wait_event(&event));
    assert!(!waiting.is_ordered_after(&event));
    let (tell, told) = channel();
    waiting.enqueue(move || tell.send(()).unwrap()).unwrap();
    told.recv().unwrap(); // in front of the event
    drop(open);
    source.synchronize().unwrap();
}
