//! Copies and fills: the right bytes, no others, in the order of streams and waits.

use std::sync::mpsc;

use accelrt::backend::contract::{Address, StreamHandle};
use accelrt::size::{KIB, MIB};

use crate::conformance::support::{
    HostMemory, Subject, all_sent, ask_until, callback, destroy_streams, devices, on_stream,
    pattern, release_marks, settle, stream_on,
};
use crate::trusted::Trusted;

/// Has a copy submitted by a task of a stream, as the engine does.
fn copy(backend: &Trusted, stream: StreamHandle, to: Address, from: Address, bytes: usize) {
    let task = move |inside: &Trusted, stream| inside.copy(stream, to, from, bytes);
    on_stream(backend, stream, task).unwrap();
}

fn fill(backend: &Trusted, stream: StreamHandle, to: Address, byte: u8, bytes: usize) {
    let task = move |inside: &Trusted, stream| inside.fill(stream, to, byte, bytes);
    on_stream(backend, stream, task).unwrap();
}

pub(crate) fn bytes_survive_the_way_through_a_device(subject: &Subject) {
    // Goal: host to device to device to host changes nothing. Method: sizes around those where copy
    // loops change their ways; the target holds other bytes before.
    let backend = subject.backend();
    for device in devices(&backend) {
        let stream = stream_on(&backend, device);
        for (salt, bytes) in [1, 7, 63, 64, 65, 4 * KIB, MIB + 3].into_iter().enumerate() {
            let sent = pattern(bytes, salt);
            let source = HostMemory::with(subject, &sent);
            let target = HostMemory::with(subject, &pattern(bytes, salt + 1));
            let [first, second] = [(); 2].map(|()| backend.allocate(device, bytes, 64).unwrap());
            copy(&backend, stream, first, source.address, bytes);
            copy(&backend, stream, second, first, bytes);
            copy(&backend, stream, target.address, second, bytes);
            settle(&backend, stream);
            target.assert_holds(&sent);
            source.assert_holds(&sent);
            backend.release(device, first).unwrap();
            backend.release(device, second).unwrap();
        }
        backend.stream_destroy(stream).unwrap();
    }
}

pub(crate) fn odd_sizes_and_offsets_touch_nothing_else(subject: &Subject) {
    // Goal: a copy writes its range to the byte. Method: every pair of small offsets and a few
    // lengths, into memory whose other bytes are compared too.
    const BYTES: usize = 512;
    let backend = subject.backend();
    let stream = stream_on(&backend, 0);
    let (old, new) = (pattern(BYTES, 1), pattern(BYTES, 2));
    let source = HostMemory::with(subject, &new);
    let staged = HostMemory::with(subject, &old);
    let result = HostMemory::new(subject, BYTES);
    let device = backend.allocate(0, BYTES, 64).unwrap();
    for (to, from) in [(0, 1), (1, 0), (3, 3), (63, 65), (65, 63), (100, 7)] {
        for bytes in [1, 15, 64, 127, 400] {
            copy(&backend, stream, device, staged.address, BYTES);
            copy(&backend, stream, device.offset(to), source.address.offset(from), bytes);
            copy(&backend, stream, result.address, device, BYTES);
            settle(&backend, stream);
            let mut expected = old.clone();
            expected[to..to + bytes].copy_from_slice(&new[from..from + bytes]);
            result.assert_holds(&expected);
        }
    }
    backend.release(0, device).unwrap();
    backend.stream_destroy(stream).unwrap();
}

pub(crate) fn a_fill_sets_its_range_and_nothing_else(subject: &Subject) {
    let backend = subject.backend();
    let stream = stream_on(&backend, 0);
    for (bytes, start, length) in [(1, 0, 1), (300, 1, 298), (MIB, 4 * KIB, MIB - 8 * KIB)] {
        let old = pattern(bytes, 3);
        let (staged, result) = (HostMemory::with(subject, &old), HostMemory::new(subject, bytes));
        let device = backend.allocate(0, bytes, 64).unwrap();
        for byte in [0, 1, 255] {
            copy(&backend, stream, device, staged.address, bytes);
            fill(&backend, stream, device.offset(start), byte, length);
            copy(&backend, stream, result.address, device, bytes);
            settle(&backend, stream);
            let mut expected = old.clone();
            expected[start..start + length].fill(byte);
            result.assert_holds(&expected);
            fill(&backend, stream, result.address, byte, bytes);
            settle(&backend, stream);
            result.assert_holds(&vec![byte; bytes]);
        }
        backend.release(0, device).unwrap();
    }
    backend.stream_destroy(stream).unwrap();
}

