//! The kind against the conformance kit, and in a program as any user of accelrt writes it.

use accelrt::{Config, Device, DeviceKind, Error, Runtime};
use accelrt_example_device::{Npu, TYPE_CODE, backend, register};
use accelrt_random::{FloatType, RawType, RuntimeExt};
use accelrt_testing::conformance::Subject;

fn npu() -> Subject {
    let kind = DeviceKind::register("npu", TYPE_CODE).unwrap();
    let npu = Npu::new(kind);
    Subject::new(npu.clone()).with_end_check(move || assert_eq!(npu.live(), (0, 0)))
}

accelrt_testing::conformance!(kit, npu());

#[test]
fn the_table_has_every_promise_and_says_that_it_is_kept() {
    let report = accelrt_testing::conformance::report(backend);
    println!("{report}");
    assert!(report.is_passed(), "{:?}", report.failed());
}

#[test]
fn a_registered_kind_is_used_as_ours_are() -> Result<(), Error> {
    register()?;
    let runtime = Runtime::new(Config::default())?;
    let device = "npu:1".parse()?;
    let (produce, consume) = (runtime.stream(device)?, runtime.stream(device)?);
    let (first, second) = (runtime.empty(4096, device)?, runtime.empty(4096, device)?);
    first.fill(7, &produce)?;
    consume.wait_event(&produce.record_event()?)?;
    second.copy_from(&first, &consume)?;
    assert_eq!(second.copy_to_host(vec![0; 4096], &consume)?.wait()?, vec![7; 4096]);
    assert_eq!(runtime.memory_statistics(device)?.allocated_bytes.all.current, 8192);
    Ok(())
}

#[test]
fn random_numbers_of_a_kind_without_a_compiler_are_those_of_the_cpu() -> Result<(), Error> {
    let runtime = Runtime::with_backends(Config::default(), [backend()])?;
    let numbers = |device: Device| -> Result<Vec<u8>, Error> {
        let (stream, buffer) = (runtime.stream(device)?, runtime.empty(1004, device)?);
        let generator = runtime.generator(device)?;
        generator.manual_seed(7)?;
        generator.fill_normal(&buffer, FloatType::Float32, &stream)?;
        generator.fill_raw(&runtime.empty(16, device)?, RawType::Uint32, &stream)?;
        buffer.copy_to_host(vec![0; 1004], &stream)?.wait()
    };
    assert_eq!(numbers("npu:0".parse()?)?, numbers(Device::cpu(0))?);
    Ok(())
}
