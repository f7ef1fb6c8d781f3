//! Receipts: a handle of a task raises its stream's failure, and ends it for later tasks.
//!
//! `tests/order/failures.rs` has random programs of one thread; here are several threads.

use std::sync::mpsc;
use std::task::{Poll, Waker};
use std::time::Duration;

use accelrt::internal::SynchronizeFuture;
use accelrt::{Buffer, Completion, Error, FailureCause, Runtime, Stream, Transfer};

use crate::gate::Gate;
use crate::steps::Steps;
use crate::support::{CPU, Journal, enqueue_failure, finishes, stream, stream_error, workers};

/// Fails a fill of a buffer on a stream. Returns the fill and the buffer.
fn failed_fill(runtime: &Runtime, stream: &Stream) -> (Transfer, Buffer) {
    let buffer = runtime.empty(8, CPU).unwrap();
    enqueue_failure(stream, "broken");
    (buffer.fill(1, stream).unwrap(), buffer)
}

#[test]
fn receipt_on_one_stream_ends_nothing_on_its_heir() {
    let runtime = workers(1);
    let [failed, heir] = [stream(&runtime), stream(&runtime)];
    let (fill, _buffer) = failed_fill(&runtime, &failed);
    heir.wait_stream(&failed).unwrap();
    let inherited = runtime.empty(8, CPU).unwrap();
    let skipped = inherited.fill(1, &heir).unwrap();
    stream_error(fill.wait());
    let error = stream_error(skipped.wait());
    assert_eq!(error.root().stream_id(), failed.id());
    heir.synchronize().unwrap();
    failed.synchronize().unwrap();
}

#[test]
fn receivers_on_many_threads_all_get_the_failure() {
    // Goal: each receiver gets the failure, whichever comes first, and the stream goes on. Method:
    // threads receive one failure through a handle, a buffer and an event at once.
    finishes(|| {
        let runtime = workers(2);
        for _ in 0..200 {
            let (stream, journal) = (stream(&runtime), Journal::new());
            let (fill, buffer) = failed_fill(&runtime, &stream);
            let event = stream.record_event().unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| stream_error(fill.wait()));
                scope.spawn(|| stream_error(buffer.read_to_vec().map(drop)));
                scope.spawn(|| stream_error(event.synchronize()));
            });
            journal.enqueue(&stream, "later");
            stream.synchronize().unwrap();
            assert_eq!(journal.read(), ["later"]);
            buffer.fill(2, &stream).unwrap().wait().unwrap();
        }
    });
}

#[test]
fn receipt_beside_a_synchronise_with_a_limit_loses_nothing() {
    // Goal: a failure that a handle receives does not come back when a synchronise is given up, and
    // one that nobody receives does. Method: threads race; the handle decides.
    finishes(|| {
        let runtime = workers(2);
        for round in 0..300 {
            let (stream, is_received) = (stream(&runtime), round % 2 == 0);
            let (fill, _buffer) = failed_fill(&runtime, &stream);
            let is_raised = std::thread::scope(|scope| {
                let (limit, waits) = (Duration::from_micros(round % 50), &stream);
                let given_up = scope.spawn(move || waits.synchronize_timeout(limit));
                if is_received {
                    stream_error(fill.wait());
                }
                matches!(given_up.join().unwrap(), Err(Error::Stream(_)))
            });
            let again = stream.synchronize();
            assert_eq!(again.is_err(), !is_raised && !is_received, "round {round}");
        }
    });
}

/// Takes pooled streams until `first` comes again.
fn issue_again(runtime: &Runtime, first: &Stream) -> Stream {
    let pooled = || runtime.pooled_stream(CPU).unwrap();
    (0..64).map(|_| pooled()).find(|stream| stream.id() == first.id()).expect("it comes again")
}

/// Fails 20 holders of one pooled stream, and receives all but the first four failures, whose
/// details the stream has dropped.
fn dropped_failures(runtime: &Runtime) -> Stream {
    let first = runtime.pooled_stream(CPU).unwrap();
    let mut fills = vec![failed_fill(runtime, &first)];
    for _ in 1..20 {
        fills.push(failed_fill(runtime, &issue_again(runtime, &first)));
    }
    drop(issue_again(runtime, &first));
    while !first.is_done() {
        std::thread::yield_now();
    }
    for (fill, _buffer) in &fills[4..] {
        stream_error(fill.wait());
    }
    first
}

