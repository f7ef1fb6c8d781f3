//! Law 8 under policy `native`: memory that is free is handed out, wherever it is.
//!
//! Goal: no request fails, and none takes more from the device, while free memory can hold it.
//! Method: devices that are exactly large enough, and layouts made by hand in which the free memory
//! is where a search has to look for it. Random programs ask the same of every refusal (`driver`).

use std::sync::Arc;

use accelrt::allocator::{Allocated, CachingAllocator, PoolId, PoolOptions, Request};
use accelrt::backend::contract::Backend;
use accelrt::{Error, MemoryError};

use crate::driver::Sources;
use crate::numbers::Numbers;
use crate::pools::POOL;
use crate::seed::seed;
use crate::support::{Bench, KIB, MIB};

/// Without threads' caches, so that each free block is where the test puts it.
const NATIVE: &str = "policy:native,exact_statistics:True";

/// Blocks of two sizes in turns; each pair fills two pages of 2 MiB.
fn pairs(bench: &Bench, count: usize, first_kib: usize) -> (Vec<Allocated>, Vec<Allocated>) {
    let rest_kib = 4096 - first_kib;
    (0..count).map(|_| (bench.take(first_kib * KIB), bench.take(rest_kib * KIB))).unzip()
}

#[test]
fn memory_at_the_end_of_a_free_block_serves_after_the_pages_before_it_moved() {
    let bench = Bench::of_capacity(NATIVE, 16 * MIB);
    let (large, small) = pairs(&bench, 4, 3584);
    for block in large {
        bench.free(block);
    }
    let moved = bench.take(8 * MIB); // the first page of each
    assert_eq!(bench.statistics().num_pages_stolen, 4);
    let rest = [(); 4].map(|()| bench.take(1536 * KIB));
    assert_eq!(bench.statistics().num_pages_stolen, 4, "they had their memory");
    for block in small.into_iter().chain(rest).chain([moved]) {
        bench.free(block);
    }
}

/// Goal: free memory is known to be beside pages without memory, whichever of its parts was freed
/// first. Method: two blocks, the one farther from such pages before the other; all laws.
#[test]
fn a_free_block_that_grows_to_where_pages_lack_is_known_to_be_there() {
    let bench = Bench::of_capacity(NATIVE, 14 * MIB);
    let [first, second, third] = [(); 3].map(|()| bench.take(4 * MIB));
    bench.free(first);
    let larger = bench.take(6 * MIB); // in the pages of the first and a new one, behind the third
    assert_eq!(bench.statistics().num_pages_stolen, 2);
    for block in [third, second, larger] {
        bench.free(block);
        bench.allocator.check_all();
    }
    let bench = Bench::new(NATIVE);
    for block in [(); 2].map(|()| bench.take(4 * MIB)) {
        bench.free(block); // behind the second nothing has memory
        bench.allocator.check_all();
    }
}

#[test]
fn memory_inside_a_free_block_serves_before_pages_move_or_the_device_is_asked() {
    let bench = Bench::new(NATIVE);
    let whole = bench.free(bench.take(60 * MIB));
    let moved = bench.take(6 * MIB - KIB); // the three pages that have been idle for longest
    let inside = bench.take(40 * MIB);
    let statistics = bench.statistics();
    assert_eq!((statistics.num_pages_stolen, bench.reserved_bytes()), (3, 60 * MIB));
    assert_eq!(inside.address() - whole, 6 * MIB as u64);
    for block in [moved, inside] {
        bench.free(block);
    }
}

#[test]
fn the_device_is_not_asked_while_any_of_many_free_blocks_has_its_memory() {
    // Goal: the bound of a search is no reason to grow. Method: more free blocks that miss a page
    // than a bounded search looks at, all of them smaller than the one that misses none.
    let bench = Bench::of_capacity(NATIVE, 256 * MIB);
    let (holes, mut kept) = pairs(&bench, 60, 2560);
    kept.push(bench.take(500 * KIB));
    let last = bench.take(3072 * KIB);
    kept.push(bench.take(524 * KIB)); // the pages of the block before it are shared
    for block in holes {
        bench.free(block);
    }
    kept.push(bench.take(120 * MIB)); // the first page of each hole
    let last = bench.free(last);
    let reserved_bytes = bench.reserved_bytes();
    let again = bench.take(1600 * KIB);
    assert_eq!((again.address(), bench.reserved_bytes()), (last, reserved_bytes));
    for block in kept.into_iter().chain([again]) {
        bench.free(block);
    }
}

