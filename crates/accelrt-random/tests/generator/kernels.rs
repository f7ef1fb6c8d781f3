//! Fills on a driver kind: one launch each, and nothing else.
//!
//! Method: a null kind, which reads the heads of kernels and notes what reached it; planned faults.

use std::sync::Arc;

use accelrt::backend::contract::{Address, LaunchArgument, LaunchSize, ValueBytes};
use accelrt::{Config, DeviceKind, DriverError, Error, GeneratorError};
use accelrt_random::{FloatType, RawType, RuntimeExt};
use accelrt_testing::fault::{Fault, FaultError, Method};
use accelrt_testing::null::{Launched, NullBackend, NullConfig};

use crate::support::{CPU, Fill, Machine};

fn machine() -> (Machine, Arc<NullBackend>) {
    machine_with(NullConfig::default())
}

fn machine_with(config: NullConfig) -> (Machine, Arc<NullBackend>) {
    let null = NullBackend::new(config);
    let config = Config::builder().accelerator(DeviceKind::NULL).build().unwrap();
    (Machine::new(config, Arc::<NullBackend>::clone(&null)), null)
}

#[test]
fn a_fill_is_one_launch_that_is_told_seed_place_and_count_and_no_copy() {
    let (machine, null) = machine();
    let generator = machine.generator(11, 20);
    let names = ["raw_uint32", "raw_uint64", "uniform_float32", "uniform_float64"];
    let names = names.into_iter().chain(["normal_float32", "normal_float64"]);
    let buffer = machine.runtime.empty(1000, machine.device).unwrap();
    let mut expected = Vec::new();
    for (fill, (turn, kernel)) in Fill::ALL.into_iter().zip((0..).zip(names)) {
        fill.into(&generator, &buffer, &machine.stream()).unwrap();
        let value =
            |number: u64| LaunchArgument::Value(ValueBytes::new(&number.to_ne_bytes()).unwrap());
        let memory = LaunchArgument::Memory(Address(buffer.address().unwrap()));
        let count = (1000 / fill.item_bytes()) as u64;
        // A thousand bytes begin 63 blocks.
        let arguments = vec![memory, value(11), value(5 + turn * 63), value(count)];
        let size = LaunchSize { global: [64, 1, 1], local: None, dimensions: 1 };
        expected.push(Launched { kernel: kernel.to_owned(), arguments, size });
    }
    machine.stream().synchronize().unwrap();
    assert_eq!(null.launched(), expected);
    let calls = |method| machine.backend.calls(method);
    assert_eq!([Method::Copy, Method::Fill].map(calls), [0, 0]);
    assert_eq!([Method::KernelsCompile, Method::KernelsKernel].map(calls), [1, 6], "compiled once");
    assert_eq!(generator.offset().unwrap(), 20 + 6 * 63 * 4);
}

#[test]
fn a_fill_that_cannot_be_compiled_fails_and_uses_no_words_and_the_next_one_tries_again() {
    let (machine, null) = machine();
    let (generator, stream) = (machine.generator(0, 0), machine.stream());
    let buffer = machine.runtime.empty(64, machine.device).unwrap();
    for method in [Method::KernelsCompile, Method::KernelsKernel] {
        machine.backend.plan(Fault::nth(method, 1, FaultError::Driver));
        generator.fill_raw(&buffer, RawType::Uint32, &stream).unwrap_err();
        assert_eq!(generator.offset().unwrap(), 0);
    }
    generator.fill_raw(&buffer, RawType::Uint32, &stream).unwrap();
    stream.synchronize().unwrap();
    assert_eq!((null.launched().len(), generator.offset().unwrap()), (1, 16));
}

#[test]
fn programs_go_back_with_the_runtime() {
    let (machine, null) = machine();
    let generator = machine.generator(0, 0);
    let buffer = machine.runtime.empty(64, machine.device).unwrap();
    generator.fill_raw(&buffer, RawType::Uint32, &machine.stream()).unwrap();
    drop((buffer, generator, machine));
    let live = null.resource_counts();
    assert_eq!((live.programs, live.kernels), (0, 0));
}

#[test]
fn a_generator_of_another_kind_is_refused() {
    let (machine, _null) = machine();
    let generator = machine.runtime.generator(CPU).unwrap();
    let buffer = machine.runtime.empty(64, machine.device).unwrap();
    let refused = generator.fill_raw(&buffer, RawType::Uint32, &machine.stream()).unwrap_err();
    assert!(matches!(refused, Error::Generator(GeneratorError::KindMismatch { .. })), "{refused}");
    let expected = "Expected a 'null' device type for generator but found 'cpu'";
    assert_eq!(refused.to_string(), expected);
}

#[test]
fn a_device_without_double_precision_refuses_float64_alone() {
    let (machine, null) = machine_with(NullConfig { has_fp64: false, ..NullConfig::default() });
    let (generator, stream) = (machine.generator(0, 0), machine.stream());
    let buffer = machine.runtime.empty(64, machine.device).unwrap();
    for dtype in [FloatType::Float32, FloatType::Float64] {
        let filled = [
            generator.fill_uniform(&buffer, dtype, &stream),
            generator.fill_normal(&buffer, dtype, &stream),
        ];
        for outcome in filled {
            match (dtype, outcome) {
                (FloatType::Float32, Ok(())) => {}
                (
                    FloatType::Float64,
                    Err(refused @ Error::Driver(DriverError::Unsupported { .. })),
                ) => {
                    let told = refused.to_string();
                    assert!(told.ends_with("this one has no double precision"), "{told}");
                }
                (_, other) => panic!("{dtype:?}: {other:?}"),
            }
        }
    }
    stream.synchronize().unwrap();
    assert_eq!((null.launched().len(), generator.offset().unwrap()), (2, 32));
}

#[test]
fn a_kind_without_kernels_refuses_every_fill() {
    let (machine, _null) = machine_with(NullConfig { has_kernels: false, ..NullConfig::default() });
    let generator = machine.generator(0, 0);
    let buffer = machine.runtime.empty(64, machine.device).unwrap();
    for fill in Fill::ALL {
        let refused = fill.into(&generator, &buffer, &machine.stream()).unwrap_err();
        let text = "random numbers: they have neither tasks on the host nor programs";
        assert_eq!(refused.to_string(), format!("null devices do not support {text}"));
    }
    assert_eq!(generator.offset().unwrap(), 0);
}
