//! Memory: allocations, owners and refusals; where a device has it, virtual memory.

use accelrt::backend::contract::{
    Address, MemoryKind, PagePlaces, PointerOwner, StreamHandle, VirtualMemory,
};
use accelrt::size::{KIB, MIB};
use accelrt::{DriverError, Error, MemoryError};

use crate::conformance::support::{
    HostMemory, Subject, devices, on_stream, pattern, settle, stream_on,
};
use crate::trusted::{Trusted, TrustedPages};

// Allocations: alignment, owners, what is free, and what is said when there is too little.

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

// Virtual memory: reserved addresses, physical memory, and pages that move; where a device has it.

/// Calls a test for each device that has virtual memory, with its index.
fn each_device(
    subject: &Subject,
    test: impl Fn(&Trusted, TrustedPages<&dyn VirtualMemory>, usize),
) {
    let backend = subject.backend();
    for device in devices(&backend) {
        let Some(pages) = backend.virtual_memory(device) else { continue };
        let before = backend.memory_info(device).unwrap();
        assert!(pages.granularity_bytes() > 0);
        assert_eq!(pages.granularity_bytes(), pages.granularity_bytes());
        test(&backend, pages, device);
        assert_eq!(backend.memory_info(device).unwrap(), before, "all came back");
    }
}

/// Submits a copy and waits for it: mapping acts at once, so every use has to be over.
fn copy(backend: &Trusted, stream: StreamHandle, to: Address, from: Address, bytes: usize) {
    let task = move |inside: &Trusted, stream| inside.copy(stream, to, from, bytes);
    on_stream(backend, stream, task).unwrap();
    settle(backend, stream);
}

pub(crate) fn a_reservation_takes_addresses_and_no_memory(subject: &Subject) {
    // Goal: ranges are aligned, apart, and free of charge: together more than the capacity.
    each_device(subject, |backend, pages, device| {
        let granule = pages.granularity_bytes();
        let info = backend.memory_info(device).unwrap();
        let bytes = (info.total_bytes / granule + 1) * granule;
        let mut ranges = [(); 3].map(|()| pages.reserve(bytes).unwrap());
        assert!(ranges.iter().all(|range| range.0 % granule as u64 == 0), "{ranges:x?}");
        assert_eq!(backend.memory_info(device).unwrap(), info);
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].offset(bytes) <= pair[1]), "{ranges:x?}");
        for range in ranges {
            pages.unreserve(range, bytes).unwrap();
        }
    });
}

pub(crate) fn physical_memory_counts_against_the_capacity(subject: &Subject) {
    each_device(subject, |backend, pages, device| {
        let granule = pages.granularity_bytes();
        let free = || backend.memory_info(device).unwrap().free_bytes;
        let before = free();
        let physical = [1, 3].map(|count| pages.create(count * granule).unwrap());
        assert_ne!(physical[0], physical[1]);
        assert_eq!(free(), before - 4 * granule);
        let range = pages.reserve(4 * granule).unwrap();
        pages.map(range.offset(granule), physical[1]).unwrap();
        assert_eq!(free(), before - 4 * granule, "mapping takes nothing more");
        pages.release(physical[0]).unwrap();
        assert_eq!(free(), before - 3 * granule);
        pages.unmap(physical[1]).unwrap();
        pages.release(physical[1]).unwrap();
        pages.unreserve(range, 4 * granule).unwrap();
    });
}

pub(crate) fn too_much_physical_memory_is_refused_with_true_numbers(subject: &Subject) {
    each_device(subject, |backend, pages, device| {
        let granule = pages.granularity_bytes();
        let info = backend.memory_info(device).unwrap();
        let bytes = (info.total_bytes / granule + 1) * granule;
        let refused = pages.create(bytes).unwrap_err();
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
        assert_eq!((requested_bytes, total_bytes), (bytes, info.total_bytes));
        assert!(free_bytes <= total_bytes);
        pages.release(pages.create(granule).unwrap()).unwrap();
        let bytes = isize::MAX.cast_unsigned() / granule * granule;
        let refused = pages.reserve(bytes).unwrap_err();
        let Error::Memory(MemoryError::OutOfMemory { device: named, requested_bytes, .. }) =
            refused
        else {
            panic!("{refused}");
        };
        assert_eq!((named.kind(), named.index()), (backend.kind(), device));
        assert_eq!(requested_bytes, bytes, "of addresses");
    });
}

