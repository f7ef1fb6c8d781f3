//! Several threads at once on a device that is nearly full: what is there in turn is enough.
//!
//! Goal: a request fails only when memory is short of what all threads hold at that moment, not
//! because another thread was faster or is just giving memory back. Method: threads that hold at
//! most one buffer each, on streams that change all the time, on devices that hold all of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;

use accelrt::{Buffer, Config, Device, Error, MemoryError, Runtime, StreamGuard};
use accelrt_testing::null::CompletionMode;

use crate::numbers::Numbers;
use crate::scheduled::scheduled;
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
        for completion in [CompletionMode::AtOnce, CompletionMode::WhenAsked { polls: 2 }] {
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
            for completion in [CompletionMode::AtOnce, CompletionMode::WhenAsked { polls: 2 }] {
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
        let machine = Machine::null_of(16 * MIB, CompletionMode::AtOnce, "");
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
                    assert!(
                        matches!(refused, Err(Error::Memory(MemoryError::OutOfMemory { .. }))),
                        "{refused:?}"
                    );
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        drop(held);
        machine.assert_nothing_taken();
    });
}

fn config(capacity_bytes: usize, settings: &str) -> Config {
    Config::builder().cpu_memory_bytes(capacity_bytes).allocator_settings(settings).build().unwrap()
}

/// What one of several tasks is told that each ask for most of the device, and what they do first.
fn request(runtime: &Runtime, tell: &mpsc::Sender<bool>) {
    let device = Device::cpu(0);
    runtime.allocator(device).unwrap().empty_cache();
    tell.send(runtime.empty(60 * MIB, device).is_ok()).unwrap();
}

fn of_64_mib(settings: &str) -> Runtime {
    let config = Config::builder()
        .cpu_threads(2)
        .cpu_memory_bytes(64 * MIB)
        .allocator_settings(settings)
        .build()
        .unwrap();
    scheduled(Runtime::new(config).unwrap())
}

#[test]
fn a_task_does_not_wait_for_memory_that_a_stream_behind_it_uses() {
    // Goal: it is refused, and so is nobody else. Method: what would be enough was used by a stream
    // that waits for the task's, by an event or over a third one.
    for (settings, is_direct) in [("", true), ("", false), ("policy:torch", true)] {
        finishes(move || {
            let (runtime, device) = (of_64_mib(settings), Device::cpu(0));
            let [first, between, last] = [(); 3].map(|()| runtime.stream(device).unwrap());
            let buffer = runtime.empty(50 * MIB, device).unwrap();
            let ((tell, told), (go_on, goes_on)) = (mpsc::channel(), mpsc::channel::<()>());
            let asking = runtime.clone();
            let task = move || {
                goes_on.recv().unwrap();
                request(&asking, &tell);
            };
            first.enqueue(task).unwrap();
            between.wait_stream(&first).unwrap();
            last.wait_stream(if is_direct { &first } else { &between }).unwrap();
            buffer.fill(1, &last).unwrap();
            drop(buffer);
            go_on.send(()).unwrap();
            assert_eq!(told.recv(), Ok(false), "{settings}");
            runtime.synchronize(device).unwrap();
            assert!(runtime.empty(60 * MIB, device).is_ok());
        });
    }
}

