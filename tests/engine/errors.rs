//! Errors on streams: what a failure stops, what it does not, who is told, what ends it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use accelrt::{Error, Event, FailureCause, Runtime, StreamError, TaskError};

use crate::gate::Gate;
use crate::support::{
    CPU, CountDrop, Journal, enqueue_failure, enqueue_notice, finishes, stream, stream_error,
    streams, wait_by_query, wait_without_helping, workers,
};
use crate::thread_id::ThreadId;

#[test]
fn behind_a_failure_user_tasks_are_retired_without_running_and_dropped_and_counted() {
    let runtime = workers(1);
    let (stream, journal) = (stream(&runtime), Journal::new());
    let drops = Arc::new(AtomicUsize::new(0));
    journal.enqueue(&stream, "before");
    enqueue_failure(&stream, "broken");
    for _ in 0..3 {
        let held = CountDrop(Arc::clone(&drops));
        stream.enqueue(move || drop(held)).unwrap(); // enqueueing never raises
        journal.enqueue(&stream, "behind");
    }
    let error = stream_error(stream.synchronize());
    assert_eq!(journal.read(), ["before"]);
    assert_eq!(drops.load(Ordering::SeqCst), 3);
    assert_eq!(runtime.counters().num_skipped_tasks, 6);
    assert_eq!((error.ticket(), error.skipped_count()), (2, 6));
}

#[test]
fn each_of_several_errors_has_the_ticket_and_the_skipped_tasks_of_its_own_stream() {
    let runtime = workers(1);
    let [first, second, heir] = [stream(&runtime), stream(&runtime), stream(&runtime)];
    enqueue_failure(&first, "first");
    second.enqueue(|| ()).unwrap();
    enqueue_failure(&second, "second");
    heir.wait_stream(&second).unwrap();
    for (stream, count) in [(&first, 1), (&second, 2), (&heir, 3)] {
        (0..count).for_each(|_| stream.enqueue(|| ()).unwrap());
    }
    let Err(Error::Stream(StreamError::SeveralFailed { errors, .. })) = runtime.synchronize(CPU)
    else {
        panic!("three failed")
    };
    let mut found: Vec<_> = errors
        .iter()
        .map(|error| (error.stream_id(), error.ticket(), error.skipped_count()))
        .collect();
    found.sort_unstable();
    // The second's record for the heir is a task, too, which is not a user's.
    assert_eq!(found, [(first.id(), 1, 1), (second.id(), 2, 2), (heir.id(), 1, 3)]);
    enqueue_failure(&first, "again");
    let again = stream_error(first.synchronize());
    assert!(again.ticket() > 2 && again.skipped_count() == 0, "{}", again.ticket());
}

#[test]
fn enqueueing_recording_and_waiting_on_a_failed_stream_never_raise() {
    let runtime = workers(1);
    let [failed, other] = [stream(&runtime), stream(&runtime)];
    enqueue_failure(&failed, "broken");
    wait_by_query(&failed.record_event().unwrap());
    failed.enqueue(|| ()).unwrap();
    let event = failed.record_event().unwrap();
    failed.wait_event(&event).unwrap();
    failed.wait_stream(&other).unwrap();
    stream_error(failed.synchronize());
}

#[test]
fn records_and_waits_go_on_behind_a_failure() {
    // Goal: counters, events and memory advance. Method: a wait behind the failure still holds the
    // record behind it back, and that record is passed then.
    finishes(|| {
        let runtime = workers(2);
        let [failed, held] = [stream(&runtime), stream(&runtime)];
        let gate = Gate::shut(&held);
        enqueue_failure(&failed, "broken");
        let reached = failed.record_event().unwrap();
        failed.wait_stream(&held).unwrap();
        let event = failed.record_event().unwrap();
        wait_by_query(&reached);
        assert!(!event.is_done());
        gate.open();
        wait_by_query(&event);
        stream_error(failed.synchronize());
    });
}

#[test]
fn an_event_recorded_behind_a_failure_is_complete_and_failed_for_everybody() {
    let runtime = workers(1);
    let failed = stream(&runtime);
    let (good, bad) = (Event::timed(), Event::timed());
    failed.record(&good).unwrap();
    enqueue_failure(&failed, "broken");
    failed.record(&bad).unwrap();
    wait_by_query(&bad);
    assert!(bad.is_done());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let error = stream_error(bad.synchronize());
                assert!(error.to_string().contains("broken"), "{error}");
            });
        }
    });
    for elapsed in [good.elapsed_ms(&bad), bad.elapsed_ms(&good)] {
        stream_error(elapsed.map(drop));
    }
    good.synchronize().unwrap();
}

