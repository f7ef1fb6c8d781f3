//! The policy `native`: what it puts together, what moves, and what its threads keep.
//!
//! Goal: memory that nobody uses serves any request, whatever it was cut into before. Method: a
//! device that is exactly large enough, so that a page that is lost, or asked for too early, is a
//! request that fails; `check_all` after each step. Random programs run it too (`driver`).

use std::sync::{Arc, Barrier};

use accelrt::allocator::{Allocated, CachingAllocator, Request};
use accelrt::{Device, DeviceKind, Error, MemoryError};
use accelrt_testing::fault::{Fault, FaultBackend, FaultError, Method};
use accelrt_testing::null::{NullBackend, NullConfig};

use crate::hang::Watchdog;
use crate::numbers::Numbers;
use crate::seed::seed;
use crate::support::{Bench, KIB, MIB, torch};

const GIB: usize = 1 << 30;
const NATIVE: &str = "policy:native";

/// As many blocks of a size as `room_bytes` have room for.
fn fill(bench: &Bench, room_bytes: usize, bytes: usize) -> Vec<Allocated> {
    let mut blocks = vec![bench.take(bytes)];
    while (blocks.len() + 1) * blocks[0].bytes() <= room_bytes {
        blocks.push(bench.allocator.allocate(Request::new(bytes, 0)).unwrap());
    }
    bench.allocator.check_all();
    blocks
}

#[test]
fn idle_pages_move_to_where_memory_is_missing_before_the_device_is_asked() {
    let bench = Bench::new(NATIVE);
    let large = bench.take(40 * MIB);
    bench.free(large);
    let middle = bench.take(3 * MIB);
    assert_eq!(bench.reserved_bytes(), 40 * MIB);
    assert_eq!(bench.statistics().num_pages_stolen, 2);
    bench.free(middle);
}

#[test]
fn whole_pages_share_none_and_all_other_sizes_share_those_at_their_ends() {
    let bench = Bench::new(NATIVE);
    let whole = [4 * MIB, 64 * MIB].map(|bytes| bench.take(bytes));
    let page = 2 * MIB as u64;
    assert!(whole.iter().all(|block| block.address().is_multiple_of(page)), "{whole:?}");
    assert_eq!(bench.reserved_bytes(), 68 * MIB);
    // Each of them alone would have one page more than all together have.
    let sharing = [20 * MIB + 512, 40 * MIB + 512, 6 * MIB - KIB].map(|bytes| bench.take(bytes));
    assert_eq!(sharing[0].bytes(), 20 * MIB + 512);
    assert_eq!(bench.reserved_bytes(), (68 + 66) * MIB);
    for block in whole.into_iter().chain(sharing) {
        bench.free(block);
    }
}

#[test]
fn exact_gap_is_preferred_to_larger_one() {
    // Method: two blocks that share pages with their neighbours are freed, and the whole pages
    // inside go back. The size of the first is asked for again: in the gap of the second, which is
    // larger, it would need one page more.
    for sizes in [[5, 20, 5, 41, 5], [7, 9, 3, 30, 3], [3, 33, 9, 61, 9], [9, 11, 7, 23, 7]] {
        let bench = Bench::new(NATIVE);
        let [_first, fitting, _middle, larger, _last] =
            sizes.map(|size| bench.take(size * MIB - 512));
        let bytes = fitting.bytes();
        bench.free(larger);
        let address = bench.free(fitting);
        bench.empty_cache();
        assert_eq!(bench.take(bytes).address(), address, "{sizes:?}");
        bench.allocator.check_all();
    }
}

/// A device, what its calls can be made to do, and its allocator.
fn behind_faults(capacity_bytes: usize) -> (Arc<NullBackend>, Arc<FaultBackend>, CachingAllocator) {
    let null = NullBackend::new(NullConfig { capacity_bytes, ..NullConfig::default() });
    let faults = FaultBackend::new(Arc::clone(&null) as _);
    let device = Device::new(DeviceKind::NULL, 0).unwrap();
    let backend = Arc::clone(&faults) as _;
    let allocator = CachingAllocator::new(backend, device, NATIVE.parse().unwrap()).unwrap();
    (null, faults, allocator)
}