#[test]
fn the_device_is_not_asked_while_one_of_many_blocks_of_nearly_its_size_holds_a_request() {
    // Goal: as above, of blocks with memory. Method: more free blocks in the list of a size than a
    // bounded search looks at, the one that is large enough behind all others.
    let bench = Bench::of_capacity(NATIVE, 256 * MIB);
    let (smaller, kept) = pairs(&bench, 30, 1024);
    let (larger, others) = pairs(&bench, 1, 1048);
    let larger: Vec<u64> = larger.into_iter().map(|block| bench.free(block)).collect();
    for block in smaller {
        bench.free(block);
    }
    let reserved_bytes = bench.reserved_bytes();
    let again = bench.take(1040 * KIB);
    assert_eq!((again.address(), bench.reserved_bytes()), (larger[0], reserved_bytes));
    for block in kept.into_iter().chain(others).chain([again]) {
        bench.free(block);
    }
}

#[test]
fn what_lacks_pages_stands_where_it_lacks_the_fewest() {
    // Goal: a place is chosen by the pages that it lacks. Method: addresses without memory before a
    // free block of 3.5 MiB, and a device with one page: at their beginning 5 MiB lack two.
    let bench = Bench::of_capacity(NATIVE, 16 * MIB);
    let first = sharing(&bench, 4096);
    let [second, behind] = [3584, 512].map(|kib| bench.take(kib * KIB));
    let begin = free_all(&bench, first);
    let elsewhere = bench.take(10 * MIB); // its two pages and three new ones
    let reserved_bytes = bench.reserved_bytes();
    bench.free(second);
    let place = bench.take(5 * MIB);
    assert_eq!(place.address() - begin, 2560 * KIB as u64);
    assert_eq!(bench.reserved_bytes(), reserved_bytes + 2 * MIB);
    for block in [elsewhere, behind, place] {
        bench.free(block);
    }
}

/// Two blocks side by side, `kib` together, that share pages: one of whole pages would share none.
fn sharing(bench: &Bench, kib: usize) -> [Allocated; 2] {
    [1536, kib - 1536].map(|kib| bench.take(kib * KIB))
}

/// Frees blocks that are side by side; returns the first address.
fn free_all(bench: &Bench, blocks: [Allocated; 2]) -> u64 {
    let [first, _] = blocks.map(|block| bench.free(block));
    first
}

/// Two free blocks, of which the second begins with a page of 2 MiB, and what is beside them.
fn two_holes(bench: &Bench, before_kib: usize, kib: [usize; 2]) -> ([u64; 2], Vec<Allocated>) {
    let between_kib = 2048 - (before_kib + kib[0]) % 2048; // up to a border of pages
    let before = bench.take(before_kib * KIB);
    let first = sharing(bench, kib[0]);
    let between = bench.take(between_kib * KIB);
    let second = sharing(bench, kib[1]);
    let behind = bench.take(500 * KIB);
    let holes = [first, second].map(|blocks| free_all(bench, blocks));
    (holes, vec![before, between, behind])
}

#[test]
fn of_a_list_of_sizes_a_block_serves_that_is_large_enough() {
    // Goal: blocks of about the same size are in one list. Method: of two the smaller one was freed
    // last, and is looked at first.
    let bench = Bench::new(NATIVE);
    let sizes = [203 * 512, 40 * KIB, 200 * 512, 40 * KIB];
    let [larger, first, smaller, second] = sizes.map(|bytes| bench.take(bytes));
    let [larger, _] = [larger, smaller].map(|block| bench.free(block));
    let placed = bench.take(202 * 512);
    assert_eq!(placed.address(), larger);
    for block in [placed, first, second] {
        bench.free(block);
    }
}

