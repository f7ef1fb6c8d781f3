//! The hot paths whose instructions `make counts` counts: each in a function of its own.
//!
//! Usage: `hot_paths NAME COUNT`. Nothing here is random: the only worker stands in a gate
//! throughout, so this thread alone works, and time is how often it was asked for. Two runs with
//! different counts therefore differ by what the rounds cost, to the instruction.

mod clock;

use std::hint::black_box;
use std::mem::ManuallyDrop;
use std::sync::mpsc;
use std::{env, thread};

use accelrt::allocator::{Allocated, CachingAllocator, Request};
use accelrt::{AllocatorConfig, Buffer, Config, Device, Event, Runtime, Stream};
use accelrt_observe::memory_history::MemoryHistory;
use accelrt_observe::profiler::Profile;
use accelrt_replay::Accounting;

/// What paths work with.
struct Ground<'a> {
    runtime: &'a Runtime,
    stream: &'a Stream,
    /// Another one, on which nothing waits.
    other: &'a Stream,
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
        "wait" => counted_wait,
        "copy" => copy,
        "alloc_hit" => counted_alloc_hit,
        "alloc_miss" => alloc_miss,
        "grow" => grow,
        "remote_free" => remote_free,
        "empty" => counted_empty,
        "logged" => logged,
        "recorded" => recorded,
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
    let drains = ["round_trip", "logged"];
    let stream = if drains.contains(&&**name) { &free } else { &held };
    let allocator = &runtime.allocator(Device::cpu(0)).expect("an allocator");
    let other = if drains.contains(&&**name) { &held } else { &free };
    path(&Ground { runtime: &runtime, stream, other, event: &event, allocator }, count);
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
        assert!(black_box(event).is_done(), "it is done");
    }
}

/// As a round trip of 64 tasks, each of which a profile is told of twice. What the profile keeps is
/// memory that the heap has from the profile before.
fn logged(ground: &Ground<'_>, count: u64) {
    for _ in 0..2 {
        let profile = Profile::start(ground.runtime);
        counted_logged(ground, count / 2);
        drop(profile);
    }
}

#[inline(never)]
fn counted_logged(&Ground { stream, .. }: &Ground<'_>, count: u64) {
    for _ in 0..count / 64 {
        for number in 0..64 {
            let payload = [number; 4];
            let task = move || {
                black_box(payload);
            };
            stream.enqueue(task).expect("the runtime runs");
        }
        stream.synchronize().expect("no task fails");
    }
}

/// As `alloc_hit`, of which a memory history has each request and free. What it keeps is memory
/// that the heap has from the history before.
fn recorded(ground: &Ground<'_>, count: u64) {
    for _ in 0..2 {
        let history = MemoryHistory::start(ground.runtime, 1 << 14);
        counted_recorded(ground, count / 2);
        drop(history);
    }
}

#[inline(never)]
fn counted_recorded(ground: &Ground<'_>, count: u64) {
    counted_alloc_hit(ground, count);
}

/// A record, and a wait for it on another stream.
#[inline(never)]
fn counted_wait(&Ground { stream, other, event, .. }: &Ground<'_>, count: u64) {
    for _ in 0..count {
        stream.record(event).expect("an event of this stream");
        other.wait_event(event).expect("it was recorded");
    }
}

/// A copy of 4 KiB between two buffers is enqueued. Another call of `empty`, or another drop of a
/// buffer, would keep the compiler from inlining those that `counted_empty` counts.
fn copy(&Ground { runtime, stream, .. }: &Ground<'_>, count: u64) {
    let aligned = || runtime.empty_aligned(4096, 64, Device::cpu(0)).expect("there is memory");
    let [source, target] = [(); 2].map(|()| ManuallyDrop::new(aligned()));
    counted_copy(stream, &source, &target, count);
}