#[test]
fn a_page_whose_move_is_refused_stays_where_it_was() {
    // Goal: of a block whose pages were to move, those behind a refused one are their old heap's as
    // before. Method: each of ten moves refused in turn; what has moved is counted, and all of the
    // device serves requests of either kind afterwards.
    let watchdog = Watchdog::new("moves that are refused");
    for nth in 1..=10 {
        watchdog.step(format!("the move {nth} is refused"));
        let (null, faults, allocator) = behind_faults(20 * MIB);
        let take = |bytes| {
            let block = allocator.allocate(Request::new(bytes, 0));
            allocator.check_all(); // threads keep nothing behind it
            block
        };
        let stolen = || allocator.statistics().num_pages_stolen;
        let take_halves = || [9 * MIB, 11 * MIB].map(|bytes| take(bytes).unwrap()); // share a page
        let free = |block| {
            allocator.free(block).unwrap();
            allocator.check_all();
        };
        take_halves().into_iter().for_each(free);
        // Whole pages are of another arena, so all of them are to move.
        faults.plan(Fault::nth(Method::VmRelocate, nth, FaultError::Driver));
        take(20 * MIB).unwrap_err();
        assert_eq!(stolen(), nth - 1);
        free(take(20 * MIB).unwrap());
        assert_eq!(stolen(), 10, "the rest has moved, behind {nth}");
        take_halves().into_iter().for_each(free);
        assert_eq!(stolen(), 20);
        assert_eq!(null.resource_counts().physical_bytes, 20 * MIB);
        allocator.empty_cache();
        assert_eq!(null.resource_counts().physical_bytes, 0);
    }
}

#[test]
fn new_pages_stay_when_the_move_of_the_others_is_refused() {
    // Goal: what the device gave for a block is there for the next try. Method: a block of all of
    // the device, for which two new pages come before the first of ten moves, which is refused.
    let (null, faults, allocator) = behind_faults(24 * MIB);
    let take = |bytes| {
        let block = allocator.allocate(Request::new(bytes, 0));
        allocator.check_all(); // threads keep nothing behind it
        block
    };
    for half in [9 * MIB, 11 * MIB].map(|bytes| take(bytes).unwrap()) {
        allocator.free(half).unwrap();
    }
    allocator.check_all();
    faults.plan(Fault::nth(Method::VmRelocate, 1, FaultError::Driver));
    take(24 * MIB).unwrap_err();
    assert_eq!(null.resource_counts().physical_bytes, 24 * MIB);
    let whole = take(24 * MIB).unwrap();
    assert_eq!(allocator.statistics().num_pages_stolen, 10);
    allocator.free(whole).unwrap();
    allocator.check_all();
}

#[test]
fn addresses_in_which_nothing_is_go_back_when_the_device_has_no_more() {
    // Goal: a request that needs addresses is served as long as some can be given back. Method: a
    // device that refuses them until some come back; what is free is too small for the request.
    let null = NullBackend::new(NullConfig { capacity_bytes: GIB, ..NullConfig::default() });
    let faults = FaultBackend::new(null as _);
    let device = Device::new(DeviceKind::NULL, 0).unwrap();
    let backend = Arc::clone(&faults) as _;
    let allocator = CachingAllocator::new(backend, device, NATIVE.parse().unwrap()).unwrap();
    let first = allocator.allocate(Request::new(40 * MIB, 0)).unwrap();
    allocator.free(first).unwrap();
    faults.plan(Fault::always(Method::VmReserve, FaultError::Driver));
    let of_device = Arc::clone(&faults);
    faults.plan_callback(Method::VmUnreserve, 1, move || of_device.clear());
    let second = allocator.allocate(Request::new(60 * MIB, 1)).unwrap();
    allocator.check_all();
    assert_eq!((faults.calls(Method::VmUnreserve), faults.failures(Method::VmReserve)), (1, 2));
    allocator.free(second).unwrap();
}