#[test]
fn waiting_for_a_failed_event_ends_nothing() {
    let runtime = workers(1);
    let (failed, journal) = (stream(&runtime), Journal::new());
    enqueue_failure(&failed, "broken");
    let event = failed.record_event().unwrap();
    stream_error(event.synchronize());
    stream_error(event.synchronize());
    journal.enqueue(&failed, "behind");
    stream_error(failed.synchronize());
    assert!(journal.read().is_empty());
}

#[test]
fn an_event_stays_failed_when_the_error_ended_until_it_is_recorded_again() {
    let runtime = workers(1);
    let (failed, other) = (stream(&runtime), stream(&runtime));
    enqueue_failure(&failed, "broken");
    let event = failed.record_event().unwrap();
    stream_error(failed.synchronize());
    stream_error(event.synchronize());
    enqueue_failure(&failed, "second");
    stream_error(failed.synchronize());
    let first = stream_error(event.synchronize());
    assert!(first.to_string().contains("broken"), "its own failure: {first}");
    other.wait_event(&event).unwrap();
    stream_error(other.synchronize());
    failed.record(&event).unwrap();
    event.synchronize().unwrap();
    other.wait_event(&event).unwrap();
    other.synchronize().unwrap();
}

#[test]
fn a_stream_inherits_the_error_of_a_pending_event_it_waits_for() {
    finishes(|| {
        let runtime = workers(2);
        let [failed, waiting] = [stream(&runtime), stream(&runtime)];
        let journal = Journal::new();
        let gate = Gate::shut(&failed);
        enqueue_failure(&failed, "broken");
        waiting.wait_stream(&failed).unwrap();
        journal.enqueue(&waiting, "behind");
        gate.open();
        let inherited = stream_error(waiting.synchronize());
        assert!(matches!(inherited.failure(), FailureCause::Inherited));
        assert_eq!(inherited.stream_id(), waiting.id());
        let origin = inherited.inherited_from().unwrap();
        assert_eq!((origin.stream_id(), origin.device()), (failed.id(), CPU));
        assert_eq!(inherited.root().stream_id(), failed.id());
        assert!(inherited.to_string().contains("broken"), "{inherited}");
        assert!(journal.read().is_empty());
        // Each stream has its own error to be ended.
        stream_error(failed.synchronize());
        waiting.synchronize().unwrap();
    });
}

#[test]
fn an_error_goes_through_any_number_of_streams_and_names_its_origin() {
    let runtime = workers(2);
    let chain = streams(&runtime, 10);
    enqueue_failure(&chain[0], "broken");
    for pair in chain.windows(2) {
        pair[1].wait_stream(&pair[0]).unwrap();
    }
    let error = stream_error(chain[9].synchronize());
    assert_eq!(error.root().stream_id(), chain[0].id());
}

#[test]
fn a_wait_for_a_record_before_the_failure_inherits_nothing() {
    finishes(|| {
        let runtime = workers(2);
        let [failed, waiting] = [stream(&runtime), stream(&runtime)];
        let gate = Gate::shut(&failed);
        waiting.wait_event(&failed.record_event().unwrap()).unwrap();
        let notice = enqueue_notice(&waiting);
        enqueue_failure(&failed, "broken");
        gate.open();
        wait_by_query(&failed.record_event().unwrap());
        notice.recv().unwrap();
        waiting.synchronize().unwrap();
        stream_error(failed.synchronize());
    });
}

#[test]
fn a_wait_inherits_the_failure_also_when_a_synchronise_ended_it_before_the_wait_was_passed() {
    // Goal: the record is failed, whatever happened to the stream since. Method: the waiting stream
    // is held while the source fails, is synchronised, and fails again with another error.
    finishes(|| {
        let runtime = workers(2);
        let [failed, waiting] = [stream(&runtime), stream(&runtime)];
        let gates = [Gate::shut(&failed), Gate::shut(&waiting)];
        enqueue_failure(&failed, "first");
        waiting.wait_stream(&failed).unwrap();
        let [source_gate, own_gate] = gates;
        source_gate.open();
        stream_error(failed.synchronize());
        enqueue_failure(&failed, "second");
        stream_error(failed.synchronize());
        own_gate.open();
        let inherited = stream_error(waiting.synchronize());
        assert!(inherited.to_string().contains("first"), "{inherited}");
    });
}

