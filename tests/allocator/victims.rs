//! Which memory goes back when memory is short, and which stays.
//!
//! Goal: specifications 2.4.6 and 2.7. Method: sizes that differ, so that what is reserved tells
//! which segments went.

use accelrt::allocator::{PoolId, PoolOptions, Request};

use crate::pools::POOL;
use crate::support::{Bench, MIB, torch};

#[test]
fn oversize_blocks_that_are_not_enough_are_not_the_end() {
    // Specification 2.7: false when the sum is not reached; 2.4.6d follows.
    let bench = Bench::of_capacity("max_split_size_mb:32", 110 * MIB);
    let blocks = [bench.take(32 * MIB), bench.take(36 * MIB), bench.take(512)];
    for block in blocks {
        bench.free(block);
    }
    let _ = bench.take(110 * MIB);
    assert_eq!(bench.reserved_bytes(), 110 * MIB, "the small segment went as well");
    assert_eq!(bench.statistics().num_alloc_retries, 1);
}

#[test]
fn garbage_is_collected_in_rounds_until_it_is_enough() {
    // Specification 2.7: 204.8 MiB are allowed, above 102.4 garbage is collected.
    let bench = Bench::new("per_process_memory_fraction:0.2,garbage_collection_threshold:0.5");
    let [old, middle, young, mut other] = [12, 30, 60, 20].map(|mib| bench.take(mib * MIB));
    let mut search = || {
        bench.free(std::mem::take(&mut other));
        other = bench.take(20 * MIB); // finds itself, and everything free is older by one search
    };
    bench.free(old);
    (0..8).for_each(|_| search());
    bench.free(middle);
    search();
    bench.free(young);
    // 19.6 MiB too much, ages 10, 2 and 1: the first goes, and of the others the older.
    let _ = bench.take(62 * MIB);
    assert_eq!(bench.statistics().num_device_free, 2);
    assert_eq!(bench.reserved_bytes(), (20 + 60 + 62) * MIB);
}

#[test]
fn a_pool_does_not_help_another_pool_out() {
    // Specification 2.4.6b: skipped when the request itself is for a private pool.
    let bench = Bench::of_capacity("", 20 * MIB);
    let helper = PoolOptions::default().use_on_oom(true);
    bench.allocator.retain_pool(POOL, helper);
    let own = bench.request(Request::new(15 * MIB, 0).from_pool(POOL)).unwrap();
    bench.free(own);
    let other = PoolId(0, 2);
    bench.allocator.retain_pool(other, PoolOptions::default());
    bench.request(Request::new(8 * MIB, 0).from_pool(other)).unwrap_err();
    let _ = bench.take(8 * MIB);
}

#[test]
fn what_was_counted_as_oversize_is_counted_off_as_such() {
    let bench = Bench::new("max_split_size_mb:32");
    let block = bench.take(40 * MIB);
    let counted = || {
        let statistics = bench.statistics();
        (statistics.oversize_allocations.current, statistics.oversize_segments.current)
    };
    assert_eq!(counted(), (1, 1));
    bench.allocator.set_config(torch());
    let later = bench.take(50 * MIB);
    assert_eq!(counted(), (1, 1), "without a limit nothing is oversize");
    bench.free(block);
    bench.allocator.set_config("max_split_size_mb:32".parse().unwrap());
    bench.free(later);
    assert_eq!(counted(), (0, 1));
    bench.empty_cache();
    assert_eq!(counted(), (0, 0));
}

#[test]
fn an_exbibyte_is_tried_and_a_byte_more_is_not() {
    // Specification 2.1: the guard.
    for (bytes, retries) in [(1 << 60, 1), ((1 << 60) + 1, 0)] {
        let bench = Bench::new("");
        bench.request(Request::new(bytes, 0)).unwrap_err();
        assert_eq!(bench.statistics().num_alloc_retries, retries, "{bytes}");
    }
}

#[test]
fn expandable_blocks_are_no_garbage_and_not_oversize() {
    // Specification 2.7: non-expandable blocks alone.
    let limits = "per_process_memory_fraction:0.1,garbage_collection_threshold:0.1";
    let bench = Bench::new(&format!("expandable_segments:True,{limits}"));
    let block = bench.take(20 * MIB);
    bench.free(block);
    let _ = bench.take(512);
    assert_eq!(bench.reserved_bytes(), 22 * MIB, "above the threshold, and nothing goes");
    let bench = Bench::of_capacity("expandable_segments:True", 80 * MIB);
    let block = bench.take(40 * MIB);
    bench.free(block);
    bench.allocator.set_config("max_split_size_mb:32".parse().unwrap());
    let _ = bench.take(44 * MIB);
    assert_eq!(bench.statistics().num_alloc_retries, 1, "pages went with everything else");
}
