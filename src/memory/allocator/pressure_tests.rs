//! A thread that is short of memory, and others that stay inside of their caches.
//!
//! No test counts time here, but for the end of a test that hangs: looks, claims and sleeps are
//! counted.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, Scope};
use std::time::Duration;

use crate::base::device::{Device, DeviceKind};
use crate::base::error::Result;
use crate::base::size::MIB;
use crate::base::sync::Ordering;
use crate::memory::allocator::caches::MOST_GROWTH_SLEEPS;
use crate::memory::allocator::pages::Pages;
use crate::memory::allocator::thread_cache::{CLAIMS, LOOKS, MOST_LOOKS};
use crate::memory::allocator::{Allocated, AllocatorConfig, CachingAllocator, Request};
use crate::null::{NullBackend, NullConfig};

/// Until a thread counts as hanging.
const LONG: Duration = Duration::from_secs(20);

fn allocator(capacity_bytes: usize) -> CachingAllocator {
    let device = Device::new(DeviceKind::NULL, 0).unwrap();
    let null = NullBackend::new(NullConfig { capacity_bytes, ..NullConfig::default() });
    CachingAllocator::new(null, device, AllocatorConfig::default()).unwrap()
}

/// A thread that has a piece in its cache, and goes inside; it leaves when it is told.
struct Parked {
    is_inside: Receiver<()>,
    leave: Sender<()>,
}

impl Parked {
    fn begin<'a>(
        scope: &'a Scope<'a, '_>,
        allocator: &'a CachingAllocator,
        kept_bytes: usize,
    ) -> Self {
        let ((inside, is_inside), (leave, left)) = (channel(), channel());
        scope.spawn(move || {
            for _ in 0..3 {
                // Large sizes are kept from their second free in a row on.
                allocator.free(allocator.allocate(Request::new(kept_bytes, 1)).unwrap()).unwrap();
            }
            let stay = allocator.caches.enter().expect("nobody has claimed it");
            inside.send(()).unwrap();
            left.recv_timeout(LONG).expect("the test says when");
            drop(stay);
        });
        Self { is_inside, leave }
    }

    fn is_inside(&self) {
        self.is_inside.recv_timeout(LONG).unwrap();
    }
}

/// Asks on a thread of its own: what came of it, and its looks at the doors of others.
fn ask<'a>(
    scope: &'a Scope<'a, '_>,
    allocator: &'a CachingAllocator,
    bytes: usize,
) -> Receiver<(Result<Allocated>, u64)> {
    let (tell, told) = channel();
    scope.spawn(move || {
        let outcome = allocator.allocate(Request::new(bytes, 2));
        tell.send((outcome, LOOKS.get())).unwrap();
    });
    told
}

/// Goal: a thread that was taken off its processor inside of its cache is not waited for by who can
/// be served without it, but for a moment where it may keep much. Method: one stays inside; another
/// needs new pages, and gets them.
#[test]
fn a_thread_that_stays_inside_of_its_cache_holds_up_no_request_that_others_serve() {
    for (kept_bytes, most_sleeps) in [(14 * MIB, 0), (20 * MIB, MOST_GROWTH_SLEEPS)] {
        let allocator = allocator(64 * MIB);
        thread::scope(|scope| {
            let parked = Parked::begin(scope, &allocator, kept_bytes);
            parked.is_inside();
            let told = ask(scope, &allocator, 30 * MIB);
            let outcome = told.recv_timeout(LONG);
            parked.leave.send(()).unwrap();
            let (block, looks) = outcome.expect("it waits for the thread inside");
            let slept = allocator.caches.sleeps.load(Ordering::Relaxed); // a count
            assert_eq!(slept, most_sleeps);
            let most = (2 + slept) * u64::from(MOST_LOOKS);
            assert!(looks <= most, "{looks}: for its own cache, for growth, behind each sleep");
            allocator.free(block.unwrap()).unwrap();
        });
        allocator.check_all();
    }
}

/// Goal: no request fails while memory is free, also when a thread keeps it that stays inside; and
/// who waits for it leaves the processor to it. Method: a request that what is kept alone serves;
/// the thread leaves when the other one has slept some times, and does nothing more.
#[test]
fn what_a_thread_keeps_that_stays_inside_is_had_when_it_leaves() {
    const SLEEPS: u64 = 5;
    let allocator = allocator(64 * MIB);
    thread::scope(|scope| {
        let parked = Parked::begin(scope, &allocator, 40 * MIB);
        parked.is_inside();
        let told = ask(scope, &allocator, 50 * MIB);
        let slept = || allocator.caches.sleeps.load(Ordering::Relaxed); // a count
        let is_over = (0..).find_map(|_| {
            thread::yield_now();
            let early = told.try_recv().ok();
            (early.is_some() || slept() >= SLEEPS).then_some(early)
        });
        parked.leave.send(()).unwrap();
        assert!(is_over.flatten().is_none(), "it fails, or is served from nowhere");
        let (block, looks) = told.recv_timeout(LONG).expect("it is served");
        let most = (slept() + 4) * u64::from(MOST_LOOKS);
        assert!(looks <= most, "{looks} looks in {} sleeps", slept());
        allocator.free(block.expect("what was kept is free")).unwrap();
    });
    allocator.check_all();
}

