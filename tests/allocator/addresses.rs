//! Which block an address is in, under each policy.
//!
//! Goal: a block is found from its first byte to its last, and from no byte beside it. Method:
//! three blocks of each size side by side, of which the middle one is freed, and every look
//! compared with a search through all that are live.

use std::sync::Arc;

use accelrt::allocator::{CachingAllocator, Request};
use accelrt::backend::null::{NullBackend, NullConfig};
use accelrt::{Config, Device, DeviceKind, Runtime};

use crate::support::{KIB, MIB};

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
