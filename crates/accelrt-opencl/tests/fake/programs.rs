//! Programs: builds that fail with the compiler's words, refusals on the way, loss, no functions.
#![expect(unsafe_code, reason = "launches kernels")]

use accelrt::{
    DriverError, Error, FailureCause, ParameterClass, Program, ProgramError, ProgramSource,
    Runtime, StreamError,
};

use crate::fake::Fake;
use crate::library;
use crate::support::{assert_nothing_left, bytes_of, finishes, is_loss, over, runtime, xpu};

const ADD: &str = "kernel void add(global int* numbers, int number) {}";

fn compile(runtime: &Runtime, text: &str) -> Result<Program, Error> {
    runtime.compile(xpu(0), ProgramSource::Text(text), "")
}

/// Compiles, launches once over 16 numbers, and returns what the first of them is.
fn one_launch(runtime: &Runtime) -> Result<i32, Error> {
    let kernel = compile(runtime, ADD)?.kernel("add")?;
    let stream = runtime.stream(xpu(0))?;
    let numbers = runtime.empty(64, xpu(0))?;
    numbers.fill(0, &stream)?;
    // SAFETY: the buffer has 16 numbers.
    unsafe { stream.launch_kernel(&kernel, &[(&numbers).into(), 7_i32.into()], &[16], None)? };
    stream.synchronize()?;
    let mut bytes = [0; 64];
    numbers.copy_to_slice(&mut bytes, &stream)?;
    Ok(i32::from_ne_bytes(*bytes.first_chunk().expect("64 bytes")))
}

#[test]
fn a_build_that_fails_has_the_compilers_words() {
    over("", |_, runtime| {
        for (text, words) in [
            ("kernel void other(global int* x) {}", "unknown kernel 'other'"),
            ("#error out of order\n", "error: out of order"),
            ("", "no kernel in this source"),
        ] {
            let error = compile(&runtime, text).unwrap_err();
            let Error::Program(ProgramError::BuildFailed { device, log }) = &error else {
                panic!("{error}")
            };
            assert_eq!(*device, xpu(0));
            assert!(log.contains(words), "{log}");
            assert!(error.to_string().contains(words), "{error}");
        }
    });
}

#[test]
fn a_kernel_that_is_not_there_is_refused_by_its_name() {
    over("", |_, runtime| {
        let program = compile(&runtime, ADD).unwrap();
        assert_eq!(program.kernel_names().unwrap(), ["add"]);
        let refused = program.kernel("subtract").unwrap_err();
        assert!(refused.to_string().contains("subtract"), "{refused}");
        program.kernel("add").unwrap();
    });
}

#[test]
fn a_launch_has_the_sizes_it_was_given() {
    over("", |_, runtime| {
        let geometry = "kernel void geometry(global ulong* out) {}";
        let kernel = compile(&runtime, geometry).unwrap().kernel("geometry").unwrap();
        let (stream, out) = (runtime.stream(xpu(0)).unwrap(), runtime.empty(80, xpu(0)).unwrap());
        for (global, local, expected) in [
            (&[6][..], None, [1, 6, 1, 1, 0, 0, 0]),
            (&[6, 4], Some(&[3, 2][..]), [2, 6, 4, 1, 3, 2, 1]),
            (&[2, 4, 6], Some(&[1, 2, 3]), [3, 2, 4, 6, 1, 2, 3]),
        ] {
            // SAFETY: the kernel writes ten numbers of 8 bytes.
            unsafe { stream.launch_kernel(&kernel, &[(&out).into()], global, local).unwrap() };
            stream.synchronize().unwrap();
            let bytes = bytes_of(&out);
            let found: Vec<u64> =
                bytes.as_chunks().0.iter().map(|n| u64::from_ne_bytes(*n)).collect();
            let dimensions = global.len();
            assert_eq!(found[0], expected[0]);
            assert_eq!(found[1..=dimensions], expected[1..=dimensions]);
            assert_eq!(found[4..4 + dimensions], expected[4..4 + dimensions]);
        }
    });
}