#[test]
fn a_request_that_finds_no_addresses_is_out_of_memory() {
    // Goal: who catches that error gets it for every kind of shortage, through all that is tried.
    let null = NullBackend::new(NullConfig { capacity_bytes: GIB, ..NullConfig::default() });
    let faults = FaultBackend::new(null as _);
    let device = Device::new(DeviceKind::NULL, 0).unwrap();
    let backend = Arc::clone(&faults) as _;
    let allocator = CachingAllocator::new(backend, device, NATIVE.parse().unwrap()).unwrap();
    faults.plan(Fault::always(Method::VmReserve, FaultError::OutOfMemory));
    let refused = allocator.allocate(Request::new(40 * MIB, 0));
    assert!(matches!(refused, Err(Error::Memory(MemoryError::OutOfMemory { .. }))), "{refused:?}");
    allocator.check_all();
    let statistics = allocator.statistics();
    assert_eq!((statistics.num_ooms, statistics.num_alloc_retries), (1, 1));
    faults.clear();
    allocator.free(allocator.allocate(Request::new(40 * MIB, 0)).unwrap()).unwrap();
}

#[test]
fn small_requests_of_a_stream_have_pages_of_their_own_as_long_as_there_are_some() {
    for settings in [NATIVE, "policy:native,exact_statistics:True"] {
        let bench = Bench::of_capacity(settings, 4 * MIB);
        let small = |stream: u64| bench.request(Request::new(KIB, stream)).unwrap();
        let blocks = [small(0), small(1)];
        assert_eq!((bench.reserved_bytes(), bench.statistics().num_frontier_reuses), (4 * MIB, 0));
        let third = small(2);
        assert_eq!((bench.reserved_bytes(), bench.statistics().num_frontier_reuses), (4 * MIB, 1));
        for block in blocks.into_iter().chain([third]) {
            bench.free(block);
        }
    }
}

#[test]
fn sums_start_again_at_a_reset_and_what_is_in_use_stays() {
    let bench = Bench::new(NATIVE);
    let (kept, freed) = (bench.take(KIB), bench.take(3 * MIB));
    bench.free(freed);
    bench.allocator.reset_accumulated_statistics();
    let sums = || {
        let statistics = bench.statistics();
        let all = [statistics.allocation, statistics.active_bytes, statistics.requested_bytes];
        all.map(|stat| (stat.all.current, stat.all.allocated, stat.all.freed))
    };
    assert_eq!(sums(), [(1, 0, 0), (1024, 0, 0), (1024, 0, 0)]);
    let later = bench.take(2 * KIB);
    bench.free(kept);
    assert_eq!(sums(), [(1, 1, 1), (2048, 2048, 1024), (2048, 2048, 1024)]);
    bench.free(later);
}

#[test]
fn a_request_beyond_the_device_takes_no_addresses() {
    let null = NullBackend::new(NullConfig { capacity_bytes: 40 * MIB, ..NullConfig::default() });
    let faults = FaultBackend::new(null as _);
    let device = Device::new(DeviceKind::NULL, 0).unwrap();
    let backend = Arc::clone(&faults) as _;
    let allocator = CachingAllocator::new(backend, device, NATIVE.parse().unwrap()).unwrap();
    for bytes in [40 * MIB + 1, 1 << 50] {
        let refused = allocator.allocate(Request::new(bytes, 0));
        assert!(
            matches!(refused, Err(Error::Memory(MemoryError::OutOfMemory { .. }))),
            "{refused:?}"
        );
    }
    assert_eq!(faults.calls(Method::VmReserve), 0);
    let whole = allocator.allocate(Request::new(40 * MIB, 0).aligned_to(2 * MIB)).unwrap();
    allocator.free(whole).unwrap();
    allocator.check_all();
}

