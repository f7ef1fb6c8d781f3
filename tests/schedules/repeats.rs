//! The same seed gives the same order, times and offsets, in every process; other seeds differ.
//!
//! Method: a program on four streams with events, waits, memory that is reused and polls writes
//! down all that it can see. Texts are compared.

use std::collections::BTreeSet;
use std::fmt::Write;

use accelrt::{Device, Event};
use accelrt_testing::{Schedule, Strategy};

use crate::process;
use crate::support::World;

const STRATEGIES: [Strategy; 4] =
    [Strategy::Random, Strategy::Invert, Strategy::Starve, Strategy::Pct { depth: 3, steps: 40 }];

/// All that a program sees: the order of its tasks, elapsed times, and where its memory lies.
fn seen(schedule: Schedule) -> String {
    let world = World::new(schedule, 4);
    let mut text = String::new();
    let events: Vec<Event> = (0..8).map(|_| Event::timed()).collect();
    let mut first = None;
    for round in 0..8 {
        for stream in 0..4 {
            world.enqueue(stream, format!("{round}.{stream}"));
            let buffer = world.runtime.empty(1000 << stream, Device::cpu(0)).unwrap();
            let address = buffer.address().unwrap().cast_signed();
            write!(text, "{} ", address - *first.get_or_insert(address)).unwrap();
            buffer.fill(7, &world.streams[stream]).unwrap();
        }
        world.streams[round % 4].record(&events[round]).unwrap();
        world.streams[(round + 1) % 4].wait_event(&events[round]).unwrap();
        if round == 4 {
            let mut num_polls = 0;
            while !events[2].is_done() {
                num_polls += 1;
            }
            write!(text, "{num_polls} polls ").unwrap();
        }
    }
    world.finish();
    for pair in events.windows(2) {
        write!(text, "{} ", pair[0].elapsed_ms(&pair[1]).unwrap()).unwrap();
    }
    write!(text, "{} {}", world.told().join(" "), world.schedule.num_steps()).unwrap();
    text
}

#[test]
fn a_seed_repeats_itself_and_seeds_differ() {
    for strategy in STRATEGIES {
        let of = |seed| seen(Schedule::new(seed).strategy(strategy));
        let texts: BTreeSet<String> = (0..10).map(of).collect();
        assert_eq!(texts.len(), 10, "{strategy:?}");
        (0..10).for_each(|seed| assert!(texts.contains(&of(seed)), "{strategy:?} seed {seed}"));
    }
}

#[test]
fn a_seed_is_the_same_in_every_process() {
    let texts: BTreeSet<String> = (0..3)
        .map(|_| {
            let output = process::run("repeats::program", "seen", &[]);
            process::stderr_of_success(&output);
            let text = String::from_utf8(output.stdout).unwrap();
            text.lines().find(|line| line.contains(" polls ")).expect("what was seen").to_owned()
        })
        .collect();
    assert_eq!(texts.len(), 1, "{texts:#?}");
}

#[test]
#[ignore = "run by others, in a process of its own"]
#[expect(clippy::print_stdout, reason = "what the parent compares")]
fn program() {
    assert!(process::program().is_some(), "only in a process of its own");
    println!("\n{}", seen(Schedule::new(17)));
}

#[test]
fn elapsed_times_are_the_durations_of_the_tasks_between_exactly() {
    let world = World::new(Schedule::new(1).durations_ns(2_500..=2_500), 2);
    let [start, middle, end] = [(); 3].map(|()| Event::timed());
    let stream = &world.streams[0];
    stream.record(&start).unwrap();
    (0..4).for_each(|_| world.enqueue(0, "short"));
    stream.record(&middle).unwrap();
    let buffer = world.runtime.empty(1_000_000, Device::cpu(0)).unwrap();
    buffer.fill(1, stream).unwrap(); // 2.5 us, and a nanosecond for each 10 bytes
    stream.record(&end).unwrap();
    world.finish();
    assert_eq!(start.elapsed_ms(&middle).unwrap().to_bits(), 0.010_f64.to_bits());
    assert_eq!(middle.elapsed_ms(&end).unwrap().to_bits(), 0.102_5_f64.to_bits());
    assert_eq!(end.elapsed_ms(&start).unwrap().to_bits(), (-0.112_5_f64).to_bits());
}

#[test]
fn operations_take_durations_of_their_own_exactly() {
    let setting = "seed:1,durations:1000,durations.fill:30000,durations.copy:7000";
    let world = World::new(setting.parse().unwrap(), 1);
    let stream = &world.streams[0];
    let buffer = |bytes| world.runtime.empty(bytes, Device::cpu(0)).unwrap();
    let (source, target) = (buffer(100), buffer(100));
    let events: Vec<Event> = (0..4).map(|_| Event::timed()).collect();
    stream.record(&events[0]).unwrap();
    source.fill(1, stream).unwrap();
    stream.record(&events[1]).unwrap();
    target.copy_from(&source, stream).unwrap();
    stream.record(&events[2]).unwrap();
    world.enqueue(0, "a call");
    stream.record(&events[3]).unwrap();
    world.finish();
    let took = events.windows(2).map(|pair| pair[0].elapsed_ms(&pair[1]).unwrap().to_bits());
    let expected = [0.030_01_f64, 0.007_01, 0.001]; // and a nanosecond for each 10 bytes
    assert_eq!(took.collect::<Vec<_>>(), expected.map(f64::to_bits));
}

#[test]
fn deferred_tasks_take_time_too() {
    let setting = "seed:1,durations:1000,durations.deferred:6000";
    let world = World::new(setting.parse().unwrap(), 1);
    let stream = &world.streams[0];
    let events = [(); 2].map(|()| Event::timed());
    stream.record(&events[0]).unwrap();
    stream.enqueue_deferred(|completion| completion.finish(Ok(()))).unwrap();
    stream.record(&events[1]).unwrap();
    world.finish();
    assert_eq!(events[0].elapsed_ms(&events[1]).unwrap().to_bits(), 0.006_f64.to_bits());
}

#[test]
fn what_events_and_streams_promise_holds_for_every_seed() {
    // Goal: a schedule is one of those that the program allows. Method: a diamond of waits.
    let mut orders = BTreeSet::new();
    for strategy in STRATEGIES {
        for seed in 0..50 {
            let world = World::new(Schedule::new(seed).strategy(strategy), 3);
            world.enqueue(0, "first");
            let [a, b, c] = &world.streams[..] else { panic!("three") };
            b.wait_stream(a).unwrap();
            c.wait_stream(a).unwrap();
            world.enqueue(1, "left");
            world.enqueue(2, "right");
            a.wait_stream(b).unwrap();
            a.wait_stream(c).unwrap();
            world.enqueue(0, "last");
            a.synchronize().unwrap();
            orders.insert(world.told().join(" "));
        }
    }
    let orders: Vec<&str> = orders.iter().map(String::as_str).collect();
    assert_eq!(orders, ["first left right last", "first right left last"]);
}
