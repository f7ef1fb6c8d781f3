//! Snapshots that were not written by us: what cannot be is refused, and nothing of it is loaded.
//!
//! Goal: whatever a file says, a restore, a rewind or a check answers with an error. Method: one
//! segment that is right, with one thing changed at a time.

use std::sync::Arc;

use accelrt::allocator::snapshot::{
    BlockInfo, BlockState, PoolClass, SegmentInfo, Snapshot, TraceAction, TraceEntry,
};
use accelrt::allocator::{CachingAllocator, PoolId, Request};
use accelrt::{AllocatorConfig, Device, DeviceKind, Error, MemoryError};
use accelrt_replay::{check, rewind};
use accelrt_testing::null::{NullBackend, NullConfig};

use crate::support::{Bench, MIB, torch};

const BASE: u64 = 0x7000_0000_0000;

/// A small segment at an address, cut into blocks of these sizes.
pub(crate) fn segment(address: u64, blocks: &[(usize, BlockState)]) -> SegmentInfo {
    let mut at = address;
    let mut block = |&(bytes, state): &(usize, BlockState)| {
        let address = at;
        at = at.wrapping_add(bytes as u64);
        BlockInfo { address, bytes, requested_bytes: bytes, state }
    };
    let blocks: Vec<BlockInfo> = blocks.iter().map(&mut block).collect();
    let sum = |is_wanted: fn(BlockState) -> bool| {
        let wanted = blocks.iter().filter(|block| is_wanted(block.state));
        wanted.fold(0_usize, |sum, block| sum.wrapping_add(block.bytes))
    };
    SegmentInfo {
        device_index: 0,
        address,
        total_bytes: sum(|_| true),
        allocated_bytes: sum(|state| state == BlockState::Allocated),
        active_bytes: sum(BlockState::is_active),
        requested_bytes: sum(BlockState::is_active),
        stream: 0,
        class: PoolClass::Small,
        pool: PoolId::DEFAULT,
        is_expandable: false,
        blocks,
    }
}

fn entry(action: TraceAction, address: u64, bytes: usize) -> TraceEntry {
    TraceEntry { action, address, bytes, stream: 0, pool: PoolId::DEFAULT }
}