#[test]
fn dropped_failures_are_raised_by_their_count() {
    type Way = fn(&Runtime, &Stream) -> accelrt::Result<()>;
    let ways: [Way; 4] = [
        |_, first| first.synchronize(),
        |_, first| first.synchronize_timeout(Duration::from_secs(60)),
        |runtime, _| runtime.synchronize(CPU),
        |runtime, first| {
            runtime.stream(CPU).unwrap().enqueue(|| ()).unwrap(); // several streams are busy
            assert!(!first.is_quiet());
            runtime.synchronize(CPU)
        },
    ];
    for (number, way) in ways.into_iter().enumerate() {
        finishes(move || {
            let runtime = workers(1);
            let first = dropped_failures(&runtime);
            let text = way(&runtime, &first).unwrap_err().to_string();
            assert!(text.contains("and 3 more that were dropped"), "way {number}: {text}");
            first.synchronize().unwrap();
            assert!(first.is_quiet() && runtime.shutdown().is_clean());
        });
    }
}

#[test]
fn dropped_failures_without_a_synchronise_are_reported() {
    finishes(|| {
        let runtime = workers(1);
        drop(dropped_failures(&runtime));
        let report = runtime.shutdown();
        assert_eq!((report.unseen_errors.len(), report.num_forgotten_errors), (0, 4), "{report}");
    });
}

#[test]
fn inherited_dropped_failure_is_reported_once() {
    // Goal: a report names or counts each failure once. Method: an heir inherits the first of 20
    // failures after the stream has dropped its details.
    finishes(|| {
        let runtime = workers(2);
        let [heir, blocked] = [stream(&runtime), stream(&runtime)];
        let gate = Gate::shut(&blocked);
        heir.wait_stream(&blocked).unwrap();
        let first = runtime.pooled_stream(CPU).unwrap();
        enqueue_failure(&first, "broken");
        heir.wait_stream(&first).unwrap();
        for _ in 1..20 {
            enqueue_failure(&issue_again(&runtime, &first), "broken");
        }
        drop(issue_again(&runtime, &first));
        while !first.is_done() {
            std::thread::yield_now();
        }
        gate.open();
        while !heir.is_done() {
            std::thread::yield_now();
        }
        let report = runtime.shutdown();
        let count = report.unseen_errors.len() as u64 + report.num_forgotten_errors;
        assert_eq!(count, 20, "{report}");
    });
}

#[test]
fn cancel_outlasts_receipt_of_an_earlier_failure() {
    type Synchronise = fn(&Stream) -> accelrt::Result<()>;
    let ways: [Synchronise; 2] =
        [Stream::synchronize, |stream| stream.synchronize_timeout(Duration::from_secs(60))];
    for synchronise in ways {
        finishes(move || {
            let runtime = workers(1);
            let (stream, journal) = (stream(&runtime), Journal::new());
            let (give, given) = mpsc::channel();
            stream.enqueue_deferred(move |completion| give.send(completion).unwrap()).unwrap();
            let begun: Completion = Steps::of(&stream).receive(&given).unwrap();
            // The task that has begun fails, and the cancel covers the fill behind it.
            let buffer = runtime.empty(8, CPU).unwrap();
            let fill = buffer.fill(1, &stream).unwrap();
            stream.cancel().unwrap();
            begun.finish(Err("broken".into()));
            assert!(stream_error(fill.wait()).to_string().contains("broken"));
            journal.enqueue(&stream, "behind the receipt");
            let error = stream_error(synchronise(&stream));
            assert!(matches!(error.failure(), FailureCause::StreamCancelled), "{error}");
            journal.enqueue(&stream, "behind the synchronise");
            stream.synchronize().unwrap();
            assert_eq!(journal.read(), ["behind the synchronise"]);
        });
    }
}

#[test]
fn cancel_outlasts_a_synchronise_that_began_before_it() {
    // Goal: a synchronise ends the cancel of tasks that it waits for, and of no later ones. Method:
    // the fill and the cancel come while a future synchronises, whose task then fails.
    finishes(|| {
        let runtime = workers(1);
        let (stream, journal) = (stream(&runtime), Journal::new());
        let (give, given) = mpsc::channel();
        stream.enqueue_deferred(move |completion| give.send(completion).unwrap()).unwrap();
        let begun: Completion = Steps::of(&stream).receive(&given).unwrap();
        let mut synchronise = SynchronizeFuture::new(stream.core(), 0).unwrap();
        let _fill = runtime.empty(8, CPU).unwrap().fill(1, &stream).unwrap();
        stream.cancel().unwrap();
        begun.finish(Err("broken".into()));
        while !synchronise.is_done() {
            let _ = stream.is_done(); // a step under a schedule
            std::thread::yield_now();
        }
        let Poll::Ready(raised) = synchronise.poll(Waker::noop()) else { panic!("it is done") };
        assert!(stream_error(raised).to_string().contains("broken"));
        journal.enqueue(&stream, "behind the cancel");
        let error = stream_error(stream.synchronize());
        assert!(matches!(error.failure(), FailureCause::StreamCancelled), "{error}");
        assert!(journal.read().is_empty());
    });
}
