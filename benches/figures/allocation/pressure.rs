//! More threads than processors, and too little memory (A15): under our policy and under PyTorch's.

use std::sync::Barrier;
use std::time::Instant;
use std::{io, thread};

use accelrt::allocator::{Allocated, CachingAllocator, Request};
use accelrt_replay::Accounting;

use super::{Numbers, PAGE_BYTES};
use crate::measure::{in_turns, ns_each};
use crate::processors::{allowed_cpus, pin};
use crate::quiet::Watch;
use crate::table::Table;

const THREADS: usize = 4;
const CPUS: usize = 2;
const CAPACITY_BYTES: usize = 64 << 20;
/// Of each thread in a repetition.
const OPERATIONS: usize = 10_000;
/// Of each thread; it has half as many on average, which are as much as the device has.
const MOST_LIVE: usize = 16;

pub(super) fn measure(table: &mut Table) -> io::Result<()> {
    let cpus = allowed_cpus();
    if cpus.len() < CPUS {
        return table.unmeasured("A15", "needs two processors");
    }
    let [mut native, mut torch] = ["policy:native", "policy:torch"].map(Pressed::under);
    let (mut of_native, mut of_torch) = (
        |watch: &mut Watch<'_>| watch.once(|| native.ns(&cpus[..CPUS])),
        |watch: &mut Watch<'_>| watch.once(|| torch.ns(&cpus[..CPUS])),
    );
    let [ours, theirs] = in_turns([&mut of_native, &mut of_torch]);
    table.against("A15", ours, ("policy torch", Some(theirs)))
}

/// A device of numbers that has less than its threads want.
struct Pressed {
    memory: CachingAllocator,
    repetitions: usize,
}

impl Pressed {
    fn under(policy: &str) -> Self {
        let config = policy.parse().expect("the settings are right");
        let (capacity_bytes, granularity_bytes) = (CAPACITY_BYTES, PAGE_BYTES);
        let accounting = Accounting { config, capacity_bytes, granularity_bytes };
        let memory = accounting.allocator().expect("numbers are always there");
        Self { memory, repetitions: 0 }
    }

    /// Per request or free, of all threads together: the same ones under each policy. A request
    /// that fails is one as well.
    fn ns(&mut self, cpus: &[usize]) -> f64 {
        self.repetitions += 1;
        let barrier = Barrier::new(THREADS + 1);
        let operations = |thread: usize| {
            pin(cpus);
            let mut live = Vec::with_capacity(MOST_LIVE);
            let mut numbers = Numbers::new();
            for _ in 0..self.repetitions * THREADS + thread {
                numbers.below(1); // of each thread and repetition its own
            }
            barrier.wait();
            for _ in 0..OPERATIONS {
                self.step(1 + thread as u64, &mut numbers, &mut live);
            }
            barrier.wait();
            for block in live {
                self.free(block);
            }
        };
        thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || operations(thread));
            }
            barrier.wait();
            let began = Instant::now();
            barrier.wait();
            ns_each(began.elapsed(), THREADS * OPERATIONS)
        })
    }

    /// Frees one of a thread's blocks, or asks for one: the more often, the fewer it has.
    fn step(&self, stream: u64, numbers: &mut Numbers, live: &mut Vec<Allocated>) {
        let place = numbers.below(MOST_LIVE);
        if place < live.len() {
            return self.free(live.swap_remove(place));
        }
        let unit = [1 << 10, 100 << 10, 1 << 20][numbers.below(3)];
        let request = Request::new(unit * (1 + numbers.below(8)), stream);
        live.extend(self.memory.allocate(request));
    }

    fn free(&self, block: Allocated) {
        self.memory.free(block).expect("it is its own");
    }
}
