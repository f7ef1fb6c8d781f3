//! Several threads at once with little memory: the lock is given back around calls of a device.
//!
//! Goal: what a thread meets that comes in between breaks no law. Method: threads allocate and free
//! on streams of their own and on a shared one, some hand their blocks to others, some empty the
//! cache; so little is there that requests fail and memory goes back all the time, and its
//! addresses come again at once. What each thread holds must be its own, as a map of all says, and
//! known.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use accelrt::allocator::{Allocated, Request};
use accelrt_testing::null::{NullConfig, Reuse};

use crate::numbers::Numbers;
use crate::seed::seed;
use crate::support::{Bench, KIB, MIB};

const THREADS: u64 = 6;
const STEPS: usize = 3_000;

/// Who has which bytes.
#[derive(Default)]
struct Map(Mutex<BTreeMap<u64, u64>>);

impl Map {
    fn take(&self, block: &Allocated) {
        let (begin, end) = (block.address(), block.address() + block.bytes() as u64);
        let mut map = self.0.lock().unwrap();
        let before = map.range(..end).next_back();
        assert!(before.is_none_or(|(_, end)| *end <= begin), "{block:?} is somebody's");
        map.insert(begin, end);
    }

    fn give_back(&self, block: &Allocated) {
        assert!(self.0.lock().unwrap().remove(&block.address()).is_some());
    }
}

struct Worker<'a> {
    bench: &'a Bench,
    map: &'a Map,
    numbers: Numbers,
    own_stream: u64,
    live: Vec<Allocated>,
    others: Sender<Allocated>,
    given: &'a Mutex<Receiver<Allocated>>,
}

impl Worker<'_> {
    fn run(mut self) {
        for _ in 0..STEPS {
            self.step();
        }
        while let Some(block) = self.live.pop() {
            self.free(block);
        }
    }

    fn step(&mut self) {
        match self.numbers.below(40) {
            0 => self.bench.allocator.empty_cache(),
            1 => self.bench.allocator.trim(),
            2..=5 => {
                let given = self.given.lock().unwrap().try_recv();
                if let Ok(block) = given {
                    self.free(block);
                }
            }
            6..=21 if self.live.len() < 12 => self.allocate(),
            22..=24 => {
                if let Some(block) = self.live.pop() {
                    self.others.send(block).unwrap();
                }
            }
            _ => {
                let place = self.numbers.below(self.live.len().max(1));
                if place < self.live.len() {
                    let block = self.live.swap_remove(place);
                    self.free(block);
                }
            }
        }
    }

    fn allocate(&mut self) {
        let unit = [KIB, 100 * KIB, MIB][self.numbers.below(3)];
        let bytes = unit * (1 + self.numbers.below(12));
        let stream = if self.numbers.below(3) == 0 { 0 } else { self.own_stream };
        if let Ok(block) = self.bench.allocator.allocate(Request::new(bytes, stream)) {
            self.map.take(&block);
            self.live.push(block);
        }
    }

    fn free(&self, block: Allocated) {
        let known = self.bench.allocator.block_at(block.address());
        assert_eq!(known.map(|known| known.address), Some(block.address()), "{block:?}");
        self.map.give_back(&block);
        self.bench.allocator.free(block).unwrap();
    }
}

fn run(settings: &str, seed: u64) {
    let (capacity_bytes, reuse) = (160 * MIB, Reuse::AtOnce);
    let device = NullConfig { capacity_bytes, reuse, ..NullConfig::default() };
    let (bench, map) = (Bench::on(settings, device), Map::default());
    let (sender, receiver) = channel();
    let given = Mutex::new(receiver);
    std::thread::scope(|scope| {
        for thread in 1..=THREADS {
            let worker = Worker {
                bench: &bench,
                map: &map,
                numbers: Numbers::new(seed ^ thread),
                own_stream: thread,
                live: Vec::new(),
                others: sender.clone(),
                given: &given,
            };
            scope.spawn(move || worker.run());
        }
    });
    bench.allocator.check_all();
    for block in given.lock().unwrap().try_iter() {
        bench.free(block);
    }
    bench.empty_cache();
    assert_eq!(bench.device_bytes(), 0);
    let null = Arc::clone(&bench.null);
    drop(bench);
    // Under policy `torch` addresses for which a request got no page stay until the end.
    assert_eq!(null.resource_counts().reserved_bytes, 0, "{settings}");
}

#[test]
fn threads_that_are_short_of_memory_keep_the_laws() {
    let seed = seed();
    for settings in ["", "expandable_segments:True", "max_split_size_mb:20", "policy:native"] {
        run(settings, seed);
    }
}