#[test]
fn a_full_device_serves_every_size_after_every_other() {
    let capacity_bytes = 40 * MIB;
    let sizes = [16 * KIB, 4 * KIB, MIB, 20 * MIB, 8 * MIB];
    // To the last byte; and where threads keep pieces, around which others are laid, but for these.
    for (settings, room_bytes) in
        [("policy:native,exact_statistics:True", capacity_bytes), (NATIVE, 39 * MIB)]
    {
        for (first, second) in sizes.iter().flat_map(|first| sizes.map(|second| (*first, second))) {
            let bench = Bench::of_capacity(settings, capacity_bytes);
            for bytes in [first, second] {
                for block in fill(&bench, room_bytes, bytes) {
                    bench.allocator.free(block).unwrap();
                }
            }
            assert_eq!(bench.statistics().num_ooms, 0, "{second} after {first}");
            bench.empty_cache();
            assert_eq!(bench.device_bytes(), 0);
        }
    }
}

#[test]
fn what_another_thread_keeps_serves_before_the_device_is_asked() {
    let bench = Bench::of_capacity(NATIVE, 20 * MIB);
    let block = bench.take(20 * MIB);
    let address = block.address();
    let (kept, ended) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        let (bench, kept, ended) = (&bench, &kept, &ended);
        scope.spawn(move || {
            bench.allocator.free(block).unwrap();
            // A large size is kept from its second free in a row on, of what the thread asked for.
            for _ in 0..2 {
                let again = bench.allocator.allocate(Request::new(20 * MIB, 0)).unwrap();
                bench.allocator.free(again).unwrap();
            }
            kept.wait();
            ended.wait();
        });
        kept.wait();
        let again = bench.allocator.allocate(Request::new(20 * MIB, 0));
        ended.wait();
        let again = again.unwrap();
        assert_eq!(again.address(), address);
        assert_eq!(bench.statistics().num_alloc_retries, 0, "nothing went back meanwhile");
        bench.allocator.free(again).unwrap();
    });
}

#[test]
fn a_thread_that_ends_leaves_nothing_behind() {
    let bench = Arc::new(Bench::of_capacity(NATIVE, 64 * MIB));
    for bytes in [700, 40 * KIB, 3 * MIB, 40 * MIB] {
        let own = Arc::clone(&bench);
        let thread = std::thread::spawn(move || {
            for block in fill(&own, 60 * MIB, bytes) {
                own.allocator.free(block).unwrap();
            }
        });
        thread.join().unwrap(); // a scope would not wait for what the thread does at its end
        bench.allocator.check_all();
    }
    assert_eq!(bench.statistics().active.all.current, 0);
    bench.empty_cache();
    assert_eq!(bench.device_bytes(), 0);
}

#[test]
fn blocks_go_back_to_the_policy_that_made_them() {
    let bench = Bench::of_capacity(NATIVE, 64 * MIB);
    let ours = [20 * MIB, 600].map(|bytes| bench.take(bytes));
    bench.allocator.set_config(torch());
    let theirs = bench.take(20 * MIB);
    for block in ours {
        bench.free(block);
    }
    // Only what the other policy has cached can serve this one.
    let large = bench.take(40 * MIB);
    bench.allocator.set_config(NATIVE.parse().unwrap());
    for block in [theirs, large] {
        bench.free(block);
    }
    let all = bench.take(64 * MIB);
    assert_eq!(bench.statistics().num_ooms, 0);
    bench.free(all);
}

