//! What threads keep of what they freed, under policy `native`.
//!
//! Goal: a piece is somebody's once, whoever freed it where, and what is counted is what happened.
//! Method: threads that end, that are reached into by others, and that pass their pieces on; the
//! order is set by joins and channels, so each outcome is one number.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};

use accelrt::allocator::{Allocated, PoolId, PoolOptions, Request, Stat};

use crate::numbers::Numbers;
use crate::pools::POOL;
use crate::seed::seed;
use crate::support::{Bench, KIB, MIB};

fn native() -> Arc<Bench> {
    Arc::new(Bench::new("policy:native"))
}

/// Calls `run` on a thread of its own, which is gone afterwards, with all that was its own.
fn on_a_thread<R: Send + 'static>(
    bench: &Arc<Bench>,
    run: impl FnOnce(&Bench) -> R + Send + 'static,
) -> R {
    on_another(bench, run).join().unwrap()
}

fn on_another<R: Send + 'static>(
    bench: &Arc<Bench>,
    run: impl FnOnce(&Bench) -> R + Send + 'static,
) -> JoinHandle<R> {
    let bench = Arc::clone(bench);
    thread::spawn(move || run(&bench))
}

fn take_several(bench: &Bench, bytes: usize, count: usize) -> Vec<Allocated> {
    (0..count).map(|_| bench.take(bytes)).collect()
}

fn free_all(bench: &Bench, blocks: Vec<Allocated>) {
    for block in blocks {
        bench.free(block);
    }
}

#[test]
fn what_a_thread_kept_goes_back_when_it_ends() {
    let bench = native();
    on_a_thread(&bench, |bench| {
        for bytes in [512, 4 * KIB, 100 * KIB, 3 * MIB, 40 * MIB] {
            let blocks = take_several(bench, bytes, 5);
            free_all(bench, blocks);
        }
    });
    assert_eq!(bench.statistics().allocation.all.current, 0);
    assert_eq!(bench.statistics().allocation.all.allocated, 25);
    bench.empty_cache();
    assert_eq!(bench.reserved_bytes(), 0);
}

#[test]
fn emptying_reaches_what_a_thread_keeps_that_does_nothing() {
    let bench = native();
    let (kept, is_kept) = channel();
    let (empty, is_empty) = channel();
    let thread = thread::spawn({
        let bench = Arc::clone(&bench);
        move || {
            let block = bench.take(64 * MIB);
            bench.free(block);
            kept.send(()).unwrap();
            is_empty.recv().unwrap();
            let again = bench.take(64 * MIB);
            bench.free(again);
        }
    });
    is_kept.recv().unwrap();
    assert_eq!(bench.reserved_bytes(), 64 * MIB);
    bench.empty_cache();
    assert_eq!(bench.reserved_bytes(), 0);
    empty.send(()).unwrap();
    thread.join().unwrap();
    assert_eq!(bench.statistics().allocation.all.allocated, 2);
}

/// Takes and frees pieces with pages of their own, which a thread alone keeps without a bound.
/// Without the checks of [`Bench`], for which threads give back what they keep.
fn keep_much(bench: &Bench) {
    for _ in 0..3 {
        let take = |_| bench.allocator.allocate(Request::new(40 * MIB, 0)).unwrap();
        let blocks: Vec<_> = (0..8).map(take).collect();
        for block in blocks {
            bench.allocator.free(block).unwrap();
        }
    }
}

fn take_once(bench: &Bench, bytes: usize) {
    let block = bench.allocator.allocate(Request::new(bytes, 0)).unwrap();
    bench.allocator.free(block).unwrap();
}

#[test]
fn what_a_thread_keeps_alone_serves_other_sizes_and_threads_before_the_device_is_asked() {
    let bench = native();
    keep_much(&bench);
    let reserved_bytes = bench.reserved_bytes();
    take_once(&bench, 200 * MIB);
    assert_eq!(bench.reserved_bytes(), reserved_bytes, "in the same hold of the lock");
    keep_much(&bench);
    on_a_thread(&bench, |bench| take_once(bench, 200 * MIB));
    assert_eq!(bench.reserved_bytes(), reserved_bytes, "another thread reaches for it");
    keep_much(&bench);
    let (other, is_there) = channel();
    let (end, ended) = channel();
    let thread = on_another(&bench, move |bench| {
        take_once(bench, 512);
        other.send(()).unwrap();
        ended.recv().unwrap();
    });
    is_there.recv().unwrap();
    take_once(&bench, 200 * MIB);
    assert_eq!(bench.reserved_bytes(), reserved_bytes, "while another thread has a cache");
    end.send(()).unwrap();
    thread.join().unwrap();
}

