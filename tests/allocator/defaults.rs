//! Segments, splits and merges with default settings.

use accelrt::allocator::Request;
use accelrt::allocator::snapshot::{BlockState, PoolClass};

use crate::support::{Bench, KIB, MIB};

#[test]
fn small_requests_share_a_segment_of_2_mib() {
    // Specification 2.1: kSmallBuffer; 2.4.8: the front part is returned.
    let bench = Bench::new("");
    let (first, second) = (bench.take(1), bench.take(600));
    assert_eq!((first.bytes(), second.bytes()), (512, 1024));
    assert_eq!(second.address(), first.address() + 512);
    assert_eq!((bench.reserved_bytes(), bench.segments()), (2 * MIB, 1));
}

#[test]
fn a_mebibyte_is_small_and_a_byte_more_is_large() {
    // Specification 2.1: kSmallSize is inclusive.
    let bench = Bench::new("");
    let _ = bench.take(MIB);
    assert_eq!(bench.reserved_bytes(), 2 * MIB);
    let _ = bench.take(MIB + 1);
    assert_eq!(bench.reserved_bytes(), 22 * MIB);
    let classes: Vec<PoolClass> =
        bench.allocator.snapshot().segments.iter().map(|segment| segment.class).collect();
    assert_eq!(classes, [PoolClass::Small, PoolClass::Large]);
}

#[test]
fn from_10_mib_on_a_segment_is_the_request_rounded_to_2_mib() {
    // Specification 2.1: kMinLargeAlloc, kRoundLarge.
    for (bytes, reserved_bytes) in
        [(10 * MIB - 512, 20 * MIB), (10 * MIB, 10 * MIB), (10 * MIB + 1, 12 * MIB)]
    {
        let bench = Bench::new("");
        let _ = bench.take(bytes);
        assert_eq!(bench.reserved_bytes(), reserved_bytes, "{bytes}");
    }
}

#[test]
fn the_smallest_block_that_is_enough_is_taken_and_of_equal_ones_the_first() {
    // Specification 2.2: free blocks are ordered by stream, size, address.
    let bench = Bench::new("");
    let mut blocks: Vec<_> =
        (0..7).map(|index| bench.take([4, 1, 2, 1, 2, 1, 4][index] * KIB)).collect();
    let free = |place: usize| bench.free(std::mem::take(&mut blocks[place]));
    let freed = [0, 2, 4, 6].map(free);
    assert_eq!(bench.take(KIB + 512).address(), freed[1]);
    assert_eq!(bench.take(2 * KIB).address(), freed[2]);
    assert_eq!(bench.take(2 * KIB + 1).address(), freed[0]);
}

#[test]
fn free_neighbours_are_one_block() {
    // Specification 2.5.5: merge with previous and next.
    let bench = Bench::new("");
    let mut blocks: Vec<_> = (0..3).map(|_| bench.take(64 * KIB)).collect();
    let guard = bench.take(64 * KIB);
    for place in [0, 2, 1] {
        bench.free(std::mem::take(&mut blocks[place]));
    }
    let snapshot = bench.allocator.snapshot();
    let states: Vec<(usize, BlockState)> =
        snapshot.segments[0].blocks.iter().map(|block| (block.bytes, block.state)).collect();
    let rest = 2 * MIB - 256 * KIB;
    assert_eq!(states[0], (192 * KIB, BlockState::Inactive));
    assert_eq!(states[1..], [(64 * KIB, BlockState::Allocated), (rest, BlockState::Inactive)]);
    bench.free(guard);
    assert_eq!(bench.allocator.snapshot().segments[0].blocks.len(), 1);
}

#[test]
fn a_mebibyte_that_is_left_of_a_large_block_stays_with_it() {
    // Specification 2.3, should_split: remaining > kSmallSize.
    let bench = Bench::new("");
    let block = bench.take(9 * MIB);
    let rest = bench.take(10 * MIB);
    assert_eq!((block.bytes(), rest.bytes()), (9 * MIB, 11 * MIB));
    assert_eq!(bench.statistics().allocated_bytes.all.current, 20 << 20);
    assert_eq!(bench.statistics().requested_bytes.all.current, 19 << 20);
}

#[test]
fn streams_do_not_share_segments() {
    // Specification 2.2: blocks of another stream are not looked at.
    let bench = Bench::new("");
    let first = bench.free(bench.take(512));
    let other = bench.request(Request::new(512, 7)).unwrap();
    assert_ne!(other.address(), first);
    assert_eq!(bench.segments(), 2);
    assert_eq!(bench.take(512).address(), first);
}

#[test]
fn blocks_from_max_split_size_on_are_kept_whole() {
    // Specification 2.3 and 2.4.4: neither split, nor used for small requests, nor for requests
    // that would waste 20 MiB.
    let bench = Bench::new("max_split_size_mb:32");
    let block = bench.take(64 * MIB);
    assert_eq!(bench.statistics().oversize_allocations.current, 1);
    assert_eq!(bench.statistics().oversize_segments.current, 1);
    let freed = bench.free(block);
    let _ = bench.take(31 * MIB);
    assert_eq!(bench.reserved_bytes(), 96 * MIB, "not for a request below 32 MiB");
    let _ = bench.take(44 * MIB);
    assert_eq!(bench.reserved_bytes(), 140 * MIB, "20 MiB would be wasted");
    let reused = bench.take(44 * MIB + 512);
    assert_eq!((reused.address(), reused.bytes()), (freed, 64 * MIB));
}

