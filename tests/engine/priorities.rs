//! Priorities: urgent streams go first, nobody starves, nobody keeps a worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use accelrt::{Runtime, Stream};

use crate::gate::Gate;
use crate::support::{CPU, Journal, enqueue_notice, finishes, stream, workers};

fn with_priority(runtime: &Runtime, priority: i32) -> Stream {
    runtime.stream_with_priority(CPU, priority).unwrap()
}

#[test]
fn of_several_runnable_streams_the_most_urgent_is_taken_first() {
    finishes(|| {
        let runtime = workers(1);
        let gate = Gate::shut(&stream(&runtime));
        let journal = Journal::new();
        let mut notices = Vec::new();
        for priority in [1, 0, -1, 1, 0, -1] {
            let stream = with_priority(&runtime, priority);
            journal.enqueue(&stream, priority);
            notices.push(enqueue_notice(&stream));
        }
        gate.open();
        for notice in &notices {
            notice.recv().unwrap();
        }
        assert_eq!(journal.read(), [-1, -1, 0, 0, 1, 1]);
    });
}

#[test]
fn streams_of_one_priority_are_taken_in_the_order_they_became_runnable() {
    finishes(|| {
        let runtime = workers(1);
        let gate = Gate::shut(&stream(&runtime));
        let journal = Journal::new();
        let all = crate::support::streams(&runtime, 20);
        all.iter().enumerate().for_each(|(at, stream)| journal.enqueue(stream, at));
        let last = enqueue_notice(&all[19]);
        gate.open();
        last.recv().unwrap();
        assert_eq!(journal.read(), (0..20).collect::<Vec<_>>());
    });
}

#[test]
fn a_stream_in_progress_gives_way_to_a_more_urgent_one() {
    // Goal: urgency counts between tasks, not only between batches, which have 64. Method: the
    // first of many tasks of a lazy stream makes an urgent one runnable on the only worker.
    finishes(|| {
        let runtime = workers(1);
        let (lazy, urgent) = (with_priority(&runtime, 1), with_priority(&runtime, -1));
        let gate = Gate::shut(&lazy);
        let journal = Journal::new();
        let (now, written) = (urgent.clone(), journal.clone());
        lazy.enqueue(move || written.enqueue(&now, "urgent")).unwrap();
        (0..500).for_each(|_| journal.enqueue(&lazy, "lazy"));
        let last = enqueue_notice(&lazy);
        gate.open();
        last.recv().unwrap();
        let before = journal.read().iter().take_while(|entry| **entry == "lazy").count();
        assert!(before <= 32, "{before} tasks came first");
    });
}

#[test]
fn a_stream_with_much_work_lets_others_of_its_priority_have_the_worker() {
    finishes(|| {
        let runtime = workers(1);
        let [much, little] = [stream(&runtime), stream(&runtime)];
        let gate = Gate::shut(&much);
        let journal = Journal::new();
        (0..1_000).for_each(|_| journal.enqueue(&much, "much"));
        journal.enqueue(&little, "little");
        let last = enqueue_notice(&much);
        gate.open();
        last.recv().unwrap();
        let before = journal.read().iter().take_while(|entry| **entry == "much").count();
        assert!(before < 500, "{before} tasks came first");
    });
}

#[test]
fn a_flood_of_urgent_work_does_not_starve_the_rest() {
    // Goal: a lazy stream gets its turn. Method: urgent streams make each other runnable for ever,
    // until the lazy one has run.
    finishes(|| {
        let runtime = workers(1);
        let lazy = with_priority(&runtime, 1);
        let is_served = Arc::new(AtomicUsize::new(0));
        let gate = Gate::shut(&stream(&runtime));
        let served = Arc::clone(&is_served);
        lazy.enqueue(move || served.store(1, Ordering::Relaxed)).unwrap();
        let flood = [with_priority(&runtime, -1), with_priority(&runtime, -1)];
        for at in 0..2 {
            flood[at].enqueue(keep_busy(flood.clone(), at, Arc::clone(&is_served))).unwrap();
        }
        let notice = enqueue_notice(&lazy);
        gate.open();
        notice.recv().unwrap();
        assert_eq!(is_served.load(Ordering::Relaxed), 1);
    });
}

fn keep_busy(
    flood: [Stream; 2],
    at: usize,
    is_served: Arc<AtomicUsize>,
) -> Box<dyn FnOnce() + Send> {
    Box::new(move || {
        if is_served.load(Ordering::Relaxed) == 0 {
            let next = flood[1 - at].clone();
            // Refused only when the test failed and its runtime ends.
            let _ = next.enqueue(keep_busy(flood, 1 - at, is_served));
        }
    })
}