pub(crate) fn copies_of_one_stream_run_in_order(subject: &Subject) {
    // Goal: nothing between the submissions is needed to keep them apart. Method: sixteen fills and
    // copies over each other in one task; the last one wins everywhere.
    const BYTES: usize = MIB;
    let backend = subject.backend();
    let stream = stream_on(&backend, 0);
    let [first, second] = [(); 2].map(|()| backend.allocate(0, BYTES, 64).unwrap());
    let result = HostMemory::with(subject, &pattern(BYTES, 4));
    let host = result.address;
    let submitted = on_stream(&backend, stream, move |inside, stream| {
        for byte in 0..16 {
            inside.fill(stream, first, byte, BYTES)?;
            inside.copy(stream, second, first, BYTES)?;
            inside.copy(stream, host, second, BYTES)?;
        }
        Ok::<(), accelrt::Error>(())
    });
    submitted.unwrap();
    backend.stream_synchronize(stream).unwrap();
    result.assert_holds(&vec![15; BYTES]);
    backend.release(0, first).unwrap();
    backend.release(0, second).unwrap();
    backend.stream_destroy(stream).unwrap();
}

pub(crate) fn copies_across_streams_run_in_the_order_of_their_waits(subject: &Subject) {
    // Goal: a wait is enough to hand memory from stream to stream. Method: two streams take turns
    // to copy one memory into the other; only the last is waited for.
    const BYTES: usize = 256 * KIB;
    let backend = subject.backend();
    let streams = [0; 2].map(|device| stream_on(&backend, device));
    let places = [(); 2].map(|()| backend.allocate(0, BYTES, 64).unwrap());
    let sent = pattern(BYTES, 5);
    let source = HostMemory::with(subject, &sent);
    let result = HostMemory::with(subject, &pattern(BYTES, 6));
    copy(&backend, streams[0], places[0], source.address, BYTES);
    let mut marks = vec![backend.mark(streams[0], false).unwrap()];
    for turn in 1..9 {
        let stream = streams[turn % 2];
        backend.stream_wait(stream, marks[turn - 1]).unwrap();
        copy(&backend, stream, places[turn % 2], places[(turn + 1) % 2], BYTES);
        fill(&backend, stream, places[(turn + 1) % 2], 0, BYTES);
        marks.push(backend.mark(stream, false).unwrap());
    }
    copy(&backend, streams[0], result.address, places[0], BYTES);
    settle(&backend, streams[0]);
    result.assert_holds(&sent);
    release_marks(&backend, marks);
    for place in places {
        backend.release(0, place).unwrap();
    }
    destroy_streams(&backend, streams);
}

pub(crate) fn bytes_go_from_device_to_device(subject: &Subject) {
    let backend = subject.backend();
    let bytes = 100 * KIB;
    let sent = pattern(bytes, 7);
    let source = HostMemory::with(subject, &sent);
    let result = HostMemory::with(subject, &pattern(bytes, 8));
    let stream = stream_on(&backend, devices(&backend).end - 1);
    let places: Vec<Address> =
        devices(&backend).map(|device| backend.allocate(device, bytes, 64).unwrap()).collect();
    let mut last = source.address;
    for place in places.iter().copied().chain([result.address]) {
        copy(&backend, stream, place, last, bytes);
        last = place;
    }
    settle(&backend, stream);
    result.assert_holds(&sent);
    for (device, place) in places.into_iter().enumerate() {
        backend.release(device, place).unwrap();
    }
    backend.stream_destroy(stream).unwrap();
}

pub(crate) fn the_host_and_a_device_see_the_same_bytes_of_shared_memory(subject: &Subject) {
    // Goal: one memory, two who write it. Method: each writes and the other looks, across sizes of
    // a line, a page and more; where the subject cannot look the same calls are made.
    let backend = subject.backend();
    for device in devices(&backend) {
        if !backend.properties(device).unwrap().has_shared_memory {
            continue;
        }
        let stream = stream_on(&backend, device);
        for (salt, bytes) in [1, 64, 4 * KIB, MIB + 3].into_iter().enumerate() {
            let sent = pattern(bytes, salt);
            let shared = backend.allocate_shared(device, bytes, 64).unwrap();
            let there = backend.allocate(device, bytes, 64).unwrap();
            let result = HostMemory::new(subject, bytes);
            fill(&backend, stream, shared, 5, bytes);
            settle(&backend, stream);
            if let Some(view) = subject.host_bytes() {
                let mut found = vec![0; bytes];
                view.read(shared, &mut found);
                assert_eq!(found, vec![5; bytes]);
                view.write(shared, &sent);
                copy(&backend, stream, there, shared, bytes);
                copy(&backend, stream, result.address, there, bytes);
                settle(&backend, stream);
                result.assert_holds(&sent);
            }
            for address in [shared, there] {
                backend.release(device, address).unwrap();
            }
        }
        backend.stream_destroy(stream).unwrap();
    }
}