#[test]
fn a_pool_that_keeps_blocks_whole_does_so_natively_and_helps_out() {
    use accelrt::allocator::{PoolId, PoolOptions};
    let bench = Bench::of_capacity("policy:native", 20 * MIB);
    let (pool, options) = (PoolId(7, 0), PoolOptions::default().use_on_oom(true).no_split(true));
    bench.allocator.retain_pool(pool, options);
    let whole = bench.request(Request::new(15 * MIB, 0).from_pool(pool)).unwrap();
    let of_whole = (whole.address(), whole.bytes());
    bench.free(whole);
    let small = bench.request(Request::new(3 * MIB, 0).from_pool(pool)).unwrap();
    assert_eq!((small.address(), small.bytes()), of_whole);
    bench.free(small);
    let helped = bench.take(12 * MIB);
    assert_eq!((helped.address(), helped.bytes()), of_whole);
    assert_eq!(bench.statistics().num_alloc_retries, 0);
    bench.free(helped);
    bench.allocator.release_pool(pool);
}

#[test]
fn a_pool_that_helps_out_natively_gives_what_is_free_there() {
    use accelrt::allocator::{PoolId, PoolOptions};
    let bench = Bench::of_capacity(NATIVE, 20 * MIB);
    let (pool, options) = (PoolId(7, 0), PoolOptions::default().use_on_oom(true));
    bench.allocator.retain_pool(pool, options);
    let own = bench.request(Request::new(18 * MIB, 0).from_pool(pool)).unwrap();
    let place = own.address();
    bench.free(own);
    let helped = bench.take(17 * MIB);
    assert_eq!(helped.address(), place);
    assert_eq!(bench.statistics().num_alloc_retries, 0);
    bench.free(helped);
    bench.allocator.release_pool(pool);
}

#[test]
fn a_request_beyond_the_first_addresses_has_room_for_its_alignment() {
    let bench = Bench::of_capacity(NATIVE, 4096 * MIB);
    let block = bench.request(Request::new(1026 * MIB, 0).aligned_to(4 * MIB)).unwrap();
    assert!(block.address().is_multiple_of(4 * MIB as u64), "{block:?}");
    assert_eq!(
        bench.null.resource_counts().reserved_bytes,
        1030 * MIB,
        "one range that is large enough"
    );
    bench.free(block);
}

#[test]
fn private_memory_stays_with_its_pool_until_that_has_no_users() {
    use accelrt::allocator::{PoolId, PoolOptions};
    let bench = Bench::of_capacity(NATIVE, 40 * MIB);
    let pool = PoolId(7, 0);
    bench.allocator.retain_pool(pool, PoolOptions::default());
    let own = bench.request(Request::new(20 * MIB, 0).from_pool(pool)).unwrap();
    bench.free(own);
    bench.request(Request::new(30 * MIB, 0)).unwrap_err();
    bench.allocator.release_pool(pool);
    let all = bench.take(30 * MIB);
    bench.free(all);
}

#[test]
fn the_same_requests_get_the_same_offsets() {
    let seed = seed();
    let offsets = || {
        let bench = Bench::new("policy:native,deterministic:True");
        let mut numbers = Numbers::new(seed);
        let (mut live, mut offsets) = (Vec::new(), Vec::new());
        let mut first = None;
        for _ in 0..2_000 {
            if numbers.below(5) < 2 && !live.is_empty() {
                let block = live.swap_remove(numbers.below(live.len()));
                bench.allocator.free(block).unwrap();
                continue;
            }
            let bytes =
                [100, 5 * KIB, 70 * KIB, 2 * MIB][numbers.below(4)] * (1 + numbers.below(3));
            let request = Request::new(bytes, numbers.below(2) as u64);
            let Ok(block) = bench.allocator.allocate(request) else { continue };
            let first = *first.get_or_insert(block.address());
            offsets.push(block.address().wrapping_sub(first));
            live.push(block);
        }
        bench.allocator.check_all();
        for block in live {
            bench.allocator.free(block).unwrap();
        }
        offsets
    };
    assert_eq!(offsets(), offsets());
}

