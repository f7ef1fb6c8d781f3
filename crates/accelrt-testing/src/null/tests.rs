//! Tests of the whole null kind. Each module has its own unit tests.

use accelrt::backend::contract::{Backend as _, ProgramSource};

use super::*;
use crate::trusted::Trusted;

fn small() -> Trusted<NullBackend> {
    Trusted(NullBackend::new(NullConfig { device_count: 2, ..NullConfig::default() }))
}

#[test]
fn moved_bytes_are_counted_over_every_pair_of_memories() {
    let null = small();
    let stream = null.stream_create(1, 0).unwrap();
    let here = null.allocate(0, 1000, 64).unwrap();
    let there = null.allocate(1, 1000, 64).unwrap();
    let host = null.allocate_host(1000, 1).unwrap();
    let pageable = Address(0x7fff_0000_0000);
    for (to, from) in [(here, there), (there, host), (host, pageable), (pageable, here)] {
        null.copy(stream, to, from, 1000).unwrap();
    }
    null.fill(stream, here.offset(10), 7, 990).unwrap();
    let expected = MovedBytes { copied_bytes: 4000, filled_bytes: 990 };
    assert_eq!(null.moved(), expected);
}

#[test]
#[should_panic(expected = "are not inside live memory")]
fn a_copy_past_the_end_of_an_allocation_is_caught() {
    let null = small();
    let stream = null.stream_create(0, 0).unwrap();
    let (to, from) = (null.allocate(0, 100, 64).unwrap(), null.allocate_host(101, 1).unwrap());
    null.copy(stream, to, from, 101).unwrap();
}

#[test]
#[should_panic(expected = "are not inside live memory")]
fn a_fill_of_released_memory_is_caught() {
    let null = small();
    let stream = null.stream_create(0, 0).unwrap();
    let host = null.allocate_host(100, 1).unwrap();
    null.release_host(host).unwrap();
    null.fill(stream, host, 0, 1).unwrap();
}

#[test]
fn live_resources_are_counted() {
    let null = small();
    let stream = null.stream_create(0, 0).unwrap();
    let mark = null.mark(stream, false).unwrap();
    let page_bytes = null.virtual_memory(1).unwrap().granularity_bytes();
    null.virtual_memory(0).unwrap().reserve(4 * page_bytes).unwrap();
    null.virtual_memory(1).unwrap().create(page_bytes).unwrap();
    null.allocate(1, 10, 64).unwrap();
    null.allocate_host(20, 1).unwrap();
    let kernels = null.kernels().unwrap();
    let program = kernels.compile(1, ProgramSource::Text("kernel void nop() {}"), "").unwrap();
    kernels.kernel(program, "nop").unwrap();
    let expected = ResourceCounts {
        streams: 1,
        marks: 1,
        device_bytes: 10,
        host_bytes: 20,
        reserved_bytes: 4 * page_bytes,
        physical_bytes: page_bytes,
        programs: 1,
        kernels: 1,
    };
    assert_eq!(null.resource_counts(), expected);
    null.mark_release(mark).unwrap();
    null.stream_destroy(stream).unwrap();
    assert_eq!(null.resource_counts(), ResourceCounts { streams: 0, marks: 0, ..expected });
}

#[test]
fn devices_that_do_not_exist_are_named() {
    let message = small().allocate(2, 1, 64).unwrap_err().to_string();
    assert!(message.contains("null:2 does not exist"), "{message}");
    assert!(small().virtual_memory(2).is_none());
}