#[test]
fn a_thread_has_a_cache_for_each_allocator() {
    let (first, second) = (native(), native());
    for round in 1..=100 {
        let (one, other) = (first.take(4 * KIB), second.take(4 * KIB));
        first.free(one);
        let another = second.take(4 * KIB);
        assert_ne!(other.address(), another.address());
        second.free(other);
        second.free(another);
        assert_eq!(first.statistics().allocation.all.allocated, round);
        assert_eq!(second.statistics().allocation.all.allocated, 2 * round);
    }
    drop(first);
    for bench in [second, native()] {
        let block = bench.take(4 * KIB);
        bench.free(block);
        bench.empty_cache();
        assert_eq!(bench.reserved_bytes(), 0);
    }
}

#[test]
fn a_piece_may_be_freed_by_another_thread_than_had_it() {
    let bench = native();
    for bytes in [512, 24 * KIB, 5 * MIB] {
        for _ in 0..20 {
            let blocks = take_several(&bench, bytes, 7);
            on_a_thread(&bench, move |bench| free_all(bench, blocks));
        }
    }
    let statistics = bench.statistics();
    assert_eq!(statistics.allocation.all.current, 0);
    assert_eq!(statistics.allocation.all.allocated, 3 * 20 * 7);
    assert_eq!(statistics.allocation.all.freed, 3 * 20 * 7);
    assert_eq!(statistics.requested_bytes.all.current, 0);
    bench.empty_cache();
    assert_eq!(bench.reserved_bytes(), 0);
}

#[test]
fn another_allocators_block_is_handed_back_and_nothing_has_changed() {
    // Goal: a block is its own allocator's, whatever the other one keeps. Method: both have bins of
    // that size in this thread's caches, the second one's in front.
    for settings in ["policy:native", ""] {
        let [first, second] = [(); 2].map(|()| Bench::new(settings));
        // Without the checks of a bench, which empty the caches.
        let take = |bench: &Bench| bench.allocator.allocate(Request::new(512, 0)).unwrap();
        for bench in [&first, &second] {
            bench.allocator.free(take(bench)).unwrap();
        }
        let (block, held) = (take(&first), take(&second));
        let before = [&first, &second].map(Bench::statistics);
        let refused = second.allocator.free(block).unwrap_err();
        let message = refused.to_string();
        assert!(message.contains("512 B") && message.contains("null:0"), "{message}");
        assert_eq!([&first, &second].map(Bench::statistics), before);
        assert!(first.allocator.block_at(refused.block.address()).is_some());
        first.free(refused.block);
        second.free(held);
    }
}

#[test]
fn a_block_of_an_allocator_that_is_gone_is_nobodys() {
    // Goal: what tells the next allocator's blocks is not what this one had. Method: many that are
    // made and dropped, with a block of the same size in use in the next one.
    for _ in 0..100 {
        let take = |bench: &Bench| bench.allocator.allocate(Request::new(512, 0)).unwrap();
        let gone = native();
        let block = take(&gone);
        drop(gone);
        let next = native();
        next.allocator.free(take(&next)).unwrap();
        let held = take(&next);
        let refused = next.allocator.free(block).unwrap_err();
        assert_eq!(next.statistics().allocation.all.current, 1, "{refused}");
        next.free(held);
    }
}

#[test]
fn peaks_are_exact_while_one_thread_alone_counts() {
    let bench = native();
    let peaks = |bench: &Bench| {
        let statistics = bench.statistics();
        let peaks = [statistics.allocation, statistics.allocated_bytes, statistics.requested_bytes];
        peaks.map(|stat| stat.all.peak)
    };
    let run = |bench: &Bench| {
        let blocks = take_several(bench, 1000, 5);
        free_all(bench, blocks);
        let blocks = take_several(bench, 1500, 2);
        free_all(bench, blocks);
    };
    run(&bench);
    assert_eq!(peaks(&bench), [5, 5 * 1024, 5000]);
    bench.allocator.reset_peak_statistics();
    assert_eq!(peaks(&bench), [0; 3]);
    let held = bench.take(700);
    bench.allocator.reset_peak_statistics();
    assert_eq!(peaks(&bench), [1, 1024, 700]);
    // Another one alone now, and the peak outlives it.
    on_a_thread(&bench, run);
    assert_eq!(peaks(&bench), [6, 6 * 1024, 5700]);
    bench.free(held);
    assert!(peaks(&bench)[0] >= 6);
}