fn refused(segments: Vec<SegmentInfo>, expected: &str) {
    let snapshot = Snapshot { segments, trace: Vec::new() };
    let bench = Bench::new("");
    for error in
        [bench.allocator.restore(&snapshot).unwrap_err(), rewind(&snapshot, &torch()).unwrap_err()]
    {
        assert!(matches!(error, Error::Memory(MemoryError::InvalidSnapshot { .. })), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert!(bench.allocator.snapshot().segments.is_empty());
}

#[test]
fn two_free_neighbours_are_refused() {
    let blocks = [(MIB, BlockState::Inactive), (MIB, BlockState::Inactive)];
    refused(vec![segment(BASE, &blocks)], "free neighbours");
}

#[test]
fn what_is_no_multiple_of_512_is_refused() {
    let whole = [(2 * MIB, BlockState::Inactive)];
    refused(vec![segment(BASE + 8, &whole)], "multiples of 512");
    let parts = [(1000, BlockState::Allocated), (2 * MIB - 1000, BlockState::Inactive)];
    refused(vec![segment(BASE, &parts)], "multiples of 512");
}

#[test]
fn addresses_beyond_the_last_are_refused() {
    let whole = [(2 * MIB, BlockState::Inactive)];
    refused(vec![segment(u64::MAX - 511, &whole)], "a block that ends");
    let mut long = segment(BASE, &whole);
    long.total_bytes = usize::MAX;
    refused(vec![long], "tile their segment");
}

#[test]
fn a_block_that_is_smaller_than_its_request_is_refused() {
    let mut small = segment(BASE, &[(2 * MIB, BlockState::Allocated)]);
    small.blocks[0].requested_bytes = usize::MAX;
    refused(vec![small], "as large as its request");
}

#[test]
fn segments_that_overlap_are_refused() {
    let whole = [(2 * MIB, BlockState::Inactive)];
    refused(vec![segment(BASE, &whole), segment(BASE + 512, &whole)], "do not overlap");
}

#[test]
fn a_free_that_does_not_fit_is_refused() {
    for (address, bytes) in [(BASE, usize::MAX), (BASE + 8, 512), (BASE, 2 * MIB + 1)] {
        let segments = vec![segment(BASE, &[(2 * MIB, BlockState::Inactive)])];
        let action = TraceAction::FreeCompleted;
        let trace = vec![entry(action, address, bytes)];
        let snapshot = Snapshot { segments, trace };
        let error = check(&snapshot, &torch()).unwrap_err();
        assert!(error.to_string().contains("free memory"), "{error}");
    }
}

/// A request that takes a segment, one from the same, and one from another, all recorded.
fn recording_with_segments() -> Snapshot {
    use BlockState::{Allocated, Inactive};
    let (first, second) = (BASE + (64 << 20), BASE); // the later segment has the lower address
    let segments = vec![
        segment(second, &[(MIB, Allocated), (MIB, Inactive)]),
        segment(first, &[(MIB, Allocated), (MIB, Allocated)]),
    ];
    let trace = vec![
        entry(TraceAction::SegmentAlloc, first, 2 * MIB),
        entry(TraceAction::Alloc, first, MIB),
        entry(TraceAction::Alloc, first + MIB as u64, MIB),
        entry(TraceAction::SegmentAlloc, second, 2 * MIB),
        entry(TraceAction::Alloc, second, MIB),
    ];
    Snapshot { segments, trace }
}

#[test]
fn segments_that_were_taken_meanwhile_are_known_by_their_recorded_addresses() {
    let agreement = check(&recording_with_segments(), &torch()).unwrap();
    assert!(agreement.is_whole(), "{agreement:?}");
    assert_eq!((agreement.addresses_agreed, agreement.layouts_agreed), (3, 2));
}

#[test]
fn exactly_the_decision_that_was_changed_differs() {
    let mut recording = recording_with_segments();
    // No allocator that takes the best fit leaves the front of an empty segment free.
    let back = BASE + MIB as u64;
    recording.segments[0] =
        segment(BASE, &[(MIB, BlockState::Inactive), (MIB, BlockState::Allocated)]);
    recording.trace[4].address = back;
    let agreement = check(&recording, &torch()).unwrap();
    assert_eq!((agreement.addresses_agreed, agreement.layouts_agreed), (2, 1));
    let difference = agreement.first_difference.unwrap();
    assert!(difference.contains(&format!("instead of {back:#x}")), "{difference}");
}

#[test]
fn a_segment_that_no_entry_took_is_a_difference() {
    let mut recording = recording_with_segments();
    recording.trace.truncate(3);
    recording.segments.remove(0);
    let whole = check(&recording, &torch()).unwrap();
    assert!(whole.is_whole(), "{whole:?}");
    // A life that ends before the first begins takes a segment of its own: another stream's.
    let first = recording.segments[0].address;
    let life = TraceEntry { stream: 7, ..entry(TraceAction::Alloc, first, MIB) };
    let end = TraceEntry { action: TraceAction::FreeCompleted, ..life };
    recording.trace.splice(1..1, [life, end]);
    let agreement = check(&recording, &torch()).unwrap();
    assert_eq!((agreement.layouts_agreed, agreement.layouts), (0, 1), "{agreement:?}");
    assert!(!agreement.is_whole());
}

#[test]
fn a_recording_of_a_private_pool_is_replayed_in_it() {
    let pool = PoolId(0, 3);
    let mut recording = recording_with_segments();
    recording.segments[0].pool = pool;
    recording.trace[3].pool = pool;
    recording.trace[4].pool = pool;
    let agreement = check(&recording, &torch()).unwrap();
    assert!(agreement.is_whole(), "{agreement:?}");
    recording.trace[4].pool = PoolId::DEFAULT;
    let agreement = check(&recording, &torch()).unwrap();
    assert_eq!(agreement.layouts_agreed, 1, "{agreement:?}");
}

#[test]
fn a_trace_without_a_request_is_no_agreement() {
    let segments = vec![segment(BASE, &[(2 * MIB, BlockState::Inactive)])];
    let agreement = check(&Snapshot { segments, trace: Vec::new() }, &torch());
    let agreement = agreement.unwrap();
    assert_eq!((agreement.layouts_agreed, agreement.layouts), (1, 1));
    assert_eq!(agreement.first_difference.as_deref(), Some("no request was recorded"));
}

#[test]
#[should_panic(expected = "into an empty allocator")]
fn a_snapshot_is_not_restored_over_pieces_in_use() {
    let bench = Bench::new("policy:native");
    let held = bench.take(512);
    let snapshot = bench.allocator.snapshot();
    let restored = bench.allocator.restore(&snapshot);
    panic!("{restored:?} beside {held:?}");
}

#[test]
fn a_restored_segment_has_pages_of_the_devices_granularity() {
    // Goal: no page is smaller than the device has them. Method: larger ones than the policy's; the
    // device refuses what is no multiple.
    let large = || NullConfig { granularity_bytes: 32 * MIB, ..NullConfig::default() };
    let recorded = Bench::on("policy:native", large());
    let held = recorded.take(1000);
    for settings in ["policy:torch", "policy:torch,expandable_segments:True", "policy:native"] {
        let bench = Bench::on(settings, large());
        let restored = bench.allocator.restore(&recorded.allocator.snapshot()).unwrap();
        assert_eq!(restored.len(), 1, "{settings}");
        assert_eq!(bench.reserved_bytes(), 32 * MIB, "{settings}");
        for block in restored {
            bench.free(block);
        }
        bench.empty_cache();
        assert_eq!(bench.device_bytes(), 0, "{settings}");
    }
    recorded.free(held);
}

#[test]
fn requests_beside_a_restored_snapshot_get_no_address_that_it_chose() {
    // Goal: an address has one block, of either engine. Method: restored segments lie where the
    // device's next addresses are, in an allocator that is fresh or had memory before.
    for had_memory in [false, true] {
        let recorded = Bench::of_capacity("policy:native", 4096 * MIB);
        let held = [0, 1].map(|stream| recorded.request(Request::new(3 * MIB, stream)).unwrap());
        let bench = Bench::of_capacity("policy:native", 4096 * MIB);
        if had_memory {
            bench.free(bench.take(3 * MIB));
            bench.empty_cache();
        }
        let restored = bench.allocator.restore(&recorded.allocator.snapshot()).unwrap();
        bench.allocator.check_all();
        let taken = bench.request(Request::new(1022 * MIB, 2)).unwrap();
        bench.allocator.check_all();
        for block in restored.into_iter().chain([taken]) {
            let found = bench.allocator.block_at(block.address()).unwrap();
            assert_eq!((found.address, found.bytes), (block.address(), block.bytes()));
            bench.free(block);
        }
        bench.empty_cache();
        assert_eq!(bench.device_bytes(), 0);
        for block in held {
            recorded.free(block);
        }
    }
}

#[test]
fn shared_requests_beside_a_restored_snapshot_get_no_address_that_it_chose() {
    // As above, without pages: the device is asked for whole segments.
    let shared = || {
        let null = NullBackend::new(NullConfig::default());
        let device = Device::new(DeviceKind::NULL, 0).unwrap();
        let config: AllocatorConfig = "policy:native".parse().unwrap();
        let beside = CachingAllocator::new(null, device, config.clone()).unwrap();
        CachingAllocator::shared(&Arc::new(beside), config).unwrap()
    };
    let (recorded, restoring) = (shared(), shared());
    let request = Request::new(3 * MIB, 0).aligned_to(2 * MIB);
    let mut gone: Vec<_> = (0..8).map(|_| recorded.allocate(request).unwrap()).collect();
    let held = gone.remove(4);
    for block in gone {
        recorded.free(block).unwrap();
    }
    recorded.empty_cache(); // so that the device's first addresses are not the snapshot's
    let restored = restoring.restore(&recorded.snapshot()).unwrap();
    let taken: Vec<_> = (0..8).map(|_| restoring.allocate(request).unwrap()).collect();
    restoring.check_all();
    for block in restored.into_iter().chain(taken) {
        let found = restoring.block_at(block.address()).unwrap();
        assert_eq!((found.address, found.bytes), (block.address(), block.bytes()));
        restoring.free(block).unwrap();
    }
    recorded.free(held).unwrap();
}
