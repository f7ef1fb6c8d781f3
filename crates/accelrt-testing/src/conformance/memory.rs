//! Memory: alignment, owners, what is free, and what is said when there is too little.

use accelrt::backend::contract::{Address, MemoryKind, PointerOwner};
use accelrt::size::{KIB, MIB};
use accelrt::{DriverError, Error, MemoryError};

use crate::conformance::support::{Subject, devices};
use crate::trusted::Trusted;

fn free_bytes(backend: &Trusted, device: usize) -> usize {
    backend.memory_info(device).unwrap().free_bytes
}

pub(crate) fn allocations_are_aligned_as_asked(subject: &Subject) {
    // Goal: every power of two from a cache line to a huge page, and never less than 64 bytes.
    let backend = subject.backend();
    let mut live = Vec::new();
    for shift in 0..=21 {
        for bytes in [1, 100, 4 * KIB] {
            let address = backend.allocate(0, bytes, 1 << shift).unwrap();
            assert_eq!(address.0 % (1 << shift.max(6)), 0, "{address:x?} for 2^{shift}");
            live.push(address);
        }
    }
    for address in live {
        backend.release(0, address).unwrap();
    }
    let host = backend.allocate_host(100, 1).unwrap();
    assert_eq!(host.0 % 64, 0);
    backend.release_host(host).unwrap();
}

pub(crate) fn allocations_do_not_overlap(subject: &Subject) {
    // Goal: no byte has two owners. Method: sizes of all magnitudes on every device and the host,
    // with every third released and its place taken again; the sorted ranges are disjoint.
    let backend = subject.backend();
    let mut live: Vec<(Option<usize>, Address, usize)> = Vec::new();
    for round in 0..60 {
        let bytes = [1, 63, 64, 65, 1000, 4 * KIB, 100 * KIB, MIB][round % 8];
        let device = (round % 5 != 4).then_some(round % devices(&backend).end);
        let address = match device {
            Some(device) => backend.allocate(device, bytes, 64).unwrap(),
            None => backend.allocate_host(bytes, 1).unwrap(),
        };
        live.push((device, address, bytes));
        if round % 3 == 2 {
            give_back(&backend, live.remove(round / 3));
        }
    }
    live.sort_by_key(|(_, address, _)| *address);
    for pair in live.windows(2) {
        let [(_, first, bytes), (_, next, _)] = pair else { unreachable!("windows of two") };
        assert!(first.offset(*bytes) <= *next, "{pair:x?}");
    }
    for allocation in live {
        give_back(&backend, allocation);
    }
}

fn give_back(backend: &Trusted, (device, address, _): (Option<usize>, Address, usize)) {
    match device {
        Some(device) => backend.release(device, address).unwrap(),
        None => backend.release_host(address).unwrap(),
    }
}

pub(crate) fn every_address_of_an_allocation_has_its_owner(subject: &Subject) {
    // Goal: the first, an interior and the last byte are owned, one past the end and what was given
    // back are not. Method: two sizes on every device.
    let backend = subject.backend();
    for device_index in devices(&backend) {
        for bytes in [1, 100 * KIB] {
            let base = backend.allocate(device_index, bytes, 64).unwrap();
            for offset in [0, bytes / 2, bytes - 1] {
                let owner = backend.pointer_owner(base.offset(offset)).unwrap().unwrap();
                // Where the host is the device everything is shared.
                assert_ne!(owner.memory, MemoryKind::Host, "at {offset} of {bytes}");
                let expected = PointerOwner { device_index, base, bytes, ..owner };
                assert_eq!(owner, expected, "at {offset} of {bytes}");
            }
            let past = backend.pointer_owner(base.offset(bytes)).unwrap();
            assert!(past.is_none_or(|owner| owner.base != base), "{past:x?}");
            backend.release(device_index, base).unwrap();
            assert_eq!(backend.pointer_owner(base).unwrap(), None);
        }
    }
}

pub(crate) fn host_memory_has_an_owner_that_says_so(subject: &Subject) {
    let backend = subject.backend();
    let base = backend.allocate_host(10 * KIB, 1).unwrap();
    for offset in [0, 5_000, 10 * KIB - 1] {
        let owner = backend.pointer_owner(base.offset(offset)).unwrap().unwrap();
        let expected = (base, 10 * KIB, MemoryKind::Host);
        assert_eq!((owner.base, owner.bytes, owner.memory), expected);
    }
    let past = backend.pointer_owner(base.offset(10 * KIB)).unwrap();
    assert!(past.is_none_or(|owner| owner.base != base), "{past:x?}");
    backend.release_host(base).unwrap();
    assert_eq!(backend.pointer_owner(base).unwrap(), None);
}

