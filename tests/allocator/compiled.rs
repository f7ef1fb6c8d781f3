//! What PyTorch's compiled allocator does, and its documents do not say: `make oracle` found it.
//!
//! Goal: policy `torch` goes on doing the same where no wheel is at hand. Method: programs that
//! once differed, cut down, as `tests/oracle/programs` has them.

use std::sync::{Arc, Mutex};

use accelrt::Error;
use accelrt::allocator::{CachingAllocator, PoolId, PoolOptions, Request};
use accelrt::{Device, DeviceKind};
use accelrt_testing::fault::{Fault, FaultBackend, FaultError, Method};
use accelrt_testing::null::{NullBackend, NullConfig};

use crate::support::{Bench, MIB};

const EXPANDABLE: &str = "expandable_segments:True";

/// An allocator whose device's calls are counted, and fail as planned.
fn counted(settings: &str) -> (Arc<FaultBackend>, CachingAllocator) {
    let null = NullBackend::new(NullConfig { capacity_bytes: 1 << 30, ..NullConfig::default() });
    let faults = FaultBackend::new(null);
    let device = Device::new(DeviceKind::NULL, 0).unwrap();
    let config = format!("policy:torch,{settings}").parse().unwrap();
    let allocator = CachingAllocator::new(Arc::clone(&faults) as _, device, config);
    (faults, allocator.unwrap())
}

#[test]
fn the_limit_is_asked_about_a_request_as_a_segment_and_not_about_its_pages() {
    let bench = Bench::new("expandable_segments:True,per_process_memory_fraction:0.05"); // 51.2
    let _ = bench.take(3 * MIB); // 20 are mapped
    let _ = bench.request(Request::new(30 * MIB, 1)).unwrap(); // 20 + 30, and 40 are mapped
    assert_eq!(bench.reserved_bytes(), 60 * MIB);
    bench.request(Request::new(512, 2)).unwrap_err();
}

#[test]
fn below_a_limit_of_the_settings_nothing_is_rejected_before_the_cache_goes_back() {
    let settings = "per_process_memory_fraction:0.4,throw_on_cudamalloc_oom:True";
    let bench = Bench::new(settings);
    let _ = bench.take(200 * MIB);
    bench.free(bench.take(100 * MIB));
    let _ = bench.take(150 * MIB);
    let statistics = bench.statistics();
    assert_eq!((statistics.num_oom_rejections, statistics.num_alloc_retries), (0, 1));
}

#[test]
fn without_a_limit_more_than_the_device_has_is_rejected_at_once_and_told() {
    let bench = Bench::new("throw_on_cudamalloc_oom:True");
    let _ = bench.take(600 * MIB);
    bench.free(bench.take(300 * MIB));
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&told);
    bench
        .allocator
        .add_oom_observer(move |error: &Error| telling.lock().unwrap().push(error.to_string()));
    bench.request(Request::new(310 * MIB, 0)).unwrap_err();
    let statistics = bench.statistics();
    assert_eq!((statistics.num_oom_rejections, statistics.num_alloc_retries), (1, 0));
    assert_eq!(statistics.num_ooms, 0, "it is counted once");
    assert_eq!(bench.reserved_bytes(), 900 * MIB, "the cache was not touched");
    assert_eq!(told.lock().unwrap().len(), 1);
}

#[test]
fn above_the_settings_limit_a_request_is_rejected_where_a_program_allowed_more() {
    let bench = Bench::new("per_process_memory_fraction:0.05,throw_on_cudamalloc_oom:True"); // 51.2
    bench.allocator.set_memory_fraction(1.0).unwrap();
    bench.free(bench.take(40 * MIB));
    bench.request(Request::new(50 * MIB, 0)).unwrap_err();
    assert_eq!(bench.statistics().num_oom_rejections, 1);
    assert_eq!(bench.reserved_bytes(), 40 * MIB, "the cache was not touched");
    bench.empty_cache();
    let _ = bench.take(50 * MIB);
}

