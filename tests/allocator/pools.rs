//! Private pools, and the table of specification 2.10.

use accelrt::allocator::{Allocated, PoolId, PoolOptions, Request};
use accelrt::{Config, Device, DeviceKind, MemPool, Runtime};
use accelrt_testing::null::{CompletionMode, NullBackend, NullConfig};

use crate::hang::Watchdog;
use crate::support::{Bench, MIB};

pub(crate) const POOL: PoolId = PoolId(0, 1);

/// What the program of the table leaves: its pool in use, one block alive.
pub(crate) fn capture(bench: &Bench, bytes: usize) -> Allocated {
    bench.allocator.retain_pool(POOL, PoolOptions::default());
    let take = || bench.request(Request::new(bytes, 0).from_pool(POOL)).unwrap();
    let mut b = take();
    for _ in 0..5 {
        let clone = take();
        let sum = take();
        bench.free(clone);
        bench.free(b);
        b = sum;
    }
    b
}

#[test]
fn the_accounts_of_a_captured_program_are_those_of_the_table() {
    // Specification 2.10, all rows: segments and bytes while the pool has a user, bytes after.
    let rows = [
        (512, 1, 2 * MIB, 2 * MIB),
        (MIB, 2, 4 * MIB, 2 * MIB),
        (MIB + 512, 1, 20 * MIB, 20 * MIB),
        (10 * MIB - 512, 2, 40 * MIB, 20 * MIB),
        (10 * MIB + 512, 3, 36 * MIB, 12 * MIB),
    ];
    for (bytes, segments, captured_bytes, left_bytes) in rows {
        let bench = Bench::new("");
        let alive = capture(&bench, bytes);
        assert_eq!((bench.segments(), bench.reserved_bytes()), (segments, captured_bytes));
        bench.empty_cache();
        assert_eq!(bench.reserved_bytes(), captured_bytes, "a pool with users keeps its memory");
        bench.allocator.release_pool(POOL);
        bench.empty_cache();
        assert_eq!(bench.reserved_bytes(), left_bytes, "{bytes}");
        bench.free(alive);
        bench.empty_cache();
        assert_eq!(bench.reserved_bytes(), 0);
    }
}

#[test]
fn requests_of_a_pool_and_others_do_not_share_segments() {
    let bench = Bench::new("");
    let freed = bench.free(bench.take(512));
    bench.allocator.retain_pool(POOL, PoolOptions::default());
    let own = bench.request(Request::new(512, 0).from_pool(POOL)).unwrap();
    bench.free(own);
    assert_eq!(bench.segments(), 2);
    assert_eq!(bench.take(512).address(), freed);
    assert_eq!(bench.segments(), 2);
    let pools: Vec<PoolId> =
        bench.allocator.snapshot().segments.iter().map(|segment| segment.pool).collect();
    assert_eq!(pools, [PoolId::DEFAULT, POOL]);
}

#[test]
fn a_pool_lives_until_its_last_user_and_its_last_segment_are_gone() {
    // Specification 2.10: releasePool; 2.7: freeable pools are erased without segments.
    let bench = Bench::new("");
    for _ in 0..2 {
        bench.allocator.retain_pool(POOL, PoolOptions::default());
    }
    let block = bench.request(Request::new(512, 0).from_pool(POOL)).unwrap();
    bench.allocator.release_pool(POOL);
    bench.free(block);
    bench.empty_cache();
    assert_eq!(bench.reserved_bytes(), 2 * MIB, "one user is left");
    bench.allocator.release_pool(POOL);
    bench.empty_cache();
    assert_eq!(bench.reserved_bytes(), 0);
}

#[test]
fn a_pool_that_keeps_blocks_whole_hands_out_whole_ones() {
    // Specification 2.3, should_split: a pool in no_split_pools.
    let bench = Bench::new("");
    let options = PoolOptions::default().no_split(true);
    bench.allocator.retain_pool(POOL, options);
    let block = bench.request(Request::new(512, 0).from_pool(POOL)).unwrap();
    assert_eq!(block.bytes(), 2 * MIB);
    bench.free(block);
    bench.allocator.release_pool(POOL);
}

