//! Reclaimers: before a request fails for want of memory, the program is asked for some.
//!
//! Goal: memory that a program can spare serves its next request, and the request fails as before
//! when there is none. Method: stores of buffers on small devices of both policies, whose buffers a
//! reclaimer drops one by one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;

use accelrt::allocator::PoolOptions;
use accelrt::{Buffer, Config, Device, Error, MemPool, MemoryError, Runtime};
use accelrt_testing::fault::Method;
use accelrt_testing::null::CompletionMode;

use crate::gate::Gate;
use crate::support::{self, Machine, finishes};

const MIB: usize = 1 << 20;
/// The least request with a segment of its own under policy `torch`.
const PIECE: usize = 10 * MIB;
const CAPACITY: usize = 6 * PIECE;

/// Runtimes of both policies, with a device of 60 MiB.
fn each(run: impl Fn(&Runtime, Device)) {
    for settings in ["policy:native", "policy:torch"] {
        let config = Config::builder().cpu_memory_bytes(CAPACITY).cpu_threads(1);
        let runtime = Runtime::new(config.build().unwrap()).unwrap();
        runtime.set_allocator_settings(settings).unwrap();
        run(&runtime, Device::cpu(0));
        runtime.allocator(Device::cpu(0)).unwrap().check_all();
    }
}

/// Buffers that a reclaimer may drop, and how often it was asked.
#[derive(Default)]
struct Store {
    buffers: Mutex<Vec<Buffer>>,
    asked: AtomicUsize,
}

impl Store {
    /// Fills the device with buffers of 10 MiB.
    fn fill(runtime: &Runtime, device: Device) -> Arc<Self> {
        let store = Arc::<Self>::default();
        let buffers = (0..CAPACITY / PIECE).map(|_| runtime.empty(PIECE, device).unwrap());
        *store.buffers.lock().unwrap() = buffers.collect();
        store
    }

    fn reclaims(self: &Arc<Self>) -> impl Fn(&Error) -> bool + Send + Sync + 'static {
        let store = Arc::clone(self);
        move |_| {
            store.asked.fetch_add(1, Ordering::Relaxed);
            let oldest = {
                let mut buffers = store.buffers.lock().unwrap();
                (!buffers.is_empty()).then(|| buffers.remove(0))
            };
            oldest.is_some()
        }
    }

    fn count(&self) -> usize {
        self.buffers.lock().unwrap().len()
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

fn is_refused<T>(outcome: &Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::Memory(MemoryError::OutOfMemory { .. })))
}

#[test]
fn a_request_is_served_from_what_a_program_can_spare_and_from_no_more() {
    each(|runtime, device| {
        let store = Store::fill(runtime, device);
        runtime.add_reclaimer(store.reclaims());
        let served = runtime.empty(PIECE, device).unwrap();
        assert_eq!((store.count(), store.asked()), (5, 1));
        let larger = runtime.empty(25 * MIB, device).unwrap();
        assert_eq!(store.count(), 2, "30 MiB make room for 25");
        let statistics = runtime.allocator(device).unwrap().statistics();
        assert_eq!(statistics.num_ooms, 0, "no request has failed");
        drop((served, larger));
    });
}

#[test]
fn when_no_reclaimer_has_any_the_request_fails_as_it_would_and_is_told_once() {
    each(|runtime, device| {
        let store = Store::fill(runtime, device);
        runtime.add_reclaimer(store.reclaims());
        let told = Arc::new(AtomicUsize::new(0));
        let tell = Arc::clone(&told);
        runtime.add_oom_observer(move |_| _ = tell.fetch_add(1, Ordering::Relaxed));
        let kept = store.buffers.lock().unwrap().split_off(4);
        assert!(is_refused(&runtime.empty(50 * MIB, device)));
        assert_eq!((store.count(), store.asked()), (0, 5), "four had some, the fifth call none");
        let statistics = runtime.allocator(device).unwrap().statistics();
        assert_eq!((told.load(Ordering::Relaxed), statistics.num_ooms), (1, 1));
        assert!(runtime.empty(40 * MIB, device).is_ok());
        drop(kept);
    });
}

#[test]
fn reclaimers_are_asked_in_their_order_until_one_has_some_and_until_they_are_removed() {
    each(|runtime, device| {
        let (first, second) = (Store::fill(runtime, device), Arc::<Store>::default());
        let id = runtime.add_reclaimer(first.reclaims());
        runtime.add_reclaimer(second.reclaims());
        let held = runtime.empty(PIECE, device).unwrap();
        assert_eq!((first.asked(), second.asked()), (1, 0));
        runtime.remove_reclaimer(id);
        assert!(is_refused(&runtime.empty(PIECE, device)));
        assert_eq!((first.asked(), second.asked()), (1, 1));
        drop(held);
    });
}