#[test]
fn a_synchronise_ends_the_error_and_what_is_submitted_later_runs() {
    // Again and again: in most rounds the synchronise executes the stream itself, in some a worker
    // does, and the two end an error in different places.
    let runtime = workers(1);
    for _ in 0..50 {
        let (failed, journal) = (stream(&runtime), Journal::new());
        for _ in 0..4 {
            enqueue_failure(&failed, "broken");
            journal.enqueue(&failed, "behind");
            stream_error(failed.synchronize());
            failed.synchronize().unwrap();
        }
        journal.enqueue(&failed, "later");
        let event = failed.record_event().unwrap();
        failed.synchronize().unwrap();
        event.synchronize().unwrap();
        assert_eq!(journal.read(), ["later"]);
    }
}

#[test]
fn a_synchronise_is_a_point_in_the_queue() {
    // Goal: an error behind the point is not the point's. Method: the waiting thread is asleep in
    // its synchronise when the failure is enqueued.
    finishes(|| {
        let runtime = workers(1);
        let stream = stream(&runtime);
        let gate = Gate::shut(&stream);
        let (asleep, is_asleep) = mpsc::channel();
        let waited = stream.clone();
        let thread =
            std::thread::spawn(move || waited.synchronize_unless(&mut || asleep.send(()).is_err()));
        is_asleep.recv().unwrap();
        enqueue_failure(&stream, "later");
        let event = stream.record_event().unwrap();
        gate.open();
        thread.join().unwrap().unwrap();
        stream_error(event.synchronize());
        stream_error(stream.synchronize());
    });
}

#[test]
fn what_stands_behind_a_synchronise_in_the_queue_runs() {
    // Goal: the point itself ends the error. Method: what stands behind it was enqueued before it
    // was passed, while the thread that waits for it was asleep.
    finishes(|| {
        let runtime = workers(1);
        let (stream, journal) = (stream(&runtime), Journal::new());
        let gate = Gate::shut(&stream);
        enqueue_failure(&stream, "broken");
        journal.enqueue(&stream, "before");
        let (asleep, is_asleep) = mpsc::channel();
        let waited = stream.clone();
        let thread =
            std::thread::spawn(move || waited.synchronize_unless(&mut || asleep.send(()).is_err()));
        is_asleep.recv().unwrap();
        journal.enqueue(&stream, "behind");
        gate.open();
        stream_error(thread.join().unwrap());
        stream.synchronize().unwrap();
        assert_eq!(journal.read(), ["behind"]);
    });
}

#[test]
fn a_synchronise_raises_the_same_error_to_every_thread_that_waits_at_that_moment() {
    finishes(|| {
        let runtime = workers(1);
        let stream = stream(&runtime);
        let gate = Gate::shut(&stream);
        enqueue_failure(&stream, "broken");
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let (asleep, is_asleep) = mpsc::channel();
                let waited = stream.clone();
                let wait = move || waited.synchronize_unless(&mut || asleep.send(()).is_err());
                (std::thread::spawn(wait), is_asleep)
            })
            .collect();
        for (_, is_asleep) in &threads {
            is_asleep.recv().unwrap();
        }
        gate.open();
        let raised = threads.into_iter().map(|(thread, is_asleep)| {
            let error = stream_error(thread.join().unwrap());
            drop(is_asleep);
            Arc::as_ptr(&error)
        });
        let raised: std::collections::BTreeSet<_> = raised.collect();
        assert_eq!(raised.len(), 1);
        stream.synchronize().unwrap();
    });
}

#[test]
fn a_panic_is_an_error_with_its_words_and_the_worker_goes_on() {
    let runtime = workers(1);
    let failed = stream(&runtime);
    for (task, words) in [
        (Box::new(|| -> () { panic!("plain words") }) as Box<dyn FnOnce() + Send>, "plain words"),
        (Box::new(|| -> () { panic!("number {}", 7) }), "number 7"),
        (Box::new(|| -> () { std::panic::panic_any(7) }), "not a text"),
    ] {
        failed.enqueue(task).unwrap();
        wait_by_query(&failed.record_event().unwrap()); // a worker executes it
        let error = stream_error(failed.synchronize());
        assert!(matches!(error.failure(), FailureCause::Panicked(_)));
        assert!(error.to_string().contains(words), "{error}");
    }
    wait_without_helping(&failed);
}