pub(crate) fn mapped_pages_have_an_owner_where_they_are(subject: &Subject) {
    // Goal: a page is known by its bytes and by no byte beside it, where it was mapped and where it
    // has moved.
    each_device(subject, |backend, pages, device| {
        let granule = pages.granularity_bytes();
        let range = pages.reserve(5 * granule).unwrap();
        let physical = pages.create(granule).unwrap();
        let look = |address| backend.pointer_owner(address).unwrap();
        let assert_at = |page: usize| {
            let base = range.offset(page * granule);
            for offset in [0, granule - 1] {
                let owner = look(base.offset(offset)).expect("it is mapped");
                assert_eq!((owner.device_index, owner.base, owner.bytes), (device, base, granule));
            }
            assert_eq!([look(Address(base.0 - 1)), look(base.offset(granule))], [None; 2]);
        };
        pages.map(range.offset(granule), physical).unwrap();
        assert_at(1);
        pages.relocate(physical, range.offset(3 * granule)).unwrap();
        assert_at(3);
        assert_eq!(look(range.offset(granule)), None, "it has moved");
        pages.unmap(physical).unwrap();
        assert_eq!(look(range.offset(3 * granule)), None);
        pages.release(physical).unwrap();
        pages.unreserve(range, 5 * granule).unwrap();
    });
}

pub(crate) fn several_pages_come_and_move_in_one_call(subject: &Subject) {
    // Goal: one call for several pages does what a call for each does, in order. Method: each page
    // has its place as its owner, where it was mapped and where it has moved, and counts once.
    each_device(subject, |backend, pages, device| {
        let page_bytes = pages.granularity_bytes();
        let base = pages.reserve(8 * page_bytes).unwrap();
        let free = || backend.memory_info(device).unwrap().free_bytes;
        let before = free();
        let assert_at = |numbers: &[usize]| {
            for number in 0..8 {
                let place = base.offset(number * page_bytes);
                let owner = backend.pointer_owner(place).unwrap();
                let known = owner.map(|owner| (owner.base, owner.bytes));
                let expected = numbers.contains(&number).then_some((place, page_bytes));
                assert_eq!(known, expected, "page {number} of {numbers:?}");
            }
        };
        let places = |numbers| PagePlaces { base, page_bytes, numbers };
        let (mut mapped, mut moved) = (Vec::new(), Vec::new());
        pages.create_mapped(places(&[5, 0, 1]), &mut mapped).unwrap();
        assert_at(&[5, 0, 1]);
        assert_eq!((mapped.len(), free()), (3, before - 3 * page_bytes));
        pages.relocate_all(&mapped, places(&[2, 7, 3]), &mut moved).unwrap();
        assert_at(&[2, 7, 3]);
        assert_eq!((&moved, free()), (&mapped, before - 3 * page_bytes));
        for (physical, left) in mapped.into_iter().zip([&[7, 3][..], &[3], &[]]) {
            pages.unmap(physical).unwrap();
            pages.release(physical).unwrap();
            assert_at(left); // the handles stand in the order of their places
        }
        pages.unreserve(base, 8 * page_bytes).unwrap();
    });
}

