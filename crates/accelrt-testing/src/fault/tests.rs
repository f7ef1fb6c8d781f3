//! Tests of fault injection: each method fails with each error, and nothing leaks.

use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};
use std::thread;

use accelrt::backend::contract::{
    Address, Backend as _, LaunchSize, PagePlaces, ProgramSource, StreamHandle,
};
use accelrt::{Error, MemoryError};

use super::*;
use crate::null::{NullBackend, NullConfig, ResourceCounts};
use crate::trusted::Trusted;

const PAGE: usize = 4096;

fn wrapped_null() -> (Arc<NullBackend>, Trusted<FaultBackend>) {
    let config = NullConfig { device_count: 2, granularity_bytes: PAGE, ..NullConfig::default() };
    let null = NullBackend::new(config);
    (Arc::clone(&null), Trusted(FaultBackend::new(null)))
}

fn inner(backend: &FaultBackend) -> Trusted {
    Trusted(Arc::clone(backend.inner()))
}

/// Creates, uses and releases one object of each sort, with every fallible method. After a planned
/// failure, releases what exists, as the engine would. Returns the methods that failed.
fn full_life_cycle(backend: &Trusted<FaultBackend>) -> Vec<Method> {
    let mut failed = Vec::new();
    let mut note = |method, is_error: bool| {
        if is_error {
            failed.push(method);
        }
    };
    note(Method::DeviceCount, backend.device_count().is_err());
    note(Method::Properties, backend.properties(1).is_err());
    note(Method::MemoryInfo, backend.memory_info(1).is_err());
    match backend.stream_create(1, 0) {
        Err(_) => note(Method::StreamCreate, true),
        Ok(stream) => stream_life_cycle(backend, stream, &mut note),
    }
    memory_life_cycle(backend, &mut note);
    page_life_cycle(backend, &mut note);
    failed
}

fn stream_life_cycle(
    backend: &Trusted<FaultBackend>,
    stream: StreamHandle,
    note: &mut impl FnMut(Method, bool),
) {
    match backend.stream_native(stream) {
        Err(_) => note(Method::StreamNative, true),
        Ok(native) => match backend.stream_wrap(1, native) {
            Err(_) => note(Method::StreamWrap, true),
            Ok(wrapped) => inner(backend).stream_destroy(wrapped).unwrap(),
        },
    }
    note(Method::StreamQuery, backend.stream_query(stream).is_err());
    note(Method::StreamSynchronize, backend.stream_synchronize(stream).is_err());
    let to = Address(PAGE as u64);
    note(Method::Copy, backend.copy(stream, to, to.offset(PAGE), 8).is_err());
    note(Method::Fill, backend.fill(stream, to, 1, 8).is_err());
    match backend.mark(stream, true) {
        Err(_) => note(Method::Mark, true),
        Ok(mark) => {
            note(Method::MarkDone, backend.mark_done(mark).is_err());
            note(Method::WaitMark, backend.wait_mark(mark).is_err());
            note(Method::StreamWait, backend.stream_wait(stream, mark).is_err());
            let (sender, receiver) = mpsc::channel();
            let registered = backend.when_done(mark, Box::new(move || sender.send(()).unwrap()));
            assert_eq!(receiver.recv().is_ok(), registered.is_ok(), "called or dropped uncalled");
            note(Method::WhenDone, registered.is_err());
            note(Method::ElapsedNs, backend.elapsed_ns(mark, mark).is_err());
            note(Method::MarkRelease, backend.mark_release(mark).is_err());
        }
    }
    kernel_life_cycle(backend, stream, note);
    note(Method::StreamDestroy, backend.stream_destroy(stream).is_err());
}

fn kernel_life_cycle(
    backend: &Trusted<FaultBackend>,
    stream: StreamHandle,
    note: &mut impl FnMut(Method, bool),
) {
    let kernels = backend.kernels().unwrap();
    let source = ProgramSource::Text("kernel void nothing() {}");
    let Ok(program) = kernels.compile(1, source, "") else {
        return note(Method::KernelsCompile, true);
    };
    note(Method::KernelsNames, kernels.kernel_names(program).is_err());
    match kernels.kernel(program, "nothing") {
        Err(_) => note(Method::KernelsKernel, true),
        Ok(kernel) => {
            let size = LaunchSize { global: [1; 3], local: None, dimensions: 1 };
            note(Method::KernelsParameters, kernels.parameters(kernel).is_err());
            note(Method::KernelsLaunch, kernels.launch(kernel, stream, &[], &size).is_err());
            note(Method::KernelsKernelRelease, kernels.kernel_release(kernel).is_err());
        }
    }
    note(Method::KernelsProgramRelease, kernels.program_release(program).is_err());
}

