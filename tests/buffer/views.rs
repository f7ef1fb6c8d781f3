//! Making buffers and slicing them: what a view says, and what keeps memory alive.

use std::ops::Bound::{self, Excluded, Included, Unbounded};
use std::sync::Arc;

use accelrt::backend::contract::Backend;
use accelrt::{Config, Device, DeviceError, DeviceKind, Error, MemoryError, Runtime, StreamGuard};
use accelrt_testing::null::{CompletionMode, NullBackend, NullConfig};

use crate::edges::edges;
use crate::support::{CAPACITY, Machine};

#[test]
fn a_buffer_says_where_and_how_large_it_is() {
    for machine in Machine::each() {
        for device in machine.devices.clone() {
            let buffer = machine.runtime.empty(1000, device).unwrap();
            assert_eq!((buffer.nbytes(), buffer.offset(), buffer.device()), (1000, 0, device));
            assert!(!buffer.is_pinned() && !buffer.is_empty() && !buffer.is_released());
            assert_eq!(buffer.is_host_accessible(), machine.runs_on_host());
            let address = buffer.address().unwrap();
            assert!(address != 0 && address.is_multiple_of(64), "{address:#x}");
            assert!(format!("{buffer:?}").contains(&format!("{address:#x}")));
        }
        machine.assert_nothing_taken();
    }
}

#[test]
fn a_buffer_is_aligned_as_it_was_asked_for() {
    for machine in Machine::each() {
        let (device, mut kept) = (machine.device(), Vec::new());
        for shift in 0..=21 {
            let buffer = machine.runtime.empty_aligned(700, 1 << shift, device).unwrap();
            assert!(buffer.address().unwrap().is_multiple_of(1 << shift), "{buffer:?} at {shift}");
            kept.push(buffer);
        }
        assert_eq!(machine.runtime.empty_aligned(0, 4096, device).unwrap().address().unwrap(), 0);
        for wrong in [0, 48, 4 << 20, usize::MAX] {
            let error = machine.runtime.empty_aligned(700, wrong, device).unwrap_err().to_string();
            let says = error.contains(&wrong.to_string()) && error.contains("2097152");
            assert!(says, "{error}");
        }
        drop(kept);
        machine.assert_nothing_taken();
    }
}

/// Goal: freed memory of a smaller alignment never serves a request. Method: before each aligned
/// request the thread has freed blocks of the same size.
#[test]
fn aligned_requests_from_a_warm_cache_are_aligned() {
    for machine in Machine::each() {
        let device = machine.device();
        for bytes in [100, 512, 700, 4096, 100_000, 3 << 20] {
            for shift in 0..=21 {
                drop([(); 8].map(|()| machine.runtime.empty(bytes, device).unwrap()));
                let request = || machine.runtime.empty_aligned(bytes, 1 << shift, device).unwrap();
                for buffer in [(); 8].map(|()| request()) {
                    let address = buffer.address().unwrap();
                    assert!(address.is_multiple_of(1 << shift), "{bytes} bytes at {address:#x}");
                }
            }
        }
        machine.assert_nothing_taken();
    }
}

#[test]
fn an_alignment_that_is_usual_decides_nothing() {
    let [plain, aligned] = [1, 512].map(|align_bytes| {
        let machine = Machine::null(CompletionMode::AtOnce);
        let make = |bytes| machine.runtime.empty_aligned(bytes, align_bytes, machine.device());
        let buffers = [300, 5 << 20, 900, 12 << 20].map(|bytes| make(bytes).unwrap());
        drop(buffers);
        make(4 << 20).unwrap();
        machine.runtime.memory_statistics(machine.device()).unwrap()
    });
    assert_eq!(plain, aligned);
    let machine = Machine::null(CompletionMode::AtOnce);
    let make = |bytes| machine.runtime.empty(bytes, machine.device()).unwrap();
    drop([300, 5 << 20, 900, 12 << 20].map(make));
    make(4 << 20);
    assert_eq!(machine.runtime.memory_statistics(machine.device()).unwrap(), plain);
}

#[test]
fn the_home_is_the_stream_that_was_current_at_the_creation() {
    for machine in Machine::each() {
        let (stream, device) = (machine.stream(), machine.device());
        let guard = StreamGuard::new(&machine.runtime, &stream).unwrap();
        let buffer = machine.runtime.zeros(16, device).unwrap();
        drop(guard);
        assert_eq!(buffer.stream(), stream);
        assert_eq!(machine.runtime.empty(16, device).unwrap().stream(), machine.home());
    }
}

