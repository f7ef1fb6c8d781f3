//! Handles of two runtimes, which share nothing: refused wherever they meet, and nothing changes.

use accelrt::{Config, Error, Event, Result, Runtime, RuntimeError, StreamGuard};

use crate::scheduled::scheduled;
use crate::support::CPU;

/// Asserts that a call was refused because of runtimes, with their numbers.
#[track_caller]
fn refused<T>(outcome: Result<T>, wanted: &str, theirs: &Runtime, ours: &Runtime) {
    match outcome.map(drop) {
        Err(Error::Runtime(RuntimeError::OtherRuntime { what, given, own })) => {
            assert_eq!((what, given, own), (wanted, theirs.id(), ours.id()));
        }
        other => panic!("{wanted} was not refused: {other:?}"),
    }
}

fn two() -> [Runtime; 2] {
    [(); 2].map(|()| scheduled(Runtime::new(Config::default()).unwrap()))
}

#[test]
fn a_stream_of_another_runtime_becomes_current_by_no_call() {
    let [ours, theirs] = two();
    let stream = theirs.stream(CPU).unwrap();
    refused(ours.set_stream(&stream), "a stream", &theirs, &ours);
    refused(ours.exchange_stream(&stream), "a stream", &theirs, &ours);
    refused(StreamGuard::new(&ours, &stream), "a stream", &theirs, &ours);
    let current = ours.current_stream().unwrap();
    assert_eq!(current, ours.default_stream(CPU).unwrap());
    assert_eq!(ours.empty(64, CPU).unwrap().stream(), current);
}

#[test]
fn a_buffer_is_used_on_streams_of_its_own_runtime_alone() {
    let [ours, theirs] = two();
    let [own, given] = [&ours, &theirs].map(|runtime| runtime.zeros(64, CPU).unwrap());
    let stream = ours.stream(CPU).unwrap();
    refused(given.fill(1, &stream), "a buffer", &theirs, &ours);
    refused(given.copy_from(&own, &stream), "a buffer", &theirs, &ours);
    refused(own.copy_from(&given, &stream), "a buffer", &theirs, &ours);
    refused(given.copy_from_host(vec![0; 64], &stream), "a buffer", &theirs, &ours);
    refused(given.copy_to_host(vec![0; 64], &stream), "a buffer", &theirs, &ours);
    refused(given.copy_from_slice(&[0; 64], &stream), "a buffer", &theirs, &ours);
    refused(given.copy_to_slice(&mut [0; 64], &stream), "a buffer", &theirs, &ours);
    refused(given.record_use(&stream), "a buffer", &theirs, &ours);
    own.fill(2, &stream).unwrap();
    assert_eq!((own.read_to_vec().unwrap()[0], given.read_to_vec().unwrap()[0]), (2, 0));
}

#[test]
fn an_event_stays_in_the_runtime_that_recorded_it_first() {
    let [ours, theirs] = two();
    let [own, given] = [&ours, &theirs].map(|runtime| runtime.stream(CPU).unwrap());
    let [event, other] = [Event::timed(), Event::timed()];
    given.record(&event).unwrap();
    refused(own.record(&event), "an event", &theirs, &ours);
    assert_eq!(event.version(), 1);
    own.record(&other).unwrap();
    event.synchronize().unwrap();
    other.synchronize().unwrap();
    refused(other.elapsed_ms(&event), "an event", &theirs, &ours);
}
