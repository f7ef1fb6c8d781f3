//! Which block an address is in, under each policy.
//!
//! Goal: a block is found from its first byte to its last, and from no byte beside it. Method:
//! three blocks of each size side by side, of which the middle one is freed, and every look
//! compared with a search through all that are live.

use std::sync::Arc;

use accelrt::allocator::{CachingAllocator, PoolId, PoolOptions, Request};
use accelrt::backend::contract::Backend;
use accelrt::{AllocatorConfig, Config, Device, DeviceKind, Runtime};
use accelrt_testing::null::{NullBackend, NullConfig};

use crate::support::{Bench, KIB, MIB};

const SETTINGS: [&str; 3] =
    ["policy:torch", "policy:torch,expandable_segments:True", "policy:native"];

/// An allocator for each settings of a device's memory, for pinned memory, and for memory that is
/// shared with the host, which has segments under the native policy as well.
fn allocators() -> Vec<(&'static str, Arc<CachingAllocator>)> {
    let config = NullConfig { capacity_bytes: 1024 * MIB, ..NullConfig::default() };
    let null = || NullBackend::new(config);
    let device = Device::new(DeviceKind::NULL, 0).unwrap();
    let mut allocators: Vec<_> = SETTINGS
        .iter()
        .map(|settings| {
            let parsed = settings.parse().unwrap();
            (*settings, Arc::new(CachingAllocator::new(null(), device, parsed).unwrap()))
        })
        .collect();
    let pinned = CachingAllocator::pinned(null(), device, "".parse().unwrap());
    allocators.push(("pinned", Arc::new(pinned)));
    let config = Config::builder()
        .accelerator(DeviceKind::NULL)
        .allocator_settings("policy:native")
        .build()
        .unwrap();
    let runtime = Runtime::with_backends(config, [null() as _]).unwrap();
    allocators.push(("shared", runtime.shared_allocator(device).unwrap()));
    allocators
}

#[test]
fn a_block_is_found_from_each_of_its_bytes_and_from_none_beside() {
    for (settings, allocator) in allocators() {
        let mut live = Vec::new();
        for bytes in [1, 512, KIB, 24 * KIB, 100 * KIB, 3 * MIB, 40 * MIB] {
            let take = || allocator.allocate(Request::new(bytes, 0)).unwrap();
            let [first, middle, last] = [take(), take(), take()];
            allocator.free(middle).unwrap();
            live.extend([first, last]);
        }
        let ranges: Vec<(u64, u64)> = live
            .iter()
            .map(|block| (block.address(), block.address() + block.bytes() as u64))
            .collect();
        let looks = ranges.iter().flat_map(|(begin, end)| [begin - 1, *begin, end - 1, *end]);
        for address in looks {
            let truth = ranges.iter().find(|(begin, end)| (*begin..*end).contains(&address));
            let found = allocator.block_at(address);
            let found = found.map(|block| (block.address, block.address + block.bytes as u64));
            assert_eq!(found.as_ref(), truth, "{address:#x} under {settings}, of {ranges:x?}");
        }
        for block in live {
            allocator.free(block).unwrap();
        }
        allocator.check_all();
    }
}

#[test]
fn an_alignment_holds_in_a_segment_that_was_made_for_another_request() {
    // Goal: a cached segment serves an aligned request only where it is aligned. Method: something
    // else has the first 512 bytes of the device, so that segments begin behind a guard, and each
    // request comes after one of another alignment, with the same size and with less.
    for (first, next, align_bytes) in
        [(20, 20, MIB), (20, 18, 4 * KIB), (40, 20, KIB), (1, 1, 64 * KIB)]
    {
        let config = NullConfig { capacity_bytes: 256 * MIB, ..NullConfig::default() };
        let null = NullBackend::new(config);
        null.allocate_shared(0, 512, 512).unwrap();
        let device = Device::new(DeviceKind::NULL, 0).unwrap();
        let of_device = CachingAllocator::new(null, device, AllocatorConfig::default()).unwrap();
        let shared = CachingAllocator::shared(&Arc::new(of_device), AllocatorConfig::default());
        let shared = shared.unwrap();
        let plain = shared.allocate(Request::new(first * MIB, 0)).unwrap();
        shared.free(plain).unwrap();
        let _ = shared.statistics_at_rest(); // the thread has nothing
        let request = Request::new(next * MIB, 0).aligned_to(align_bytes);
        let aligned = shared.allocate(request).unwrap();
        assert_eq!(aligned.address() % align_bytes as u64, 0, "{next} MiB at {align_bytes}");
        shared.free(aligned).unwrap();
        shared.check_all();
    }
}

#[test]
fn an_alignment_holds_where_free_memory_lies_between_addresses_without_any() {
    // Goal: no place is cheap enough to be unaligned. Method: three pages stay between addresses
    // without any, behind an odd and an even number of pages. Nothing moves there, so the request
    // looks at the whole gap, and the three pages alone would cost nothing.
    for pages_before in [3, 4] {
        let bench = Bench::new("policy:native,deterministic:True");
        let [before, free] = [pages_before * 2 * MIB, 6 * MIB].map(|bytes| bench.take(bytes));
        bench.free(before);
        bench.empty_cache();
        bench.free(free);
        let aligned = bench.request(Request::new(6 * MIB, 0).aligned_to(4 * MIB)).unwrap();
        let behind = aligned.address() % (4 * MIB as u64);
        assert_eq!(behind, 0, "{aligned:?} behind {pages_before} pages");
        bench.free(aligned);
    }
}

#[test]
fn blocks_begin_at_multiples_of_512_bytes_where_pages_are_smaller() {
    for granularity_bytes in [64, 256, 512] {
        let config =
            NullConfig { capacity_bytes: 8 * MIB, granularity_bytes, ..NullConfig::default() };
        let device = Device::new(DeviceKind::NULL, 0).unwrap();
        let settings = AllocatorConfig::default();
        let allocator = CachingAllocator::new(NullBackend::new(config), device, settings).unwrap();
        let pool = PoolId(0, 1);
        allocator.retain_pool(pool, PoolOptions::default());
        let mut live = Vec::new();
        for bytes in [40_000, 512 * 3, 100_000, 512 * 300] {
            for request in [Request::new(bytes, 0), Request::new(bytes, 0).from_pool(pool)] {
                live.extend([request, request.aligned_to(512)].map(|request| {
                    let block = allocator.allocate(request).unwrap();
                    assert_eq!(block.address() % 512, 0, "{request:?} on {granularity_bytes}");
                    block
                }));
            }
        }
        for block in live {
            allocator.free(block).unwrap();
        }
        allocator.release_pool(pool);
    }
}