#[test]
fn the_error_says_which_stream_failed_and_carries_the_cause() {
    let runtime = workers(1);
    let failed = stream(&runtime);
    let refusal = || Err::<(), _>(std::io::Error::other("the disk is full"));
    failed.enqueue(refusal).unwrap();
    let raised = failed.synchronize().unwrap_err();
    let text = raised.to_string();
    assert!(text.contains(&format!("Stream {} on cpu:0", failed.id())), "{text}");
    let error = stream_error(Err(raised));
    assert!(matches!(error.failure(), FailureCause::Returned(_)));
    assert!(std::error::Error::source(&*error).unwrap().is::<std::io::Error>());
}

#[test]
fn a_program_that_hands_the_last_error_on_each_time_builds_no_chain() {
    // Goal: such errors are printed and dropped on a stack of any size. Method: more of them than
    // a stack has room for; the one behind the last is the first.
    let runtime = workers(1);
    let failed = stream(&runtime);
    let fail = |error: TaskError| {
        failed.enqueue(|| Err::<(), _>(error)).unwrap();
        failed.synchronize().unwrap_err()
    };
    let mut last = fail(Box::new(std::io::Error::other("the disk is full")));
    for round in 0..20_000 {
        let Error::Stream(StreamError::Failed(shared)) = last else { panic!("{last}") };
        // As a task gets it from us, and as it is in there.
        last = match round % 3 {
            0 => fail(Box::new(Error::Stream(StreamError::Failed(shared)))),
            1 => fail(Box::new(StreamError::Failed(shared))),
            _ => fail(Box::new(shared)),
        };
    }
    let text = last.to_string();
    assert_eq!(text.matches("a task returned an error").count(), 2, "{text}");
    assert!(text.ends_with("the disk is full"), "{text}");
    drop(last);
}

/// Asks for all streams of a runtime when it is dropped.
#[derive(Debug)]
struct AsksWhenDropped(Runtime);

impl fmt::Display for AsksWhenDropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it asks when it is dropped")
    }
}

impl std::error::Error for AsksWhenDropped {}

impl Drop for AsksWhenDropped {
    fn drop(&mut self) {
        let _ = self.0.counters();
        let _ = self.0.synchronize(CPU);
    }
}

#[test]
fn an_error_that_is_forgotten_may_ask_for_all_streams_when_it_is_dropped() {
    // Goal: nothing of a user's is dropped between a stream's end and its being told. Method: more
    // errors than are kept of streams that are gone.
    finishes(|| {
        let runtime = workers(1);
        for _ in 0..40 {
            let failed = runtime.stream(CPU).unwrap();
            let error = AsksWhenDropped(runtime.clone());
            failed.enqueue(move || Err::<(), _>(error)).unwrap();
            wait_by_query(&failed.record_event().unwrap());
        }
        drop(runtime.shutdown()); // with the errors that are kept, which keep it
    });
}

#[test]
fn a_synchronise_of_a_device_raises_errors_of_streams_that_are_gone_beside_one_that_is_busy() {
    // Goal: one busy stream is no reason to forget the others. Method: the only stream that is
    // there is held until the device is waited for.
    finishes(|| {
        let runtime = workers(2);
        let gone = runtime.stream(CPU).unwrap();
        let id = gone.id();
        enqueue_failure(&gone, "broken");
        wait_by_query(&gone.record_event().unwrap());
        drop(gone);
        while runtime.stream_by_id(CPU, id).is_ok() {} // a worker may have it for a moment longer
        let held = runtime.stream(CPU).unwrap();
        let gate = Gate::shut(&held);
        let raised = std::thread::scope(|scope| {
            let (enter, inside) = mpsc::channel();
            let runtime = &runtime;
            let waiting = scope.spawn(move || {
                enter.send(ThreadId::current()).unwrap();
                runtime.synchronize(CPU)
            });
            inside.recv().unwrap().wait_until_asleep();
            gate.open();
            waiting.join().unwrap()
        });
        assert_eq!(stream_error(raised).stream_id(), id);
        runtime.synchronize(CPU).unwrap();
    });
}

#[test]
fn of_several_errors_those_that_others_inherited_come_first() {
    let runtime = workers(2);
    let both = streams(&runtime, 2);
    let [victim, origin] = &both[..] else { panic!("two were asked for") };
    enqueue_failure(origin, "broken");
    victim.wait_event(&origin.record_event().unwrap()).unwrap();
    victim.enqueue(|| ()).unwrap();
    let Err(Error::Stream(StreamError::SeveralFailed { errors, .. })) = runtime.synchronize(CPU)
    else {
        panic!("expected several errors");
    };
    let raised: Vec<u64> = errors.iter().map(|error| error.stream_id()).collect();
    assert_eq!(raised, [origin.id(), victim.id()]);
}

