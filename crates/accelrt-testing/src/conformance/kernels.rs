//! Programs and their kernels, where a kind has a compiler. The text is OpenCL C.

use std::thread;

use accelrt::backend::contract::{
    Address, KernelHandle, KernelParameter, LaunchArgument, LaunchSize, ParameterClass,
    ProgramHandle, ProgramSource, StreamHandle, ValueBytes,
};
use accelrt::{DriverError, Error, ProgramError};

use crate::conformance::support::{HostMemory, Subject, devices, on_stream, settle, stream_on};
use crate::trusted::{Trusted, TrustedKernels};

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
