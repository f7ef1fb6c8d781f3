//! Streams that end on another thread: what they counted and failed with is never out of sight.
//!
//! Method: one thread drops streams, another reads or synchronises meanwhile; found by racing.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::{CPU, enqueue_failure, stream_error, wait_by_query, workers};

/// Rounds of a race whose window is some nanoseconds wide.
const RACES: u64 = 5_000;

#[test]
fn what_a_stream_skipped_is_counted_also_while_it_ends() {
    // Goal: no reading misses a stream that another thread drops. Method: one thread says how much
    // was skipped so far and drops the stream; this one reads meanwhile. Found by racing.
    let runtime = workers(1);
    let said = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=RACES {
                let stream = runtime.stream(CPU).unwrap();
                enqueue_failure(&stream, "broken");
                stream.enqueue(|| ()).unwrap();
                stream_error(stream.synchronize());
                said.store(round, Ordering::SeqCst);
            }
        });
        let mut least = 0;
        while least < RACES {
            least = said.load(Ordering::SeqCst);
            let skipped = runtime.counters().num_skipped_tasks;
            assert!(skipped >= least, "{skipped} are counted, {least} were skipped");
        }
    });
}

#[test]
fn a_device_synchronise_raises_the_error_of_a_stream_that_ends_meanwhile() {
    // Method: as above; each round has one error, and the synchronise begins when it is open.
    let runtime = workers(1);
    let turn = AtomicU64::new(0);
    let until = |expected| {
        while turn.load(Ordering::SeqCst) != expected {
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..RACES {
                let stream = runtime.stream(CPU).unwrap();
                enqueue_failure(&stream, "broken");
                wait_by_query(&stream.record_event().unwrap());
                turn.store(2 * round + 1, Ordering::SeqCst);
                drop(stream);
                until(2 * round + 2);
            }
        });
        let raised = (0..RACES).filter(|round| {
            until(2 * round + 1);
            let outcome = runtime.synchronize(CPU);
            turn.store(2 * round + 2, Ordering::SeqCst);
            outcome.is_err()
        });
        assert_eq!(raised.count() as u64, RACES);
    });
}