#[inline(never)]
fn counted_copy(stream: &Stream, source: &Buffer, target: &Buffer, count: u64) {
    for _ in 0..count {
        drop(target.copy_from(source, stream).expect("they have one size"));
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
fn counted_alloc_hit(&Ground { allocator, .. }: &Ground<'_>, count: u64) {
    for _ in 0..count {
        let block = allocator.allocate(Request::new(black_box(512), 0)).expect("there is memory");
        allocator.free(black_box(block)).expect("it is its own");
    }
}

/// Of 1,000 live blocks of 1 to 16 MiB one is freed, and one of another size is taken. What the
/// thread has seldom fits, and the memory has come before.
fn alloc_miss(_: &Ground<'_>, count: u64) {
    let (allocator, mut sizes) = (accounting(), Sizes(0x2545_F491_4F6C_DD1D));
    let take = |bytes| allocator.allocate(Request::new(bytes, 0)).expect("there is memory");
    let mut live: Vec<Allocated> = (0..1_000).map(|_| take(sizes.middle())).collect();
    churn(&allocator, &mut live, &mut sizes, 20_000);
    counted_alloc_miss(&allocator, &mut live, &mut sizes, count);
}

#[inline(never)]
fn counted_alloc_miss(
    allocator: &CachingAllocator,
    live: &mut [Allocated],
    sizes: &mut Sizes,
    count: u64,
) {
    churn(allocator, live, sizes, count);
}

#[inline(always)]
fn churn(allocator: &CachingAllocator, live: &mut [Allocated], sizes: &mut Sizes, count: u64) {
    for _ in 0..count {
        let place = &mut live[sizes.below(1_000)];
        allocator.free(std::mem::take(place)).expect("it is its own");
        let request = Request::new(sizes.middle(), 0);
        *place = allocator.allocate(request).expect("there is memory");
    }
}

/// Each block needs pages that the device has not given yet.
fn grow(_: &Ground<'_>, count: u64) {
    counted_grow(&accounting(), count);
}

#[inline(never)]
fn counted_grow(allocator: &CachingAllocator, count: u64) {
    for _ in 0..count {
        let block = allocator.allocate(Request::new(black_box(4 << 20), 0));
        let _kept = black_box(block.expect("there is memory"));
    }
}

/// One thread takes blocks, and another one frees them.
fn remote_free(Ground { allocator, .. }: &Ground<'_>, count: u64) {
    const BATCH: u64 = 100;
    let (hand_over, taken) = mpsc::channel::<Vec<Allocated>>();
    let (give_back, freed) = mpsc::channel::<Vec<Allocated>>();
    thread::scope(|scope| {
        scope.spawn(move || {
            for mut blocks in taken {
                counted_remote_free_there(allocator, &mut blocks);
                give_back.send(blocks).expect("the other thread waits");
            }
        });
        let mut blocks = Vec::with_capacity(100);
        for _ in 0..count / BATCH {
            counted_remote_free_here(allocator, &mut blocks, BATCH);
            hand_over.send(blocks).expect("the other thread waits");
            blocks = freed.recv().expect("the other thread frees");
        }
        drop(hand_over);
    });
}

#[inline(never)]
fn counted_remote_free_here(allocator: &CachingAllocator, blocks: &mut Vec<Allocated>, count: u64) {
    for _ in 0..count {
        blocks.push(allocator.allocate(Request::new(512, 0)).expect("there is memory"));
    }
}

#[inline(never)]
fn counted_remote_free_there(allocator: &CachingAllocator, blocks: &mut Vec<Allocated>) {
    for block in blocks.drain(..) {
        allocator.free(block).expect("it is its own");
    }
}

/// An allocator on a device of numbers, with more of them than are taken.
fn accounting() -> CachingAllocator {
    let (capacity_bytes, granularity_bytes) = (1 << 41, 2 << 20);
    let config = AllocatorConfig::default();
    let accounting = Accounting { config, capacity_bytes, granularity_bytes };
    accounting.allocator().expect("numbers are always there")
}

/// Sizes and places that look random and are the same each time.
struct Sizes(u64);

impl Sizes {
    #[inline(always)]
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).expect("a word") % limit
    }

    #[inline(always)]
    fn middle(&mut self) -> usize {
        (1 << 20) + 512 * (1 + self.below(15 << 11))
    }
}
