//! Memory: refusals with true numbers, limits of a driver, alignments that it does not keep.

use accelrt::backend::contract::{Backend, MemoryKind, PointerOwner};
use accelrt::size::MIB;
use accelrt::{DriverError, Error, MemoryError, Runtime};
use accelrt_opencl::XpuBackend;

use crate::pattern::pattern;
use crate::support::{bytes_of, config, over, xpu};
use accelrt_testing::trusted::Trusted;

/// What an allocation was refused with: requested, free, total.
#[track_caller]
fn shortage<T>(outcome: Result<T, Error>) -> [usize; 3] {
    let Err(Error::Memory(MemoryError::OutOfMemory {
        device,
        requested_bytes,
        free_bytes,
        total_bytes,
        ..
    })) = outcome
    else {
        panic!("not a shortage: {:?}", outcome.map(drop));
    };
    assert_eq!(device, xpu(0));
    [requested_bytes, free_bytes, total_bytes]
}

#[test]
fn too_much_is_refused_with_the_devices_numbers() {
    over("memory=64M", |_, runtime| {
        assert_eq!(shortage(runtime.empty(65 * MIB, xpu(0))), [65 * MIB, 64 * MIB, 64 * MIB]);
        let most = runtime.empty(60 * MIB, xpu(0)).unwrap();
        assert_eq!(shortage(runtime.empty(5 * MIB, xpu(0))), [5 * MIB, 4 * MIB, 64 * MIB]);
        drop(most);
        runtime.empty(5 * MIB, xpu(0)).unwrap();
    });
}

#[test]
fn one_allocation_above_the_devices_limit_is_a_shortage_that_names_the_limit() {
    // The driver answers -61 (CL_INVALID_BUFFER_SIZE), as Intel's.
    over("memory=64M,most_alloc=16M", |_, runtime| {
        assert_eq!(shortage(runtime.empty(17 * MIB, xpu(0))), [17 * MIB, 16 * MIB, 64 * MIB]);
        let all: Vec<_> = (0..4).map(|_| runtime.empty(16 * MIB, xpu(0)).unwrap()).collect();
        assert_eq!(shortage(runtime.empty(1, xpu(0)))[1..], [0, 64 * MIB]);
        drop(all);
    });
}

#[test]
fn the_configured_capacity_limits_a_device_that_has_more() {
    over("memory=64M", |fake, _| {
        const MOST: usize = 32 * MIB;
        let limited = config(fake).into_builder().xpu_memory_bytes(MOST).build().unwrap();
        let runtime = Runtime::new(limited).unwrap();
        assert_eq!(runtime.properties(xpu(0)).unwrap().total_memory_bytes, MOST);
        let asked = fake.live("calls:clDeviceMemAllocINTEL");
        assert_eq!(shortage(runtime.empty(MOST + 1, xpu(0))), [MOST + 1, MOST, MOST]);
        assert_eq!(
            fake.live("calls:clDeviceMemAllocINTEL"),
            asked,
            "the driver is not asked for it"
        );
        runtime.empty(MOST, xpu(0)).unwrap();
    });
}

#[test]
fn a_driver_that_has_less_than_it_said_is_a_shortage_and_the_books_stay_true() {
    for code in [-4, -5, -6, -61] {
        over("memory=64M", move |fake, runtime| {
            let kept = runtime.empty(MIB, xpu(0)).unwrap();
            let before = runtime.memory_info(xpu(0)).unwrap();
            fake.set(&format!("fail=clDeviceMemAllocINTEL:1+:{code}"));
            let [requested, _, total] = shortage(runtime.empty(2 * MIB, xpu(0)));
            assert_eq!([requested, total], [2 * MIB, 64 * MIB]);
            assert_eq!(runtime.memory_info(xpu(0)).unwrap(), before);
            fake.set("heal=1");
            drop(runtime.empty(2 * MIB, xpu(0)).unwrap());
            drop(kept);
        });
    }
}

#[test]
fn another_refusal_of_an_allocation_keeps_the_drivers_code() {
    over("", |fake, runtime| {
        let before = runtime.memory_info(xpu(0)).unwrap();
        fake.set("fail=clDeviceMemAllocINTEL:1+:-34,fail=clHostMemAllocINTEL:1+:-34");
        for refused in [runtime.empty(1, xpu(0)), runtime.empty_pinned(1)] {
            let error = refused.unwrap_err();
            assert!(
                matches!(error, Error::Driver(DriverError::Refused { code: -34, .. })),
                "{error}"
            );
            assert!(error.to_string().contains("CL_INVALID_CONTEXT"), "{error}");
        }
        assert_eq!(runtime.memory_info(xpu(0)).unwrap(), before);
    });
}

#[test]
fn an_alignment_that_the_driver_refuses_is_kept_all_the_same() {
    over("most_align=128,memory=64M", |fake, _| {
        let backend = Trusted(XpuBackend::new(&config(fake)));
        for align in [64, 256, 4096, 2 * MIB] {
            let [first, second] = [(); 2].map(|()| backend.allocate(0, 1000, align).unwrap());
            for base in [first, second] {
                assert_eq!(base.0 % align as u64, 0);
                let memory = MemoryKind::Device;
                let expected = PointerOwner { device_index: 0, base, bytes: 1000, memory };
                assert_eq!(backend.pointer_owner(base.offset(999)).unwrap(), Some(expected));
            }
            for base in [first, second] {
                backend.release(0, base).unwrap();
            }
        }
    });
}

