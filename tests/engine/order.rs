//! Order across streams: waits park a stream, not a thread, and what was enqueued runs once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use accelrt::{Device, Event, Runtime, Stream};

use crate::gate::Gate;
use crate::numbers::Numbers;
use crate::plain::Plain;
use crate::seed::seed;
use crate::support::{
    CPU, Journal, devices, enqueue_question, finishes, stream, streams, wait_by_query,
    wait_without_helping, workers,
};
use crate::thread_id::ThreadId;

#[test]
fn no_thread_is_blocked_by_a_wait() {
    // Goal: a parked stream needs no worker. Method: one worker; a hundred streams wait for a
    // device that is inside a gate, and another stream still runs.
    finishes(|| {
        let runtime = devices(2, 1);
        let source = runtime.stream(Device::cpu(1)).unwrap();
        let gate = Gate::shut(&source);
        let event = source.record_event().unwrap();
        let waiting = streams(&runtime, 100);
        let ran = Arc::new(AtomicUsize::new(0));
        for stream in &waiting {
            stream.wait_event(&event).unwrap();
            let ran = Arc::clone(&ran);
            stream
                .enqueue(move || {
                    ran.fetch_add(1, Ordering::Relaxed);
                })
                .unwrap();
        }
        wait_without_helping(&stream(&runtime));
        assert_eq!(ran.load(Ordering::Relaxed), 0);
        gate.open();
        for stream in &waiting {
            stream.synchronize().unwrap();
        }
        assert_eq!(ran.load(Ordering::Relaxed), 100);
        assert_eq!(runtime.counters().num_spare_workers, 0);
    });
}

#[test]
fn a_resumed_stream_runs_on_its_own_devices_workers_and_not_on_the_completers_stack() {
    finishes(|| {
        let runtime = devices(2, 1);
        let (source, waiting) = (stream(&runtime), runtime.stream(Device::cpu(1)).unwrap());
        let ask = |stream: &Stream| enqueue_question(stream, ThreadId::current);
        let (completer, own_worker) = (ask(&source).recv().unwrap(), ask(&waiting).recv().unwrap());
        assert_ne!(completer, own_worker);
        let gate = Gate::shut(&source);
        waiting.wait_stream(&source).unwrap();
        let resumed_on = ask(&waiting);
        gate.open();
        assert_eq!(resumed_on.recv().unwrap(), own_worker);
    });
}

#[test]
fn a_stream_that_a_helper_completes_the_wait_of_does_not_run_on_the_helper() {
    // Goal: the helper's stack is a completer's too. Method: `waiting` parks on `source`, which
    // parks on another device; then the only worker goes inside a gate, the source becomes
    // runnable, and this thread executes it.
    finishes(|| {
        let runtime = devices(2, 1);
        let root = runtime.stream(Device::cpu(1)).unwrap();
        let [source, waiting] = [stream(&runtime), stream(&runtime)];
        let root_gate = Gate::shut(&root);
        source.wait_stream(&root).unwrap();
        let event = source.record_event().unwrap();
        waiting.wait_event(&event).unwrap();
        let resumed_on = enqueue_question(&waiting, ThreadId::current);
        let gate = Gate::shut(&stream(&runtime));
        root_gate.open();
        wait_without_helping(&root);
        event.synchronize().unwrap();
        assert!(resumed_on.try_recv().is_err(), "the worker is inside the gate");
        gate.open();
        assert_ne!(resumed_on.recv().unwrap(), ThreadId::current());
    });
}

#[test]
fn a_chain_of_two_thousand_waits_resumes_without_a_deep_stack() {
    finishes(|| {
        let runtime = workers(2);
        let chain = streams(&runtime, 2_000);
        let gate = Gate::shut(&chain[0]);
        let passed = Arc::new(Plain::default());
        for (place, stream) in chain.iter().enumerate() {
            if let Some(before) = place.checked_sub(1) {
                stream.wait_stream(&chain[before]).unwrap();
            }
            let passed = Arc::clone(&passed);
            let task = move || {
                assert_eq!(passed.get(), place);
                passed.set(place + 1);
            };
            stream.enqueue(task).unwrap();
        }
        gate.open();
        chain[1_999].synchronize().unwrap();
        assert_eq!(passed.get(), 2_000);
    });
}

#[test]
fn a_ring_of_waits_on_one_worker_does_not_deadlock() {
    // Goal: any number of streams on any number of workers. Method: each round every stream waits
    // for its neighbour's last round.
    finishes(|| {
        let runtime = workers(1);
        let ring = streams(&runtime, 50);
        let mut last: Vec<Event> =
            ring.iter().map(|stream| stream.record_event().unwrap()).collect();
        let journal = Journal::new();
        for round in 0..20 {
            let waits = ring.iter().enumerate();
            waits.for_each(|(at, stream)| stream.wait_event(&last[(at + 1) % 50]).unwrap());
            for stream in &ring {
                journal.enqueue(stream, round);
            }
            last = ring.iter().map(|stream| stream.record_event().unwrap()).collect();
        }
        for event in &last {
            event.synchronize().unwrap();
        }
        assert_eq!(journal.read().len(), 50 * 20);
    });
}