#[test]
fn pages_are_all_created_before_the_first_is_mapped() {
    let (faults, allocator) = counted(EXPANDABLE);
    faults.plan(Fault::nth(Method::VmCreate, 3, FaultError::OutOfMemory));
    faults.plan(Fault::nth(Method::VmCreate, 3, FaultError::OutOfMemory)); // and the second attempt
    let _ = allocator.allocate(Request::new(50 * MIB, 0)).unwrap();
    assert_eq!((faults.calls(Method::VmCreate), faults.calls(Method::VmRelease)), (6, 2));
    assert_eq!((faults.calls(Method::VmMap), faults.calls(Method::VmUnmap)), (3, 0));
}

#[test]
fn pages_of_a_request_whose_mapping_is_refused_all_go_back() {
    let (faults, allocator) = counted(EXPANDABLE);
    faults.plan(Fault::nth(Method::VmMap, 2, FaultError::Driver));
    allocator.allocate(Request::new(50 * MIB, 0)).unwrap_err();
    assert_eq!((faults.calls(Method::VmCreate), faults.calls(Method::VmRelease)), (3, 3));
    assert_eq!(faults.calls(Method::VmUnmap), 1);
    assert_eq!(faults.inner().memory_info(0).unwrap().free_bytes, 1 << 30);
}

#[test]
fn addresses_without_a_page_serve_the_next_request_and_end_with_the_allocator() {
    let (faults, allocator) = counted(EXPANDABLE);
    faults.plan(Fault::always(Method::VmCreate, FaultError::OutOfMemory));
    allocator.allocate(Request::new(50 * MIB, 0)).unwrap_err();
    faults.clear();
    allocator.empty_cache();
    let block = allocator.allocate(Request::new(40 * MIB, 0)).unwrap();
    assert_eq!(faults.calls(Method::VmReserve), 1);
    allocator.free(block).unwrap();
    faults.plan(Fault::always(Method::VmCreate, FaultError::OutOfMemory));
    allocator.allocate(Request::new(60 * MIB, 1)).unwrap_err();
    drop(allocator);
    assert_eq!((faults.calls(Method::VmReserve), faults.calls(Method::VmUnreserve)), (2, 2));
}

#[test]
fn whole_segments_go_back_before_pages_do() {
    let (faults, allocator) = counted("");
    let plain = [0, 1].map(|stream| allocator.allocate(Request::new(30 * MIB, stream)).unwrap());
    allocator.set_config(EXPANDABLE.parse().unwrap());
    let paged = [0, 1].map(|stream| allocator.allocate(Request::new(40 * MIB, stream)).unwrap());
    plain.into_iter().chain(paged).for_each(|block| allocator.free(block).unwrap());
    let seen = Arc::new(Mutex::new(None));
    let (counter, telling) = (Arc::downgrade(&faults), Arc::clone(&seen));
    faults.plan_callback(Method::VmUnmap, 1, move || {
        let faults = counter.upgrade().expect("it is being called");
        *telling.lock().unwrap() = Some(faults.calls(Method::Release));
    });
    allocator.empty_cache();
    assert_eq!(*seen.lock().unwrap(), Some(2));
}

#[test]
fn a_shortage_that_nothing_relieves_asks_the_device_twice() {
    // Once before the cache goes back, and once after it.
    let (faults, allocator) = counted("");
    let _held = allocator.allocate(Request::new(800 * MIB, 0)).unwrap();
    let pool = PoolId(0, 1);
    allocator.retain_pool(pool, PoolOptions::default());
    let cached = allocator.allocate(Request::new(100 * MIB, 0)).unwrap();
    allocator.free(cached).unwrap();
    let before = faults.calls(Method::Allocate);
    allocator.allocate(Request::new(300 * MIB, 0)).unwrap_err();
    assert_eq!(faults.calls(Method::Allocate) - before, 2);
}
