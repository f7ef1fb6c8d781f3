//! Two threads (A5, A6): each with its own memory, and memory that the other one frees.
#![expect(unsafe_code, reason = "a ring hands values over")]

use std::cell::UnsafeCell;
use std::hint::{black_box, spin_loop};
use std::io;
use std::mem::MaybeUninit;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use accelrt::{Device, Runtime};

use super::malloc::Peer;
use super::pairs::pairs_ns;
use super::{Memory, settings};
use crate::measure::{Thing, all_in_turns, in_turns, ns_each};
use crate::processors::{allowed_cpus, pin};
use crate::quiet::Watch;
use crate::table::Table;

const PAIRS: usize = 100_000;
const BYTES: usize = 512;

pub(super) fn measure(runtime: &Runtime, table: &mut Table) -> io::Result<()> {
    let cpus = allowed_cpus();
    if cpus.len() < 2 {
        return ["A5", "A6"]
            .iter()
            .try_for_each(|name| table.unmeasured(name, "needs two processors"));
    }
    let ours = runtime.separate_allocator(Device::cpu(0), settings()).expect("an allocator");
    let [one, two] = in_turns([&mut |watch| pairs_ns(&ours, BYTES, watch), &mut |watch| {
        watch.once(|| two_threads_ns(&ours, &cpus))
    }]);
    table.against("A5", two, ("one thread", Some(one)))?;

    let mut peers = Peer::all()?;
    let mut of_ours = |watch: &mut Watch<'_>| watch.once(|| handed_over_ns(&ours, BYTES, PAIRS));
    let present = peers.iter_mut().filter_map(|(_, peer)| peer.as_mut());
    let (names, mut of_peers): (Vec<_>, Vec<_>) = present
        .map(|peer| {
            let name = peer.name;
            (name, |watch: &mut Watch<'_>| watch.once(|| peer.handed_over_ns(BYTES, PAIRS)))
        })
        .unzip();
    let mut things: Vec<&mut Thing<'_>> = vec![&mut of_ours];
    things.extend(of_peers.iter_mut().map(|thing| thing as &mut Thing<'_>));
    let figures = all_in_turns(&mut things);
    table.row("A6", figures[0])?;
    for (peer, _) in &peers {
        let place = names.iter().position(|name| name == peer);
        let figure = place.map(|place| figures[1 + place]);
        table.against(&format!("A6.{peer}"), figures[0], (*peer, figure))?;
    }
    Ok(())
}

/// Per pair, of two threads that each use a stream of their own: their mean.
fn two_threads_ns(memory: &impl Memory, cpus: &[usize]) -> f64 {
    let barrier = Barrier::new(2);
    let work = |place: usize| {
        pin(&cpus[place..=place]);
        let stream = 1 + place as u64;
        let pairs = |count: usize| {
            for _ in 0..count {
                memory.free(black_box(memory.allocate(black_box(BYTES), stream)));
            }
        };
        pairs(PAIRS / 10);
        barrier.wait();
        let started = Instant::now();
        pairs(PAIRS);
        ns_each(started.elapsed(), PAIRS)
    };
    let [first, second] = thread::scope(|scope| {
        let threads = [0, 1].map(|place| scope.spawn(move || work(place)));
        threads.map(|thread| thread.join().expect("it only allocates"))
    });
    f64::midpoint(first, second)
}

/// Per block that one thread takes and another one frees, each on a processor of its own: where a
/// scheduler puts both on one, they take turns of milliseconds, and that is what is measured.
pub(super) fn handed_over_ns<M: Memory>(memory: &M, bytes: usize, blocks: usize) -> f64 {
    let (ring, barrier, cpus) = (Ring::<M::Block>::new(), Barrier::new(2), allowed_cpus());
    let on_processor = |place: usize| {
        pin(&cpus[place..=place]);
        barrier.wait();
        Instant::now()
    };
    let put = |number| ring.put(number, memory.allocate(black_box(bytes), 0));
    let began = thread::scope(|scope| {
        scope.spawn(|| {
            on_processor(1);
            (0..blocks).for_each(|number| memory.free(ring.take(number)));
        });
        let taker = scope.spawn(|| {
            let began = on_processor(0);
            (0..blocks).for_each(put);
            began
        });
        taker.join().expect("it only allocates")
    });
    ns_each(began.elapsed(), blocks)
}

/// A bounded queue of one producer and one consumer.
struct Ring<T>(Vec<Slot<T>>);

struct Slot<T> {
    is_full: AtomicBool,
    value: UnsafeCell<MaybeUninit<T>>,
}

const SLOTS: usize = 1_024;

// SAFETY: the flag says which of the two threads may use the value.
unsafe impl<T: Send> Sync for Slot<T> {}

impl<T> Ring<T> {
    fn new() -> Self {
        let slot = || Slot {
            is_full: AtomicBool::new(false),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        };
        Self((0..SLOTS).map(|_| slot()).collect())
    }

    fn put(&self, number: usize, value: T) {
        let slot = &self.0[number % SLOTS];
        // Acquire: pairs with the release in `take`.
        while slot.is_full.load(Ordering::Acquire) {
            spin_loop();
        }
        // SAFETY: the consumer leaves an empty slot alone.
        unsafe { *slot.value.get() = MaybeUninit::new(value) };
        slot.is_full.store(true, Ordering::Release); // pairs with `take`
    }

    fn take(&self, number: usize) -> T {
        let slot = &self.0[number % SLOTS];
        // Acquire: pairs with the release in `put`.
        while !slot.is_full.load(Ordering::Acquire) {
            spin_loop();
        }
        // SAFETY: the producer leaves a full slot alone.
        let value = unsafe { slot.value.get().replace(MaybeUninit::uninit()) };
        slot.is_full.store(false, Ordering::Release); // pairs with `put`
        // SAFETY: it was full.
        unsafe { value.assume_init() }
    }
}
