//! Wakes: one per idle→busy edge, none where somebody looks or helps.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use accelrt::Runtime;

use crate::gate::Gate;
use crate::support::occupy_workers;
use crate::support::thread::sleeping_workers;
use crate::support::{enqueue_notice, finishes, stream, streams, wait_without_helping, workers};

fn wakes(runtime: &Runtime) -> u64 {
    runtime.counters().num_worker_wakes
}

#[test]
fn starting_workers_is_no_wake() {
    finishes(|| {
        let runtime = workers(1);
        wait_without_helping(&stream(&runtime));
        assert_eq!(wakes(&runtime), 0);
    });
}

#[test]
fn each_edge_from_idle_to_runnable_wakes_one_worker() {
    // Goal: exactly one wake an edge, however many sleep and however many tasks follow. Method: all
    // workers sleep before each edge; the stream is busy, inside a gate, while more is enqueued.
    finishes(|| {
        let runtime = workers(3);
        let stream = stream(&runtime);
        for _ in 0..10 {
            sleeping_workers(&runtime, 3);
            let before = wakes(&runtime);
            let gate = Gate::shut(&stream);
            let notices: Vec<_> = (0..100).map(|_| enqueue_notice(&stream)).collect();
            gate.open();
            for notice in &notices {
                notice.recv().unwrap();
            }
            assert_eq!(wakes(&runtime) - before, 1);
        }
    });
}

#[test]
fn as_many_edges_as_workers_wake_each_once() {
    finishes(|| {
        let runtime = workers(3);
        sleeping_workers(&runtime, 3);
        let before = wakes(&runtime);
        let gates = occupy_workers(&runtime, 3);
        assert_eq!(wakes(&runtime) - before, 3);
        drop(gates);
    });
}

#[test]
fn work_for_busy_workers_wakes_nobody() {
    finishes(|| {
        let runtime = workers(2);
        sleeping_workers(&runtime, 2);
        let gates = occupy_workers(&runtime, 2);
        let before = wakes(&runtime);
        let more = streams(&runtime, 50);
        let notices: Vec<_> = more.iter().map(enqueue_notice).collect();
        assert_eq!(wakes(&runtime), before);
        drop(gates);
        for notice in &notices {
            notice.recv().unwrap();
        }
    });
}

#[test]
fn resuming_a_parked_stream_wakes_at_most_one_worker() {
    finishes(|| {
        let runtime = workers(2);
        let [source, waiting] = [stream(&runtime), stream(&runtime)];
        sleeping_workers(&runtime, 2);
        let gate = Gate::shut(&source);
        waiting.wait_stream(&source).unwrap();
        let resumed = enqueue_notice(&waiting);
        let before = wakes(&runtime);
        gate.open();
        resumed.recv().unwrap();
        assert!(wakes(&runtime) - before <= 1);
    });
}

#[test]
fn parking_and_resuming_a_thousand_streams_does_not_wake_a_worker_each() {
    // Goal: edges are of streams, wakes are of workers that nobody else stands in for. Method: a
    // chain of streams on one worker, which is awake throughout: it is inside a gate first.
    finishes(|| {
        let runtime = workers(1);
        let chain = streams(&runtime, 1_000);
        let gate = Gate::shut(&chain[0]);
        let before = wakes(&runtime);
        for pair in chain.windows(2) {
            pair[1].wait_stream(&pair[0]).unwrap();
        }
        let last = enqueue_notice(&chain[999]);
        gate.open();
        last.recv().unwrap();
        assert_eq!(wakes(&runtime), before);
    });
}

#[test]
fn round_trips_in_a_row_do_not_cost_a_wake_each() {
    // Goal: an idle round trip costs no wake-up. Method: ten thousand of them. The worker that the
    // first one woke keeps the stream's entry and leaves the stream to this thread, until that lost
    // its processor; on a single processor that is whenever the worker gets it.
    let runtime = workers(1);
    let stream = stream(&runtime);
    let ran = Arc::new(AtomicUsize::new(0));
    for _ in 0..10_000 {
        let ran = Arc::clone(&ran);
        stream
            .enqueue(move || {
                ran.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
        stream.synchronize().unwrap();
    }
    assert_eq!(ran.load(Ordering::Relaxed), 10_000);
    assert!(wakes(&runtime) < 5_000, "{}", wakes(&runtime));
}

#[test]
fn streams_that_were_left_to_a_thread_are_executed_when_it_is_gone() {
    // Goal: a worker leaves streams to a thread that executes them while it waits, and to nobody
    // else. Method: round trips on several streams, then tasks that nobody waits for. The one
    // worker has the entries of all of them, each of which is other work beside the others.
    finishes(|| {
        let runtime = workers(1);
        let streams = streams(&runtime, 3);
        for _ in 0..100 {
            for _ in 0..50 {
                for stream in &streams {
                    stream.enqueue(|| {}).unwrap();
                    stream.synchronize().unwrap();
                }
            }
            let notices: Vec<_> = streams.iter().map(enqueue_notice).collect();
            for notice in notices {
                notice.recv().unwrap();
            }
        }
    });
}

#[test]
fn a_worker_that_runs_something_gives_back_what_it_left_to_a_thread() {
    // Goal: what a worker keeps while a thread executes it does not wait for what that worker runs
    // next. Method: one worker keeps a stream's entry and goes into a gate; the other one, which
    // comes out of one, executes the stream.
    finishes(|| {
        let runtime = workers(2);
        let [left, one, other] = &streams(&runtime, 3)[..] else { unreachable!("three streams") };
        for _ in 0..100 {
            let first = Gate::shut(one);
            for _ in 0..50 {
                left.enqueue(|| {}).unwrap();
                left.synchronize().unwrap();
            }
            let second = Gate::shut(other);
            let notice = enqueue_notice(left);
            first.open();
            notice.recv().unwrap();
            second.open();
            one.synchronize().unwrap();
            other.synchronize().unwrap();
        }
    });
}

#[test]
fn a_wait_for_what_is_done_wakes_nobody() {
    finishes(|| {
        let runtime = workers(1);
        let stream = stream(&runtime);
        let event = stream.record_event().unwrap();
        event.synchronize().unwrap();
        sleeping_workers(&runtime, 1);
        let before = wakes(&runtime);
        for _ in 0..100 {
            stream.synchronize().unwrap();
            event.synchronize().unwrap();
            stream.wait_event(&event).unwrap();
            assert!(event.is_done() && stream.is_done());
        }
        assert_eq!(wakes(&runtime), before);
    });
}
