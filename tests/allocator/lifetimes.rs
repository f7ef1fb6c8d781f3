//! Addresses that go back, and come again at once.
//!
//! Goal: law 9, an address is forgotten before the device has it back; and a call of the device
//! that panics keeps no thread waiting for what it began. Method: a device of numbers that hands a
//! returned address out with the next request, and a fault layer inside of whose calls another
//! thread makes that request.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use accelrt::allocator::{Allocated, CachingAllocator, Request};
use accelrt::{Device, DeviceKind};
use accelrt_testing::fault::{Fault, FaultBackend, FaultError, Method};
use accelrt_testing::null::{NullBackend, NullConfig, ResourceCounts, Reuse};

use crate::support::MIB;
use crate::watchdog::finishes_within;

/// Far beyond what a step takes. Another thread that waits inside of a call would wait for ever.
const LONGEST: Duration = Duration::from_secs(20);

/// Memory whose release another thread meets.
struct Place {
    null: Arc<NullBackend>,
    faults: Arc<FaultBackend>,
    allocator: Arc<CachingAllocator>,
    /// What the device calls the end of it.
    release: Method,
}

/// Each kind of memory that an allocator has, by the call that gives its addresses back.
fn places() -> impl Iterator<Item = Place> {
    let rows = [
        ("policy:torch", false, Method::Release),
        ("expandable_segments:True", false, Method::VmUnreserve),
        ("", true, Method::ReleaseHost),
    ];
    rows.into_iter().map(|(settings, is_host, release)| place(settings, is_host, release))
}

fn place(settings: &str, is_host: bool, release: Method) -> Place {
    let capacity_bytes = 64 * MIB;
    let config = NullConfig { capacity_bytes, reuse: Reuse::AtOnce, ..NullConfig::default() };
    let null = NullBackend::new(config);
    let faults = FaultBackend::new(Arc::<NullBackend>::clone(&null));
    let (device, backend) =
        (Device::new(DeviceKind::NULL, 0).unwrap(), Arc::<FaultBackend>::clone(&faults));
    let config = settings.parse().unwrap();
    let allocator = if is_host {
        CachingAllocator::pinned(backend, device, config)
    } else {
        CachingAllocator::new(backend, device, config).unwrap()
    };
    Place { null, faults, allocator: Arc::new(allocator), release }
}

fn take(allocator: &CachingAllocator) -> Allocated {
    allocator.allocate(Request::new(40 * MIB, 7)).unwrap()
}

#[test]
fn an_address_that_the_device_has_back_is_another_threads_at_once() {
    finishes_within(LONGEST, || {
        for Place { null, faults, allocator, release } in places() {
            let block = take(&allocator);
            let address = block.address();
            allocator.free(block).unwrap();
            let (told, taken) = channel();
            let inside = Arc::clone(&allocator);
            faults.plan_callback(release, 1, move || {
                let other = thread::spawn(move || take(&inside));
                told.send(other.join().unwrap()).unwrap();
            });
            allocator.empty_cache();
            let other = taken.try_recv().expect("the device was called");
            assert_eq!(other.address(), address, "{release}: the device gave the same address");
            let found = allocator.block_at(address).map(|found| found.address);
            assert_eq!(found, Some(address), "{release}: the block that is there now is known");
            allocator.check_all();
            allocator.free(other).unwrap();
            allocator.empty_cache();
            allocator.check_all();
            drop(allocator);
            assert_eq!(null.resource_counts(), ResourceCounts::default(), "{release}");
        }
    });
}

#[test]
fn what_goes_back_is_forgotten_before_the_device_has_it() {
    finishes_within(LONGEST, || {
        let native = [Method::VmRelease, Method::VmUnreserve];
        let native = native.map(|release| place("policy:native", false, release));
        let pages = place("expandable_segments:True", false, Method::VmRelease);
        for Place { faults, allocator, release, .. } in places().chain(native).chain([pages]) {
            let block = take(&allocator);
            let address = block.address();
            allocator.free(block).unwrap();
            let inside = Arc::clone(&allocator);
            let (told, seen) = channel();
            faults.plan_callback(release, 1, move || {
                let known = inside.block_at(address).map(|block| block.address);
                let reserved = inside.statistics().reserved_bytes.all.current;
                told.send((known, inside.snapshot().segments, reserved)).unwrap();
            });
            allocator.empty_cache();
            let (known, segments, reserved_bytes) = seen.try_recv().expect("the device was called");
            assert_eq!(known, None, "{release}");
            assert_eq!(segments, [], "{release}");
            assert_eq!(reserved_bytes, 0, "{release}: as the snapshot says");
        }
    });
}

#[test]
fn reserved_and_its_peak_never_pass_what_the_device_has() {
    finishes_within(LONGEST, || {
        // Two pages of 20 MiB: inside the last call the device has both back.
        let pages = place("expandable_segments:True", false, Method::VmRelease);
        let rows = places().map(|place| (place, 1)).chain([(pages, 2)]);
        for (Place { faults, allocator, release, .. }, call) in rows {
            let block = take(&allocator);
            allocator.free(block).unwrap();
            let inside = Arc::clone(&allocator);
            let (told, seen) = channel();
            faults.plan_callback(release, call, move || {
                let other = thread::spawn(move || (take(&inside), inside.statistics()));
                told.send(other.join().unwrap()).unwrap();
            });
            allocator.empty_cache();
            let (other, during) = seen.try_recv().expect("the device was called");
            for statistics in [during, allocator.statistics()] {
                let reserved = statistics.reserved_bytes;
                let (all, large) = (reserved.all, reserved.large_pool);
                assert_eq!(
                    [all.current, all.peak],
                    [40 * MIB as u64; 2],
                    "{release}: one at a time"
                );
                assert_eq!(large, all, "{release}: per class too");
            }
            allocator.free(other).unwrap();
            allocator.empty_cache();
            assert_eq!(allocator.statistics().reserved_bytes.all.current, 0, "{release}");
            allocator.check_all();
        }
    });
}