/// So much, so often, that a device which answers too early has not begun with the last copy.
const LARGE_BYTES: usize = 4 * MIB;
const COPIES: usize = 16;

/// Submits copies to a device and about there; returns the places, of which the last has the bytes
/// only when everything is done.
fn copy_about(
    subject: &Subject,
    (stream, device): (StreamHandle, usize),
    source: &HostMemory<'_>,
) -> [Address; 3] {
    let backend = subject.backend();
    let places = [(); 3].map(|()| backend.allocate(device, LARGE_BYTES, 64).unwrap());
    copy(&backend, stream, places[0], source.address, LARGE_BYTES);
    for turn in 0..COPIES {
        copy(&backend, stream, places[(turn + 1) % 2], places[turn % 2], LARGE_BYTES);
    }
    copy(&backend, stream, places[2], places[0], LARGE_BYTES);
    places
}

/// As soon as `wait` says that copies to the host are done, the bytes are there.
fn copies_have_arrived_after(subject: &Subject, wait: impl Fn(&Trusted, StreamHandle)) {
    let backend = subject.backend();
    let sent = pattern(LARGE_BYTES, 20);
    let source = HostMemory::with(subject, &sent);
    for device in devices(&backend) {
        let stream = stream_on(&backend, device);
        let result = HostMemory::with(subject, &pattern(LARGE_BYTES, 21));
        let places = copy_about(subject, (stream, device), &source);
        copy(&backend, stream, result.address, places[2], LARGE_BYTES);
        wait(&backend, stream);
        result.assert_holds(&sent);
        backend.stream_synchronize(stream).unwrap();
        for place in places {
            backend.release(device, place).unwrap();
        }
        backend.stream_destroy(stream).unwrap();
    }
}

pub(crate) fn copies_before_a_mark_that_is_done_have_arrived(subject: &Subject) {
    copies_have_arrived_after(subject, |backend, stream| {
        let mark = backend.mark(stream, false).unwrap();
        ask_until(|| backend.mark_done(mark).unwrap());
        backend.mark_release(mark).unwrap();
    });
}

pub(crate) fn copies_before_a_callback_have_arrived(subject: &Subject) {
    copies_have_arrived_after(subject, |backend, stream| {
        let mark = backend.mark(stream, false).unwrap();
        let (sender, receiver) = mpsc::channel();
        backend.when_done(mark, callback(&sender, 1)).unwrap();
        assert_eq!(all_sent(sender, receiver), [1]);
        backend.mark_release(mark).unwrap();
    });
}

pub(crate) fn copies_of_a_stream_that_is_idle_have_arrived(subject: &Subject) {
    copies_have_arrived_after(subject, |backend, stream| {
        ask_until(|| backend.stream_query(stream).unwrap());
    });
}

pub(crate) fn a_copy_behind_a_wait_has_the_bytes_of_the_copy_before_the_mark(subject: &Subject) {
    // Goal: order between streams is an order of bytes. Method: the second stream is idle, so that
    // only the wait keeps its copy back.
    let backend = subject.backend();
    let sent = pattern(LARGE_BYTES, 22);
    let source = HostMemory::with(subject, &sent);
    let result = HostMemory::with(subject, &pattern(LARGE_BYTES, 23));
    let [first, second] = [0; 2].map(|device| stream_on(&backend, device));
    let places = copy_about(subject, (first, 0), &source);
    let mark = backend.mark(first, false).unwrap();
    backend.stream_wait(second, mark).unwrap();
    copy(&backend, second, result.address, places[2], LARGE_BYTES);
    settle(&backend, second);
    result.assert_holds(&sent);
    settle(&backend, first);
    backend.mark_release(mark).unwrap();
    for place in places {
        backend.release(0, place).unwrap();
    }
    destroy_streams(&backend, [first, second]);
}
