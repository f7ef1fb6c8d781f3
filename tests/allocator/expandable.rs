//! Expandable segments: where they grow, what they count, which pages go back.

use accelrt::allocator::snapshot::SegmentInfo;
use accelrt::allocator::{PoolId, PoolOptions, Request};

use crate::support::{Bench, KIB, MIB, torch};

const EXPANDABLE: &str = "expandable_segments:True";

fn segments(bench: &Bench) -> Vec<SegmentInfo> {
    bench.allocator.snapshot().segments
}

#[test]
fn pages_are_as_large_as_segments_of_the_class_and_are_no_segments() {
    // Specification 2.8: segment_size, map_block; 2.6: segment is not for expandable ones.
    let bench = Bench::new(EXPANDABLE);
    let _ = bench.take(512);
    assert_eq!(bench.reserved_bytes(), 2 * MIB);
    let _ = bench.take(MIB + 512);
    assert_eq!(bench.reserved_bytes(), 22 * MIB);
    let statistics = bench.statistics();
    assert_eq!((statistics.segment.all.current, statistics.num_device_alloc), (0, 2));
    assert_eq!(statistics.inactive_split.all.current, 0);
    assert!(segments(&bench).iter().all(|segment| segment.is_expandable));
}

#[test]
fn a_request_continues_the_free_block_at_the_end() {
    // Specification 2.8, try_allocate_expandable_block: free, then unmapped.
    let bench = Bench::new(EXPANDABLE);
    let first = bench.take(15 * MIB);
    let second = bench.take(30 * MIB);
    assert_eq!(second.address(), first.address() + 15 * MIB as u64);
    assert_eq!(bench.reserved_bytes(), 60 * MIB, "the request itself decides, not its segment");
    assert_eq!(segments(&bench).len(), 1, "one contiguous range is one segment");
}

#[test]
fn what_is_left_is_split_off_from_512_bytes_on() {
    // Specification 2.3, should_split with expandable_segments.
    let bench = Bench::new(EXPANDABLE);
    let block = bench.take(20 * MIB - 512);
    assert_eq!(block.bytes(), 20 * MIB - 512);
    let bench = Bench::new("");
    assert_eq!(bench.take(11 * MIB + 512).bytes(), 12 * MIB, "without them a mebibyte is kept");
}

#[test]
fn whole_pages_inside_free_blocks_go_back() {
    // Specification 2.8, unmap_block: segmentRight(begin) to segmentLeft(end).
    let bench = Bench::new(EXPANDABLE);
    let [first, second, _third] = [(); 3].map(|()| bench.take(30 * MIB));
    assert_eq!(bench.reserved_bytes(), 100 * MIB);
    let second = bench.free(second); // 30 to 60 MiB: the page from 40 to 60
    bench.empty_cache();
    assert_eq!(bench.reserved_bytes(), 80 * MIB);
    let ranges: Vec<(u64, usize)> = segments(&bench)
        .iter()
        .map(|segment| (segment.address - first.address(), segment.total_bytes))
        .collect();
    assert_eq!(ranges, [(0, 40 * MIB), (60 << 20, 40 * MIB)]);
    let fitting = bench.take(10 * MIB);
    assert_eq!(fitting.address(), second, "what was left of it is free memory");
    let again = bench.take(20 * MIB);
    assert_eq!(again.address(), second + (10 << 20), "the gap is filled first");
    assert_eq!(bench.reserved_bytes(), 100 * MIB);
}

#[test]
fn mapped_pages_join_the_free_block_behind_them() {
    // Specification 2.8, map_block: try_merge_blocks with the block behind.
    let bench = Bench::new(EXPANDABLE);
    let [_first, second, _third] = [10, 60, 10].map(|size| bench.take(size * MIB));
    let second = bench.free(second); // 10 to 70 MiB: the pages from 20 to 60 go back
    bench.empty_cache();
    assert_eq!(bench.reserved_bytes(), 40 * MIB);
    let front = bench.take(45 * MIB); // maps both pages: 55 to 60 is left
    assert_eq!(front.address(), second);
    let behind = bench.take(15 * MIB);
    assert_eq!(behind.address(), second + (45 << 20), "what is left is one block up to 70 MiB");
    assert_eq!(bench.reserved_bytes(), 80 * MIB);
}

#[test]
fn addresses_go_back_with_the_last_page() {
    // Specification 2.8: release_expandable_segment.
    let bench = Bench::new(EXPANDABLE);
    let block = bench.take(512);
    assert_eq!(
        bench.null.resource_counts().reserved_bytes,
        1152 * MIB,
        "the device's memory and an eighth"
    );
    bench.free(block);
    bench.empty_cache();
    let live = bench.null.resource_counts();
    assert_eq!((live.reserved_bytes, live.physical_bytes), (0, 0));
    assert_eq!(bench.statistics().num_device_free, 1);
}

#[test]
fn of_blocks_that_can_grow_the_one_with_the_least_room_is_taken() {
    // Specification 2.4.4: size + next unmapped.
    let bench = Bench::new(EXPANDABLE);
    let hole = bench.take(15 * MIB);
    let last = bench.take(15 * MIB); // 30 to 40 is free, and can grow
    let hole = bench.free(hole);
    assert_eq!(bench.take(9 * MIB).address(), hole, "10 MiB with room count as more");
    let grown = bench.take(15 * MIB);
    assert_eq!(grown.address(), last.address() + (15 << 20));
}

#[test]
fn streams_and_pools_have_addresses_of_their_own() {
    // Specification 2.8: one segment per device, stream and pool.
    let bench = Bench::new(EXPANDABLE);
    let _ = bench.take(512);
    let _ = bench.request(Request::new(512, 1)).unwrap();
    let pool = PoolId(0, 3);
    bench.allocator.retain_pool(pool, PoolOptions::default());
    let _ = bench.request(Request::new(512, 0).from_pool(pool)).unwrap();
    assert_eq!(bench.null.resource_counts().reserved_bytes, 3 * 1152 * MIB);
    assert_eq!(bench.reserved_bytes(), 6 * MIB);
}