#[test]
fn a_request_of_some_pages_leaves_idle_pages_to_others() {
    // Goal: of two free blocks the larger one serves, whose ends are in pages that others use. The
    // other one would give up all of its three idle pages.
    let bench = Bench::new(NATIVE);
    let ([larger, _], mut kept) = two_holes(&bench, 1536, [6400, 6144]);
    assert_eq!(bench.reserved_bytes(), 16 * MIB);
    kept.push(bench.take(5 * MIB));
    assert_eq!(kept.last().map(Allocated::address), Some(larger));
    kept.push(bench.take(18 * MIB)); // six new pages, and three that were idle
    assert_eq!(bench.reserved_bytes(), 28 * MIB);
    for block in kept {
        bench.free(block);
    }
}

#[test]
fn a_request_of_less_than_two_pages_stands_at_the_beginning_of_a_free_block() {
    let bench = Bench::new(NATIVE);
    let hole = bench.free(bench.take(61 * MIB)); // shares its last page
    let small = bench.take(MIB);
    assert_eq!(small.address(), hole, "where it takes a page, as it would not at the end");
    bench.free(small);
}

#[test]
fn a_request_of_some_pages_stands_at_that_end_of_a_free_block_which_leaves_more_of_them() {
    // Goal: a free block begins with a page, and ends in one that others use. At its beginning the
    // request would take its three idle pages, at its end it takes two and leaves the first one.
    let bench = Bench::new(NATIVE);
    let ([hole, _], mut kept) = two_holes(&bench, 2048, [7168, 4096]);
    let reserved_bytes = bench.reserved_bytes();
    kept.push(bench.take(5 * MIB));
    assert_eq!(kept.last().map(Allocated::address), Some(hole + 2 * MIB as u64));
    kept.push(bench.take(2 * MIB));
    assert_eq!(bench.reserved_bytes(), reserved_bytes);
    for block in kept {
        bench.free(block);
    }
}

#[test]
fn what_needs_new_pages_wherever_it_is_leaves_holes_to_what_fits_them() {
    // Goal: of places that cost the same the one in the largest block is taken before the device
    // is asked: here what is left of the addresses, behind two holes without memory.
    let bench = Bench::new(NATIVE);
    let (_, mut kept) = two_holes(&bench, 2048, [6144, 4096]);
    let behind = kept[2].address();
    kept.push(bench.take(18 * MIB)); // the pages of both, and more
    assert_eq!(bench.statistics().num_pages_stolen, 5);
    kept.push(bench.take(4 * MIB - KIB));
    assert!(kept.last().is_some_and(|block| block.address() > behind), "{kept:?}");
    for block in kept {
        bench.free(block);
    }
}

#[test]
fn an_error_says_how_much_could_be_had_and_that_is_to_be_had() {
    let bench = Bench::of_capacity(NATIVE, 16 * MIB);
    let (large, small) = pairs(&bench, 4, 3584);
    for block in large {
        bench.free(block);
    }
    let moved = bench.take(8 * MIB);
    let error = bench.request(Request::new(2 * MIB, 0)).unwrap_err();
    assert_eq!(most_bytes(&error), 1536 * KIB, "{error}");
    let most = bench.take(1536 * KIB);
    for block in small.into_iter().chain([moved, most]) {
        bench.free(block);
    }
}

#[test]
fn a_large_request_shares_pages_when_whole_ones_are_not_enough() {
    let bench = Bench::of_capacity(NATIVE, 18 * MIB);
    let small = bench.take(500 * KIB); // of the first of nine pages
    let large = bench.take(17 * MIB + 500 * KIB);
    let statistics = bench.statistics();
    let reserved_bytes = statistics.reserved_bytes;
    assert_eq!(statistics.allocation.small_pool.current, 1, "by their sizes");
    assert_eq!(reserved_bytes.large_pool.current, (17 * MIB + 500 * KIB) as u64);
    assert_eq!(reserved_bytes.small_pool.current, (500 * KIB + 24 * KIB) as u64);
    for block in [small, large] {
        bench.free(block);
    }
    let statistics = bench.statistics();
    assert_eq!(statistics.allocation.all.current, 0);
    assert_eq!(statistics.reserved_bytes.large_pool.current, 0, "it may share its pages again");
    assert_eq!(statistics.reserved_bytes.small_pool.current, 18 << 20);
}