#[test]
fn an_event_recorded_on_a_stream_can_be_waited_for_by_that_stream() {
    finishes(|| {
        let runtime = workers(1);
        let stream = stream(&runtime);
        let gate = Gate::shut(&stream);
        stream.wait_event(&stream.record_event().unwrap()).unwrap();
        stream.wait_stream(&stream).unwrap();
        gate.open();
        stream.synchronize().unwrap();
    });
}

/// What one task of a random program must come after.
struct Task {
    predecessors: Vec<usize>,
}

/// Enqueues a random program; the tasks' direct predecessors.
fn enqueue_random_program(
    random: &mut Numbers,
    all: &[Stream],
    journal: &Journal<usize>,
) -> Vec<Task> {
    let mut tasks: Vec<Task> = Vec::new();
    let mut last: Vec<Option<usize>> = vec![None; all.len()];
    let mut pending: Vec<Vec<usize>> = vec![Vec::new(); all.len()];
    let mut events: Vec<(Event, Option<usize>)> = Vec::new();
    for _ in 0..300 {
        let at = random.below(all.len());
        match random.below(4) {
            0 => events.push((all[at].record_event().unwrap(), last[at])),
            1 if !events.is_empty() => {
                let (event, task) = &events[random.below(events.len())];
                all[at].wait_event(event).unwrap();
                pending[at].extend(task);
            }
            2 if !events.is_empty() => {
                let again = random.below(events.len());
                let (event, task) = &mut events[again];
                all[at].record(event).unwrap();
                *task = last[at];
            }
            _ => {
                let number = tasks.len();
                journal.enqueue(&all[at], number);
                let mut predecessors = std::mem::take(&mut pending[at]);
                predecessors.extend(last[at].replace(number));
                tasks.push(Task { predecessors });
            }
        }
    }
    tasks
}

#[test]
fn random_programs_keep_the_order_of_streams_and_waits_and_run_each_task_once() {
    // Goal: laws 4 and 5. Method: random tasks, records and waits; the journal must be a linear
    // extension of the order that the program asked for.
    finishes(|| {
        let mut random = Numbers::new(seed());
        for round in 0..60 {
            let runtime = workers(1 + round % 3);
            let all = streams(&runtime, 2 + random.below(12));
            let journal = Journal::new();
            let gate = Gate::shut(&all[0]);
            let tasks = enqueue_random_program(&mut random, &all, &journal);
            gate.open();
            runtime.synchronize(CPU).unwrap();
            let order = journal.read();
            assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), tasks.len());
            assert_eq!(order.len(), tasks.len());
            let mut position = vec![0; tasks.len()];
            order.iter().enumerate().for_each(|(place, task)| position[*task] = place);
            for (number, task) in tasks.iter().enumerate() {
                let is_later = |before: &usize| position[*before] < position[number];
                assert!(task.predecessors.iter().all(is_later), "task {number} of {order:?}");
            }
        }
    });
}

#[test]
fn nothing_is_left_behind_when_producers_helpers_and_workers_meet() {
    // Goal: whoever stops draining looks once more. Method: threads enqueue, and wait in every way,
    // on few streams; a task left behind would be waited for in vain.
    finishes(|| {
        let runtime = workers(2);
        let shared = streams(&runtime, 3);
        let ran = Arc::new(AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (shared, ran) = (&shared, &ran);
                scope.spawn(move || produce_and_wait(shared, ran, thread));
            }
        });
        for stream in &shared {
            stream.synchronize().unwrap();
        }
        assert_eq!(ran.load(Ordering::Relaxed), 4 * 2_000);
    });
}

fn produce_and_wait(shared: &[Stream], ran: &Arc<AtomicUsize>, thread: usize) {
    for number in 0..2_000 {
        let (stream, ran) = (&shared[(thread + number) % shared.len()], Arc::clone(ran));
        stream
            .enqueue(move || {
                ran.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
        match number % 8 {
            0 => stream.synchronize().unwrap(),
            1 => stream.record_event().unwrap().synchronize().unwrap(),
            2 => wait_by_query(&stream.record_event().unwrap()),
            _ => {}
        }
    }
}

#[test]
fn what_tasks_write_is_seen_by_tasks_behind_a_wait_and_by_who_synchronises() {
    // Goal: order is visibility. Method: plain writes travel along a wait and to the host.
    let runtime: Runtime = workers(2);
    let [one, other] = [stream(&runtime), stream(&runtime)];
    let cell = Arc::new(Plain::default());
    for number in 1..=500 {
        let written = Arc::clone(&cell);
        one.enqueue(move || written.set(number)).unwrap();
        other.wait_stream(&one).unwrap();
        let read = Arc::clone(&cell);
        other.enqueue(move || assert_eq!(read.get(), number)).unwrap();
        one.wait_stream(&other).unwrap();
    }
    other.synchronize().unwrap();
    one.synchronize().unwrap();
    assert_eq!(cell.get(), 500);
}
