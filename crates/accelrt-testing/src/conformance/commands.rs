//! Commands of a stream: copies, fills and launches of kernels.

use std::sync::mpsc;
use std::thread;

use accelrt::backend::contract::{
    Address, KernelHandle, KernelParameter, LaunchArgument, LaunchSize, ParameterClass,
    ProgramHandle, ProgramSource, StreamHandle, ValueBytes,
};
use accelrt::size::{KIB, MIB};
use accelrt::{DriverError, Error, ProgramError};

use crate::conformance::support::{
    HostMemory, Subject, all_sent, ask_until, callback, destroy_streams, devices, on_stream,
    pattern, release_marks, settle, stream_on,
};
use crate::trusted::{Trusted, TrustedKernels};

// Copies and fills: the right bytes, no others, in the order of streams and waits.

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
        Ok::<(), Error>(())
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

// Programs and their kernels, where a kind has a compiler. The text is OpenCL C.

const TEXT: &str = "
kernel void add(global int* numbers, int number) {
    numbers[get_global_id(0)] += number;
}
kernel void multiply(global int* numbers, int factor) {
    numbers[get_global_id(0)] *= factor;
}
kernel void through(global int* numbers, local int* scratch, long start, float step, uchar last) {
    size_t here = get_local_id(0);
    scratch[here] = (int)(start + here * step) + last;
    barrier(CLK_LOCAL_MEM_FENCE);
    numbers[get_global_id(0)] = scratch[get_local_size(0) - 1 - here];
}
";

const COUNT: usize = 256;