#[test]
fn slices_of_slices_are_views_of_the_same_bytes() {
    for machine in Machine::each() {
        let whole = machine.runtime.empty(100, machine.device()).unwrap();
        let begin = whole.address().unwrap();
        let middle = whole.slice(25..75).unwrap();
        let inner = middle.slice(5..=9).unwrap();
        assert_eq!((middle.offset(), middle.nbytes()), (25, 50));
        assert_eq!((inner.offset(), inner.nbytes()), (30, 5));
        assert_eq!(inner.address().unwrap(), begin + 30);
        assert_eq!(middle.slice(..).unwrap().nbytes(), 50);
        let end = middle.slice(50..).unwrap();
        assert!(end.is_empty() && end.address().unwrap() == begin + 75);
    }
}

/// All bounds of ranges at the edges of a view of so many bytes.
fn bounds(bytes: usize) -> Vec<Bound<usize>> {
    let edges = edges(&[bytes]).into_iter();
    edges.flat_map(|edge| [Included(edge), Excluded(edge)]).chain([Unbounded]).collect()
}

#[test]
fn slice_agrees_with_numbers_without_overflow() {
    // Goal: each kind of bound, at the ends of the view and of the numbers, selects the bytes that
    // it names or is refused with its numbers. Method: all pairs of bounds; the model is wider.
    let machine = Machine::cpu(1);
    for bytes in [0, 1, 2, 50] {
        let whole = machine.runtime.empty(bytes + 20, machine.device()).unwrap();
        let view = whole.slice(10..10 + bytes).unwrap();
        let pairs = bounds(bytes).into_iter();
        for (from, to) in pairs.flat_map(|from| bounds(bytes).into_iter().map(move |to| (from, to)))
        {
            let start = match from {
                Included(first) => first as u128,
                Excluded(before) => before as u128 + 1,
                Unbounded => 0,
            };
            let end = match to {
                Included(last) => last as u128 + 1,
                Excluded(end) => end as u128,
                Unbounded => bytes as u128,
            };
            let [first, behind] = [start, end].map(|it| usize::try_from(it).unwrap_or(usize::MAX));
            match view.slice((from, to)) {
                Ok(part) => {
                    assert!(start <= end && end <= bytes as u128, "{from:?} {to:?} of {bytes}");
                    assert_eq!((part.offset(), part.nbytes()), (10 + first, behind - first));
                    let begin = whole.address().unwrap() + 10 + first as u64;
                    assert_eq!(part.address().unwrap(), begin);
                }
                Err(Error::Memory(MemoryError::RangeOutside {
                    start: from,
                    end: to,
                    bytes: of,
                })) => {
                    assert!(start > end || end > bytes as u128, "{from:?} {to:?} of {bytes}");
                    assert_eq!((from, to, of), (first, behind, bytes));
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
}

#[test]
fn copies_inside_a_buffer_overlap_or_touch() {
    // Goal: a copy between views that touch is done, and one between views that share a byte is
    // refused. Method: all pairs of views of one size in a small buffer, against a vector.
    let machine = Machine::cpu(1);
    let (stream, buffer) = (machine.home(), machine.runtime.empty(6, machine.device()).unwrap());
    for bytes in 1..=6 {
        let begins = || 0..=6 - bytes;
        for (from, to) in begins().flat_map(|from| begins().map(move |to| (from, to))) {
            let mut expected = [0, 1, 2, 3, 4, 5];
            buffer.copy_from_slice(&expected, &stream).unwrap();
            let view = |begin| buffer.slice(begin..begin + bytes).unwrap();
            let copy = view(to).copy_from(&view(from), &stream);
            if from.abs_diff(to) < bytes {
                let refused = matches!(copy, Err(Error::Memory(MemoryError::CopyOverlap { .. })));
                assert!(refused, "{bytes} bytes from {from} to {to}: {copy:?}");
            } else {
                copy.unwrap();
                expected.copy_within(from..from + bytes, to);
            }
            assert_eq!(buffer.read_to_vec().unwrap(), expected, "{bytes} from {from} to {to}");
        }
    }
}

#[test]
fn a_slice_keeps_the_memory_alive() {
    for machine in Machine::each() {
        let whole = machine.runtime.empty(1 << 20, machine.device()).unwrap();
        let byte = whole.slice(77..78).unwrap();
        let clone = byte.clone();
        drop(whole);
        drop(byte);
        machine.settle();
        assert!(machine.taken() >= 1 << 20);
        drop(clone);
        machine.assert_nothing_taken();
    }
}

#[test]
fn a_buffer_of_no_bytes_has_no_memory() {
    for machine in Machine::each() {
        let (device, stream) = (machine.device(), machine.home());
        for empty in [machine.runtime.empty(0, device), machine.runtime.zeros(0, device)] {
            let empty = empty.unwrap();
            assert_eq!((empty.nbytes(), empty.address().unwrap()), (0, 0));
            assert!(empty.is_empty() && machine.taken() == 0);
            empty.fill(1, &stream).unwrap().wait().unwrap();
            empty.copy_from(&empty.slice(..).unwrap(), &stream).unwrap().wait().unwrap();
            empty.copy_from_slice(&[], &stream).unwrap();
            empty.wait_for_host().unwrap();
            empty.record_use(&stream).unwrap();
            empty.release().unwrap();
        }
        assert!(machine.runtime.empty_pinned(0).unwrap().is_empty());
        machine.assert_nothing_taken();
    }
}

#[test]
fn too_much_is_refused_with_true_numbers_and_takes_nothing() {
    for machine in Machine::each() {
        let device = machine.device();
        let held = machine.runtime.empty(CAPACITY / 2, device).unwrap();
        for bytes in [CAPACITY / 2 + 1, usize::MAX / 2] {
            let refused = machine.runtime.empty(bytes, device);
            let Err(Error::Memory(MemoryError::OutOfMemory {
                device: on,
                requested_bytes,
                free_bytes,
                total_bytes,
                ..
            })) = refused
            else {
                panic!("{refused:?}")
            };
            assert_eq!((on, requested_bytes), (device, bytes));
            assert_eq!((free_bytes, total_bytes), (CAPACITY / 2, CAPACITY));
        }
        assert_eq!(machine.taken(), CAPACITY / 2);
        drop(held);
        machine.assert_nothing_taken();
    }
}

#[test]
fn a_device_that_is_not_there_has_no_memory() {
    for machine in Machine::each() {
        let absent = Device::new(machine.device().kind(), 100).unwrap();
        assert!(matches!(
            machine.runtime.empty(1, absent),
            Err(Error::Device(DeviceError::NotFound { .. }))
        ));
    }
}

#[test]
fn pinned_memory_is_the_accelerators_and_reached_by_all_of_its_devices() {
    for machine in Machine::each() {
        let pinned = machine.runtime.empty_pinned(4096).unwrap();
        assert!(pinned.is_pinned());
        assert_eq!(pinned.device().kind(), machine.device().kind());
        assert_eq!(pinned.stream(), machine.home());
        assert_eq!(machine.taken(), 0, "a device's memory is not the host's");
        for device in machine.devices.clone() {
            let stream = machine.stream_on(device);
            let buffer = machine.runtime.zeros(4096, device).unwrap();
            stream.wait_stream(&buffer.stream()).unwrap();
            pinned.copy_from(&buffer, &stream).unwrap().wait().unwrap();
            pinned.fill(3, &stream).unwrap().wait().unwrap();
            buffer.copy_from(&pinned, &stream).unwrap().wait().unwrap();
        }
        drop(pinned);
        machine.assert_nothing_taken();
    }
}

#[test]
fn shared_memory_is_its_devices_and_the_hosts_where_addresses_are_memory() {
    // Goal: it is used as any buffer, counted apart, freed in stream order, and read by the host
    // where it can be. Method: every kind, every device.
    for machine in Machine::each() {
        for device in machine.devices.clone() {
            let shared = machine.runtime.empty_shared(4096, device).unwrap();
            assert!(shared.is_shared() && !shared.is_pinned());
            assert_eq!(shared.device(), device);
            assert_eq!(machine.taken_on(device), 0, "it is counted apart");
            let counted = machine.runtime.shared_memory_statistics(device).unwrap();
            assert_eq!(counted.requested_bytes.all.current, 4096);
            let stream = machine.stream_on(device);
            shared.fill(3, &stream).unwrap();
            assert_eq!(shared.is_host_accessible(), machine.runs_on_host());
            if shared.is_host_accessible() {
                assert_eq!(shared.read_to_vec().unwrap(), [3; 4096]);
            }
            drop(shared);
        }
        machine.assert_nothing_taken();
    }
}

#[test]
fn a_device_without_shared_memory_refuses_it_whatever_the_size() {
    let null = NullConfig { has_shared_memory: false, ..NullConfig::default() };
    let config = Config::builder().accelerator(DeviceKind::NULL).build().unwrap();
    let backends: [Arc<dyn Backend>; 1] = [NullBackend::new(null)];
    let runtime = Runtime::with_backends(config, backends).unwrap();
    let device = Device::new(DeviceKind::NULL, 0).unwrap();
    for bytes in [0, 100] {
        let refused = runtime.empty_shared(bytes, device).unwrap_err();
        assert!(refused.to_string().contains("shares"), "{refused}");
    }
    drop(runtime.empty(100, device).unwrap());
}