#[test]
fn a_small_request_is_served_without_a_slab_of_its_size() {
    let bench = Bench::of_capacity(NATIVE, 2 * MIB);
    let small = bench.take(8 * KIB); // its slab has room for seven more
    let rest = bench.take(2 * MIB - 64 * KIB - 4 * KIB);
    let of_the_block = bench.take(2 * KIB); // no slab of this size fits any more
    let others = [1, 2].map(|stream| bench.request(Request::new(2 * KIB, stream)).unwrap());
    let of_a_larger_size = bench.take(3 * KIB);
    for block in others.into_iter().chain([small, rest, of_the_block, of_a_larger_size]) {
        bench.free(block);
    }
}

#[test]
fn pages_move_to_where_another_stream_has_the_rest() {
    let bench = Bench::of_capacity(NATIVE, 4 * MIB);
    let request = |bytes, stream| bench.request(Request::new(bytes, stream)).unwrap();
    let (hole, kept) = (request(3 * MIB, 1), request(MIB, 1)); // the hole has a MiB of its page
    let hole_address = bench.free(hole);
    bench.allocator.retain_pool(POOL, PoolOptions::default());
    let moved = bench.request(Request::new(2 * MIB, 0).from_pool(POOL)).unwrap();
    bench.free(moved);
    bench.allocator.release_pool(POOL); // from here on its page may move again
    let block = bench.take(3 * MIB);
    assert_eq!(block.address(), hole_address);
    for block in [kept, block] {
        bench.free(block);
    }
}

#[test]
fn an_error_says_what_could_be_had_with_what_is_left_to_take() {
    let bench = Bench::of_capacity(NATIVE, 16 * MIB);
    let _ = bench.take(4 * MIB);
    let error = bench.request(Request::new(14 * MIB, 0)).unwrap_err();
    assert_eq!(most_bytes(&error), 12 * MIB);
    let expected = "0 B are free, with what is left to take at most 12.00 MiB in one piece";
    assert!(error.to_string().contains(expected), "{error}");
}

/// An allocator of memory that moves no pages, on a device of its own.
fn on_segments(capacity_bytes: usize) -> (Bench, CachingAllocator) {
    let bench = Bench::of_capacity(NATIVE, capacity_bytes);
    let beside = Arc::new(
        CachingAllocator::new(Arc::clone(&bench.null) as _, bench.allocator.device(), native())
            .unwrap(),
    );
    let shared = CachingAllocator::shared(&beside, native()).unwrap();
    (bench, shared)
}

fn native() -> accelrt::AllocatorConfig {
    NATIVE.parse().unwrap()
}

pub(crate) fn most_bytes(error: &Error) -> usize {
    let Error::Memory(MemoryError::OutOfMemory { cache: Some(cache), .. }) = error else {
        panic!("{error}")
    };
    cache.largest_free_bytes
}

#[test]
fn the_error_of_a_request_that_nobody_can_plan_counts_what_threads_keep() {
    // Goal: what could be had instead is told truly. Method: a thread keeps nearly all memory, and
    // asks for more than there are addresses.
    let bench = Bench::of_capacity("policy:native", 64 * MIB);
    let allocator = &bench.allocator;
    for _ in 0..3 {
        let block = allocator.allocate(Request::new(59 * MIB, 0)).unwrap();
        allocator.free(block).unwrap();
    }
    let error = allocator.allocate(Request::new(usize::MAX, 0)).unwrap_err();
    let most = most_bytes(&error);
    let block = bench.take(most);
    bench.free(block);
    assert_eq!(most, 64 * MIB, "{error}");
}