/// Calls a test for each device of a kind with a compiler, with a program of [`TEXT`].
fn each_device(
    subject: &Subject,
    test: impl Fn(&Trusted, TrustedKernels<'_>, ProgramHandle, usize),
) {
    let backend = subject.backend();
    let Some(kernels) = backend.kernels() else { return };
    for device in devices(&backend) {
        let program = kernels.compile(device, ProgramSource::Text(TEXT), "").unwrap();
        test(&backend, kernels, program, device);
        kernels.program_release(program).unwrap();
    }
}

fn value(bytes: &[u8]) -> LaunchArgument {
    LaunchArgument::Value(ValueBytes::new(bytes).expect("1 to 16 bytes"))
}

/// Has a launch over [`COUNT`] work-items submitted by a task of a stream, as the engine does.
fn launch(
    backend: &Trusted,
    stream: StreamHandle,
    kernel: KernelHandle,
    arguments: Vec<LaunchArgument>,
    local: Option<[usize; 3]>,
) {
    let size = LaunchSize { global: [COUNT, 1, 1], local, dimensions: 1 };
    let task = move |inside: &Trusted, stream| {
        let kernels = inside.kernels().expect("a kind keeps its capabilities");
        kernels.launch(kernel, stream, &arguments, &size)
    };
    on_stream(backend, stream, task).unwrap();
}

/// Numbers on a device that begin with zeros.
struct Numbers {
    backend: Trusted,
    device: usize,
    address: Address,
}

impl Numbers {
    fn new(backend: &Trusted, device: usize, stream: StreamHandle) -> Self {
        let address = backend.allocate(device, COUNT * 4, 64).unwrap();
        let fill = move |inside: &Trusted, stream| inside.fill(stream, address, 0, COUNT * 4);
        on_stream(backend, stream, fill).unwrap();
        Self { backend: backend.clone(), device, address }
    }

    fn argument(&self) -> LaunchArgument {
        LaunchArgument::Memory(self.address)
    }

    /// Waits, and gives the memory back. Asserts the contents where the subject can look at them.
    fn assert_hold(self, subject: &Subject, stream: StreamHandle, number: impl Fn(usize) -> i32) {
        let result = HostMemory::new(subject, COUNT * 4);
        let (to, from) = (result.address, self.address);
        let copy = move |inside: &Trusted, stream| inside.copy(stream, to, from, COUNT * 4);
        on_stream(&self.backend, stream, copy).unwrap();
        settle(&self.backend, stream);
        let expected: Vec<u8> = (0..COUNT).flat_map(|place| number(place).to_ne_bytes()).collect();
        result.assert_holds(&expected);
        self.backend.release(self.device, self.address).unwrap();
    }
}

pub(crate) fn a_program_has_the_kernels_of_its_text(subject: &Subject) {
    // Goal: names, and what each kernel takes, come from the text; where a kind tells types.
    each_device(subject, |_, kernels, program, _| {
        let mut names = kernels.kernel_names(program).unwrap();
        names.sort_unstable();
        assert_eq!(names, ["add", "multiply", "through"]);
        let through = kernels.kernel(program, "through").unwrap();
        let parameters = kernels.parameters(through).unwrap();
        let classes: Vec<_> = parameters.iter().map(|parameter| parameter.class).collect();
        let expected = [
            ParameterClass::Pointer,
            ParameterClass::Local,
            ParameterClass::Signed(8),
            ParameterClass::Float(4),
            ParameterClass::Unsigned(1),
        ];
        assert_eq!(classes, expected);
        let KernelParameter { name, type_name, .. } = &parameters[2];
        assert_eq!((&**name, &**type_name), ("start", "long"));
        kernels.kernel_release(through).unwrap();
    });
}

pub(crate) fn a_text_that_is_no_program_is_refused_with_the_compilers_words(subject: &Subject) {
    let backend = subject.backend();
    let Some(kernels) = backend.kernels() else { return };
    let text = "kernel void broken(global int* numbers) { numbers[0] = ";
    let refused = kernels.compile(0, ProgramSource::Text(text), "").unwrap_err();
    let Error::Program(ProgramError::BuildFailed { device, log }) = refused else {
        panic!("{refused}")
    };
    assert_eq!((device.kind(), device.index()), (backend.kind(), 0));
    assert!(!log.trim().is_empty());
}

pub(crate) fn a_binary_that_is_none_is_refused(subject: &Subject) {
    let backend = subject.backend();
    let Some(kernels) = backend.kernels() else { return };
    let refused = kernels.compile(0, ProgramSource::Binary(b"\xffno program"), "");
    let refused = refused.unwrap_err();
    let is_explained = matches!(
        refused,
        Error::Program(ProgramError::BuildFailed { .. })
            | Error::Driver(DriverError::Refused { .. } | DriverError::Unsupported { .. })
    );
    assert!(is_explained, "{refused}");
}

pub(crate) fn launches_of_one_stream_run_in_order(subject: &Subject) {
    // Goal: the numbers show every launch in its place. Method: additions and multiplications do
    // not commute.
    each_device(subject, |backend, kernels, program, device| {
        let stream = stream_on(backend, device);
        let [add, multiply] =
            ["add", "multiply"].map(|name| kernels.kernel(program, name).unwrap());
        let numbers = Numbers::new(backend, device, stream);
        let mut expected = 0_i32;
        for round in 1..=9_i32 {
            launch(
                backend,
                stream,
                add,
                vec![numbers.argument(), value(&round.to_ne_bytes())],
                None,
            );
            let factor = [numbers.argument(), value(&3_i32.to_ne_bytes())];
            launch(backend, stream, multiply, factor.to_vec(), Some([16, 1, 1]));
            expected = (expected + round) * 3;
        }
        numbers.assert_hold(subject, stream, |_| expected);
        for kernel in [add, multiply] {
            kernels.kernel_release(kernel).unwrap();
        }
        backend.stream_destroy(stream).unwrap();
    });
}

pub(crate) fn a_launch_takes_memory_values_and_memory_of_its_groups(subject: &Subject) {
    const GROUP: usize = 32;
    each_device(subject, |backend, kernels, program, device| {
        let stream = stream_on(backend, device);
        let through = kernels.kernel(program, "through").unwrap();
        let numbers = Numbers::new(backend, device, stream);
        let arguments = vec![
            numbers.argument(),
            LaunchArgument::Local(GROUP * 4),
            value(&(-7_i64).to_ne_bytes()),
            value(&2.0_f32.to_ne_bytes()),
            value(&[200]),
        ];
        launch(backend, stream, through, arguments, Some([GROUP, 1, 1]));
        let mirrored = |place: usize| i32::try_from(GROUP - 1 - place % GROUP).unwrap();
        numbers.assert_hold(subject, stream, |place| -7 + 2 * mirrored(place) + 200);
        kernels.kernel_release(through).unwrap();
        backend.stream_destroy(stream).unwrap();
    });
}

pub(crate) fn kernels_may_be_given_back_before_their_launches_are_done(subject: &Subject) {
    let backend = subject.backend();
    let Some(kernels) = backend.kernels() else { return };
    let stream = stream_on(&backend, 0);
    let numbers = Numbers::new(&backend, 0, stream);
    for _ in 0..20 {
        let program = kernels.compile(0, ProgramSource::Text(TEXT), "").unwrap();
        let add = kernels.kernel(program, "add").unwrap();
        launch(&backend, stream, add, vec![numbers.argument(), value(&1_i32.to_ne_bytes())], None);
        kernels.program_release(program).unwrap();
        kernels.kernel_release(add).unwrap();
    }
    numbers.assert_hold(subject, stream, |_| 20);
    backend.stream_destroy(stream).unwrap();
}

pub(crate) fn one_kernel_is_launched_from_many_threads_with_separate_arguments(subject: &Subject) {
    // Goal: arguments of two launches never mix. Method: each thread adds a number of its own to
    // memory of its own, through the same kernel.
    const THREADS: i32 = 4;
    const ROUNDS: i32 = 200;
    each_device(subject, |backend, kernels, program, device| {
        let add = kernels.kernel(program, "add").unwrap();
        let work: Vec<_> = (1..=THREADS)
            .map(|number| {
                let stream = stream_on(backend, device);
                (number, stream, Numbers::new(backend, device, stream))
            })
            .collect();
        thread::scope(|scope| {
            for (number, stream, numbers) in &work {
                scope.spawn(move || {
                    let arguments = vec![numbers.argument(), value(&number.to_ne_bytes())];
                    for _ in 0..ROUNDS {
                        launch(backend, *stream, add, arguments.clone(), None);
                    }
                });
            }
        });
        for (number, stream, numbers) in work {
            numbers.assert_hold(subject, stream, |_| number * ROUNDS);
            backend.stream_destroy(stream).unwrap();
        }
        kernels.kernel_release(add).unwrap();
    });
}