#[test]
fn peaks_of_each_class_of_sizes_are_exact_in_any_order() {
    let bench = native();
    let mut numbers = Numbers::new(seed());
    // Both classes, and sizes that leave some of what is handed out unasked for.
    let sizes = [1000, 40 * KIB + 1, 3 * MIB, 17 * MIB + 5, 40 * MIB];
    let mut live = Vec::new();
    let mut truth = [[Stat::default(); 3]; 3];
    for round in 0..4000 {
        let is_request = live.is_empty() || (live.len() < 40 && numbers.below(2) == 0);
        let (block, requested_bytes) = if is_request {
            let requested_bytes = sizes[numbers.below(sizes.len())];
            // Without the checks of `Bench`, for which threads give back what they keep.
            let block = bench.allocator.allocate(Request::new(requested_bytes, 0)).unwrap();
            (block, requested_bytes)
        } else {
            live.swap_remove(numbers.below(live.len()))
        };
        let is_large = requested_bytes > MIB;
        let amounts = [1, block.bytes() as u64, requested_bytes as u64];
        for (stats, amount) in truth.iter_mut().zip(amounts) {
            for part in [0, 1 + usize::from(is_large)] {
                count(&mut stats[part], amount, is_request);
            }
        }
        if is_request {
            live.push((block, requested_bytes));
        } else {
            bench.allocator.free(block).unwrap();
        }
        if numbers.below(100) == 0 {
            let told = bench.statistics();
            let told = [told.allocation, told.allocated_bytes, told.requested_bytes]
                .map(|stat| [stat.all, stat.small_pool, stat.large_pool]);
            assert_eq!(told, truth, "round {round}");
        }
    }
    free_all(&bench, live.into_iter().map(|(block, _)| block).collect());
}

#[test]
fn what_a_thread_counted_outlives_it_in_each_class_of_sizes() {
    let bench = native();
    let held = bench.take(700);
    bench.allocator.reset_peak_statistics();
    bench.allocator.reset_accumulated_statistics();
    let left = on_a_thread(&bench, |bench| {
        let mut small = take_several(bench, 1000, 5);
        let large = take_several(bench, 20 * MIB + 1, 2);
        let left = small.pop().unwrap();
        free_all(bench, small);
        free_all(bench, large);
        left
    });
    let told = bench.statistics();
    let told = [told.allocation, told.allocated_bytes, told.requested_bytes]
        .map(|stat| [stat.all, stat.small_pool, stat.large_pool]);
    // Of each quantity: what is held and what the thread had of small and of large blocks.
    let amounts =
        [[1, 1, 1], [1024, 1024, 20 * MIB as u64 + 512], [700, 1000, 20 * MIB as u64 + 1]];
    let stat = |held, small, large| {
        let mut stat = Stat::default();
        stat.current = held + small;
        stat.peak = held + 5 * small + 2 * large;
        stat.allocated = 5 * small + 2 * large;
        stat.freed = 4 * small + 2 * large;
        stat
    };
    let truth = amounts.map(|[held, small, large]| {
        [stat(held, small, large), stat(held, small, 0), stat(0, 0, large)]
    });
    assert_eq!(told, truth);
    free_all(&bench, vec![held, left]);
}

#[test]
fn peaks_of_several_threads_are_at_least_the_truth_and_little_more() {
    let bench = native();
    let held = take_several(&bench, 1024, 10);
    on_a_thread(&bench, |bench| {
        let blocks = take_several(bench, 1024, 10);
        free_all(bench, blocks);
    });
    free_all(&bench, held);
    let peak = bench.statistics().allocation.all.peak;
    // What two threads may keep of one size, at most.
    assert!((20..=20 + 2 * 12).contains(&peak), "{peak}");
    assert_eq!(bench.statistics().allocation.all.current, 0);
}

fn count(stat: &mut Stat, amount: u64, is_request: bool) {
    if is_request {
        stat.current += amount;
        stat.peak = stat.peak.max(stat.current);
        stat.allocated += amount;
    } else {
        stat.current -= amount;
        stat.freed += amount;
    }
}

/// Frees its block when its thread ends.
struct Late(Option<(Arc<Bench>, Allocated)>);

impl Drop for Late {
    fn drop(&mut self) {
        if let Some((bench, block)) = self.0.take() {
            bench.allocator.free(block).unwrap();
            let again = bench.allocator.allocate(Request::new(512, 0)).unwrap();
            bench.allocator.free(again).unwrap();
        }
    }
}

#[test]
fn threads_that_end_may_still_free_and_allocate() {
    thread_local!(static LATE: RefCell<Late> = const { RefCell::new(Late(None)) });
    let bench = native();
    // The thread's cache is made before its late block, or after: one of both ends first.
    for is_first in [true, false] {
        on_a_thread(&bench, {
            let bench = Arc::clone(&bench);
            move |_| {
                if is_first {
                    LATE.with(|_| ());
                }
                let block = bench.allocator.allocate(Request::new(512, 0)).unwrap();
                LATE.with(|late| late.borrow_mut().0 = Some((bench, block)));
            }
        });
    }
    assert_eq!(bench.statistics().allocation.all.current, 0);
    assert_eq!(bench.statistics().allocation.all.allocated, 4);
    bench.empty_cache();
    assert_eq!(bench.reserved_bytes(), 0);
}