fn memory_life_cycle(backend: &Trusted<FaultBackend>, note: &mut impl FnMut(Method, bool)) {
    match backend.allocate(1, 100, 64) {
        Err(_) => note(Method::Allocate, true),
        Ok(address) => {
            note(Method::PointerOwner, backend.pointer_owner(address).is_err());
            note(Method::Release, backend.release(1, address).is_err());
        }
    }
    match backend.allocate_shared(1, 100, 64) {
        Err(_) => note(Method::AllocateShared, true),
        // Releases through the inner backend, so that the fault backend counts one call per method.
        Ok(address) => inner(backend).release(1, address).unwrap(),
    }
    match backend.allocate_host(100, 1) {
        Err(_) => note(Method::AllocateHost, true),
        Ok(address) => note(Method::ReleaseHost, backend.release_host(address).is_err()),
    }
}

fn page_life_cycle(backend: &Trusted<FaultBackend>, note: &mut impl FnMut(Method, bool)) {
    let pages = backend.virtual_memory(1).unwrap();
    assert_eq!(pages.granularity_bytes(), PAGE);
    let (range, physical) = match (pages.reserve(2 * PAGE), pages.create(PAGE)) {
        (Ok(range), Ok(physical)) => (range, physical),
        (Ok(range), Err(_)) => {
            note(Method::VmCreate, true);
            return pages.unreserve(range, 2 * PAGE).unwrap();
        }
        (Err(_), Ok(physical)) => {
            note(Method::VmReserve, true);
            return pages.release(physical).unwrap();
        }
        (Err(_), Err(_)) => {
            note(Method::VmReserve, true);
            return note(Method::VmCreate, true);
        }
    };
    if pages.map(range, physical).is_ok() {
        note(Method::VmRelocate, pages.relocate(physical, range.offset(PAGE)).is_err());
        note(Method::VmUnmap, pages.unmap(physical).is_err());
    } else {
        note(Method::VmMap, true);
    }
    note(Method::VmRelease, pages.release(physical).is_err());
    note(Method::VmUnreserve, pages.unreserve(range, 2 * PAGE).is_err());
}

#[test]
fn without_a_plan_every_call_is_forwarded_and_counted() {
    let (null, backend) = wrapped_null();
    assert_eq!(full_life_cycle(&backend), []);
    for method in Method::ALL {
        assert_eq!((backend.calls(method), backend.failures(method)), (1, 0), "{method}");
    }
    assert_eq!(null.resource_counts(), ResourceCounts::default());
}

#[test]
fn a_planned_fault_affects_only_its_method_and_leaks_nothing() {
    // Goal: a plan affects only its method, and a failing release still releases. Method: a full
    // life cycle for each method and error.
    for method in Method::ALL {
        for error in [FaultError::Driver, FaultError::DeviceLost, FaultError::OutOfMemory] {
            if error == FaultError::OutOfMemory && !method.takes_memory() {
                continue;
            }
            let (null, backend) = wrapped_null();
            backend.plan(Fault::nth(method, 1, error));
            assert_eq!(full_life_cycle(&backend), [method], "{error:?}");
            assert_eq!((backend.calls(method), backend.failures(method)), (1, 1), "{method}");
            assert_eq!(
                null.resource_counts(),
                ResourceCounts::default(),
                "{method} with {error:?}"
            );
            assert_eq!(full_life_cycle(&backend), [], "{method} fails once");
        }
    }
}

#[test]
fn a_call_counts_for_the_device_that_it_names_or_that_its_stream_is_of() {
    // Method: a full life cycle on device 1. What names nothing of a device counts for device 0.
    let (_, backend) = wrapped_null();
    let (sender, of_first) = mpsc::channel();
    backend.plan_by(move |method, device| {
        if device == 0 {
            sender.send(method).unwrap();
        }
        None
    });
    full_life_cycle(&backend);
    let of_first: BTreeSet<String> = of_first.try_iter().map(|it| it.to_string()).collect();
    let expected =
        [Method::DeviceCount, Method::PointerOwner, Method::AllocateHost, Method::ReleaseHost];
    assert_eq!(of_first, expected.map(|it| it.to_string()).into());
}

#[test]
fn a_wrapped_stream_counts_for_its_device_and_what_is_released_is_forgotten() {
    let (_, backend) = wrapped_null();
    let stream = backend.stream_create(1, 0).unwrap();
    let wrapped = backend.stream_wrap(1, backend.stream_native(stream).unwrap()).unwrap();
    let (sender, seen) = mpsc::channel();
    backend.plan_by(move |method, device| {
        sender.send((method, device)).unwrap();
        None
    });
    let mark = backend.mark(wrapped, false).unwrap();
    backend.mark_release(mark).unwrap();
    backend.stream_destroy(wrapped).unwrap();
    backend.stream_destroy(stream).unwrap();
    let on_second = [Method::Mark, Method::MarkRelease, Method::StreamDestroy];
    let expected = on_second.into_iter().chain([Method::StreamDestroy]).map(|it| (it, 1));
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    assert_eq!(backend.injector.devices.lock().len(), 0);
}

