//! Launches of kernels: their place in the stream, their use of buffers, and what is refused.
//!
//! Method: a null kind, which reads the heads of OpenCL C kernels and notes what reached it.
#![expect(unsafe_code, reason = "launches kernels, which here execute nothing")]

use accelrt::backend::contract::{Address, LaunchArgument, LaunchSize, ValueBytes};
use accelrt::{
    Argument, Device, DriverError, Error, Kernel, KernelArgument, MemoryError, ProgramSource,
    Result, RuntimeError, Stream,
};
use accelrt_testing::fault::{Fault, FaultError, Method};
use accelrt_testing::null::CompletionMode;

use crate::support::{CPU, Machine};

const TEXT: &str = "
kernel void scale(global float* values, float by) { values[get_global_id(0)] *= by; }
kernel void sum(global const float* values, local float* scratch, ulong count, constant uchar* x) {}
";

/// A global and a local size.
type Sizes = (&'static [usize], Option<&'static [usize]>);

fn machine() -> Machine {
    Machine::null(CompletionMode::WhenAsked { polls: u32::MAX })
}

fn kernel_on(machine: &Machine, device: Device, name: &str) -> Kernel {
    let program = machine.runtime.compile(device, ProgramSource::Text(TEXT), "").unwrap();
    program.kernel(name).unwrap()
}

fn scale_of(machine: &Machine) -> Kernel {
    kernel_on(machine, machine.device(), "scale")
}