#[test]
fn several_errors_of_a_device_come_as_one_and_all_are_ended() {
    let runtime = workers(2);
    let failed = streams(&runtime, 3);
    let fine = stream(&runtime);
    fine.enqueue(|| ()).unwrap();
    for stream in &failed {
        enqueue_failure(stream, "broken");
    }
    let Err(Error::Stream(StreamError::SeveralFailed { errors, .. })) = runtime.synchronize(CPU)
    else {
        panic!("expected several errors");
    };
    let mut raised: Vec<u64> = errors.iter().map(|error| error.stream_id()).collect();
    raised.sort_unstable();
    assert_eq!(raised, failed.iter().map(accelrt::Stream::id).collect::<Vec<_>>());
    runtime.synchronize(CPU).unwrap();
    enqueue_failure(&failed[1], "again");
    let one = stream_error(runtime.synchronize(CPU));
    assert_eq!(one.stream_id(), failed[1].id(), "a single error comes as itself");
}

#[test]
fn a_failure_on_one_stream_does_not_touch_the_others() {
    let runtime = workers(1);
    let [failed, fine] = [stream(&runtime), stream(&runtime)];
    let journal = Journal::new();
    enqueue_failure(&failed, "broken");
    wait_by_query(&failed.record_event().unwrap());
    journal.enqueue(&fine, "fine");
    fine.synchronize().unwrap();
    assert_eq!(journal.read(), ["fine"]);
}

struct PanicOnDrop;

impl Drop for PanicOnDrop {
    fn drop(&mut self) {
        panic!("while dropped");
    }
}

#[test]
fn a_skipped_task_whose_drop_panics_takes_nobody_with_it() {
    // Goal: every way user code can panic is caught, also the drop of what a skipped task holds.
    // Method: the stream must still pass a record behind it, and its worker another stream's task.
    finishes(|| {
        let runtime = workers(1);
        let [failed, other] = [stream(&runtime), stream(&runtime)];
        enqueue_failure(&failed, "broken");
        let held = PanicOnDrop;
        failed.enqueue(move || drop(held)).unwrap();
        wait_by_query(&failed.record_event().unwrap());
        wait_without_helping(&other);
        stream_error(failed.synchronize());
    });
}

/// An error that does not go quietly.
#[derive(Debug)]
struct Explosive;

impl fmt::Display for Explosive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("explosive")
    }
}

impl std::error::Error for Explosive {}

impl Drop for Explosive {
    fn drop(&mut self) {
        panic!("an error that panics when it is dropped");
    }
}

#[test]
fn an_error_whose_drop_panics_is_dropped_quietly_by_whoever_is_last() {
    let runtime = workers(1);
    let stream = stream(&runtime);
    for _ in 0..3 {
        stream.enqueue(|| Err::<(), _>(Explosive)).unwrap();
        drop(stream_error(stream.synchronize())); // this thread and the engine have it
    }
    stream.enqueue(|| Err::<(), _>(Explosive)).unwrap();
    assert_eq!(runtime.shutdown().unseen_errors.len(), 1);
}

#[test]
fn an_error_names_the_operation_that_failed() {
    let runtime = workers(1);
    let [first, second] = [(); 2].map(|()| stream(&runtime));
    first.enqueue(|| Err::<(), _>("it fails")).unwrap();
    second.wait_stream(&first).unwrap();
    for (stream, operation) in [(&second, "wait"), (&first, "call")] {
        let error = stream_error(stream.synchronize());
        assert_eq!(error.operation(), Some(operation));
        assert_eq!(error.root().operation(), Some("call"));
    }
}

/// An error that is counted while it exists.
#[derive(Debug)]
struct Counted(#[expect(dead_code, reason = "its drop is counted")] Arc<()>);

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it fails")
    }
}

impl std::error::Error for Counted {}

#[test]
fn an_error_is_dropped_when_it_was_raised_and_all_who_waited_for_its_stream_have_passed() {
    finishes(|| {
        let runtime = workers(1);
        let [failed, waiting] = [(); 2].map(|()| stream(&runtime));
        let (counted, gate) = (Arc::new(()), Gate::shut(&failed));
        let error = Counted(Arc::clone(&counted));
        failed.enqueue(move || Err::<(), _>(error)).unwrap();
        waiting.wait_stream(&failed).unwrap(); // the wait is in the queue before the error is
        gate.open();
        drop(stream_error(waiting.synchronize()));
        drop(stream_error(failed.synchronize()));
        assert_eq!(Arc::strong_count(&counted), 1);
    });
}
