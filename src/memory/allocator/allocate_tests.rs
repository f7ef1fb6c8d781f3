//! Tests of requests that are finished later than they began.

use super::*;
use crate::base::config::{AllocatorConfig, Config};
use crate::base::device::{Device, DeviceKind};
use crate::base::size::{GIB, KIB, MIB};
use crate::base::steps::steps_of;
use crate::null::{NullBackend, NullConfig};
use crate::runtime::Runtime;

/// The allocator of a device of numbers, and a stream.
fn on_numbers() -> (Arc<CachingAllocator>, Arc<StreamCore>, Runtime) {
    let null = NullBackend::new(NullConfig { capacity_bytes: GIB, ..NullConfig::default() });
    let config = Config::builder().accelerator(DeviceKind::NULL).build().unwrap();
    let runtime = Runtime::with_backends(config, [null as Arc<_>]).unwrap();
    let device = Device::new(DeviceKind::NULL, 0).unwrap();
    let core = Arc::clone(runtime.stream(device).unwrap().core());
    (runtime.allocator(device).unwrap(), core, runtime)
}

/// Frees blocks of 64 KiB apart from each other; returns those between them.
fn free_apart(allocator: &CachingAllocator, stream: u64) -> Vec<Allocated> {
    let take = |bytes| allocator.allocate(Request::new(bytes, stream)).unwrap();
    let blocks = (0..80).map(|_| take(64 * KIB));
    let (apart, between): (Vec<_>, Vec<_>) =
        blocks.partition(|block| block.address() / (64 * KIB) as u64 % 2 == 1);
    for block in apart {
        allocator.free(block).unwrap();
    }
    allocator.caches.empty();
    between
}

#[test]
fn request_goes_on_without_a_second_search() {
    // Goal: a request that returns before it waits takes the steps of one that does not return.
    // Method: an aligned request looks at some of many blocks, none of which holds it.
    let count = |is_apart: bool| {
        let (allocator, home, _runtime) = on_numbers();
        let between = free_apart(&allocator, home.key());
        let request = Request::new(64 * KIB, home.key()).aligned_to(2 * MIB);
        let interrupt = &mut Interrupt::default();
        let (block, steps) = steps_of(|| {
            if !is_apart {
                return allocator.allocate_unless(request, Some(&home), interrupt).unwrap();
            }
            let rest = allocator.allocate_at_once(request, &home).expect_err("pages are missing");
            allocator.finish(*rest, &request, &home, interrupt).unwrap()
        });
        for block in between.into_iter().chain([block]) {
            allocator.free(block).unwrap();
        }
        steps
    };
    let [whole, apart] = [false, true].map(count);
    assert_eq!(apart, whole);
    assert!(whole > 4, "it looks at some: {whole}");
}

#[test]
fn pages_of_an_abandoned_request_serve_others() {
    let (allocator, home, _runtime) = on_numbers();
    let take = |bytes| allocator.allocate(Request::new(bytes, home.key())).unwrap();
    let (idle, kept) = (take(20 * MIB), take(MIB));
    allocator.free(idle).unwrap();
    allocator.caches.empty();
    let reserved_bytes = || allocator.statistics().reserved_bytes.all.current;
    let before = reserved_bytes();
    // Its arena has no place for it: idle pages have to move.
    let request = Request::new(3 * MIB + 512, home.key()).aligned_to(4 * MIB);
    let rest = allocator.allocate_at_once(request, &home).expect_err("pages have to move");
    assert!(matches!(rest.step, Step::Map(_)), "{rest:?}");
    assert!(allocator.state.lock().native.is_mapping);
    allocator.abandon(*rest);
    allocator.check_all();
    let block = allocator.allocate(request).unwrap();
    assert_eq!(reserved_bytes(), before, "pages have moved");
    for block in [block, kept] {
        allocator.free(block).unwrap();
    }
    allocator.check_all();
}

#[test]
fn segment_of_an_abandoned_request_does_not_count() {
    let (allocator, home, _runtime) = on_numbers();
    // Shared memory has no pages: a request claims its segment from the limit.
    let shared = CachingAllocator::shared(&allocator, AllocatorConfig::default()).unwrap();
    let request = Request::new(MIB, home.key());
    let rest = shared.allocate_at_once(request, &home).expect_err("there is no memory yet");
    assert!(matches!(rest.step, Step::Segment { .. }), "{rest:?}");
    shared.abandon(*rest);
    shared.check_all();
    let block = shared.allocate(request).unwrap();
    shared.free(block).unwrap();
    shared.check_all();
}