#[test]
fn memory_of_a_queue_that_waits_is_released_when_it_has_passed() {
    // Goal: a release waits in stream order, also behind a wait for another queue. Method: the
    // device is held; the fake counts what is freed while a command uses it.
    over("hold=1", |fake, runtime| {
        let [first, second] = [(); 2].map(|()| runtime.stream(xpu(0)).unwrap());
        let buffer = runtime.empty(1000, xpu(0)).unwrap();
        buffer.fill(1, &first).unwrap();
        second.wait_stream(&first).unwrap();
        buffer.fill(2, &second).unwrap();
        buffer.release().unwrap();
        runtime.allocator(xpu(0)).unwrap().trim();
        assert_eq!(fake.live("allocations"), 1, "it is in use");
        fake.set("hold=0");
        runtime.synchronize(xpu(0)).unwrap();
        runtime.allocator(xpu(0)).unwrap().empty_cache();
        fake.assert_none_of(&["allocations"]);
    });
}

#[test]
fn the_host_reads_and_writes_shared_memory_where_it_is_behind_what_uses_it() {
    // Goal: no copy of the driver's is needed, and the host comes behind the device. Method: the
    // device is held while the host asks for the bytes; device memory beside them is unreadable.
    over("hold=1", |fake, runtime| {
        let sent = pattern(10_000, 0);
        let shared = runtime.empty_shared(sent.len(), xpu(0)).unwrap();
        assert!(shared.is_shared() && shared.is_host_accessible());
        shared.write_from_slice(&sent).unwrap();
        assert_eq!(fake.live("calls:clEnqueueMemcpyINTEL"), 0);
        let there = runtime.empty(sent.len(), xpu(0)).unwrap();
        assert!(!there.is_host_accessible());
        let stream = shared.stream();
        there.copy_from(&shared, &stream).unwrap();
        shared.fill(9, &stream).unwrap();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| shared.read_to_vec().unwrap());
            while fake.live("calls:clWaitForEvents") == 0 {
                std::thread::yield_now(); // until the reader waits for the device
            }
            assert!(!reader.is_finished());
            fake.set("hold=0");
            assert_eq!(reader.join().unwrap(), vec![9; sent.len()]);
        });
        assert_eq!(bytes_of(&there), sent);
    });
}

#[test]
fn shared_memory_is_owned_by_its_device_and_known_as_shared_to_the_driver_too() {
    over("devices=2", |fake, _| {
        let backend = Trusted(XpuBackend::new(&config(fake)));
        let base = backend.allocate_shared(1, 1000, 64).unwrap();
        let (memory, bytes) = (MemoryKind::Shared, 1000);
        let expected = PointerOwner { device_index: 1, base, bytes, memory };
        assert_eq!(backend.pointer_owner(base.offset(999)).unwrap(), Some(expected));
        let info = backend.memory_info(1).unwrap();
        assert_eq!(info.free_bytes, info.total_bytes - 1000);
        backend.release(1, base).unwrap();
        assert_eq!(backend.pointer_owner(base).unwrap(), None);
    });
}

#[test]
fn a_device_without_shared_memory_refuses_it_and_does_the_rest() {
    over("shared=0", |fake, runtime| {
        assert!(!runtime.properties(xpu(0)).unwrap().has_shared_memory);
        for bytes in [0, 1] {
            let refused = runtime.empty_shared(bytes, xpu(0)).unwrap_err();
            assert!(matches!(refused, Error::Driver(DriverError::Unsupported { .. })), "{refused}");
        }
        assert_eq!(fake.live("calls:clSharedMemAllocINTEL"), 0);
        let pinned = runtime.empty_pinned(3).unwrap();
        pinned.write_from_slice(&[1, 2, 3]).unwrap();
        assert_eq!(bytes_of(&pinned), [1, 2, 3]);
    });
}

#[test]
fn what_shared_memory_keeps_is_no_shortage_of_the_device_nor_the_other_way_round() {
    for policy in ["policy:native", "policy:torch"] {
        over("memory=64M", move |_, runtime| {
            runtime.set_allocator_settings(policy).unwrap();
            let kept = runtime.empty_shared(20 * MIB, xpu(0)).unwrap();
            drop(runtime.empty_shared(40 * MIB, xpu(0)).unwrap());
            drop(runtime.empty(40 * MIB, xpu(0)).unwrap());
            drop(runtime.empty_shared(40 * MIB, xpu(0)).unwrap());
            // What is freed is in use until the driver has told of the marks before it, which are
            // ours; the error would say so.
            runtime.synchronize(xpu(0)).unwrap();
            let [requested, free, total] = shortage(runtime.empty(50 * MIB, xpu(0)));
            assert_eq!([requested, total], [50 * MIB, 64 * MIB]);
            assert!((40 * MIB..=44 * MIB).contains(&free), "{free}");
            let statistics = runtime.shared_memory_statistics(xpu(0)).unwrap();
            assert_eq!(statistics.requested_bytes.all.current, 20 << 20);
            drop(kept);
        });
    }
}