#[test]
fn the_waste_of_an_unsplit_block_is_a_setting() {
    // Specification 2.11: max_non_split_rounding_mb.
    let bench = Bench::new("max_split_size_mb:32,max_non_split_rounding_mb:40");
    let freed = bench.free(bench.take(64 * MIB));
    assert_eq!(bench.take(32 * MIB).address(), freed);
    let bench = Bench::new("max_split_size_mb:32"); // at most 20 MiB more than is asked for
    let freed = bench.free(bench.take(64 * MIB));
    assert_ne!(bench.take(32 * MIB).address(), freed);
}

#[test]
fn large_segments_are_as_large_as_the_setting_says() {
    // Specification 2.11: large_segment_size_mb.
    let bench = Bench::new("large_segment_size_mb:40");
    let _ = bench.take(2 * MIB);
    assert_eq!(bench.reserved_bytes(), 40 * MIB);
}

#[test]
fn alignment_is_kept_and_what_stands_before_is_free() {
    let bench = Bench::new("");
    let _ = bench.take(512);
    for shift in 9..=21 {
        let request = Request::new(512, 0).aligned_to(1 << shift);
        let block = bench.request(request).unwrap();
        assert_eq!(block.address() % (1 << shift), 0, "{shift}");
        assert!(bench.allocator.block_at(block.address() + 511).is_some());
        let freed = bench.free(block);
        assert!(bench.allocator.block_at(freed).is_none());
    }
}

#[test]
fn interior_addresses_name_their_block() {
    let bench = Bench::new("");
    let (first, second) = (bench.take(1000), bench.take(3 * MIB));
    for block in [&first, &second] {
        for offset in [0, 1, block.bytes() as u64 - 1] {
            let found = bench.allocator.block_at(block.address() + offset).unwrap();
            assert_eq!((found.address, found.bytes), (block.address(), block.bytes()));
            assert_eq!(found.state, BlockState::Allocated);
        }
    }
    let freed = bench.free(second);
    assert_eq!(bench.allocator.block_at(freed), None);
    assert_eq!(bench.allocator.block_at(0), None);
}

#[test]
fn statistics_tell_from_which_size_on_blocks_are_kept_whole() {
    for (settings, told) in [("", -1), ("max_split_size_mb:24", 24 << 20)] {
        assert_eq!(Bench::new(settings).statistics().max_split_size, told, "{settings:?}");
    }
}

#[test]
fn a_request_for_nothing_gets_no_block() {
    // Specification 2.9: zero-size malloc returns null without a block.
    let bench = Bench::new("");
    let nothing = bench.take(0);
    assert_eq!((nothing.address(), nothing.bytes()), (0, 0));
    bench.free(nothing);
    assert_eq!(bench.statistics().allocation.all.allocated, 0);
}

#[test]
fn sizes_are_rounded_up_to_divisions_of_powers_of_two() {
    // Specification 2.3, roundup_power2_next_division.
    let bench = Bench::new("roundup_power2_divisions:4");
    assert_eq!(bench.take(5 * MIB + 1).bytes(), 6 * MIB);
    let bench = Bench::new("roundup_power2_divisions:[64:8,256:4,>:1]");
    for (bytes, rounded) in [(33, 36), (257, 320)] {
        assert_eq!(bench.take(bytes * MIB).bytes(), rounded * MIB, "{bytes}");
    }
}

#[test]
fn current_values_peaks_and_sums_of_a_short_life() {
    // Specification 2.6: what changes when.
    let bench = Bench::new("");
    let (small, large) = (bench.take(1000), bench.take(2 * MIB));
    bench.free(large);
    let statistics = bench.statistics();
    let stat = statistics.allocated_bytes.all;
    assert_eq!((stat.current, stat.peak), (1024, (2 << 20) + 1024));
    assert_eq!((stat.allocated, stat.freed), ((2 << 20) + 1024, 2 << 20));
    let later = bench.take(512);
    assert_eq!(bench.statistics().allocated_bytes.all.peak, stat.peak, "there was more before");
    bench.free(later);
    assert_eq!(statistics.requested_bytes.small_pool.current, 1000);
    assert_eq!(statistics.inactive_split.all.current, 1, "the rest of the small segment");
    assert_eq!(statistics.inactive_split_bytes.small_pool.current, (2 << 20) - 1024);
    assert_eq!(statistics.inactive_split.large_pool.current, 0, "a whole segment is not split");
    bench.allocator.reset_peak_statistics();
    assert_eq!(bench.statistics().allocated_bytes.all.peak, 1024);
    bench.allocator.reset_accumulated_statistics();
    assert_eq!(bench.statistics().allocated_bytes.all.allocated, 0);
    bench.free(small);
}

#[test]
fn an_aligned_request_takes_no_more_than_its_size() {
    let bench = Bench::new("");
    let aligned = |bytes, align| bench.request(Request::new(bytes, 0).aligned_to(align)).unwrap();
    let first = aligned(512, 4 * MIB);
    assert_eq!((first.bytes(), bench.reserved_bytes()), (512, 2 * MIB));
    let large = aligned(11 * MIB, 2 * MIB);
    assert_eq!(bench.reserved_bytes(), 14 * MIB);
    let freed = bench.free(first);
    let again = aligned(512, 4 * MIB);
    assert_eq!(again.address(), freed, "what is aligned already is enough");
    assert_eq!(bench.reserved_bytes(), 14 * MIB);
    bench.free(large);
}
