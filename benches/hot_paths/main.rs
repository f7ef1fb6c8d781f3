//! The hot paths whose instructions `make counts` counts: each in a function of its own.
//!
//! Usage: `hot_paths NAME COUNT`. Nothing here is random: the only worker stands in a gate
//! throughout, so this thread alone works, and time is how often it was asked for. Two runs with
//! different counts therefore differ by what the rounds cost, to the instruction.

mod clock;

use std::env;
use std::hint::black_box;
use std::sync::mpsc;

use accelrt::allocator::{CachingAllocator, Request};
use accelrt::{Config, Device, Event, Runtime, Stream};

/// What paths work with.
struct Ground<'a> {
    stream: &'a Stream,
    event: &'a Event,
    allocator: &'a CachingAllocator,
}

fn main() {
    // cargo adds `--bench`.
    let arguments: Vec<_> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let [name, count] = &arguments[..] else { return }; // `cargo bench` runs every bench
    let path: fn(&Ground<'_>, u64) = match name.as_str() {
        "enqueue" => counted_enqueue,
        "round_trip" => counted_round_trip,
        "record" => counted_record,
        "query" => counted_query,
        "pair" => counted_pair,
        "empty" => counted_empty,
        _ => panic!("there is no path {name}"),
    };
    let count = count.parse().expect("a count");
    let config = Config::builder().cpu_threads(1).build().expect("the settings are right");
    let runtime = Runtime::new(config).expect("the settings are right");
    let [held, free] = [(); 2].map(|()| runtime.stream(Device::cpu(0)).expect("a stream"));
    let event = Event::new();
    if name == "query" {
        free.record(&event).expect("the first record");
        free.synchronize().expect("no task fails");
    }
    let gate = shut_gate(&held);
    // Enqueueing and recording are counted on a stream that somebody is responsible for already, as
    // in the middle of a program; a round trip on one that this thread drains.
    let stream = if name == "round_trip" { &free } else { &held };
    let allocator = &runtime.allocator(Device::cpu(0)).expect("an allocator");
    path(&Ground { stream, event: &event, allocator }, count);
    gate.send(()).expect("the worker waits");
    held.synchronize().expect("no task fails");
}

/// Returns when the worker stands in a task that ends when something is sent.
fn shut_gate(stream: &Stream) -> mpsc::Sender<()> {
    let (entered, has_entered) = mpsc::channel();
    let (open, is_open) = mpsc::channel();
    let gate = move || {
        entered.send(()).expect("somebody waits");
        is_open.recv().expect("a gate is opened");
    };
    stream.enqueue(gate).expect("the runtime runs");
    has_entered.recv().expect("the worker runs");
    open
}

#[inline(never)]
fn counted_enqueue(&Ground { stream, .. }: &Ground<'_>, count: u64) {
    for number in 0..count {
        let payload = [number; 5];
        let task = move || {
            black_box(payload);
        };
        stream.enqueue(task).expect("the runtime runs");
    }
}

#[inline(never)]
fn counted_round_trip(&Ground { stream, .. }: &Ground<'_>, count: u64) {
    for _ in 0..count {
        let task = || {
            black_box(());
        };
        stream.enqueue(task).expect("the runtime runs");
        stream.synchronize().expect("no task fails");
    }
}

#[inline(never)]
fn counted_record(&Ground { stream, event, .. }: &Ground<'_>, count: u64) {
    for _ in 0..count {
        stream.record(event).expect("an event of this stream");
    }
}

#[inline(never)]
fn counted_query(&Ground { event, .. }: &Ground<'_>, count: u64) {
    for _ in 0..count {
        assert!(black_box(event).query(), "it is done");
    }
}

/// A buffer of the process's runtime, made and dropped: the thread knows its place from the second
/// round on.
#[inline(never)]
fn counted_empty(_: &Ground<'_>, count: u64) {
    let runtime = Runtime::global().expect("the environment is right");
    for _ in 0..count {
        let buffer = runtime.empty(black_box(512), Device::cpu(0)).expect("there is memory");
        drop(black_box(buffer));
    }
}

/// The thread has the memory from the second round on.
#[inline(never)]
fn counted_pair(&Ground { allocator, .. }: &Ground<'_>, count: u64) {
    for _ in 0..count {
        let block = allocator.allocate(Request::new(black_box(512), 0)).expect("there is memory");
        allocator.free(black_box(block)).expect("it is its own");
    }
}