/// Takes several blocks. Without the checks of `Bench`, for which threads give back what they keep.
fn take_unchecked(bench: &Bench, request: Request) -> Vec<Allocated> {
    (0..40).map(|_| bench.allocator.allocate(request).unwrap()).collect()
}

fn assert_of_pool(bench: &Bench, blocks: &[Allocated], pool: PoolId) {
    let segments = bench.allocator.snapshot().segments;
    for block in blocks {
        let segment = segments.iter().rfind(|segment| segment.address <= block.address()).unwrap();
        assert_eq!(segment.pool, pool, "{block:?}");
    }
}

#[test]
fn what_a_thread_has_in_stock_for_requests_of_no_pool_is_of_none() {
    // Goal: private memory is a pool's alone. Method: small requests of a pool, behind which a
    // thread would keep more of their size, and then those without one.
    for bytes in [1, 512, 3000, 24 * KIB] {
        let bench = native();
        bench.allocator.retain_pool(POOL, PoolOptions::default());
        let private = take_unchecked(&bench, Request::new(bytes, 0).from_pool(POOL));
        let plain = take_unchecked(&bench, Request::new(bytes, 0));
        assert_of_pool(&bench, &private, POOL);
        assert_of_pool(&bench, &plain, PoolId::DEFAULT);
        free_all(&bench, private.into_iter().chain(plain).collect());
    }
}

#[test]
fn what_a_thread_freed_of_a_private_pool_serves_no_request_without_it() {
    for bytes in [1, 512, 3000, 24 * KIB, 100 * KIB, 3 * MIB] {
        let bench = native();
        bench.allocator.retain_pool(POOL, PoolOptions::default());
        for block in take_unchecked(&bench, Request::new(bytes, 0).from_pool(POOL)) {
            bench.allocator.free(block).unwrap();
        }
        let plain = take_unchecked(&bench, Request::new(bytes, 0));
        let private = take_unchecked(&bench, Request::new(bytes, 0).from_pool(POOL));
        assert_of_pool(&bench, &plain, PoolId::DEFAULT);
        assert_of_pool(&bench, &private, POOL);
        free_all(&bench, private.into_iter().chain(plain).collect());
    }
}

fn peaks(bench: &Bench) -> [u64; 3] {
    let statistics = bench.statistics();
    let peaks = [statistics.allocation, statistics.allocated_bytes, statistics.requested_bytes];
    peaks.map(|stat| stat.all.peak)
}

fn take_five(bench: &Bench) {
    let take = |_| bench.allocator.allocate(Request::new(1000, 0)).unwrap();
    let blocks: Vec<_> = (0..5).map(take).collect();
    for block in blocks {
        bench.allocator.free(block).unwrap();
    }
}

/// Goal: peaks are exact again from a reset on, whatever was lost before.
#[test]
fn peaks_that_were_lost_before_a_reset_are_exact_behind_it() {
    let bench = native();
    on_a_thread(&bench, take_five);
    on_a_thread(&bench, take_five);
    bench.allocator.reset_peak_statistics();
    on_a_thread(&bench, take_five);
    assert_eq!(peaks(&bench), [5, 5 * 1024, 5000]);
}

/// Goal: a thread that ends has not counted anything by that. Method: it has taken a block before
/// the reset, which another one holds by now.
#[test]
fn a_thread_that_ends_counts_nothing_by_that() {
    let bench = native();
    let ((taken, is_taken), (end, ended)) = (channel(), channel::<()>());
    let thread = on_another(&bench, move |bench| {
        taken.send(bench.allocator.allocate(Request::new(1000, 0)).unwrap()).unwrap();
        assert!(ended.recv().is_err());
    });
    let held = is_taken.recv().unwrap();
    bench.allocator.reset_peak_statistics();
    drop(end);
    thread.join().unwrap();
    take_five(&bench);
    assert_eq!(peaks(&bench), [6, 6 * 1024, 6000]);
    bench.free(held);
}

/// Goal: what a thread took of one size counts by that size, also when another size has its place
/// since. Method: so many other sizes that each place meets one.
#[test]
fn requests_count_by_their_size_though_another_has_its_place() {
    let bench = native();
    let take = |bytes| bench.allocator.allocate(Request::new(bytes, 0)).unwrap();
    for _ in 0..2 {
        bench.allocator.free(take(40 * KIB)).unwrap();
    }
    let held = take(40 * KIB); // what the thread kept
    let mut truth = 3 * 40 * KIB;
    for bytes in (0..1000).map(|number| 48 * KIB + number * 512) {
        for _ in 0..2 {
            bench.allocator.free(take(bytes)).unwrap();
            truth += bytes;
        }
    }
    let allocated = bench.statistics().allocated_bytes.all.allocated;
    assert_eq!(allocated, truth as u64);
    bench.free(held);
}