pub(crate) fn pages_keep_their_bytes_while_they_move(subject: &Subject) {
    // Goal: contents follow the physical memory. Method: bytes go in at one place, the page moves
    // by `relocate` and by `unmap` and `map`, into another range too; the bytes come out there.
    each_device(subject, |backend, pages, device| {
        let granule = pages.granularity_bytes();
        let stream = stream_on(backend, device);
        let sent = pattern(granule, 9);
        let source = HostMemory::with(subject, &sent);
        let [near, far] = [(); 2].map(|()| pages.reserve(4 * granule).unwrap());
        let physical = pages.create(granule).unwrap();
        pages.map(near, physical).unwrap();
        copy(backend, stream, near, source.address, granule);
        for place in [near.offset(2 * granule), far.offset(3 * granule), near, far] {
            pages.relocate(physical, place).unwrap();
            let result = HostMemory::with(subject, &pattern(granule, 10));
            copy(backend, stream, result.address, place, granule);
            result.assert_holds(&sent);
        }
        pages.unmap(physical).unwrap();
        pages.map(near.offset(granule), physical).unwrap();
        let result = HostMemory::with(subject, &pattern(granule, 11));
        copy(backend, stream, result.address, near.offset(granule), granule);
        result.assert_holds(&sent);
        pages.unmap(physical).unwrap();
        pages.release(physical).unwrap();
        pages.unreserve(near, 4 * granule).unwrap();
        pages.unreserve(far, 4 * granule).unwrap();
        backend.stream_destroy(stream).unwrap();
    });
}

pub(crate) fn pages_that_touch_are_one_range(subject: &Subject) {
    // Goal: stitched pages serve as one allocation. Method: three pages of their own are mapped
    // side by side in reverse; one copy crosses both borders, in and out.
    each_device(subject, |backend, pages, device| {
        let granule = pages.granularity_bytes();
        let stream = stream_on(backend, device);
        let bytes = granule + granule / 2;
        let sent = pattern(bytes, 12);
        let source = HostMemory::with(subject, &sent);
        let result = HostMemory::with(subject, &pattern(bytes, 13));
        let range = pages.reserve(3 * granule).unwrap();
        let physical = [2, 1, 0].map(|place| {
            let physical = pages.create(granule).unwrap();
            pages.map(range.offset(place * granule), physical).unwrap();
            physical
        });
        let middle = range.offset(granule - granule / 4);
        copy(backend, stream, middle, source.address, bytes);
        copy(backend, stream, result.address, middle, bytes);
        result.assert_holds(&sent);
        for physical in physical {
            pages.unmap(physical).unwrap();
            pages.release(physical).unwrap();
        }
        pages.unreserve(range, 3 * granule).unwrap();
        backend.stream_destroy(stream).unwrap();
    });
}

pub(crate) fn a_place_is_used_again_after_its_page_left(subject: &Subject) {
    // Goal: an address shows what is mapped there now. Method: two pages swap places.
    each_device(subject, |backend, pages, device| {
        let granule = pages.granularity_bytes();
        let stream = stream_on(backend, device);
        let range = pages.reserve(3 * granule).unwrap();
        let [left, right, spare] = [0, 1, 2].map(|place| range.offset(place * granule));
        let physical = [left, right].map(|place| {
            let physical = pages.create(granule).unwrap();
            pages.map(place, physical).unwrap();
            physical
        });
        let sent = [14, 15].map(|salt| pattern(granule, salt));
        for (place, bytes) in [left, right].into_iter().zip(&sent) {
            let source = HostMemory::with(subject, bytes);
            copy(backend, stream, place, source.address, granule);
        }
        pages.relocate(physical[0], spare).unwrap();
        pages.relocate(physical[1], left).unwrap();
        pages.relocate(physical[0], right).unwrap();
        for (place, bytes) in [right, left].into_iter().zip(&sent) {
            let result = HostMemory::new(subject, granule);
            copy(backend, stream, result.address, place, granule);
            result.assert_holds(bytes);
        }
        for physical in physical {
            pages.unmap(physical).unwrap();
            pages.release(physical).unwrap();
        }
        pages.unreserve(range, 3 * granule).unwrap();
        backend.stream_destroy(stream).unwrap();
    });
}
