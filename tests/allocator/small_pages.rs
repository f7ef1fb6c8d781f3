//! Pages smaller than 2 MiB, of which the smaller pieces have some to themselves.

use accelrt::allocator::{PoolId, PoolOptions, Request};
use accelrt_testing::null::NullConfig;

use crate::free_memory::most_bytes;
use crate::numbers::Numbers;
use crate::pools::POOL;
use crate::seed::seed;
use crate::support::{Bench, KIB, MIB};

fn bench(settings: &str, granularity_bytes: usize, pages: usize) -> Bench {
    let capacity_bytes = granularity_bytes * pages;
    Bench::on(settings, NullConfig { capacity_bytes, granularity_bytes, ..NullConfig::default() })
}

/// What is allocated, active and reserved of each pool, and what was so at most, do not decrease.
fn assert_each_pool_has_what_it_counts(bench: &Bench) {
    let statistics = bench.statistics();
    let stats = [statistics.allocated_bytes, statistics.active_bytes, statistics.reserved_bytes];
    for [allocated, active, reserved] in
        [stats.map(|stat| stat.small_pool), stats.map(|stat| stat.large_pool)]
    {
        let currents = [allocated.current, active.current, reserved.current];
        assert!(currents.is_sorted(), "{statistics:?}");
        assert!(active.peak <= reserved.peak, "{statistics:?}");
    }
    // Pages that change their class are in no sum: those of the classes add up to all.
    let reserved = statistics.reserved_bytes;
    assert_eq!(reserved.all.current, reserved.all.allocated - reserved.all.freed);
    let [small, large] = [reserved.small_pool, reserved.large_pool];
    let sums = [small.allocated + large.allocated, small.freed + large.freed];
    assert_eq!(sums, [reserved.all.allocated, reserved.all.freed], "{statistics:?}");
}

#[test]
fn a_small_piece_in_whole_pages_is_reserved_of_the_small_pool() {
    // Goal: what a piece counts as, its memory counts as. Method: a device of 128 KiB pages all of
    // which large blocks have, and a request that counts as small where one of them was freed:
    // pages stay there, because the same requests are to get the same offsets.
    let bench = bench("policy:native,deterministic:True", 128 * KIB, 32);
    let [hole, rest] = [3 * MIB / 2, 5 * MIB / 2].map(|bytes| bench.take(bytes));
    let hole = bench.free(hole);
    let small = bench.take(523_776);
    assert_eq!((small.address(), small.bytes()), (hole, 524_288));
    assert_each_pool_has_what_it_counts(&bench);
    let reserved = || bench.statistics().reserved_bytes;
    assert_eq!([reserved().small_pool.current, reserved().small_pool.peak], [524_288; 2]);
    bench.free(small);
    assert_eq!(reserved().small_pool.current, 0);
    bench.allocator.reset_peak_statistics();
    assert_eq!(reserved().small_pool.peak, 0);
    bench.free(rest);
}

#[test]
fn an_aligned_request_takes_what_other_streams_freed_before_its_own_in_a_gap() {
    // Goal: a request with an alignment asks in the order of every other one. Method: pieces of a
    // page far apart, so that free memory of either stream lies between addresses without any. The
    // request's own stream has a place that the limited search for free memory does not reach and
    // the search in gaps does, the other stream has one that is reached.
    let bench = bench("policy:native", 16 * KIB, 4 * MIB / 16);
    let take = |stream, align_bytes| {
        bench.request(Request::new(4 * KIB, stream).aligned_to(align_bytes)).unwrap()
    };
    let held = [32 * MIB, 4 * MIB].map(|align_bytes| take(1, align_bytes));
    let hidden = take(1, 16 * MIB);
    let beside = [MIB / 2, 128 * MIB].map(|align_bytes| take(1, align_bytes));
    let far = take(1, 256 * MIB);
    let of_other = take(0, 32 * MIB);
    let behind_far = take(1, 16 * MIB);
    bench.free(far);
    let of_other = bench.free(of_other);
    let hidden = bench.free(hidden);
    let again = take(1, 128 * MIB);
    let last = take(1, 16 * MIB);
    assert_eq!((last.address(), bench.statistics().num_frontier_reuses), (of_other, 1));
    assert_ne!(hidden, of_other);
    for block in held.into_iter().chain(beside).chain([behind_far, again, last]) {
        bench.free(block);
    }
    bench.allocator.check_all();
}

