//! What of the free memory cannot go back as it is: `inactive_split` under policy `native`.
//!
//! Goal: the statistics say what a snapshot shows, in segments as PyTorch counts it, and where
//! pages go back one by one what is beside those that could. Method: layouts made by hand, and
//! random lives with threads' caches, where the sums over snapshots are taken here. `check_all`,
//! which the random programs of `driver` call, compares the same for pages.

use std::sync::Arc;

use accelrt::allocator::snapshot::{BlockState, PoolClass, Snapshot};
use accelrt::allocator::{Allocated, CachingAllocator, Request, Statistics};

use crate::numbers::Numbers;
use crate::seed::seed;
use crate::support::{Bench, KIB, MIB};

const EXACT: &str = "policy:native,exact_statistics:True";

/// An allocator of segments, on a device of its own.
fn on_segments(settings: &str) -> (Bench, CachingAllocator) {
    let bench = Bench::new(settings);
    let config = || settings.parse().unwrap();
    let device = bench.allocator.device();
    let beside = CachingAllocator::new(Arc::clone(&bench.null) as _, device, config()).unwrap();
    let shared = CachingAllocator::shared(&Arc::new(beside), config()).unwrap();
    (bench, shared)
}

/// How many there are of a class, and their bytes.
fn splits(statistics: &Statistics, class: PoolClass) -> (u64, usize) {
    let count = statistics.inactive_split.of(class).current;
    let bytes = statistics.inactive_split_bytes.of(class).current;
    (count, usize::try_from(bytes).unwrap())
}

/// The same of a snapshot of segments, by PyTorch's rule.
fn sum_of(snapshot: &Snapshot, class: PoolClass) -> (u64, usize) {
    let of_class = snapshot.segments.iter().filter(|segment| segment.class == class);
    let split = of_class.filter(|segment| segment.blocks.len() > 1);
    let inactive = split
        .flat_map(|segment| &segment.blocks)
        .filter(|block| block.state == BlockState::Inactive);
    inactive.fold((0, 0), |(count, bytes), block| (count + 1, bytes + block.bytes))
}

#[test]
fn only_what_is_beside_whole_pages_is_split() {
    let bench = Bench::new(EXACT);
    let of_small = |bench: &Bench| splits(&bench.statistics(), PoolClass::Small);
    let sizes = [500, 5 * 1024, 500];
    let [before, free, behind] = sizes.map(|kib| bench.take(kib * KIB));
    let tail_kib = 6 * 1024 - (500 + 5 * 1024 + 500); // to the end of the third page
    assert_eq!(of_small(&bench), (1, tail_kib * KIB), "behind what is in use");
    bench.free(free);
    let held_kib = (2048 - 500) + (500 + 5 * 1024 - 4096);
    assert_eq!(of_small(&bench), (3, (held_kib + tail_kib) * KIB), "but for the second page");
    bench.allocator.trim();
    assert_eq!(of_small(&bench), (3, (held_kib + tail_kib) * KIB), "which has gone back");
    assert_eq!(bench.reserved_bytes() - 1000 * KIB, (held_kib + tail_kib) * KIB);
    bench.free(before);
    bench.free(behind);
    assert_eq!(of_small(&bench), (0, 0), "every page could go back");
}

#[test]
fn free_parts_of_a_slab_are_split_apart_from_what_is_free_behind_it() {
    let bench = Bench::new(EXACT);
    let mut small: Vec<Allocated> = (0..64).map(|_| bench.take(512)).collect(); // a whole slab
    let of_small = |bench: &Bench| splits(&bench.statistics(), PoolClass::Small);
    let behind = 2 * MIB - 32 * KIB;
    assert_eq!(of_small(&bench), (1, behind));
    for (place, expected) in [(10, (2, 512)), (11, (2, 1024)), (13, (3, 1536)), (63, (4, 2048))] {
        let block = std::mem::take(&mut small[place]);
        bench.free(block);
        assert_eq!(of_small(&bench), (expected.0, behind + expected.1), "without block {place}");
    }
    for block in small {
        bench.free(block);
    }
    assert_eq!(of_small(&bench), (0, 0), "a page that nothing uses");
}