#[test]
fn a_task_does_not_wait_for_a_stream_that_the_order_of_buffers_put_behind_it() {
    // Goal: the runtime's own waits count as those by events. Method: a task asks for memory that
    // a stream uses behind a copy of what the task's stream fills: at once or by a third stream.
    for (settings, is_direct) in
        [("", true), ("", false), ("policy:torch", true), ("policy:torch", false)]
    {
        finishes(move || {
            let (runtime, device) = (of_64_mib(settings), Device::cpu(0));
            let [first, between, last] = [(); 3].map(|()| runtime.stream(device).unwrap());
            let filled = runtime.empty(MIB, device).unwrap();
            let ((go_on, gate), (tell, told)) = (mpsc::channel(), mpsc::channel());
            let asking = runtime.clone();
            first
                .enqueue(move || {
                    gate.recv().unwrap();
                    request(&asking, &tell);
                })
                .unwrap();
            filled.fill(1, &first).unwrap();
            let copying = if is_direct { &last } else { &between };
            let copied = filled.copy_to_host(vec![0; MIB], copying).unwrap();
            if !is_direct {
                last.wait_stream(&between).unwrap();
            }
            let buffer = runtime.empty(40 * MIB, device).unwrap();
            buffer.fill(1, &last).unwrap();
            drop(buffer);
            go_on.send(()).unwrap();
            assert_eq!(told.recv(), Ok(false), "{settings}: it would wait for itself");
            copied.wait().unwrap();
            runtime.synchronize(device).unwrap();
        });
    }
}

#[test]
fn of_tasks_that_wait_for_each_others_memory_one_is_refused() {
    for settings in ["", "policy:torch", "expandable_segments:True"] {
        finishes(move || {
            let (runtime, device) = (of_64_mib(settings), Device::cpu(0));
            let streams = [(); 2].map(|()| runtime.stream(device).unwrap());
            let buffers = [(); 2].map(|()| runtime.empty(30 * MIB, device).unwrap());
            let (tell, told) = mpsc::channel();
            let are_both_there = Arc::new(Barrier::new(3));
            for stream in &streams {
                let (asking, tell) = (runtime.clone(), tell.clone());
                let are_both_there = Arc::clone(&are_both_there);
                let task = move || {
                    are_both_there.wait();
                    request(&asking, &tell);
                };
                stream.enqueue(task).unwrap();
            }
            for (buffer, stream) in buffers.into_iter().zip(&streams) {
                buffer.fill(1, stream).unwrap();
            }
            are_both_there.wait();
            let served = [told.recv().unwrap(), told.recv().unwrap()];
            assert!(!served[0], "{settings}: the first answer is a refusal");
            runtime.synchronize(device).unwrap();
            assert!(runtime.empty(60 * MIB, device).is_ok());
        });
    }
}

#[test]
fn of_tasks_that_wait_for_each_others_memory_of_two_allocators_one_is_refused() {
    // Goal: what a task waits for is known to tasks that ask another allocator. Method: one asks
    // for memory of the device that the other one's stream uses, which asks for shared memory.
    for settings in ["", "policy:torch"] {
        finishes(move || {
            let (runtime, device) = (of_64_mib(settings), Device::cpu(0));
            let streams = [(); 2].map(|()| runtime.stream(device).unwrap());
            let empty: [fn(&Runtime, Device) -> accelrt::Result<Buffer>; 2] = [
                |runtime, device| runtime.empty(30 * MIB, device),
                |runtime, device| runtime.empty_shared(30 * MIB, device),
            ];
            let buffers = empty.map(|empty| empty(&runtime, device).unwrap());
            let (tell, told) = mpsc::channel();
            let are_both_there = Arc::new(Barrier::new(3));
            for (stream, empty) in streams.iter().zip(empty) {
                let (asking, tell) = (runtime.clone(), tell.clone());
                let are_both_there = Arc::clone(&are_both_there);
                let task = move || {
                    are_both_there.wait();
                    tell.send(empty(&asking, device).is_ok()).unwrap();
                };
                stream.enqueue(task).unwrap();
            }
            for (buffer, stream) in buffers.into_iter().zip(streams.iter().rev()) {
                buffer.fill(1, stream).unwrap();
            }
            are_both_there.wait();
            let served = [told.recv().unwrap(), told.recv().unwrap()];
            assert!(!served[0], "{settings}: the first answer is a refusal");
            runtime.synchronize(device).unwrap();
            assert!(runtime.empty(60 * MIB, device).is_ok());
        });
    }
}