/// Goal: as long as memory is short no thread reaches into others' caches again and again. Method:
/// one thread keeps something, and uses it between two requests of another one, which all fail.
#[test]
fn as_long_as_memory_is_short_a_threads_cache_is_emptied_once() {
    const ROUNDS: usize = 20;
    let allocator = allocator(64 * MIB);
    let _most = allocator.allocate(Request::new(40 * MIB, 2)).unwrap();
    let ((go, gone), (done, round)) = (channel::<()>(), channel());
    thread::scope(|scope| {
        let other = &allocator;
        scope.spawn(move || {
            for () in gone {
                let taken = [(); 2].map(|()| other.allocate(Request::new(512, 1)).unwrap());
                for block in taken {
                    other.free(block).unwrap();
                }
                done.send(()).unwrap();
            }
        });
        let meet = || {
            go.send(()).unwrap();
            round.recv_timeout(LONG).unwrap();
        };
        meet();
        let before = CLAIMS.get();
        for _ in 0..ROUNDS {
            allocator.allocate(Request::new(60 * MIB, 2)).unwrap_err();
            meet();
        }
        drop(go);
        assert_eq!(CLAIMS.get() - before, 1);
    });
    allocator.check_all();
}

/// Goal: what the device refused leaves nothing behind. Method: another allocator has most of the
/// device, so pages are asked for and refused.
#[test]
fn refused_pages_take_no_room_in_the_table_of_pages() {
    let device = Device::new(DeviceKind::NULL, 0).unwrap();
    let config = NullConfig { capacity_bytes: 1 << 40, ..NullConfig::default() };
    let null = NullBackend::new(config);
    let [theirs, ours] = [(); 2]
        .map(|()| CachingAllocator::new(null.clone(), device, AllocatorConfig::default()).unwrap());
    let most = theirs.allocate(Request::new((1 << 40) - 8 * MIB, 0)).unwrap();
    let small = ours.allocate(Request::new(MIB, 0)).unwrap();
    ours.allocate(Request::new(1 << 39, 0)).unwrap_err();
    let state = ours.state.lock();
    let tables = state.native.areas.iter().filter_map(|(_, area)| area.pages.as_ref());
    let pages: usize = tables.map(Pages::len).sum();
    drop(state);
    assert!(pages <= 4, "{pages} pages are known");
    ours.free(small).unwrap();
    theirs.free(most).unwrap();
}

/// Goal: each request that needs new pages waits that moment, as long as the thread stays inside.
#[test]
fn a_thread_that_stays_inside_with_much_is_waited_for_at_each_growth() {
    let allocator = allocator(64 * MIB);
    thread::scope(|scope| {
        let parked = Parked::begin(scope, &allocator, 20 * MIB);
        parked.is_inside();
        let told = [20, 20].map(|mib| ask(scope, &allocator, mib * MIB).recv_timeout(LONG));
        parked.leave.send(()).unwrap();
        let slept = allocator.caches.sleeps.load(Ordering::Relaxed); // a count
        assert_eq!(slept, 2 * MOST_GROWTH_SLEEPS);
        for told in told {
            allocator.free(told.expect("it is served").0.unwrap()).unwrap();
        }
    });
}

/// Goal: a thread that was short of memory keeps nothing for a while either.
#[test]
fn who_is_short_of_memory_keeps_nothing_itself() {
    let allocator = allocator(64 * MIB);
    let to_heap = || {
        let frees = || allocator.state.lock().native.frees;
        let before = frees();
        allocator.free(allocator.allocate(Request::new(512, 1)).unwrap()).unwrap();
        frees() - before
    };
    to_heap();
    assert_eq!(to_heap(), 0, "it is kept");
    allocator.allocate(Request::new(65 * MIB, 1)).unwrap_err();
    assert_eq!(to_heap(), 1, "memory is short");
}

/// Goal: who is short of memory sees that small pieces came back with a thread's end.
#[test]
fn small_pieces_that_a_thread_gives_back_are_frees() {
    let allocator = allocator(64 * MIB);
    let frees = || allocator.state.lock().native.frees;
    let before = frees();
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let taken = [(); 5].map(|()| allocator.allocate(Request::new(512, 1)).unwrap());
            for block in taken {
                allocator.free(block).unwrap();
            }
        });
        thread.join().unwrap();
    });
    allocator.empty_cache();
    assert!(frees() >= before + 5, "{} of 5", frees() - before);
}

/// Goal: a segment of exactly the size that is cached is.
#[test]
fn a_segment_of_the_size_that_is_cached_stays() {
    let device = Device::cpu(0);
    let null =
        crate::backend::cpu::CpuBackend::new(&crate::base::config::Config::default()).unwrap();
    let config = "pinned_max_cached_size_mb:20".parse().unwrap();
    let heap = CachingAllocator::heap(null, device, config);
    let reserved = || heap.statistics().reserved_bytes.all.current;
    for (bytes, kept) in [(20 * MIB, 20 << 20), (22 * MIB, 20 << 20)] {
        let block = heap.allocate(Request::new(bytes, 0)).unwrap();
        heap.free(block).unwrap();
        assert_eq!(reserved(), kept);
    }
}