fn launch(stream: &Stream, kernel: &Kernel, arguments: &[KernelArgument<'_>]) -> Result<u64> {
    // SAFETY: the null kind executes nothing.
    unsafe { stream.launch_kernel(kernel, arguments, &[16], None) }
}

#[test]
fn a_launch_reaches_the_device_with_its_arguments_and_sizes() {
    let machine = machine();
    let sum = kernel_on(&machine, machine.device(), "sum");
    let buffer = machine.runtime.empty(100, machine.device()).unwrap();
    let part = buffer.slice(64..).unwrap();
    let pinned = machine.runtime.empty_pinned(8).unwrap();
    let arguments = [(&part).into(), KernelArgument::Local(256), 9_u64.into(), (&pinned).into()];
    // SAFETY: the null kind executes nothing.
    unsafe { machine.stream().launch_kernel(&sum, &arguments, &[8, 6], Some(&[4, 3])) }.unwrap();
    let [launched] = &machine.launched()[..] else { panic!("one launch reached the device") };
    let memory = |address: Result<u64>| LaunchArgument::Memory(Address(address.unwrap()));
    let expected = [
        memory(Ok(buffer.address().unwrap() + 64)),
        LaunchArgument::Local(256),
        LaunchArgument::Value(ValueBytes::new(&9_u64.to_ne_bytes()).unwrap()),
        memory(pinned.address()),
    ];
    assert_eq!((&*launched.kernel, &launched.arguments[..]), ("sum", &expected[..]));
    let size = LaunchSize { global: [8, 6, 1], local: Some([4, 3, 1]), dimensions: 2 };
    assert_eq!(launched.size, size);
}

#[test]
fn a_buffer_that_is_dropped_behind_a_launch_goes_back_when_the_device_is_done() {
    let machine = machine();
    let (scale, other) = (scale_of(&machine), machine.stream());
    let buffer = machine.runtime.empty(100, machine.device()).unwrap();
    launch(&other, &scale, &[(&buffer).into(), 2.0_f32.into()]).unwrap();
    drop(buffer);
    machine.home().synchronize().unwrap();
    assert_eq!(machine.taken(), 100, "the launch on the other stream is not done");
    other.synchronize().unwrap();
    assert_eq!(machine.taken(), 0);
}

/// Method: the home stream still has a task that uses the memory of an earlier buffer.
#[test]
fn a_launch_on_another_stream_runs_behind_the_earlier_life_of_the_memory() {
    let machine = machine();
    let (scale, home, other) = (scale_of(&machine), machine.home(), machine.stream());
    let first = machine.runtime.empty(100, machine.device()).unwrap();
    let address = first.address().unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    home.enqueue_deferred(move |completion| drop(tell.send(completion))).unwrap();
    first.fill(1, &home).unwrap();
    drop(first);
    let second = machine.runtime.empty(100, machine.device()).unwrap();
    assert_eq!(second.address().unwrap(), address, "the memory is used again");
    launch(&other, &scale, &[(&second).into(), 2.0_f32.into()]).unwrap();
    assert_eq!(machine.launched().len(), 0);
    told.recv().unwrap().finish(Ok(()));
    other.synchronize().unwrap();
    assert_eq!(machine.launched().len(), 1);
}

#[test]
fn programs_and_kernels_go_back_with_their_last_handles_and_launches() {
    let machine = machine();
    let program = machine.runtime.compile(machine.device(), ProgramSource::Text(TEXT), "").unwrap();
    let (scale, sum) = (program.kernel("scale").unwrap(), program.kernel("sum").unwrap());
    drop(program);
    assert_eq!((machine.resource_counts().programs, machine.resource_counts().kernels), (1, 2));
    drop(sum);
    let again = scale.clone();
    drop(scale);
    assert_eq!((machine.resource_counts().programs, machine.resource_counts().kernels), (1, 1));
    drop(again);
    assert_eq!((machine.resource_counts().programs, machine.resource_counts().kernels), (0, 0));
}

#[test]
fn a_kernel_whose_parameters_cannot_be_asked_for_goes_back() {
    let machine = machine();
    let program = machine.runtime.compile(machine.device(), ProgramSource::Text(TEXT), "").unwrap();
    machine.backend.plan(Fault::nth(Method::KernelsParameters, 1, FaultError::Driver));
    assert!(matches!(program.kernel("scale"), Err(Error::Driver(DriverError::Refused { .. }))));
    assert_eq!(machine.resource_counts().kernels, 0);
}

#[test]
fn a_failed_stream_skips_launches_and_a_refused_launch_fails_the_stream() {
    let machine = machine();
    let (scale, stream) = (scale_of(&machine), machine.stream());
    let buffer = machine.runtime.empty(64, machine.device()).unwrap();
    let arguments = [(&buffer).into(), 2.0_f32.into()];
    machine.backend.plan(Fault::nth(Method::KernelsLaunch, 1, FaultError::Driver));
    for _ in 0..3 {
        launch(&stream, &scale, &arguments).unwrap();
    }
    let error = stream.synchronize().unwrap_err().to_string();
    assert!(error.contains("Kernels::launch failed on null with code 999"), "{error}");
    assert_eq!(machine.launched().len(), 0);
    launch(&stream, &scale, &arguments).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(machine.launched().len(), 1);
}

/// Asserts what a launch of `scale` says to its arguments, and that nothing was enqueued.
#[track_caller]
fn assert_refused(machine: &Machine, arguments: &[KernelArgument<'_>], expected: &str) {
    let refused = launch(&machine.stream(), &scale_of(machine), arguments).unwrap_err();
    assert_eq!(refused.to_string(), expected);
    assert_eq!(machine.launched().len(), 0);
}

#[test]
fn arguments_that_do_not_fit_are_refused_with_what_would() {
    let machine = machine();
    let buffer = machine.runtime.empty(64, machine.device()).unwrap();
    let values = KernelArgument::Buffer(&buffer);
    let text = "Kernel scale takes 2 arguments: 1 were given";
    assert_refused(&machine, &[values], text);
    let text = "Argument 1 of kernel scale, `float* values`, must be a buffer or an address, not \
                F32(1.0)";
    assert_refused(&machine, &[1.0_f32.into(), 1.0_f32.into()], text);
    let place = "Argument 2 of kernel scale, `float by`, must be a float of 4 bytes, not";
    for (given, name) in [
        (KernelArgument::from(1.0_f64), "F64(1.0)"),
        (1_i32.into(), "I32(1)"),
        (values, "a buffer"),
        (KernelArgument::Local(4), "4 bytes of each work-group's memory"),
        (KernelArgument::Bytes(&[0; 4]), "4 bytes of a value"),
    ] {
        assert_refused(&machine, &[values, given], &format!("{place} {name}"));
    }
}

#[test]
fn memory_of_work_groups_is_a_size_and_no_size_is_refused() {
    let machine = machine();
    let sum = kernel_on(&machine, machine.device(), "sum");
    let buffer = machine.runtime.empty(64, machine.device()).unwrap();
    for (local, expected) in [
        (KernelArgument::Local(0), "not 0 bytes of each work-group's memory"),
        (KernelArgument::Buffer(&buffer), "not a buffer"),
    ] {
        let arguments = [(&buffer).into(), local, 1_u64.into(), (&buffer).into()];
        let refused = launch(&machine.stream(), &sum, &arguments).unwrap_err().to_string();
        assert!(refused.contains("Argument 2") && refused.ends_with(expected), "{refused}");
    }
}

#[test]
fn a_binary_that_tells_no_types_takes_what_it_is_given_up_to_16_bytes() {
    let machine = machine();
    let binary = ProgramSource::Binary(TEXT.as_bytes());
    let program = machine.runtime.compile(machine.device(), binary, "").unwrap();
    let scale = program.kernel("scale").unwrap();
    let null = Argument::from(std::ptr::null_mut::<u8>());
    for given in [1_i16.into(), KernelArgument::Bytes(&[1; 16]), KernelArgument::Local(64)] {
        launch(&machine.stream(), &scale, &[null.into(), given]).unwrap();
    }
    for bytes in [&[][..], &[0; 17]] {
        let arguments = [null.into(), KernelArgument::Bytes(bytes)];
        let refused = launch(&machine.stream(), &scale, &arguments).unwrap_err().to_string();
        let count = bytes.len();
        let expected = format!(
            "Argument 2 of kernel scale must be a buffer, a number, or 1 to 16 bytes of a value, \
             not {count} bytes of a value"
        );
        assert_eq!(refused, expected);
    }
}

#[test]
fn sizes_that_no_launch_can_have_are_refused() {
    let machine = machine();
    let (scale, stream) = (scale_of(&machine), machine.stream());
    let buffer = machine.runtime.empty(64, machine.device()).unwrap();
    let arguments = [(&buffer).into(), 1.0_f32.into()];
    let cases: [(Sizes, &str); 6] = [
        ((&[], None), "a global size of []: allowed are 1 to 3 positive numbers"),
        ((&[1, 1, 1, 1], None), "a global size of [1, 1, 1, 1]: allowed are 1 to 3"),
        ((&[4, 0], None), "a global size of [4, 0]: allowed are 1 to 3 positive numbers"),
        ((&[4], Some(&[0])), "a local size of [0]: allowed are 1 to 3 positive numbers"),
        ((&[4], Some(&[2, 2])), "a local size of [2, 2]: the global size has another number"),
        ((&[4, 9], Some(&[2, 2])), "a local size of [2, 2]: it must divide the global size"),
    ];
    for ((global, local), expected) in cases {
        // SAFETY: the null kind executes nothing.
        let refused = unsafe { stream.launch_kernel(&scale, &arguments, global, local) };
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
    }
    assert_eq!(machine.launched().len(), 0);
}

#[test]
fn kernels_and_buffers_of_other_devices_and_released_buffers_are_refused() {
    let machine = machine();
    let (here, there) = (machine.devices[0], machine.devices[1]);
    let (scale, stream) = (scale_of(&machine), machine.stream());
    let foreign =
        [machine.runtime.empty(64, there).unwrap(), machine.runtime.empty(64, CPU).unwrap()];
    for buffer in &foreign {
        let refused = launch(&stream, &scale, &[buffer.into(), 1.0_f32.into()]).unwrap_err();
        assert!(matches!(refused, Error::Memory(MemoryError::DeviceMismatch { .. })), "{refused}");
    }
    let released = machine.runtime.empty(64, here).unwrap();
    released.release().unwrap();
    let refused = launch(&stream, &scale, &[(&released).into(), 1.0_f32.into()]).unwrap_err();
    assert!(matches!(refused, Error::Memory(MemoryError::Released { .. })), "{refused}");

    let other = Machine::null(CompletionMode::AtOnce);
    let strangers = [
        (machine.stream_on(there), "a stream of null:1 cannot run it"),
        (other.stream(), "a stream of null:0 cannot run it"),
        (machine.stream_on(CPU), "a stream of cpu:0 cannot run it"),
    ];
    for (stranger, expected) in strangers {
        let refused = launch(&stranger, &scale, &[]).unwrap_err().to_string();
        assert_eq!(refused, format!("Kernel scale was compiled for null:0: {expected}"));
    }
}

#[test]
fn programs_say_what_is_wrong_with_their_texts_and_names() {
    let machine = machine();
    let compile = |text| machine.runtime.compile(machine.device(), ProgramSource::Text(text), "");
    let refused = compile("kernel void broken( {").unwrap_err().to_string();
    let expected = "Building the program for null:0 failed: 1 opening braces and 0 closing ones";
    assert_eq!(refused, expected);
    let refused = compile(TEXT).unwrap().kernel("scales").unwrap_err().to_string();
    assert_eq!(refused, r#"The program has no kernel "scales": it has "scale", "sum""#);
    let refused = machine.runtime.compile(CPU, ProgramSource::Text(TEXT), "").unwrap_err();
    assert_eq!(refused.to_string(), "cpu devices do not support programs of kernels");
}

#[test]
fn nothing_is_compiled_or_launched_after_a_shutdown() {
    let machine = machine();
    let (scale, stream) = (scale_of(&machine), machine.stream());
    let null = Argument::from(std::ptr::null_mut::<u8>());
    machine.runtime.shutdown();
    let refused = launch(&stream, &scale, &[null.into(), 1.0_f32.into()]);
    assert!(matches!(refused, Err(Error::Runtime(RuntimeError::ShutDown))), "{refused:?}");
    let refused = machine.runtime.compile(machine.device(), ProgramSource::Text(TEXT), "");
    assert!(matches!(refused, Err(Error::Runtime(RuntimeError::ShutDown))), "{refused:?}");
}