#[test]
fn what_the_driver_refuses_about_a_program_is_told_once_and_leaves_nothing() {
    // Goal: no refusal on the way to a launch leaks, hangs or spoils the next. Method: each call of
    // each function is refused in turn; then the launch is made again.
    finishes(|| {
        let healthy = Fake::new("");
        assert_eq!(one_launch(&runtime(&healthy)).unwrap(), 7);
        for function in [
            "clCreateProgramWithSource",
            "clBuildProgram",
            "clGetProgramInfo",
            "clCreateKernel",
            "clGetKernelInfo",
            "clGetKernelArgInfo",
            "clSetKernelArg",
            "clSetKernelArgMemPointerINTEL",
            "clEnqueueNDRangeKernel",
        ] {
            for nth in 1..=healthy.live(&format!("calls:{function}")) {
                let fake = Fake::new(&format!("fail={function}:{nth}:-9999"));
                let runtime = runtime(&fake);
                let error = one_launch(&runtime).unwrap_err();
                assert!(error.to_string().contains("-9999"), "{function}, call {nth}: {error}");
                assert_eq!(one_launch(&runtime).unwrap(), 7, "after {function}, call {nth}");
                drop(runtime);
                assert_nothing_left(&fake);
            }
        }
    });
}

#[test]
fn a_device_whose_driver_lacks_functions_for_programs_is_used_without_them() {
    let without = library::build("without_build", &["-DclBuildProgram=absent_clBuildProgram"]);
    for fake in [Fake::new("missing=clSetKernelArgMemPointerINTEL"), Fake::of(&without, "")] {
        let runtime = runtime(&fake);
        let error = compile(&runtime, ADD).unwrap_err();
        assert!(matches!(error, Error::Driver(DriverError::Unsupported { .. })), "{error}");
        assert_eq!(bytes_of(&runtime.zeros(3, xpu(0)).unwrap()), [0; 3]);
        drop(runtime);
        assert_nothing_left(&fake);
    }
}

#[test]
fn spir_v_tells_no_types_and_takes_typed_values() {
    over("", |_, runtime| {
        let binary = [&0x0723_0203_u32.to_le_bytes(), ADD.as_bytes()].concat();
        let program = runtime.compile(xpu(0), ProgramSource::Binary(&binary), "").unwrap();
        let kernel = program.kernel("add").unwrap();
        let classes: Vec<_> = kernel.parameters().iter().map(|each| each.class).collect();
        assert_eq!(classes, [ParameterClass::Unknown; 2]);
        let (stream, numbers) =
            (runtime.stream(xpu(0)).unwrap(), runtime.zeros(8, xpu(0)).unwrap());
        stream.wait_stream(&numbers.stream()).unwrap();
        // SAFETY: the buffer has two numbers, which is what the kernel adds to.
        unsafe { stream.launch_kernel(&kernel, &[(&numbers).into(), 5_i32.into()], &[2], None) }
            .unwrap();
        stream.synchronize().unwrap();
        assert_eq!(bytes_of(&numbers), [5, 0, 0, 0, 5, 0, 0, 0]);
    });
}

#[test]
fn a_launch_on_a_lost_device_is_its_loss() {
    over("hold=1", |fake, runtime| {
        let kernel = compile(&runtime, ADD).unwrap().kernel("add").unwrap();
        let stream = runtime.stream(xpu(0)).unwrap();
        let numbers = runtime.empty(64, xpu(0)).unwrap();
        let launch = || {
            // SAFETY: the buffer has 16 numbers.
            unsafe {
                stream.launch_kernel(&kernel, &[(&numbers).into(), 1_i32.into()], &[16], None)
            }
        };
        launch().unwrap();
        fake.set("lose=now");
        let _ = launch();
        assert!(is_loss(&stream.synchronize().unwrap_err()));
        assert!(is_loss(&compile(&runtime, ADD).map(drop).unwrap_err()));
    });
}

#[test]
fn a_group_that_is_too_large_fails_the_stream_with_the_drivers_code() {
    over("", |_, runtime| {
        let kernel = compile(&runtime, ADD).unwrap().kernel("add").unwrap();
        let stream = runtime.stream(xpu(0)).unwrap();
        let numbers = runtime.empty(4096, xpu(0)).unwrap();
        let arguments = [(&numbers).into(), 1_i32.into()];
        // SAFETY: the buffer has 1024 numbers.
        unsafe { stream.launch_kernel(&kernel, &arguments, &[1024], Some(&[512])) }.unwrap();
        let Err(Error::Stream(StreamError::Failed(error))) = stream.synchronize() else {
            panic!("nothing failed")
        };
        let FailureCause::Backend(cause) = error.root().failure() else { panic!("{error}") };
        assert!(matches!(cause, Error::Driver(DriverError::Refused { code: -54, .. })), "{cause}");
        stream.synchronize().unwrap();
    });
}
