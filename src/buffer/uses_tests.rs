//! Uses of one buffer by many streams.
//!
//! Goal: what a use costs does not grow with the streams that are known, and nothing is kept of
//! those that are gone. Method: streams behind a gate use one buffer; steps are counted, and
//! streams that are alive.

use std::ops::Range;
use std::sync::mpsc;

use crate::buffer::Buffer;
use crate::buffer::uses::{Task, Touch};
use crate::config::Config;
use crate::device::Device;
use crate::event::Event;
use crate::runtime::Runtime;
use crate::steps::steps_of;
use crate::stream::{Completion, Stream};

fn runtime() -> Runtime {
    Runtime::new(Config::default()).unwrap()
}

fn stream(runtime: &Runtime) -> Stream {
    runtime.dedicated_stream(Device::cpu(0), 0).unwrap()
}

/// What a stream that waits for the event waits for.
fn gate(runtime: &Runtime) -> (Event, Completion) {
    let (sender, begun) = mpsc::channel();
    let (stream, event) = (stream(runtime), Event::new());
    stream.enqueue_deferred(move |completion| sender.send(completion).unwrap()).unwrap();
    stream.record(&event).unwrap();
    (event, begun.recv().unwrap())
}

fn buffer(runtime: &Runtime) -> Buffer {
    runtime.empty(64, Device::cpu(0)).unwrap()
}

fn use_count(buffer: &Buffer) -> usize {
    buffer.allocation().uses().len()
}

#[test]
fn a_use_that_is_known_is_of_its_bytes_and_of_its_kind() {
    let runtime = runtime();
    let stream = stream(&runtime);
    let part = buffer(&runtime).slice(16..32).unwrap();
    let conflict_of = |said: Option<bool>, bytes: Range<usize>, writes: bool| {
        let fresh = buffer(&runtime);
        let view = fresh.slice(part.bytes()).unwrap();
        fresh.access().unwrap().record_use(stream.core(), Task::marker(5), &view, said);
        let uses = fresh.allocation().uses();
        uses[0].last.conflict(&Touch { bytes, writes }).ticket
    };
    let expected = [
        // What is marked as read conflicts with writes of the same bytes alone.
        (Some(false), [5, 0, 0, 0]),
        (Some(true), [5, 5, 0, 0]),
        (None, [5, 5, 5, 5]),
    ];
    for (said, tickets) in expected {
        let touches = [(20..24, true), (20..24, false), (32..64, true), (0..16, false)];
        let found = touches.map(|(bytes, writes)| conflict_of(said, bytes, writes));
        assert_eq!(found, tickets, "{said:?}");
    }
}

#[test]
fn a_use_by_one_more_stream_takes_as_many_steps_among_many_as_among_ten() {
    let steps_among = |count: usize| {
        let runtime = runtime();
        let (event, closed) = gate(&runtime);
        let shared = buffer(&runtime);
        let streams: Vec<Stream> = (0..count).map(|_| stream(&runtime)).collect();
        for user in &streams {
            user.wait_event(&event).unwrap();
            shared.record_use(user).unwrap();
        }
        let more = stream(&runtime);
        more.wait_event(&event).unwrap();
        let ((), first) = steps_of(|| shared.record_use(&more).unwrap());
        let ((), again) = steps_of(|| shared.record_use(&streams[count / 2]).unwrap());
        assert_eq!(use_count(&shared), count + 1, "all of them may still use it");
        closed.finish(Ok(()));
        (first, again)
    };
    let (few, many) = (steps_among(10), steps_among(2000));
    assert!(many.0 <= few.0 && many.1 <= few.1, "{many:?} against {few:?}");
}

#[test]
fn a_buffer_forgets_streams_that_are_gone_also_those_that_failed() {
    let runtime = runtime();
    let shared = buffer(&runtime);
    for round in 0..300 {
        let user = stream(&runtime);
        if round % 2 == 0 {
            user.enqueue(|| Err::<(), _>("it fails")).unwrap();
        }
        shared.record_use(&user).unwrap();
        assert_eq!(user.synchronize().is_err(), round % 2 == 0, "the error ends here");
        assert!(use_count(&shared) <= 2, "{} uses of a buffer that is idle", use_count(&shared));
    }
}

#[test]
fn uses_that_wait_are_kept_and_forgotten_in_turns_when_they_are_over() {
    let runtime = runtime();
    let (event, closed) = gate(&runtime);
    let shared = buffer(&runtime);
    for _ in 0..500 {
        let user = stream(&runtime);
        user.wait_event(&event).unwrap();
        shared.record_use(&user).unwrap();
    }
    assert_eq!(use_count(&shared), 500);
    closed.finish(Ok(()));
    runtime.synchronize(Device::cpu(0)).unwrap();
    for _ in 0..100 {
        shared.record_use(&stream(&runtime)).unwrap();
    }
    assert!(use_count(&shared) <= 4, "{} uses", use_count(&shared));
}