pub(crate) fn shared_memory_is_there_where_the_properties_say_so(subject: &Subject) {
    // Goal: it is aligned as asked, has its owner, counts against its device and comes back, and
    // a device without it takes nothing. Method: free memory before, during and after.
    let backend = subject.backend();
    for device_index in devices(&backend) {
        let info = backend.memory_info(device_index).unwrap();
        if !backend.properties(device_index).unwrap().has_shared_memory {
            let refused = backend.allocate_shared(device_index, 64, 64).unwrap_err();
            assert!(matches!(refused, Error::Driver(DriverError::Unsupported { .. })), "{refused}");
            assert_eq!(backend.memory_info(device_index).unwrap(), info);
            continue;
        }
        for (bytes, align) in [(1, 1), (100 * KIB, 4 * KIB), (3 * MIB, 2 * MIB)] {
            let base = backend.allocate_shared(device_index, bytes, align).unwrap();
            assert_eq!(base.0 % align.max(64) as u64, 0, "{base:x?} for {align}");
            assert!(free_bytes(&backend, device_index) <= info.free_bytes - bytes);
            let expected = PointerOwner { device_index, base, bytes, memory: MemoryKind::Shared };
            for offset in [0, bytes / 2, bytes - 1] {
                let owner = backend.pointer_owner(base.offset(offset)).unwrap();
                assert_eq!(owner, Some(expected), "at {offset} of {bytes}");
            }
            backend.release(device_index, base).unwrap();
            assert_eq!(backend.pointer_owner(base).unwrap(), None);
        }
        let refused = backend.allocate_shared(device_index, info.total_bytes + 1, 64).unwrap_err();
        assert!(matches!(refused, Error::Memory(MemoryError::OutOfMemory { .. })), "{refused}");
        assert_eq!(backend.memory_info(device_index).unwrap(), info);
    }
}

pub(crate) fn memory_of_others_has_no_owner(subject: &Subject) {
    let backend = subject.backend();
    let foreign = Box::new(0u64);
    let address = Address(std::ptr::from_ref(&*foreign).addr() as u64);
    for address in [address, Address(0), Address(u64::MAX)] {
        assert_eq!(backend.pointer_owner(address).unwrap(), None, "{address:x?}");
    }
}

pub(crate) fn free_memory_comes_back_with_a_release(subject: &Subject) {
    // Goal: the device's numbers follow every allocation, and all of it comes back. Method: free
    // memory before, during and after; a backend may round up, never down.
    let backend = subject.backend();
    for device in devices(&backend) {
        let before = free_bytes(&backend, device);
        let live = [1, 100 * KIB, 3 * MIB].map(|bytes| {
            let free = free_bytes(&backend, device);
            let address = backend.allocate(device, bytes, 64).unwrap();
            assert!(free_bytes(&backend, device) <= free - bytes, "after {bytes} bytes");
            address
        });
        for address in live {
            let free = free_bytes(&backend, device);
            backend.release(device, address).unwrap();
            assert!(free_bytes(&backend, device) > free);
        }
        assert_eq!(free_bytes(&backend, device), before);
    }
}

/// Asserts that asking for so much fails, with numbers that are true.
fn assert_refused(backend: &Trusted, device: usize, bytes: usize, free_at_most: usize) {
    let total = backend.memory_info(device).unwrap().total_bytes;
    let refused = backend.allocate(device, bytes, 64).unwrap_err();
    let Error::Memory(MemoryError::OutOfMemory {
        device: named,
        requested_bytes,
        free_bytes,
        total_bytes,
        ..
    }) = refused
    else {
        panic!("{refused}");
    };
    assert_eq!((named.kind(), named.index()), (backend.kind(), device));
    assert_eq!((requested_bytes, total_bytes), (bytes, total));
    assert!(free_bytes <= free_at_most, "{free_bytes} free, at most {free_at_most}");
}

pub(crate) fn too_much_is_refused_with_true_numbers(subject: &Subject) {
    let backend = subject.backend();
    for device in devices(&backend) {
        let info = backend.memory_info(device).unwrap();
        assert_refused(&backend, device, info.total_bytes + 1, info.total_bytes);
        assert_refused(&backend, device, usize::MAX / 2, info.total_bytes);
        assert_eq!(backend.memory_info(device).unwrap(), info, "a refusal takes nothing");
        let address = backend.allocate(device, KIB, 64).unwrap();
        backend.release(device, address).unwrap();
    }
}

pub(crate) fn a_full_device_serves_again_after_a_release(subject: &Subject) {
    // Goal: capacity is a limit, and comes back. Method: three quarters are taken, a half is
    // refused; after one release it is not.
    let backend = subject.backend();
    let quarter = backend.memory_info(0).unwrap().total_bytes / 4;
    let [first, second, third] = [(); 3].map(|()| backend.allocate(0, quarter, 64).unwrap());
    assert_refused(&backend, 0, 2 * quarter, quarter + 3);
    backend.release(0, second).unwrap();
    let half = backend.allocate(0, 2 * quarter, 64).unwrap();
    for address in [first, third, half] {
        backend.release(0, address).unwrap();
    }
}

pub(crate) fn devices_have_separate_capacities(subject: &Subject) {
    let backend = subject.backend();
    let free: Vec<usize> = devices(&backend).map(|each| free_bytes(&backend, each)).collect();
    let address = backend.allocate(0, 2 * MIB, 64).unwrap();
    for device in devices(&backend).skip(1) {
        assert_eq!(free_bytes(&backend, device), free[device], "device {device}");
    }
    backend.release(0, address).unwrap();
}
