//! Receipts: a handle of a task raises its stream's failure, and ends it for later tasks.
//!
//! `tests/order/failures.rs` has random programs of one thread; here are several threads.

use std::time::Duration;

use accelrt::{Buffer, Error, Runtime, Stream, Transfer};

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