#[test]
fn a_pool_helps_out_when_memory_is_short() {
    // Specification 2.4.6b: try_mempool_fallback.
    let bench = Bench::of_capacity("", 20 * MIB);
    let options = PoolOptions::default().use_on_oom(true);
    bench.allocator.retain_pool(POOL, options);
    let own = bench.request(Request::new(15 * MIB, 0).from_pool(POOL)).unwrap();
    let own = bench.free(own);
    let helped = bench.take(8 * MIB);
    assert_eq!(helped.address(), own);
    assert_eq!(bench.statistics().num_alloc_retries, 0);
    bench.allocator.release_pool(POOL);
}

#[test]
fn a_pool_helps_out_with_what_a_stream_was_waited_for() {
    // Goal: what comes free while a request waits serves it there too. Method: a stream that goes
    // on only when it is waited for uses the one block that is large enough.
    let settings = ["policy:torch", "policy:native"];
    for (settings, no_split) in settings.into_iter().flat_map(|it| [(it, false), (it, true)]) {
        let _watchdog = Watchdog::new(settings);
        let completion = CompletionMode::WhenAsked { polls: u32::MAX };
        let null = NullConfig { capacity_bytes: 64 * MIB, completion, ..NullConfig::default() };
        let config = Config::builder().accelerator(DeviceKind::NULL).build().unwrap();
        let backend = NullBackend::new(null);
        let runtime = Runtime::with_backends(config, [backend as _]).unwrap();
        runtime.set_allocator_settings(settings).unwrap();
        let device = Device::new(DeviceKind::NULL, 0).unwrap();
        let pool = MemPool::new(
            &runtime,
            device,
            PoolOptions::default().use_on_oom(true).no_split(no_split),
        );
        let pool = pool.unwrap();
        let home = runtime.stream(device).unwrap();
        runtime.exchange_stream(&home).unwrap();
        let inside = pool.enter();
        let block = runtime.empty(22 * MIB, device).unwrap();
        drop(inside);
        let rest = runtime.empty(30 * MIB, device).unwrap();
        let other = runtime.stream(device).unwrap();
        other.wait_stream(&home).unwrap();
        block.record_use(&other).unwrap();
        let address = block.address().unwrap();
        drop(block);
        let again = runtime.empty(21 * MIB, device);
        let again = again.unwrap_or_else(|error| panic!("{settings}, {no_split}: {error}"));
        assert_eq!(again.address().unwrap(), address, "{settings}, {no_split}");
        runtime.allocator(device).unwrap().check_all();
        drop((rest, again));
    }
}

#[test]
fn what_a_pool_has_goes_back_with_its_allocator() {
    for settings in ["", "expandable_segments:True"] {
        let bench = Bench::new(settings);
        bench.allocator.retain_pool(POOL, PoolOptions::default());
        let own = bench.request(Request::new(512, 0).from_pool(POOL)).unwrap();
        bench.free(own);
        let null = std::sync::Arc::clone(&bench.null);
        drop(bench);
        let live = null.resource_counts();
        assert_eq!((live.device_bytes, live.physical_bytes, live.reserved_bytes), (0, 0, 0));
    }
}

#[test]
fn a_restored_pool_without_users_goes_back_when_it_is_free() {
    let bench = Bench::new("");
    bench.allocator.retain_pool(POOL, PoolOptions::default());
    let _ = bench.request(Request::new(512, 0).from_pool(POOL)).unwrap();
    let other = Bench::new("");
    let in_use = other.allocator.restore(&bench.allocator.snapshot()).unwrap();
    for block in in_use {
        other.free(block);
    }
    other.empty_cache();
    assert_eq!(other.device_bytes(), 0);
}
