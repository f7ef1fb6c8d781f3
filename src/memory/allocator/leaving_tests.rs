//! Freed pieces that no bin keeps: a thread that is alone has them until it has the lock next.

use std::sync::mpsc::channel;
use std::thread;

use crate::base::device::{Device, DeviceKind};
use crate::base::size::{KIB, MIB};
use crate::base::sync::Ordering;
use crate::memory::allocator::caches::MOST_GROWTH_SLEEPS;
use crate::memory::allocator::{Allocated, AllocatorConfig, CachingAllocator, Request};
use crate::null::{NullBackend, NullConfig};

/// Of a device with this capacity, which this thread has a cache of.
fn allocator(capacity_bytes: usize) -> CachingAllocator {
    let null = NullBackend::new(NullConfig { capacity_bytes, ..NullConfig::default() });
    let device = Device::new(DeviceKind::NULL, 0).unwrap();
    let allocator = CachingAllocator::new(null, device, AllocatorConfig::default()).unwrap();
    for block in [(); 2].map(|()| take(&allocator, 512)) {
        allocator.free(block).unwrap();
    }
    allocator
}

fn take(allocator: &CachingAllocator, bytes: usize) -> Allocated {
    allocator.allocate(Request::new(bytes, 0)).unwrap()
}

/// How many pieces the heaps do not have, and their bytes.
fn out(allocator: &CachingAllocator) -> [u64; 2] {
    allocator.state.lock().native.out.all().current()
}

fn out_count(allocator: &CachingAllocator) -> u64 {
    out(allocator)[0]
}

/// Goal: a free whose size no bin keeps takes no lock, and the memory serves the thread's next
/// request all the same. Method: the heaps' count of what they do not have, before and behind; a
/// request of another size gets the address, though more is free elsewhere.
#[test]
fn what_waits_for_the_lock_serves_the_next_request_of_its_thread() {
    let allocator = allocator(64 * MIB);
    // Whole pages, so that all are in one arena.
    let [first, _between, larger] = [10, 4, 20].map(|size| take(&allocator, size * MIB));
    allocator.free(larger).unwrap();
    let _small = take(&allocator, 40 * KIB);
    let (address, before) = (first.address(), out_count(&allocator));
    let in_use = || allocator.statistics().allocated_bytes.all.current;
    let in_use_before = in_use();
    allocator.free(first).unwrap();
    assert_eq!(out_count(&allocator), before, "it waits");
    assert_eq!(in_use(), in_use_before - (10 << 20), "the program does not have it");
    let next = take(&allocator, 8 * MIB);
    assert_eq!((next.address(), out_count(&allocator)), (address, before));
    allocator.free(next).unwrap();
    allocator.check_all();
}

/// Goal: few pieces wait. Method: many sizes are freed in a row; the heaps count what they have.
#[test]
fn few_pieces_wait_for_the_lock() {
    let allocator = allocator(400 * MIB);
    let sizes = (1..30).map(|number| MIB + number * 4 * KIB);
    let blocks: Vec<_> = sizes.map(|bytes| take(&allocator, bytes)).collect();
    let (mut left, rest) = (blocks.len() as u64, out_count(&allocator) - blocks.len() as u64);
    let mut most = 0;
    for block in blocks {
        allocator.free(block).unwrap();
        left -= 1;
        most = most.max(out_count(&allocator) - rest - left);
    }
    assert_eq!(most, 8, "more wait, or fewer");
    allocator.empty_cache();
    assert_eq!(allocator.statistics().reserved_bytes.all.current, 0);
    assert_eq!(out_count(&allocator), 0);
}

/// Goal: another thread gets what waited. Method: it asks for a small piece, and heaps have what
/// waited; then for more than is left without that.
#[test]
fn what_waits_for_the_lock_is_returned_when_another_thread_comes() {
    let allocator = allocator(64 * MIB);
    let block = take(&allocator, 40 * MIB);
    for small in [(); 9].map(|()| take(&allocator, 512)) {
        allocator.free(small).unwrap(); // so that more of them come from no new page
    }
    allocator.free(block).unwrap();
    assert!(out(&allocator)[1] > 40 << 20, "it waits");
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let small = take(&allocator, 512);
            assert!(out(&allocator)[1] < 1 << 20, "it is returned");
            let block = take(&allocator, 60 * MIB);
            [small, block].map(|block| allocator.free(block).unwrap())
        });
        other.join().unwrap();
    });
    allocator.check_all();
}

/// Goal: while a second thread has a cache, a free returns the memory at once. Method: the heaps'
/// count.
#[test]
fn nothing_waits_for_the_lock_beside_another_thread() {
    let allocator = allocator(64 * MIB);
    let block = take(&allocator, 10 * MIB);
    let before = out_count(&allocator);
    let ((come, has_come), (end, ended)) = (channel(), channel::<()>());
    thread::scope(|scope| {
        let allocator = &allocator;
        scope.spawn(move || {
            allocator.free(take(allocator, 5 * MIB)).unwrap();
            come.send(()).unwrap();
            assert!(ended.recv().is_err(), "it ends behind the free");
        });
        has_come.recv().unwrap();
        allocator.free(block).unwrap();
        assert_eq!(out_count(allocator), before - 1);
        drop(end);
    });
}

/// Goal: growth waits for a thread that is inside of its cache with pieces that wait, and for no
/// other. Method: it stays there; the other one grows when it has slept as often as it may.
#[test]
fn growth_waits_for_a_thread_with_pieces_that_wait_for_the_lock() {
    for (is_waiting, sleeps) in [(true, MOST_GROWTH_SLEEPS), (false, 0)] {
        let allocator = allocator(64 * MIB);
        allocator.free(take(&allocator, 14 * MIB)).unwrap();
        let next = (!is_waiting).then(|| take(&allocator, 13 * MIB));
        let inside = allocator.caches.enter();
        assert!(inside.as_ref().is_some_and(|inside| !inside.is_closed()));
        let block = thread::scope(|scope| scope.spawn(|| take(&allocator, 30 * MIB)).join());
        drop(inside);
        let slept = allocator.caches.sleeps.load(Ordering::Relaxed); // a count
        assert_eq!(slept, sleeps, "with pieces that wait: {is_waiting}");
        for block in next.into_iter().chain([block.unwrap()]) {
            allocator.free(block).unwrap();
        }
        allocator.check_all();
    }
}
