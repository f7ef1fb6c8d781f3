//! Several threads at once on a device that is nearly full: what is there in turn is enough.
//!
//! Goal: a request fails only when memory is short of what all threads hold at that moment, not
//! because another thread was faster or is just giving memory back. Method: threads that hold at
//! most one buffer each, on streams that change all the time, on devices that hold all of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use accelrt::backend::null::Completion;
use accelrt::{Config, Error, StreamGuard};

use crate::numbers::Numbers;
use crate::seed::seed;
use crate::support::{Machine, finishes};

const MIB: usize = 1 << 20;

/// What threads ask for, how often, and how many of them.
#[derive(Clone, Copy)]
struct Load {
    threads: usize,
    rounds: usize,
    least_bytes: usize,
    most_bytes: usize,
}

/// Each thread makes a buffer, fills it and drops it, again and again.
fn crowd(machine: &Machine, load: &Load, seed: u64) {
    thread::scope(|scope| {
        for number in 0..load.threads {
            let numbers = Numbers::new(seed ^ number as u64);
            scope.spawn(move || turn_over(machine, load, numbers));
        }
    });
    machine.assert_nothing_taken();
}

fn turn_over(machine: &Machine, load: &Load, mut numbers: Numbers) {
    let (runtime, device) = (&machine.runtime, machine.device());
    for round in 0..load.rounds {
        let stream = runtime.stream(device).unwrap();
        let _current = StreamGuard::new(runtime, &stream).unwrap();
        let bytes = load.least_bytes + numbers.below(load.most_bytes - load.least_bytes + 1);
        let buffer = runtime.empty(bytes, device);
        let buffer = buffer.unwrap_or_else(|error| panic!("in round {round}: {error}"));
        let seen = buffer.nbytes().min(MIB);
        buffer.slice(..seen).unwrap().fill(1, &stream).unwrap();
    }
}

#[test]
fn two_threads_that_hold_three_mebibytes_each_have_them_of_sixteen() {
    let load = Load { threads: 2, rounds: 1000, least_bytes: 1, most_bytes: 3 * MIB };
    finishes(move || {
        let seed = seed();
        for completion in [Completion::AtOnce, Completion::WhenAsked { polls: 2 }] {
            let machine = Machine::null_of(16 * MIB, completion, "");
            crowd(&machine, &load, seed);
        }
        crowd(&Machine::cpu_with(&config(16 * MIB, "")), &load, seed);
    });
}

#[test]
fn three_threads_that_hold_a_segment_each_have_them_where_there_is_room_for_three() {
    let load = Load { threads: 3, rounds: 1000, least_bytes: 2 * MIB, most_bytes: 20 * MIB };
    finishes(move || {
        let seed = seed();
        // Where blocks share pages of 20 MiB, each of two threads' may keep two of them.
        let expandable = "policy:torch,expandable_segments:True";
        for (settings, capacity_bytes) in [("policy:torch", 60 * MIB), (expandable, 120 * MIB)] {
            for completion in [Completion::AtOnce, Completion::WhenAsked { polls: 2 }] {
                let machine = Machine::null_of(capacity_bytes, completion, settings);
                crowd(&machine, &load, seed);
            }
            crowd(&Machine::cpu_with(&config(capacity_bytes, settings)), &load, seed);
        }
    });
}

#[test]
fn what_never_fits_is_refused_soon_while_another_thread_goes_on() {
    // Goal: others that allocate and free without an end keep nobody from the refusal. Method: one
    // request is too large beside what is held, the other finds no page that is nobody's.
    let load = Load { threads: 1, rounds: 100, least_bytes: 1, most_bytes: 2 * MIB };
    finishes(move || {
        let machine = Machine::null_of(16 * MIB, Completion::AtOnce, "");
        let (runtime, device) = (&machine.runtime, machine.device());
        let take = |bytes| runtime.empty(bytes, device);
        // Every other of these is freed: what is left is in four pages of eight.
        let mut held: Vec<_> = (0..8).map(|_| Some(take(MIB).unwrap())).collect();
        held.iter_mut().skip(1).step_by(2).for_each(|buffer| *buffer = None);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for seed in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break; // whenever that is seen
                    }
                    turn_over(&machine, &load, Numbers::new(seed));
                }
            });
            for _ in 0..200 {
                for bytes in [13 * MIB, 10 * MIB] {
                    let refused = take(bytes);
                    assert!(matches!(refused, Err(Error::OutOfMemory { .. })), "{refused:?}");
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        drop(held);
        machine.assert_nothing_taken();
    });
}

fn config(capacity_bytes: usize, settings: &str) -> Config {
    let allocator_settings = settings.to_owned();
    Config { cpu_memory_bytes: Some(capacity_bytes), allocator_settings, ..Config::default() }
}