#[test]
fn exact_statistics_have_the_peak_of_all_threads_together() {
    let bench = Bench::new("policy:native,exact_statistics:True");
    let turn = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let block = bench.allocator.allocate(Request::new(3 * MIB, 0)).unwrap();
            bench.allocator.free(block).unwrap();
            turn.wait();
        });
        turn.wait();
        let block = bench.allocator.allocate(Request::new(2 * MIB, 0)).unwrap();
        bench.allocator.free(block).unwrap();
    });
    assert_eq!(bench.statistics().allocated_bytes.all.peak, 3 * MIB as u64);
}

#[test]
fn a_piece_of_one_page_is_in_memory_that_sizes_share() {
    // Goal: only pieces of several pages have whole ones, so the page that a piece of one page
    // leaves is of the small pool. Method: a smaller piece gets it where it is.
    let bench = Bench::new("policy:native,exact_statistics:True");
    let page = bench.free(bench.take(2 * MIB));
    let reserved = bench.statistics().reserved_bytes;
    let by_pool = [reserved.small_pool, reserved.large_pool].map(|stat| stat.current);
    assert_eq!(by_pool, [2 * MIB as u64, 0]);
    let smaller = bench.take(3 * MIB / 2);
    let moved = bench.statistics().num_pages_stolen;
    assert_eq!((smaller.address(), bench.reserved_bytes(), moved), (page, 2 * MIB, 0));
    bench.free(smaller);
}

#[test]
fn whole_pages_serve_a_piece_of_one_page_before_the_device_is_asked() {
    // Goal: where nothing moves, memory of the other arena serves where it is, from one page on.
    // Method: two whole pages are free, and the device has more.
    let bench = Bench::new("policy:native,deterministic:True");
    let pages = bench.free(bench.take(4 * MIB));
    let piece = bench.take(2 * MIB);
    assert_eq!((piece.address(), bench.reserved_bytes()), (pages, 4 * MIB));
    bench.free(piece);
}

#[test]
fn whole_pages_have_the_pages_of_the_other_arena_that_have_the_same_numbers() {
    // Goal: idle pages move to where they are missing, and leave no hole elsewhere, also from the
    // beginning of one area to that of another. Method: two whole pages, then the same memory as a
    // size that shares pages, which a thread keeps.
    let bench = Bench::new(NATIVE);
    let pages = bench.free(bench.take(4 * MIB));
    for _ in 0..2 {
        let kept = bench.allocator.allocate(Request::new(3 * MIB, 0)).unwrap();
        assert_ne!(kept.address(), pages);
        bench.allocator.free(kept).unwrap();
    }
    let moved = bench.statistics().num_pages_stolen;
    let again = bench.take(4 * MIB);
    assert_eq!((again.address(), bench.reserved_bytes()), (pages, 4 * MIB));
    assert_eq!(bench.statistics().num_pages_stolen, moved + 2);
    bench.free(again);
}

#[test]
fn a_thread_keeps_no_memory_of_another_streams_heap() {
    // Goal: each use of another stream's memory is found, and counted, by the allocator. Method:
    // one stream has all the memory; another one takes and frees a size that threads keep.
    let bench = Bench::of_capacity(NATIVE, 48 * MIB);
    let take_and_free = |stream: u64| {
        let block = bench.allocator.allocate(Request::new(5 * MIB, stream)).unwrap();
        bench.allocator.free(block).unwrap();
    };
    take_and_free(1);
    bench.empty_cache();
    take_and_free(1);
    bench.allocator.check_all();
    (0..4).for_each(|_| take_and_free(2));
    assert_eq!(bench.statistics().num_frontier_reuses, 4);
    bench.allocator.check_all();
}

#[test]
fn an_alignment_is_kept_and_what_is_before_it_serves_others() {
    let bench = Bench::of_capacity(NATIVE, 16 * MIB);
    let first = bench.take(700);
    for align_bytes in [KIB, 64 * KIB, MIB, 2 * MIB] {
        let block = bench.request(Request::new(300 * KIB, 0).aligned_to(align_bytes)).unwrap();
        assert!(block.address().is_multiple_of(align_bytes as u64), "{block:?} at {align_bytes}");
        bench.free(block);
    }
    bench.free(first);
}