#[test]
fn a_segment_of_large_blocks_serves_a_small_request_when_the_device_has_no_more() {
    let (_bench, allocator) = on_segments(40 * MIB);
    let take = |bytes| allocator.allocate(Request::new(bytes, 0)).unwrap();
    let whole = take(40 * MIB);
    allocator.free(whole).unwrap();
    let half = take(20 * MIB);
    let others = [MIB, 700].map(take);
    allocator.check_all();
    for block in others.into_iter().chain([half]) {
        allocator.free(block).unwrap();
        allocator.check_all();
    }
}

#[test]
fn the_smallest_segment_is_taken_where_the_device_has_none_to_be_shared() {
    let (_bench, allocator) = on_segments(35 * MIB);
    let take = |bytes| allocator.allocate(Request::new(bytes, 0)).unwrap();
    let blocks = [take(16 * MIB), take(16 * MIB), take(MIB)]; // an eighth of those is 4 MiB
    allocator.check_all();
    for block in blocks {
        allocator.free(block).unwrap();
    }
}

#[test]
fn requests_of_segments_fail_only_when_no_free_memory_can_hold_them() {
    let mut numbers = Numbers::new(seed());
    let (mut refusals, capacity_bytes) = (0, 64 * MIB);
    let (bench, allocator) = on_segments(capacity_bytes);
    let mut live: Vec<Allocated> = Vec::new();
    for _ in 0..3_000 {
        if numbers.below(5) < 2 && !live.is_empty() {
            let place = numbers.below(live.len());
            allocator.free(live.swap_remove(place)).unwrap();
            continue;
        }
        let unit_bytes = [100, KIB, 64 * KIB, MIB][numbers.below(4)];
        let bytes = (unit_bytes * (1 + numbers.below(40))).min(capacity_bytes / 3);
        let request = Request::new(bytes, numbers.below(3) as u64);
        let error = match allocator.allocate(request) {
            Ok(block) => {
                live.push(block);
                continue;
            }
            Err(error) => error,
        };
        refusals += 1;
        let left_bytes = bench.null.memory_info(0).unwrap().free_bytes;
        let default = [PoolId::DEFAULT];
        let sources = Sources { stream: request.stream, serving: &default, owned: &[], left_bytes };
        let room_bytes = sources.native_room_bytes(&allocator.snapshot().segments);
        let most_bytes = most_bytes(&error);
        assert!(room_bytes <= most_bytes && most_bytes < bytes, "{room_bytes}: {error}");
        if most_bytes > 0 {
            let most = allocator.allocate(Request::new(most_bytes, request.stream));
            let most = most.unwrap_or_else(|refusal| panic!("{error}, and then {refusal}"));
            allocator.free(most).unwrap();
        }
        allocator.check_all();
    }
    assert!(refusals > 100, "{refusals}");
    for block in live {
        allocator.free(block).unwrap();
    }
}

#[test]
fn what_an_error_says_could_be_had_of_pages_is_had_and_no_512_bytes_more() {
    let mut numbers = Numbers::new(seed());
    let (mut refusals, bench) = (0, Bench::of_capacity(NATIVE, 16 * MIB));
    let mut live: Vec<Allocated> = Vec::new();
    for _ in 0..3_000 {
        if numbers.below(5) < 2 && !live.is_empty() {
            let place = numbers.below(live.len());
            bench.free(live.swap_remove(place));
            continue;
        }
        let unit_bytes = [100, KIB, 64 * KIB, 300 * KIB][numbers.below(4)];
        let stream = numbers.below(3) as u64;
        let ask = |bytes| bench.allocator.allocate(Request::new(bytes, stream));
        match ask(unit_bytes * (1 + numbers.below(40))) {
            Ok(block) => live.push(block),
            Err(error) => {
                refusals += 1;
                let bytes = most_bytes(&error);
                let more = ask(bytes + 512).unwrap_err();
                assert_eq!(most_bytes(&more), bytes, "{error}, and then {more}");
                let most = (bytes > 0).then(|| ask(bytes));
                let most = most.transpose().unwrap_or_else(|refusal| panic!("{error}: {refusal}"));
                most.map(|block| bench.free(block));
            }
        }
    }
    assert!(refusals > 100, "{refusals}");
    for block in live {
        bench.free(block);
    }
}

