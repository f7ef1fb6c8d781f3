//! Tests of the whole null kind, and of its virtual memory. The other files have their own.

use accelrt::backend::contract::{Backend as _, PhysicalHandle, ProgramSource};

use super::memory::{Arena, Pages};
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
fn each_submission_is_done_after_its_own_polls() {
    // Method: submissions and queries in a random order, beside a count of the queries since the
    // last submission.
    const POLLS: u32 = 3;
    let completion = CompletionMode::WhenAsked { polls: POLLS };
    let null = Trusted(NullBackend::new(NullConfig { completion, ..NullConfig::default() }));
    let stream = null.stream_create(0, 0).unwrap();
    let memory = null.allocate(0, 8, 8).unwrap();
    let (mut asked, mut order) = (POLLS, 0x9e37_79b9_u32);
    for step in 0..1_000 {
        order = order.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if order >> 30 == 0 {
            null.fill(stream, memory, 0, 8).unwrap();
            asked = 0;
        } else {
            assert_eq!(null.stream_query(stream).unwrap(), asked >= POLLS, "{step}");
            asked += 1;
        }
    }
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

// Virtual memory.

const GRANULE: usize = 4096;

fn empty() -> (Arena, Pages) {
    (Arena::new(Place::Device(0), Reuse::Late), Pages::new(GRANULE, 1))
}

#[test]
fn every_step_preserves_the_invariants() {
    // Goal: each method keeps the invariants. Method: two physical memories in one range.
    let (mut arena, mut pages) = empty();
    let range = pages.reserve(&mut arena, 4 * GRANULE).unwrap();
    let (first, second) = (pages.create(GRANULE), pages.create(2 * GRANULE));
    assert_ne!(first, second);
    pages.map(range, first);
    pages.map(range.offset(GRANULE), second);
    let interior = range.offset(3 * GRANULE - 1);
    let expected = Some((range.offset(GRANULE).0, 2 * GRANULE));
    assert_eq!(pages.mapping_containing(interior), expected);
    assert_eq!(pages.mapping_containing(range.offset(3 * GRANULE)), None);
    pages.unmap(second);
    pages.map(range.offset(2 * GRANULE), second);
    pages.relocate(second, range.offset(GRANULE));
    assert_eq!(pages.mapping_containing(interior), expected);
    assert_eq!(pages.mapping_containing(range.offset(3 * GRANULE)), None);
    assert_eq!((pages.reserved_bytes(), pages.physical_bytes()), (4 * GRANULE, 3 * GRANULE));
    for physical in [first, second] {
        pages.unmap(physical);
        pages.release(physical);
    }
    pages.unreserve(&mut arena, range, 4 * GRANULE);
    assert_eq!((pages.reserved_bytes(), pages.physical_bytes()), (0, 0));
    assert_eq!(pages.create(GRANULE), PhysicalHandle(3));
}

#[test]
fn ranges_of_small_granules_begin_where_blocks_may_begin() {
    let (mut arena, mut pages) = (Arena::new(Place::Device(0), Reuse::Late), Pages::new(64, 1));
    let ranges = [64, 640, 64].map(|bytes| pages.reserve(&mut arena, bytes).unwrap());
    assert!(ranges.iter().all(|range| range.0.is_multiple_of(512)), "{ranges:x?}");
}

#[test]
#[should_panic(expected = "is mapped at")]
fn a_second_mapping_of_one_physical_memory_is_caught() {
    let (mut arena, mut pages) = empty();
    let range = pages.reserve(&mut arena, 2 * GRANULE).unwrap();
    let physical = pages.create(GRANULE);
    pages.map(range, physical);
    pages.map(range.offset(GRANULE), physical);
}

#[test]
#[should_panic(expected = "something is mapped at")]
fn a_mapping_over_another_is_caught() {
    let (mut arena, mut pages) = empty();
    let range = pages.reserve(&mut arena, 4 * GRANULE).unwrap();
    let (long, short) = (pages.create(2 * GRANULE), pages.create(GRANULE));
    pages.map(range, long);
    pages.map(range.offset(GRANULE), short);
}

#[test]
#[should_panic(expected = "not inside a reserved range")]
fn a_mapping_past_the_end_is_caught() {
    let (mut arena, mut pages) = empty();
    let range = pages.reserve(&mut arena, GRANULE).unwrap();
    let physical = pages.create(2 * GRANULE);
    pages.map(range, physical);
}

#[test]
#[should_panic(expected = "is not mapped")]
fn an_unmap_of_unmapped_memory_panics() {
    let (_, mut pages) = empty();
    let physical = pages.create(GRANULE);
    pages.unmap(physical);
}

#[test]
#[should_panic(expected = "something is mapped in")]
fn an_unreserve_under_a_mapping_is_caught() {
    let (mut arena, mut pages) = empty();
    let range = pages.reserve(&mut arena, 2 * GRANULE).unwrap();
    let physical = pages.create(GRANULE);
    pages.map(range.offset(GRANULE), physical);
    pages.unreserve(&mut arena, range, 2 * GRANULE);
}

#[test]
#[should_panic(expected = "is still mapped at")]
fn a_release_of_mapped_memory_is_caught() {
    let (mut arena, mut pages) = empty();
    let range = pages.reserve(&mut arena, GRANULE).unwrap();
    let physical = pages.create(GRANULE);
    pages.map(range, physical);
    pages.release(physical);
}
