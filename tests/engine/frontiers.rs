//! Frontiers: who is known to run after what. Never ahead of the truth.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use accelrt::{Event, Stream};

use crate::gate::Gate;
use crate::numbers::Numbers;
use crate::seed::seed;
use crate::support::{finishes, stream, streams, workers};

#[test]
fn a_stream_is_ordered_after_its_own_records() {
    finishes(|| {
        let runtime = workers(1);
        let stream = stream(&runtime);
        let _gate = Gate::shut(&stream);
        assert!(stream.is_ordered_after(&stream.record_event().unwrap()));
    });
}

#[test]
fn every_stream_is_ordered_after_what_is_done_and_what_was_never_recorded() {
    let runtime = workers(1);
    let [one, other] = [stream(&runtime), stream(&runtime)];
    assert!(other.is_ordered_after(&Event::new()));
    let event = one.record_event().unwrap();
    event.synchronize().unwrap();
    assert!(other.is_ordered_after(&event));
}

#[test]
fn a_wait_orders_a_stream_after_the_event_and_after_what_that_waited_for() {
    finishes(|| {
        let runtime = workers(1);
        let [first, second, third] = [(); 3].map(|()| stream(&runtime));
        let _gate = Gate::shut(&first);
        let root = first.record_event().unwrap();
        assert!(!second.is_ordered_after(&root) && !third.is_ordered_after(&root));
        second.wait_event(&root).unwrap();
        assert!(second.is_ordered_after(&root) && !third.is_ordered_after(&root));
        third.wait_stream(&second).unwrap();
        assert!(third.is_ordered_after(&root), "through the second stream");
        assert!(!first.is_ordered_after(&second.record_event().unwrap()));
    });
}

#[test]
fn a_record_made_before_a_wait_does_not_carry_it() {
    finishes(|| {
        let runtime = workers(1);
        let [first, second, third] = [(); 3].map(|()| stream(&runtime));
        let _gate = Gate::shut(&first);
        let root = first.record_event().unwrap();
        let early = second.record_event().unwrap();
        second.wait_event(&root).unwrap();
        third.wait_event(&early).unwrap();
        assert!(!third.is_ordered_after(&root));
    });
}

#[test]
fn a_wait_does_not_order_a_stream_after_later_records() {
    finishes(|| {
        let runtime = workers(1);
        let [first, second] = [stream(&runtime), stream(&runtime)];
        let _gate = Gate::shut(&first);
        let event = first.record_event().unwrap();
        second.wait_event(&event).unwrap();
        assert!(second.is_ordered_after(&event));
        first.record(&event).unwrap();
        assert!(!second.is_ordered_after(&event), "the latest record is a later one");
    });
}

/// The truth: per stream, up to which own record of each stream it runs behind.
type Clock = Vec<usize>;

#[test]
fn random_programs_know_exactly_the_order_they_asked_for_while_nothing_is_done() {
    // Goal: no order is missed and none is invented. Method: vector clocks kept beside a random
    // program in which every stream is held back by one gate.
    finishes(|| {
        let mut random = Numbers::new(seed());
        for _ in 0..20 {
            let runtime = workers(1);
            let root = stream(&runtime);
            let _gate = Gate::shut(&root);
            let all = streams(&runtime, 2 + random.below(6));
            for stream in &all {
                stream.wait_stream(&root).unwrap();
            }
            check_random_program(&mut random, &all);
        }
    });
}

fn check_random_program(random: &mut Numbers, all: &[Stream]) {
    let mut clocks: Vec<Clock> = vec![vec![0; all.len()]; all.len()];
    let mut records: Vec<(Event, usize, Clock)> = Vec::new();
    for _ in 0..150 {
        let at = random.below(all.len());
        if records.is_empty() || random.below(2) == 0 {
            clocks[at][at] += 1;
            records.push((all[at].record_event().unwrap(), at, clocks[at].clone()));
        } else {
            let (event, _, before) = &records[random.below(records.len())];
            all[at].wait_event(event).unwrap();
            let joined = clocks[at].iter().zip(before).map(|(own, other)| *own.max(other));
            clocks[at] = joined.collect();
        }
    }
    for (stream, clock) in all.iter().zip(&clocks) {
        for (event, source, record) in &records {
            let truth = clock[*source] >= record[*source];
            assert_eq!(stream.is_ordered_after(event), truth, "{stream:?} after {event:?}");
        }
    }
}

#[test]
fn a_known_order_is_never_ahead_of_the_queue() {
    // Goal: first the wait is in the queue, then the join is published. Method: one thread joins
    // over and over; another enqueues a check as soon as it sees the order.
    finishes(|| {
        let runtime = workers(2);
        let [source, waiting] = [stream(&runtime), stream(&runtime)];
        let cell = Arc::new(AtomicUsize::new(0));
        for number in 1..=300 {
            let gate = Gate::enqueue(&source);
            let written = Arc::clone(&cell);
            source.enqueue(move || written.store(number, Ordering::Relaxed)).unwrap();
            let event = source.record_event().unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| waiting.wait_event(&event).unwrap());
                while !waiting.is_ordered_after(&event) {
                    std::thread::yield_now();
                }
                let read = Arc::clone(&cell);
                waiting.enqueue(move || assert!(read.load(Ordering::Relaxed) >= number)).unwrap();
            });
            gate.open();
        }
        waiting.synchronize().unwrap();
    });
}

#[test]
fn an_order_stays_known_when_what_it_was_learned_from_is_done() {
    // Goal: pruning forgets only what is done. Method: many joins that are done, then one that is
    // not.
    finishes(|| {
        let runtime = workers(2);
        let [done, held, waiting] = [(); 3].map(|()| stream(&runtime));
        let gate = Gate::shut(&held);
        let pending = held.record_event().unwrap();
        waiting.wait_event(&pending).unwrap();
        for _ in 0..200 {
            let event = done.record_event().unwrap();
            waiting.wait_event(&event).unwrap();
            assert!(waiting.is_ordered_after(&event) && waiting.is_ordered_after(&pending));
        }
        gate.open();
        waiting.synchronize().unwrap();
    });
}