#[test]
fn the_accounts_of_a_captured_program_are_those_of_the_table() {
    // Specification 2.10, the values for expandable segments.
    let rows = [
        (512, 2 * MIB, 2 * MIB),
        (MIB, 4 * MIB, 2 * MIB),
        (MIB + 512, 20 * MIB, 20 * MIB),
        (10 * MIB - 512, 40 * MIB, 40 * MIB),
        (10 * MIB + 512, 40 * MIB, 20 * MIB),
    ];
    for (bytes, captured_bytes, left_bytes) in rows {
        let bench = Bench::new(EXPANDABLE);
        let alive = crate::pools::capture(&bench, bytes);
        assert_eq!((bench.segments(), bench.reserved_bytes()), (0, captured_bytes), "{bytes}");
        bench.allocator.release_pool(crate::pools::POOL);
        bench.empty_cache();
        assert_eq!(bench.reserved_bytes(), left_bytes, "{bytes}");
        bench.free(alive);
    }
}

#[test]
fn pages_that_were_mapped_before_memory_ran_out_go_back() {
    // Specification 2.8, map: those just created are freed.
    let bench = Bench::of_capacity(EXPANDABLE, 50 * MIB);
    bench.request(Request::new(50 * MIB, 0)).unwrap_err();
    assert_eq!(bench.device_bytes(), 0);
    let _ = bench.take(40 * MIB);
    let _ = bench.request(Request::new(512, 0)).unwrap();
    bench.request(Request::new(MIB + 512, 0)).unwrap_err();
    assert_eq!(bench.reserved_bytes(), 42 * MIB);
}

#[test]
fn more_than_all_addresses_is_refused() {
    let bench = Bench::of_capacity(EXPANDABLE, 64 * MIB);
    bench.request(Request::new(100 * MIB, 0)).unwrap_err();
}

#[test]
fn a_limit_counts_whole_pages() {
    let bench = Bench::new("expandable_segments:True,per_process_memory_fraction:0.03"); // 30.7
    let _ = bench.take(10 * MIB);
    let _ = bench.take(10 * MIB);
    bench.request(Request::new(2 * MIB, 0)).unwrap_err();
    let _ = bench.request(Request::new(5 * KIB, 0)).unwrap();
    assert_eq!(bench.reserved_bytes(), 22 * MIB);
}

#[test]
fn settings_change_what_serves_the_next_request_alone() {
    // Specification 2.4.4: if expandable is off, expandable blocks are skipped.
    let bench = Bench::new(EXPANDABLE);
    let freed = bench.free(bench.take(2 * MIB));
    bench.allocator.set_config(torch());
    let plain = bench.take(2 * MIB);
    assert_ne!(plain.address(), freed);
    assert_eq!((bench.segments(), bench.reserved_bytes()), (1, 40 * MIB));
    bench.allocator.set_config(EXPANDABLE.parse().unwrap());
    let plain = bench.free(plain);
    let taken = bench.take(18 * MIB);
    assert_eq!(taken.address(), plain, "what can grow counts as larger");
    bench.empty_cache();
}

#[test]
fn an_expandable_segment_is_restored_with_its_pages() {
    let bench = Bench::new(EXPANDABLE);
    let [_first, second, _third] = [512, 30 * MIB, 6 * MIB].map(|bytes| bench.take(bytes));
    bench.free(second);
    let snapshot = bench.allocator.snapshot();
    let other = Bench::new(EXPANDABLE);
    let in_use = other.allocator.restore(&snapshot).unwrap();
    other.allocator.check_all();
    assert_eq!(other.allocator.snapshot(), snapshot);
    assert_eq!(other.device_bytes(), 42 * MIB);
    for block in in_use {
        other.free(block);
    }
    other.empty_cache();
    assert_eq!(other.device_bytes(), 0);
}

#[test]
fn without_addresses_a_request_has_a_segment_of_its_own() {
    // 2^47 bytes of addresses are fewer than 400 times the device's memory and an eighth.
    let bench = Bench::of_capacity(EXPANDABLE, 1 << 40);
    let blocks: Vec<_> = (0..400)
        .map(|stream| bench.allocator.allocate(Request::new(512, stream)).unwrap())
        .collect();
    bench.allocator.check_all();
    assert!(bench.segments() > 0, "the last have plain ones");
    assert_eq!(bench.reserved_bytes(), 400 * 2 * MIB);
    for block in blocks {
        bench.allocator.free(block).unwrap();
    }
    bench.empty_cache();
    assert_eq!(bench.device_bytes(), 0);
}

#[test]
fn pages_that_are_larger_than_all_addresses_are_no_request_s_end() {
    let bench = Bench::new("expandable_segments:True,large_segment_size_mb:17592186044415");
    bench.request(Request::new(2 * MIB, 0)).unwrap_err();
    let _ = bench.take(512);
    assert_eq!(bench.reserved_bytes(), 2 * MIB);
}

#[test]
fn a_limit_allows_pages_only_where_it_allows_a_segment() {
    // Specification 2.4, alloc_block: total_allocated + alloc_size > allowed comes first.
    let bench = Bench::new("expandable_segments:True,per_process_memory_fraction:0.0596"); // 61
    let _ = bench.take(15 * MIB);
    bench.request(Request::new(44 * MIB, 0)).unwrap_err(); // 64, although 60 would be mapped
    let _ = bench.take(40 * MIB);
    assert_eq!(bench.reserved_bytes(), 60 * MIB);
}