#[test]
fn a_segment_that_is_free_as_a_whole_is_not_split() {
    let (_bench, allocator) = on_segments(EXACT);
    let take = |bytes| allocator.allocate(Request::new(bytes, 0)).unwrap();
    let of_large = || splits(&allocator.statistics(), PoolClass::Large);
    let whole = take(40 * MIB);
    allocator.free(whole).unwrap();
    assert_eq!(of_large(), (0, 0));
    let part = take(20 * MIB);
    assert_eq!(of_large(), (1, 20 * MIB));
    allocator.free(part).unwrap();
    assert_eq!(of_large(), (0, 0));
    let peaks = || {
        let stat = allocator.statistics().inactive_split_bytes;
        [stat.large_pool, stat.all].map(|stat| stat.peak)
    };
    assert_eq!(peaks(), [20 << 20; 2]);
    allocator.reset_peak_statistics();
    assert_eq!(peaks(), [0; 2]);
}

#[test]
fn the_peak_of_both_pools_is_not_the_sum_of_their_peaks() {
    let (_bench, allocator) = on_segments(EXACT);
    let take = |bytes| allocator.allocate(Request::new(bytes, 0)).unwrap();
    let peaks = || {
        let stat = allocator.statistics().inactive_split_bytes;
        [stat.small_pool, stat.large_pool, stat.all].map(|stat| stat.peak)
    };
    let whole = take(40 * MIB);
    allocator.free(whole).unwrap();
    let part = take(20 * MIB);
    allocator.free(part).unwrap(); // now no part of it is split
    let small_block = take(MIB - 512);
    let [small, large, all] = peaks();
    assert!(small > 0 && large == 20 << 20, "{small} and {large}");
    assert_eq!(all, small.max(large), "never at the same time");
    let part = take(20 * MIB);
    let [small, large, all] = peaks();
    assert_eq!(all, small + large, "at the same time now");
    for block in [small_block, part] {
        allocator.free(block).unwrap();
    }
}

#[test]
fn statistics_at_rest_are_those_of_a_snapshot_whatever_threads_keep() {
    let mut numbers = Numbers::new(seed());
    let (_bench, allocator) = on_segments("policy:native");
    let mut live: Vec<Allocated> = Vec::new();
    let mut kept_count = 0;
    for _ in 0..300 {
        for _ in 0..10 {
            if numbers.below(2) == 0 && !live.is_empty() {
                allocator.free(live.swap_remove(numbers.below(live.len()))).unwrap();
                continue;
            }
            let unit_bytes = [100, KIB, 32 * KIB, 512 * KIB][numbers.below(4)];
            let bytes = unit_bytes * (1 + numbers.below(40));
            let request = Request::new(bytes, numbers.below(2) as u64);
            live.push(allocator.allocate(request).unwrap());
        }
        let so_far = allocator.statistics();
        let (statistics, snapshot) = (allocator.statistics_at_rest(), allocator.snapshot());
        kept_count += usize::from(so_far.inactive_split_bytes != statistics.inactive_split_bytes);
        for class in [PoolClass::Small, PoolClass::Large] {
            let (count, bytes) = splits(&statistics, class);
            let (joined_count, joined_bytes) = sum_of(&snapshot, class);
            assert_eq!(bytes, joined_bytes, "{class:?}");
            // A snapshot joins what is free in a slab with what is free beside it.
            assert!(joined_count <= count, "{class:?}: {joined_count} of {count}");
        }
    }
    assert!(kept_count > 100, "{kept_count} times something was kept");
    let restored = Bench::new("policy:torch");
    let snapshot = allocator.snapshot();
    let blocks = restored.allocator.restore(&snapshot).unwrap();
    for class in [PoolClass::Small, PoolClass::Large] {
        assert_eq!(splits(&restored.statistics(), class), sum_of(&snapshot, class), "{class:?}");
    }
    for block in blocks {
        restored.allocator.free(block).unwrap();
    }
    for block in live {
        allocator.free(block).unwrap();
    }
}
