//! Order: tasks of many threads on many streams, with waits between them.

use std::time::Instant;

use crate::lanes::Producer;
use crate::{CPU, finishes, setting, workers};

const THREADS: u64 = 8;

const STREAMS: usize = 64;

/// One task in so many is behind a wait for another stream.
const WAIT_PERIOD: u64 = 61;

/// Tasks of one stream in a row.
const ROUND: u64 = 100;

/// All threads share the streams; each goes round them, one round of tasks each.
fn run(tasks: u64) {
    let runtime = workers(4);
    let stream = |_| runtime.stream(CPU).expect("a stream");
    let streams: Vec<_> = (0..STREAMS).map(stream).collect();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let streams = &streams;
            // The first one has what does not divide.
            let rest = if thread == 0 { tasks % THREADS } else { 0 };
            let share = tasks / THREADS + rest;
            scope.spawn(move || {
                let mut producers: Vec<_> = streams.iter().cloned().map(Producer::new).collect();
                produce(&mut producers, share);
                producers.iter().for_each(Producer::finish);
                let ran: u64 = producers.iter().map(|producer| producer.lane.published()).sum();
                assert_eq!(ran, share);
            });
        }
    });
    assert!(runtime.shutdown().is_clean());
}

fn produce(producers: &mut [Producer], tasks: u64) {
    let mut place = 0;
    for number in 0..tasks {
        if number % ROUND == 0 {
            place = (place + 1) % producers.len();
        }
        if number % WAIT_PERIOD == 0 {
            // For a stream behind in the round or ahead of it, by turns.
            let distance = if number % 2 == 0 { 1 } else { producers.len() - 7 };
            let other = (place + distance) % producers.len();
            let [own, other] = producers.get_disjoint_mut([place, other]).expect("two places");
            own.wait_for(other);
        } else {
            producers[place].enqueue();
        }
    }
}

#[test]
fn a_million_tasks_of_8_threads_on_64_streams_keep_every_order() {
    finishes(|| run(setting("ACCELRT_TEST_STRESS_TASKS", 1_000_000)));
}

#[test]
#[ignore = "large: make stress"]
#[expect(clippy::print_stdout, reason = "how long it took, for who runs it")]
fn a_hundred_million_tasks_keep_every_order() {
    let tasks = setting("ACCELRT_TEST_STRESS_LARGE_TASKS", 100_000_000);
    let started = Instant::now();
    run(tasks);
    let seconds = started.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a figure")]
    let nanoseconds = seconds * 1e9 / tasks as f64;
    println!("{tasks} tasks in {seconds:.1} s: {nanoseconds:.0} ns a task");
}
