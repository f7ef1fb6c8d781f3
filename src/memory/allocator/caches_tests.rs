//! Tests of how a thread finds its cache, and what it keeps there.

use std::sync::mpsc::channel;
use std::thread;

use super::*;
use crate::base::device::{Device, DeviceKind};
use crate::base::size::{KIB, MIB};
use crate::base::sync::Ordering;
use crate::memory::allocator::caches::MOST_GROWTH_SLEEPS;
use crate::memory::allocator::recorder::Recorded;
use crate::memory::allocator::{AllocatorConfig, CachingAllocator};
use crate::null::{NullBackend, NullConfig};

fn allocator() -> CachingAllocator {
    let device = Device::new(DeviceKind::NULL, 0).unwrap();
    let null = NullBackend::new(NullConfig::default());
    CachingAllocator::new(null, device, AllocatorConfig::default()).unwrap()
}

/// This thread has a cache of the allocator from then on, and what it may keep is told.
fn meet(allocator: &CachingAllocator) {
    let taken = [(); 2].map(|()| allocator.allocate(Request::new(512, 0)).unwrap());
    for block in taken {
        allocator.free(block).unwrap();
    }
}

/// Goal: what a thread has of allocators does not grow with those that were (law 11). Method:
/// one allocator after the other, each gone before the next.
#[test]
fn a_thread_has_no_cache_of_allocators_that_are_gone() {
    for _ in 0..10 {
        meet(&allocator());
    }
    let count = LOCAL.with(|own| own.0.borrow().len());
    assert_eq!(count, 1, "of the last one, until the thread meets another");
}

/// Goal: a thread takes what it keeps also where the fast path cannot look: while requests are
/// recorded, and when it has used another allocator last. Method: the heap counts what is out,
/// which stays the same then.
#[test]
fn a_thread_takes_what_it_keeps_where_the_fast_path_does_not_look() {
    let (allocator, other) = (allocator(), allocator());
    meet(&other);
    meet(&allocator);
    let count = || allocator.state.lock().native.out.all().current();
    let before = count();
    let pair = || {
        let block = allocator.allocate(Request::new(512, 0)).unwrap();
        allocator.free(block).unwrap();
    };
    meet(&other);
    pair();
    assert_eq!(count(), before, "behind another allocator");
    let device = Device::new(DeviceKind::NULL, 0).unwrap();
    allocator.record(Some(Recorded { device, runtime: 0 }));
    pair();
    allocator.record(None);
    assert_eq!(count(), before, "while requests are recorded");
}

/// Goal: the second request of a small size takes no lock. Method: of a new allocator one piece
/// is asked for, and the thread's cache for another.
#[test]
fn a_thread_has_more_pieces_of_the_small_size_that_it_asked_for() {
    let (allocator, request) = (allocator(), Request::new(512, 0));
    let first = allocator.allocate(request).unwrap();
    let mut inside = allocator.caches.enter_prepared();
    let plan = allocator.caches.sizes.plan(&request, None).expect("there is such a size");
    let second = allocator.caches.take_inside(inside.as_mut(), &request, &plan);
    drop(inside);
    let second = second.expect("the cache has one");
    assert_ne!(second.address(), first.address());
    allocator.free(first).unwrap();
    allocator.free(second).unwrap();
    allocator.empty_cache();
    assert_eq!(allocator.statistics().reserved_bytes.all.current, 0);
}

/// Takes and frees pieces with many pages, of which a thread alone keeps all but the first.
fn keep_much(allocator: &CachingAllocator) {
    for _ in 0..3 {
        let request = Request::new(40 * MIB, 0);
        let blocks = [(); 30].map(|()| allocator.allocate(request).unwrap());
        for block in blocks {
            allocator.free(block).unwrap();
        }
    }
}

/// The bytes that threads keep.
fn kept_bytes(allocator: &CachingAllocator) -> u64 {
    let out = allocator.state.lock().native.in_use().active_bytes;
    out - allocator.statistics().active_bytes.all.current
}

/// Calls `then` while another thread has a cache, and returns when it has none.
fn beside_another(allocator: &CachingAllocator, then: impl FnOnce()) {
    let count = || allocator.caches.threads.lock().caches.len();
    let before = count();
    let ((come, has_come), (end, ended)) = (channel(), channel::<()>());
    thread::scope(move |scope| {
        scope.spawn(move || {
            meet(allocator);
            come.send(()).unwrap();
            assert!(ended.recv().is_err(), "it ends behind `then`");
        });
        has_come.recv().unwrap();
        then();
        drop(end);
    });
    while count() > before {
        thread::yield_now(); // a thread retires its cache behind its end
    }
}