#[test]
fn a_small_piece_that_is_whole_pages_is_handed_out_as_its_place_says() {
    // Goal: what is planned for a piece is true of its place, also where its size alone would get
    // pages of its own. Method: each class of small sizes; debug builds compare both.
    let bench = bench("policy:native", 16 * KIB, 64);
    for bytes in (1..=64).map(|number| number * 512) {
        let block = bench.take(bytes);
        bench.free(block);
        bench.allocator.check_all();
    }
}

#[test]
fn random_pieces_on_small_pages_count_as_their_memory_does() {
    // Goal: the equations of each pool, wherever a piece stands. Method: requests around all that
    // tells sizes apart, on devices of a few pages that are full most of the time, of two streams
    // and of a pool that helps out.
    let mut numbers = Numbers::new(seed());
    for _ in 0..20 {
        let settings = ["exact_statistics:True", "deterministic:True"][numbers.below(2)];
        let page_bytes = (16 * KIB) << numbers.below(6);
        let bench = bench(&format!("policy:native,{settings}"), page_bytes, 8 + numbers.below(60));
        let helps_out = PoolOptions::default().use_on_oom(true);
        bench.allocator.retain_pool(POOL, helps_out);
        let mut live = Vec::new();
        for _ in 0..100 {
            if numbers.below(5) < 3 {
                let border = [page_bytes, 8 * page_bytes, MIB, MIB / 2, 32 * KIB][numbers.below(5)];
                let bytes = border + 512 * numbers.below(4) - 512;
                let pool = [PoolId::DEFAULT, PoolId::DEFAULT, POOL][numbers.below(3)];
                let request = Request::new(bytes, numbers.below(2) as u64).from_pool(pool);
                live.extend(bench.request(request));
            } else if !live.is_empty() {
                bench.free(live.swap_remove(numbers.below(live.len())));
            }
            assert_each_pool_has_what_it_counts(&bench);
        }
        for block in live {
            bench.free(block);
        }
        bench.allocator.release_pool(POOL);
    }
}

#[test]
fn a_device_smaller_than_a_slab_serves_small_requests() {
    // Goal: what there is room for is served. Method: devices that are smaller than what small
    // requests share, filled by each size; what an error says could be had is had.
    for (page_bytes, pages) in [(4 * KIB, 1), (4 * KIB, 9), (64 * KIB, 1), (64 * KIB, 3)] {
        for settings in ["policy:native", "policy:native,exact_statistics:True"] {
            for bytes in [512, 4 * KIB, 9 * KIB, 32 * KIB] {
                let (bench, whole_bytes) = (bench(settings, page_bytes, pages), page_bytes * pages);
                let refusal = bench.request(Request::new(whole_bytes + 512, 0)).unwrap_err();
                assert_eq!(most_bytes(&refusal), whole_bytes, "{refusal}");
                let mut blocks = Vec::new();
                let refusal = loop {
                    match bench.request(Request::new(bytes, blocks.len() as u64 % 2)) {
                        Ok(block) => blocks.push(block),
                        Err(refusal) => break refusal,
                    }
                };
                let (count, room) = (blocks.len(), whole_bytes / bytes);
                assert!(count >= room.min(1) && count * 2 >= room, "{count} of {room}: {refusal}");
                let most = bench.request(Request::new(most_bytes(&refusal), 0));
                blocks.push(most.unwrap_or_else(|error| panic!("{refusal}, and then {error}")));
                for block in blocks {
                    bench.free(block);
                }
            }
        }
    }
}