#[test]
fn many_live_blocks_are_found_by_any_of_their_addresses() {
    let count = if cfg!(debug_assertions) { 50_000 } else { 1_000_000 };
    let bench = Bench::of_capacity(NATIVE, 8 << 30);
    let mut blocks: Vec<_> = (0..count)
        .map(|n| bench.allocator.allocate(Request::new(1 + n % 5_000, 0)).unwrap())
        .collect();
    assert_eq!(bench.statistics().allocation.all.current, count as u64);
    for block in blocks.iter().step_by(97) {
        let inside = block.address() + block.bytes() as u64 / 2;
        let found = bench.allocator.block_at(inside).unwrap();
        assert_eq!((found.address, found.bytes), (block.address(), block.bytes()));
    }
    for half in [0, 1] {
        for block in blocks.iter_mut().skip(half).step_by(2) {
            bench.allocator.free(std::mem::take(block)).unwrap();
        }
    }
    bench.allocator.check_all();
    assert_eq!(bench.statistics().active_bytes.all.current, 0);
    bench.empty_cache();
    assert_eq!(bench.device_bytes(), 0);
}

#[test]
fn what_is_deterministic_moves_pages_only_where_memory_is_short() {
    // Goal: which pages can move depends on how far streams are, so none does while the device has
    // more. Method: another stream's request beside idle pages, on devices with room and without.
    let reserved_mib = |settings: &str, capacity_bytes: usize| {
        let bench = Bench::of_capacity(settings, capacity_bytes);
        let [first, second] = [0, 1].map(|_| bench.take(8 * MIB));
        bench.free(first);
        let elsewhere = bench.request(Request::new(5 * MIB, 1).aligned_to(2 * MIB)).unwrap();
        let reserved_bytes = bench.reserved_bytes();
        let again = bench.take(5 * MIB);
        for block in [elsewhere, again, second] {
            bench.free(block);
        }
        reserved_bytes / MIB
    };
    let deterministic = "policy:native,deterministic:True";
    assert_eq!([48, 20].map(|mib| reserved_mib(deterministic, mib * MIB)), [22, 14]);
    assert_eq!([48, 20].map(|mib| reserved_mib(NATIVE, mib * MIB)), [16, 16]);
}

#[test]
fn an_error_tells_what_is_free_after_the_pages_of_the_failed_request_went_back() {
    let bench = Bench::of_capacity(NATIVE, 64 * MIB);
    let held = bench.take(32 * MIB);
    let refused = bench.request(Request::new(40 * MIB, 0)).unwrap_err();
    let Error::Memory(MemoryError::OutOfMemory { free_bytes, total_bytes, .. }) = refused else {
        panic!("{refused}")
    };
    assert_eq!((free_bytes, total_bytes), (32 * MIB, 64 * MIB));
    bench.free(held);
}

#[test]
fn a_reset_of_sums_is_one_of_what_larger_pieces_have_of_shared_pages_too() {
    // Method: a piece of 1.5 MiB has part of a page that is reserved for small requests.
    let bench = Bench::new(NATIVE);
    let small = bench.take(512);
    let shares = bench.take(3 * MIB / 2);
    bench.free(shares);
    let sums = || {
        let reserved = bench.statistics().reserved_bytes;
        let pools = [reserved.all, reserved.small_pool, reserved.large_pool];
        pools.map(|stat| (stat.allocated, stat.freed))
    };
    let [all, _, large] = sums();
    assert_eq!((all.0, large.0), (2 * MIB as u64, 0), "the device gave it for the small one");
    bench.allocator.reset_accumulated_statistics();
    assert_eq!(sums(), [(0, 0); 3]);
    bench.free(small);
}