/// Frees blocks beside a thread that came while this one, which keeps much, was inside of its
/// cache, and uses what it keeps meanwhile. Then it keeps little.
fn free_though_inside_when_another_came(allocator: &CachingAllocator, blocks: Vec<Allocated>) {
    let inside = allocator.caches.enter_prepared();
    beside_another(allocator, || {
        drop(inside);
        assert!(kept_bytes(allocator) > 1000 * MIB as u64, "it was passed by");
        for (number, block) in blocks.into_iter().enumerate() {
            if number % 20 == 0 {
                keep_much(allocator);
            }
            allocator.free(block).unwrap();
        }
        let kept_bytes = kept_bytes(allocator);
        assert!(kept_bytes < 100 * MIB as u64, "{kept_bytes} bytes stay");
    });
}

/// Goal: what a thread kept while it was alone serves others before the device is asked, also
/// while that thread is inside of its cache. Method: it leaves when the other one sleeps; again
/// where it got its processor too late, and was passed by.
#[test]
fn growth_waits_for_a_thread_that_may_keep_much() {
    let has_left_in_time = |_| {
        let allocator = allocator();
        keep_much(&allocator);
        let reserved_bytes = || allocator.statistics().reserved_bytes.all.current;
        let (before, sleeps) = (reserved_bytes(), &allocator.caches.sleeps);
        let inside = allocator.caches.enter_prepared();
        let is_in_time = thread::scope(|scope| {
            let other = scope.spawn(|| allocator.allocate(Request::new(1000 * MIB, 0)));
            // Relaxed: a count.
            while sleeps.load(Ordering::Relaxed) == 0 && !other.is_finished() {
                thread::yield_now();
            }
            drop(inside);
            let is_in_time = sleeps.load(Ordering::Relaxed) < MOST_GROWTH_SLEEPS;
            allocator.free(other.join().unwrap().unwrap()).unwrap();
            is_in_time
        });
        assert!(!is_in_time || reserved_bytes() == before, "it was not waited for");
        is_in_time
    };
    assert!((0..1000).any(has_left_in_time), "it was always passed by");
}

/// Goal: what a thread kept while it was alone counts once it is not. Method: the other one
/// comes while it is inside; then it frees other sizes.
#[test]
fn what_a_thread_kept_alone_counts_though_it_was_inside_when_another_came() {
    let allocator = allocator();
    let others: Vec<_> = (0..600)
        .map(|number| allocator.allocate(Request::new(33 * KIB + number * 512, 0)).unwrap())
        .collect();
    keep_much(&allocator);
    free_though_inside_when_another_came(&allocator, others);
}

/// Goal: the same of a size that the thread had forgotten meanwhile. Method: hundreds of other
/// sizes come, and another thread, before that size comes again.
#[test]
fn what_a_thread_kept_alone_counts_though_it_had_forgotten_the_size() {
    let allocator = allocator();
    let take =
        |number: usize| allocator.allocate(Request::new(33 * KIB + number * 512, 0)).unwrap();
    let [first, second]: [Vec<_>; 2] = [(); 2].map(|()| (0..600).map(take).collect());
    keep_much(&allocator);
    for block in first {
        allocator.free(block).unwrap();
    }
    assert!(kept_bytes(&allocator) < 100 * MIB as u64, "the size is not forgotten");
    beside_another(&allocator, || ());
    keep_much(&allocator);
    free_though_inside_when_another_came(&allocator, second);
}

/// Goal: threads' caches together keep no more than the bound of all. Method: a second thread
/// comes while the first one is there.
#[test]
fn each_threads_part_is_smaller_when_another_comes() {
    let allocator = allocator();
    meet(&allocator);
    let alone = allocator.caches.most_bytes();
    let together = thread::scope(|scope| {
        let other = scope.spawn(|| {
            meet(&allocator);
            allocator.caches.most_bytes()
        });
        other.join().unwrap()
    });
    assert_eq!(together, alone / 2, "while there are two");
    assert_eq!(allocator.caches.most_bytes(), alone, "the other thread has ended");
}

/// Goal: what a thread may keep beyond what it has ends when another comes. Method: it has
/// taken all that it kept when the other one comes, and frees it then.
#[test]
fn what_a_thread_had_room_for_it_keeps_no_more_when_another_comes() {
    let allocator = allocator();
    let take = || -> Vec<_> {
        let sizes = [33 * KIB, 34 * KIB].into_iter().flat_map(|bytes| [bytes; 30]);
        sizes.map(|bytes| allocator.allocate(Request::new(bytes, 0)).unwrap()).collect()
    };
    for _ in 0..3 {
        for block in take() {
            allocator.free(block).unwrap();
        }
    }
    let blocks = take();
    beside_another(&allocator, || {
        for block in blocks {
            allocator.free(block).unwrap();
        }
        let (kept_bytes, most_bytes) = (kept_bytes(&allocator), allocator.caches.most_bytes());
        assert!(kept_bytes <= most_bytes + 100 * KIB as u64, "{kept_bytes} of {most_bytes}");
    });
}
