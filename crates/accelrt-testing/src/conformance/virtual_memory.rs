//! Virtual memory: reserved addresses, physical memory, and pages that move; where a device has it.

use accelrt::backend::contract::{Address, PagePlaces, StreamHandle, VirtualMemory};
use accelrt::{Error, MemoryError};

use crate::conformance::support::{
    HostMemory, Subject, devices, on_stream, pattern, settle, stream_on,
};
use crate::trusted::{Trusted, TrustedPages};

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