#[test]
fn memory_that_a_stream_still_uses_is_waited_for_behind_a_reclaimer() {
    finishes(|| {
        each(|runtime, device| {
            let store = Store::fill(runtime, device);
            let other = runtime.stream(device).unwrap();
            let gate = Gate::shut(&other);
            store.buffers.lock().unwrap()[0].record_use(&other).unwrap();
            let (tell, told) = channel();
            let reclaims = store.reclaims();
            runtime.add_reclaimer(move |error| reclaims(error) && tell.send(()).is_ok());
            let opener = thread::spawn(move || told.recv().map(|()| gate.open()).unwrap());
            runtime.empty(PIECE, device).unwrap();
            opener.join().unwrap();
            assert_eq!((store.count(), store.asked()), (5, 1), "one was enough");
        });
    });
}

#[test]
fn memory_that_the_device_shares_with_the_host_serves_when_a_reclaimer_frees_it() {
    // Goal: the other allocator gives back what came free after it was first asked to. Method: two
    // shared buffers in the way of a request, which a reclaimer drops one by one.
    for settings in ["policy:native", "policy:torch"] {
        let machine = Machine::null_of(support::CAPACITY, CompletionMode::AtOnce, settings);
        let store = Arc::<Store>::default();
        let buffers = (0..2).map(|_| machine.runtime.empty_shared(3 * PIECE, machine.device()));
        *store.buffers.lock().unwrap() = buffers.map(Result::unwrap).collect();
        machine.runtime.add_reclaimer(store.reclaims());
        let served = machine.runtime.empty(6 * PIECE, machine.device());
        served.unwrap_or_else(|error| panic!("{settings}: {error}"));
        assert_eq!((store.count(), store.asked()), (0, 2), "{settings}");
    }
}

#[test]
fn memory_that_comes_free_while_a_reclaimer_has_nothing_serves() {
    // Goal: a request fails for want of memory that is not there, not of such that was not. Method:
    // a buffer of either allocator in the way, which is dropped inside of a reclaimer that says no.
    for settings in ["policy:native", "policy:torch"] {
        for is_shared in [false, true] {
            let machine = Machine::null_of(support::CAPACITY, CompletionMode::AtOnce, settings);
            let (runtime, device) = (&machine.runtime, machine.device());
            let make = if is_shared { Runtime::empty_shared } else { Runtime::empty };
            let held = Mutex::new(Some(make(runtime, 6 * PIECE, device).unwrap()));
            runtime.add_reclaimer(move |_| {
                drop(held.lock().unwrap().take());
                false
            });
            let served = runtime.empty(6 * PIECE, device);
            served.unwrap_or_else(|error| panic!("{settings}, shared: {is_shared}: {error}"));
        }
    }
}

/// Asks for most of the device, and calls `give` inside of a reclaimer, which says no.
fn is_served_when(runtime: &Runtime, device: Device, give: impl FnOnce() + Send + 'static) {
    let give = Mutex::new(Some(give));
    runtime.add_reclaimer(move |_| {
        let give = give.lock().unwrap().take();
        let give = give.expect("it is asked once");
        finishes(give);
        false
    });
    runtime.empty(5 * PIECE, device).unwrap();
}

#[test]
fn memory_that_streams_use_comes_while_a_reclaimer_has_nothing() {
    // Goal: what another thread frees then counts though its stream passes before or behind the
    // answer. Method: the other stream's gate opens before it, or may do so behind it.
    for is_before in [true, false] {
        each(|runtime, device| {
            let held = runtime.empty(5 * PIECE, device).unwrap();
            let other = runtime.stream(device).unwrap();
            let gate = Gate::shut(&other);
            held.record_use(&other).unwrap();
            is_served_when(runtime, device, move || {
                drop(held);
                if is_before {
                    gate.open();
                    other.synchronize().unwrap();
                } else {
                    thread::spawn(move || gate.open());
                }
            });
        });
    }
}

#[test]
fn memory_that_a_pool_gives_back_while_a_reclaimer_has_nothing_serves() {
    each(|runtime, device| {
        let pool = MemPool::new(runtime, device, PoolOptions::default()).unwrap();
        {
            let _inside = pool.enter();
            drop(runtime.empty(5 * PIECE, device).unwrap());
        }
        is_served_when(runtime, device, move || drop(pool));
    });
}