/// A thread meets a panic in the first call of a method; afterwards requests are served, and one
/// for more than there is ends with an error.
fn meet_panic(place: &Place, method: Method, run: impl FnOnce(&CachingAllocator) + Send + 'static) {
    let Place { faults, allocator, release, .. } = place;
    faults.plan(Fault::nth(method, 1, FaultError::Panic));
    let inside = Arc::clone(allocator);
    thread::spawn(move || run(&inside)).join().unwrap_err();
    assert_eq!(faults.failures(method), 1, "{method}");
    let (allocator, is_host) = (Arc::clone(allocator), *release == Method::ReleaseHost);
    finishes_within(LONGEST, move || {
        let most = allocator.allocate(Request::new(1 << 45, 7));
        assert!(most.is_err() || is_host, "{method}");
        let next = allocator.allocate(Request::new(MIB, 7)).unwrap();
        let found = allocator.block_at(next.address());
        assert_eq!(found.map(|found| found.bytes), Some(next.bytes()));
        allocator.free(next).unwrap();
        allocator.empty_cache();
    });
}

#[test]
fn a_release_that_panics_keeps_no_thread_waiting() {
    let pages = |settings, release| place(settings, false, release);
    let pages = [
        pages("expandable_segments:True", Method::VmUnmap),
        pages("expandable_segments:True", Method::VmRelease),
        pages("policy:native", Method::VmUnmap),
        pages("policy:native", Method::VmRelease),
        pages("policy:native", Method::VmUnreserve),
    ];
    for place in places().chain(pages) {
        // Two segments where there are such: the one behind the panic is not waited for either.
        let blocks = [20, 20].map(|mib| place.allocator.allocate(Request::new(mib * MIB, 7)));
        for block in blocks {
            place.allocator.free(block.unwrap()).unwrap();
        }
        meet_panic(&place, place.release, CachingAllocator::empty_cache);
    }
}

#[test]
fn a_request_that_panics_keeps_no_thread_waiting() {
    let rows = [
        ("policy:torch", Method::Allocate),
        ("expandable_segments:True", Method::VmReserve),
        ("expandable_segments:True", Method::VmCreate),
        ("expandable_segments:True", Method::VmMap),
        ("policy:native", Method::VmReserve),
        ("policy:native", Method::VmCreate),
        ("policy:native", Method::VmMap),
    ];
    for (settings, method) in rows {
        let place = place(settings, false, Method::Release);
        meet_panic(&place, method, |allocator| _ = take(allocator));
        place.allocator.check_all(); // nothing counts that was lost
    }
}

#[test]
fn what_a_panic_stops_on_its_way_back_goes_back_with_the_rest() {
    // Goal: a panic of the device keeps no page and none of the accounts but its own. Method: the
    // third page of a request panics, or is refused and then the way back of another one panics.
    // Afterwards the same is served, and goes back although that panics once more.
    let (create, map) = (Method::VmCreate, Method::VmMap);
    let (unmap, release) = (Method::VmUnmap, Method::VmRelease);
    let refused = [(create, release, 1), (map, unmap, 1), (map, release, 2)];
    let refused = refused.map(|(stopped, back, call)| (stopped, Some((back, call))));
    let rows: Vec<_> = [(create, None), (map, None)].into_iter().chain(refused).collect();
    let settings = ["policy:native", "expandable_segments:True"];
    for (settings, (stopped, back)) in
        settings.into_iter().flat_map(|settings| rows.iter().map(move |row| (settings, *row)))
    {
        let Place { null, faults, allocator, .. } = place(settings, false, release);
        let request = Request::new(60 * MIB, 7);
        let assert_panics = |act: &dyn Fn()| {
            let outcome = catch_unwind(AssertUnwindSafe(act));
            outcome.expect_err("the device panics");
            faults.clear();
            allocator.check_all();
            let physical_bytes = null.resource_counts().physical_bytes;
            let reserved_bytes = allocator.statistics().reserved_bytes.all.current;
            assert_eq!(reserved_bytes, physical_bytes as u64, "{settings} {stopped} {back:?}");
            physical_bytes
        };
        let error = back.map_or(FaultError::Panic, |_| FaultError::Driver);
        faults.plan(Fault::nth(stopped, 3, error));
        if let Some((back, call)) = back {
            faults.plan(Fault::nth(back, call, FaultError::Panic));
        }
        let left_bytes = assert_panics(&|| _ = allocator.allocate(request));
        assert!(back.is_none() || left_bytes == 0, "{settings} {stopped} {back:?}");
        for back in [unmap, release] {
            allocator.free(allocator.allocate(request).unwrap()).unwrap();
            faults.plan(Fault::nth(back, 2, FaultError::Panic));
            assert_eq!(assert_panics(&|| allocator.empty_cache()), 0, "{settings} {back}");
        }
    }
}

#[test]
fn a_page_that_panics_on_its_way_keeps_no_thread_waiting() {
    let place = place("policy:native", false, Method::VmRelease);
    let blocks = [1, 2].map(|stream| {
        let request = Request::new(20 * MIB, stream);
        place.allocator.allocate(request).unwrap()
    });
    for block in blocks {
        place.allocator.free(block).unwrap();
    }
    meet_panic(&place, Method::VmRelocate, |allocator| _ = take(allocator));
}