#[test]
fn free_blocks_of_another_streams_slabs_serve_a_request_of_their_own_size() {
    // Goal: law 8, of small requests too. Method: a device full of small blocks of one stream, of
    // which every other one is freed.
    for bytes in [512, KIB, 16 * KIB] {
        let bench = Bench::of_capacity(NATIVE, 2 * MIB);
        let take = |stream| bench.allocator.allocate(Request::new(bytes, stream));
        let mut blocks: Vec<_> = std::iter::from_fn(|| take(1).ok()).collect();
        for block in blocks.iter_mut().step_by(2) {
            bench.allocator.free(std::mem::take(block)).unwrap();
        }
        let served = take(2).unwrap_or_else(|error| panic!("{bytes}: {error}"));
        bench.allocator.check_all();
        for block in blocks.into_iter().chain([served]) {
            bench.allocator.free(block).unwrap();
        }
    }
}

#[test]
fn pages_move_also_when_more_is_reserved_than_a_lowered_limit_allows() {
    // Goal: what needs no new page asks no limit. Method: free memory of a pool in two pieces.
    let bench = Bench::of_capacity(NATIVE, 128 * MIB);
    bench.allocator.retain_pool(POOL, PoolOptions::default());
    let take = |bytes| bench.request(Request::new(bytes, 0).from_pool(POOL)).unwrap();
    let [first, second, third, fourth] = [(); 4].map(|()| take(18 * MIB));
    bench.free(first);
    bench.free(third);
    bench.allocator.set_memory_fraction(0.1).unwrap();
    let moved = take(30 * MIB);
    assert_eq!(bench.statistics().num_pages_stolen, 15);
    for block in [second, fourth, moved] {
        bench.free(block);
    }
    bench.allocator.release_pool(POOL);
}

#[test]
fn an_error_says_to_the_last_byte_how_much_could_be_had() {
    let bench = Bench::of_capacity(NATIVE, 8 * MIB);
    for taken_bytes in [0, 2 * MIB] {
        let taken = bench.take(taken_bytes);
        let refused = bench.request(Request::new(9 * MIB, 0)).unwrap_err();
        assert_eq!(most_bytes(&refused), 8 * MIB - taken_bytes, "{refused}");
        bench.free(taken);
    }
}

#[test]
fn a_pool_that_helps_out_does_so_only_when_there_is_no_other_memory() {
    let bench = Bench::of_capacity(NATIVE, 4 * MIB);
    bench.allocator.retain_pool(POOL, PoolOptions::default().use_on_oom(true));
    let helper = bench.request(Request::new(KIB, 0).from_pool(POOL)).unwrap();
    let own = bench.request(Request::new(KIB, 1)).unwrap();
    let served = bench.request(Request::new(KIB, 2)).unwrap();
    let page = |block: &Allocated| block.address() / (2 * MIB as u64);
    assert_eq!((page(&served), page(&served) == page(&helper)), (page(&own), false));
    for block in [helper, own, served] {
        bench.free(block);
    }
    bench.allocator.release_pool(POOL);
}

#[test]
fn other_streams_of_the_pool_serve_before_a_pool_that_helps_out_on_the_same_stream() {
    // Goal: a request's pool counts before its stream. Method: the pool that helps out has memory
    // of the request's stream, the request's own pool has some of another one.
    let bench = Bench::of_capacity(NATIVE, 4 * MIB);
    bench.allocator.retain_pool(POOL, PoolOptions::default().use_on_oom(true));
    let helper = bench.request(Request::new(KIB, 2).from_pool(POOL)).unwrap();
    let of_other = bench.request(Request::new(KIB, 1)).unwrap();
    let served = bench.request(Request::new(KIB, 2)).unwrap();
    let page = |block: &Allocated| block.address() / (2 * MIB as u64);
    assert_eq!(page(&served), page(&of_other));
    assert_ne!(page(&served), page(&helper));
    for block in [helper, of_other, served] {
        bench.free(block);
    }
    bench.allocator.release_pool(POOL);
}
