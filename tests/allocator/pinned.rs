//! Pinned host memory: split, not rounded to powers of two, kept up to a size.

use std::sync::Arc;

use accelrt::allocator::{CachingAllocator, Request};
use accelrt::{Device, DeviceKind};
use accelrt_testing::null::{NullBackend, NullConfig};

use crate::support::MIB;

fn pinned(settings: &str) -> (Arc<NullBackend>, CachingAllocator) {
    let null = NullBackend::new(NullConfig::default());
    let device = Device::new(DeviceKind::NULL, 0).unwrap();
    let config = settings.parse().unwrap();
    (Arc::clone(&null), CachingAllocator::pinned(null, device, config))
}

#[test]
fn a_request_takes_its_size_and_no_power_of_two() {
    // Specification 2.12: PyTorch's rounds 33 MiB up to 64.
    let (null, allocator) = pinned("");
    let block = allocator.allocate(Request::new(33 * MIB + 1, 0)).unwrap();
    assert_eq!(null.resource_counts().host_bytes, 33 * MIB + 4096);
    assert_eq!(null.resource_counts().device_bytes, 0);
    allocator.free(block).unwrap();
    let parts = [(); 3].map(|()| allocator.allocate(Request::new(11 * MIB, 0)).unwrap());
    assert_eq!(null.resource_counts().host_bytes, 33 * MIB + 4096, "the free segment was split");
    allocator.check_all();
    for part in parts {
        allocator.free(part).unwrap();
    }
    allocator.empty_cache();
    assert_eq!(null.resource_counts().host_bytes, 0);
}

#[test]
fn small_requests_share_segments_of_a_size_that_is_a_setting() {
    // Specification 2.11: pinned_reserve_segment_size_mb.
    let (null, allocator) = pinned("pinned_reserve_segment_size_mb:8");
    for _ in 0..8 {
        let _ = allocator.allocate(Request::new(MIB, 0)).unwrap();
    }
    assert_eq!(null.resource_counts().host_bytes, 8 * MIB);
    let _ = allocator.allocate(Request::new(1, 0)).unwrap();
    assert_eq!(null.resource_counts().host_bytes, 16 * MIB);
}

#[test]
fn free_segments_above_a_size_go_back_at_once() {
    // Specification 2.11: pinned_max_cached_size_mb.
    let (null, allocator) = pinned("pinned_max_cached_size_mb:4");
    let blocks = [3, 5].map(|mib| allocator.allocate(Request::new(mib * MIB, 0)).unwrap());
    for block in blocks {
        allocator.free(block).unwrap();
    }
    assert_eq!(null.resource_counts().host_bytes, 3 * MIB);
}

#[test]
fn limits_of_devices_do_not_count_for_the_host() {
    let (_, allocator) = pinned("per_process_memory_fraction:0.0");
    let _ = allocator.allocate(Request::new(MIB, 0)).unwrap();
}

#[test]
fn settings_say_what_is_in_force_where_no_virtual_memory_is() {
    let (_, allocator) = pinned("expandable_segments:True,max_split_size_mb:30");
    assert!(!allocator.config().expandable_segments());
    allocator.set_config("expandable_segments:True".parse().unwrap());
    assert!(!allocator.config().expandable_segments());
}

#[test]
fn of_several_free_segments_above_a_size_each_goes_back() {
    // A larger block that is split keeps its segment, and must not hide the others.
    let (null, allocator) = pinned("");
    let blocks = [6, 9, 20].map(|mib| allocator.allocate(Request::new(mib * MIB, 0)).unwrap());
    let [first, second, third] = blocks;
    allocator.free(third).unwrap();
    let rest = allocator.allocate(Request::new(10 * MIB, 0)).unwrap(); // leaves 10 of the 20 free
    for block in [first, second] {
        allocator.free(block).unwrap();
    }
    assert_eq!(null.resource_counts().host_bytes, 35 * MIB);
    allocator.set_config("pinned_max_cached_size_mb:4".parse().unwrap());
    let small = allocator.allocate(Request::new(MIB, 0)).unwrap();
    allocator.free(small).unwrap();
    assert_eq!(
        null.resource_counts().host_bytes,
        22 * MIB,
        "what shares a segment stays, and a small one"
    );
    allocator.free(rest).unwrap();
    assert_eq!(null.resource_counts().host_bytes, 2 * MIB);
}
