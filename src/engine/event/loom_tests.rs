//! Loom models of an event: its core is freed once, and the event is pending while its records are.

use std::sync::Arc;

use loom::thread;

use crate::backend::contract::Backend;
use crate::base::sync::models::{EVERY, model, model_without_fences};
use crate::base::sync::{LockRank, Mutex};
use crate::engine::event::Event;
use crate::engine::event::core::{EventCore, PendingRecord, Shared};
use crate::engine::event::future::WhenDone;
use crate::engine::stream::Stream;
use crate::engine::stream::enqueue::Always;
use crate::engine::stream::internal::EmptyTask;
use crate::engine::stream::loom_device::{HostDevice, stream};
use crate::null::{CompletionMode, NullBackend, NullConfig};

fn event() -> Shared {
    Shared::new(EventCore::new(None, false))
}

fn begin(event: &Shared) -> PendingRecord {
    event.begin(&mut event.latest.lock())
}

/// Two streams of a driver with this completion mode.
fn streams(completion: CompletionMode) -> [Stream; 2] {
    let config = NullConfig { completion, ..NullConfig::default() };
    let null: Arc<dyn Backend> = NullBackend::new(config);
    [1, 2].map(|id| Stream::from_core(stream(&null, id)))
}

/// Completes and drops a record, as a consumer does.
fn pass(record: PendingRecord) {
    record.complete(record.version);
}

/// Goal: two consumers and the last handle drop their references, and the last of them frees the
/// core. Loom reports a core that is not freed or is freed while in use.
#[test]
fn loom_the_last_reference_frees_the_core() {
    model_without_fences(EVERY, || {
        let event = event();
        let (first, second) = (begin(&event), begin(&event));
        let consumers = [first, second].map(|record| thread::spawn(move || pass(record)));
        drop(event);
        for consumer in consumers {
            consumer.join().unwrap();
        }
    });
}

/// Goal: a handle that begins another record while its clone is dropped keeps the core alive.
#[test]
fn loom_a_record_of_one_handle_outlives_the_drop_of_another() {
    model_without_fences(EVERY, || {
        let event = event();
        let clone = event.clone();
        let other = thread::spawn(move || pass(begin(&clone)));
        pass(begin(&event));
        drop(event);
        other.join().unwrap();
    });
}

/// Goal: a record that bypassed the queue does not delay the free. Method: a direct record, a
/// consumer's record and the drop of the last handle run concurrently.
#[test]
fn loom_a_direct_record_does_not_delay_the_free() {
    model_without_fences(EVERY, || {
        let event = event();
        let (queued, clone) = (begin(&event), event.clone());
        let consumer = thread::spawn(move || pass(queued));
        let other = thread::spawn(move || {
            let version = clone.begin_direct(&mut clone.latest.lock());
            clone.complete(version);
        });
        drop(event);
        consumer.join().unwrap();
        other.join().unwrap();
    });
}

/// Goal: an older record that finishes late does not overwrite the outcome of a newer one. Method:
/// two threads record one event on two streams of a driver; then `elapsed_ms` finds the latest
/// time.
#[test]
fn loom_a_late_older_record_does_not_overwrite_a_newer_outcome() {
    model_without_fences(Some(2), || {
        let streams = streams(NullConfig::default().completion);
        let event = Event::timed();
        let threads = streams.clone().map(|stream| {
            let event = event.clone();
            thread::spawn(move || stream.record(&event).unwrap())
        });
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(event.version(), 2);
        assert_eq!(event.elapsed_ms(&event).unwrap(), 0.0);
    });
}

/// Goal: an event that is recorded on another stream of a driver is never done between two pending
/// records. Method: polls of the device show no progress. One thread records, one competes for the
/// record's ticket, and one queries.
#[test]
fn loom_an_event_that_moves_between_streams_stays_pending() {
    model(Some(3), || {
        let [first, second] = streams(CompletionMode::WhenAsked { polls: u32::MAX });
        let event = Event::new();
        first.record(&event).unwrap();
        // Uses up the first slot of the queue, because a record there would always be queued.
        second.core().enqueue(EmptyTask, Always);
        let (recorder, moved) = (second.clone(), event.clone());
        let recorder = thread::spawn(move || recorder.record(&moved).unwrap());
        let producer = thread::spawn(move || {
            second.core().enqueue(EmptyTask, Always);
        });
        assert!(!event.is_done(), "done between two records that are pending");
        recorder.join().unwrap();
        producer.join().unwrap();
        assert!(!event.is_done());
    });
}

/// Goal: a query returns false between two pending records, even if a thread finds the older record
/// done during the query. Method: the device shows no progress; the recording thread completes
/// version 1 after its second record.
#[test]
fn loom_an_older_record_that_is_found_done_completes_no_newer_one() {
    model_without_fences(Some(3), || {
        let [first, second] = streams(CompletionMode::WhenAsked { polls: u32::MAX });
        let event = Event::new();
        first.record(&event).unwrap();
        let recorded = event.clone();
        let recorder = thread::spawn(move || {
            second.record(&recorded).unwrap();
            recorded.core.complete(1);
        });
        assert!(!event.is_done(), "done between two records that are pending");
        recorder.join().unwrap();
    });
}

/// Where the thread that completes a record leaves the value.
#[derive(Clone)]
struct Received(Arc<Mutex<Option<WhenDone<Received>>>>);

fn receive(value: WhenDone<Received>) {
    let Received(place) = value.value.clone();
    let before = place.lock().replace(value);
    assert!(before.is_none(), "received twice");
}

/// Goal: a value whose record is completed during a poll is returned by the poll or received by the
/// thread that completes the record. Method: a worker completes the record while another thread
/// polls.
#[test]
fn loom_a_record_that_is_completed_during_a_poll_releases_its_value() {
    model(Some(3), || {
        let device = HostDevice::new();
        let stream = Stream::from_core(device.stream(1));
        let event = Event::new();
        stream.core().enqueue(EmptyTask, Always); // a record on an idle stream is done at once
        stream.record(&event).unwrap();
        let worker = {
            let device = Arc::clone(&device);
            thread::spawn(move || while device.work() {})
        };
        let received = Received(Arc::new(Mutex::new(LockRank::Backend, None)));
        let mut done = WhenDone::new(event, received.clone(), receive).poll();
        worker.join().unwrap();
        if done.is_none() {
            let value = received.0.lock().take().expect("no thread has the value");
            done = value.poll();
        }
        assert!(done.is_some(), "its record is done");
    });
}