#[test]
fn memory_that_comes_free_beside_while_that_is_given_back_serves() {
    // Goal: the other allocator gives back again what came free behind its first time. Method: one
    // block of it is free, and another one is freed inside of the device's call that takes that.
    for settings in ["policy:native", "policy:torch"] {
        let machine = Machine::null_of(CAPACITY, CompletionMode::AtOnce, settings);
        let (runtime, device) = (&machine.runtime, machine.device());
        let [free, held] = [2, 3].map(|count| runtime.empty_shared(count * PIECE, device).unwrap());
        drop(free);
        let free_held = move || finishes(move || drop(held));
        machine.backend.plan_callback(Method::Release, 1, free_held);
        let served = runtime.empty(45 * MIB, device);
        served.unwrap_or_else(|error| panic!("{settings}: {error}"));
    }
}

#[test]
fn what_the_other_allocator_keeps_for_a_stream_serves_when_it_has_become_enough() {
    // Goal: it is asked again behind reclaimers, though it has freed nothing more. Method: it has
    // half of the device, which a stream uses; the other half comes while they are asked.
    each(|runtime, device| {
        let other = runtime.stream(device).unwrap();
        let gate = Gate::shut(&other);
        let shared = runtime.empty_shared(3 * PIECE, device).unwrap();
        shared.record_use(&other).unwrap();
        drop(shared);
        let held = runtime.empty(3 * PIECE, device).unwrap();
        is_served_when(runtime, device, move || {
            drop(held);
            gate.open();
            other.synchronize().unwrap();
        });
    });
}

#[test]
fn what_the_other_allocator_keeps_serves_though_a_stream_uses_a_part() {
    // Goal: what it gives back at once counts beside what is waited for. Method: of half of the
    // device each, a stream uses one; the request is for all of it, and the gate opens meanwhile.
    each(|runtime, device| {
        let other = runtime.stream(device).unwrap();
        let gate = Gate::shut(&other);
        let [used, free] = [(); 2].map(|()| runtime.empty_shared(3 * PIECE, device).unwrap());
        used.record_use(&other).unwrap();
        drop((used, free));
        let opening = thread::spawn(move || gate.open());
        runtime.empty(6 * PIECE, device).unwrap();
        opening.join().unwrap();
    });
}

#[test]
fn a_request_asks_as_often_as_it_gets_something_of_either_allocator() {
    // Goal: many small buffers are as good as a large one, wherever they are. Method: a store of
    // more buffers than a request has turns, for a request of the whole device.
    for settings in ["policy:native", "policy:torch"] {
        for make in [Runtime::empty, Runtime::empty_shared] {
            let machine = Machine::null_of(CAPACITY, CompletionMode::AtOnce, settings);
            let store = Arc::<Store>::default();
            let buffers = (0..1500).map(|_| make(&machine.runtime, 40 << 10, machine.device()));
            *store.buffers.lock().unwrap() = buffers.collect::<Result<_, _>>().unwrap();
            machine.runtime.add_reclaimer(store.reclaims());
            let served = machine.runtime.empty(CAPACITY, machine.device());
            served.unwrap_or_else(|error| panic!("{settings}: {error}"));
            assert!(store.asked() > 1000, "{settings}: asked {} times", store.asked());
        }
    }
}

#[test]
fn requests_inside_of_a_reclaimer_ask_none_and_such_above_the_limit_neither() {
    each(|runtime, device| {
        let store = Store::fill(runtime, device);
        let (asked, inner) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (counts, notes, nested) = (Arc::clone(&asked), Arc::clone(&inner), runtime.clone());
        runtime.add_reclaimer(move |_| {
            counts.fetch_add(1, Ordering::Relaxed);
            notes.store(is_refused(&nested.empty(PIECE, device)), Ordering::Relaxed);
            false
        });
        assert!(is_refused(&runtime.empty(PIECE, device)));
        assert_eq!((asked.load(Ordering::Relaxed), inner.load(Ordering::Relaxed)), (1, true));
        assert!(is_refused(&runtime.empty(CAPACITY + 1, device)));
        assert_eq!(asked.load(Ordering::Relaxed), 1, "no memory that is spared could serve it");
        drop(store);
    });
}

#[test]
fn a_reclaimer_that_claims_what_it_has_not_freed_ends_a_request_no_later_than_after_some_turns() {
    each(|runtime, device| {
        let store = Store::fill(runtime, device);
        let asked = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&asked);
        runtime.add_reclaimer(move |_| {
            counts.fetch_add(1, Ordering::Relaxed);
            true
        });
        assert!(is_refused(&runtime.empty(PIECE, device)));
        assert!((2..2000).contains(&asked.load(Ordering::Relaxed)), "{asked:?}");
        drop(store);
    });
}