#[test]
fn the_nth_call_of_any_method_fails_in_the_order_of_calls() {
    let (null, backend) = wrapped_null();
    full_life_cycle(&backend);
    let calls: u64 = Method::ALL.into_iter().map(|method| backend.calls(method)).sum();
    for call in 1..=calls {
        backend.clear();
        backend.plan(Fault::nth_of_any(call, FaultError::Driver));
        assert_eq!(full_life_cycle(&backend).len(), 1, "call {call}");
        assert_eq!(null.resource_counts(), ResourceCounts::default(), "call {call}");
    }
}

#[test]
fn of_several_pages_the_refused_one_is_gone_and_those_before_it_stay() {
    let (null, backend) = wrapped_null();
    let pages = backend.virtual_memory(1).unwrap();
    let base = pages.reserve(6 * PAGE).unwrap();
    let places = |numbers| PagePlaces { base, page_bytes: PAGE, numbers };
    for method in [Method::VmCreate, Method::VmMap] {
        backend.clear();
        backend.plan(Fault::nth(method, 3, FaultError::Driver));
        let (mut mapped, mut moved) = (Vec::new(), Vec::new());
        pages.create_mapped(places(&[0, 1, 2]), &mut mapped).unwrap_err();
        assert_eq!((mapped.len(), null.resource_counts().physical_bytes), (2, 2 * PAGE));
        backend.plan(Fault::nth(Method::VmRelocate, 2, FaultError::Driver));
        pages.relocate_all(&mapped, places(&[4, 5]), &mut moved).unwrap_err();
        assert_eq!(moved, mapped[..1], "the second has not moved");
        for physical in mapped {
            pages.unmap(physical).unwrap();
            pages.release(physical).unwrap();
        }
    }
    pages.unreserve(base, 6 * PAGE).unwrap();
    assert_eq!(null.resource_counts(), ResourceCounts::default());
}

#[test]
fn errors_carry_the_inner_devices_numbers_and_the_methods_name() {
    let (_, backend) = wrapped_null();
    backend.plan(Fault::always(Method::Allocate, FaultError::OutOfMemory));
    backend.plan(Fault::always(Method::Mark, FaultError::Driver));
    backend.plan(Fault::always(Method::VmCreate, FaultError::DeviceLost));
    let total = backend.memory_info(1).unwrap().total_bytes;
    let held = backend.inner().allocate(1, 1000, 64).unwrap();
    match backend.allocate(1, 77, 64) {
        Err(Error::Memory(MemoryError::OutOfMemory {
            device,
            requested_bytes: 77,
            free_bytes,
            total_bytes,
            ..
        })) => {
            let expected = (1, total - 1000, total);
            assert_eq!((device.index(), free_bytes, total_bytes), expected);
        }
        other => panic!("{other:?}"),
    }
    inner(&backend).release(1, held).unwrap();
    let stream = backend.stream_create(0, 0).unwrap();
    let message = backend.mark(stream, false).unwrap_err().to_string();
    assert!(message.starts_with("mark failed on null with code 999"), "{message}");
    let message = backend.virtual_memory(1).unwrap().create(PAGE).unwrap_err().to_string();
    assert!(message.contains("null:1 is lost"), "{message}");
    assert!(message.contains("VirtualMemory::create"), "{message}");
}

#[test]
fn out_of_memory_for_any_method_affects_only_those_that_allocate() {
    let (_, backend) = wrapped_null();
    backend.plan(Fault {
        repeat: Repeat::FromThenOn,
        ..Fault::nth_of_any(2, FaultError::OutOfMemory)
    });
    let expected =
        [Method::AllocateShared, Method::AllocateHost, Method::VmReserve, Method::VmCreate];
    assert_eq!(full_life_cycle(&backend), expected);
}

#[test]
fn concurrent_calls_meet_the_fault_once() {
    // Goal: the n-th call fails exactly once however calls race. Method: 4 threads, 400 calls.
    let (null, backend) = wrapped_null();
    backend.plan(Fault::nth(Method::Allocate, 250, FaultError::OutOfMemory));
    let refused = thread::scope(|scope| {
        let thread = || (0..100).filter(|_| backend.allocate(0, 64, 64).is_err()).count();
        let threads = [(); 4].map(|()| scope.spawn(thread));
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
    });
    assert_eq!(refused, 1);
    assert_eq!((backend.calls(Method::Allocate), backend.failures(Method::Allocate)), (400, 1));
    assert_eq!(null.resource_counts().device_bytes, 399 * 64);
}

#[test]
#[should_panic(expected = "takes no memory")]
fn a_method_that_takes_no_memory_cannot_run_out_of_it() {
    wrapped_null().1.plan(Fault::nth(Method::Mark, 1, FaultError::OutOfMemory));
}
