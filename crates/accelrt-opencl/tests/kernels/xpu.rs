//! Fills on an OpenCL device: bit for bit what the cpu makes, without a copy.
//!
//! What needs a device that runs kernels is ignored, and run by `make test-intel`.

use accelrt::{Config, DeviceKind, DriverError, Error};
use accelrt_opencl::XpuBackend;
use accelrt_random::FloatType;
use accelrt_testing::fault::Method;

use crate::seed::seed;
use crate::support::{Fill, Machine};

fn machine() -> Machine {
    let opencl_library = std::env::var("ACCELRT_OPENCL_LIBRARY").ok();
    let config = Config::builder()
        .accelerator(DeviceKind::XPU)
        .opencl_library(opencl_library)
        .build()
        .unwrap();
    let backend = XpuBackend::new(&config);
    Machine::new(config, backend)
}

#[test]
#[ignore = "needs an OpenCL runtime that compiles: make test-intel"]
fn xpu_makes_the_bits_of_the_cpu() {
    // Goal: every kind of number, every rest of a block, both ends of the sequence. Method: a
    // million numbers beside the cpu's, and short ones of each length.
    let (cpu, xpu, seed) = (Machine::cpu(2), machine(), seed());
    for fill in Fill::ALL {
        for (offset, bytes) in
            [(0, 4 << 20), (4 << 32, 1 << 16), (u64::MAX - 3 - (1 << 14), 1 << 16)]
        {
            let expected = cpu.filled(fill, &cpu.generator(seed, offset), bytes);
            let made = match fill.into_or_refused(&xpu, seed, offset, bytes) {
                Ok(made) => made,
                Err(Error::Driver(DriverError::Unsupported { .. })) if fill.item_bytes() == 8 => {
                    continue;
                }
                Err(other) => panic!("{other}"),
            };
            let place = made.iter().zip(&expected).position(|(made, expected)| made != expected);
            assert_eq!(place, None, "{fill:?}: the first byte that differs");
        }
        if matches!(fill, Fill::Raw(_)) {
            for items in 0..20 {
                let bytes = items * fill.item_bytes();
                let expected = cpu.filled(fill, &cpu.generator(seed, 8), bytes);
                assert_eq!(xpu.filled(fill, &xpu.generator(seed, 8), bytes), expected);
            }
        }
    }
}

impl Fill {
    /// As [`Machine::filled`]; a device without double precision refuses some.
    fn into_or_refused(
        self,
        xpu: &Machine,
        seed: u64,
        offset: u64,
        bytes: usize,
    ) -> Result<Vec<u8>, Error> {
        let probe = xpu.runtime.empty(16, xpu.device).unwrap();
        self.into(&xpu.generator(0, 0), &probe, &xpu.stream())?;
        Ok(xpu.filled(self, &xpu.generator(seed, offset), bytes))
    }
}

#[test]
#[ignore = "needs an OpenCL runtime that compiles: make test-intel"]
fn xpu_fills_where_the_memory_is_and_beside_nothing() {
    let xpu = machine();
    let (stream, buffer) = (xpu.stream(), xpu.runtime.empty(4096, xpu.device).unwrap());
    buffer.fill(0xEE, &stream).unwrap();
    stream.synchronize().unwrap();
    let view = buffer.slice(20..1044).unwrap();
    let calls = |method| xpu.backend.calls(method);
    let before = [Method::Copy, Method::Fill].map(calls);
    let fill = Fill::Normal(FloatType::Float32);
    fill.into(&xpu.generator(1, 0), &view, &stream).unwrap();
    stream.synchronize().unwrap();
    assert_eq!([Method::Copy, Method::Fill].map(calls), before, "no copy, and one launch");
    assert_eq!(calls(Method::KernelsLaunch), 1);
    let mut read = vec![0; 4096];
    buffer.copy_to_slice(&mut read, &stream).unwrap();
    let cpu = Machine::cpu(1);
    assert_eq!(read[20..1044], cpu.filled(fill, &cpu.generator(1, 0), 1024));
    assert!(read[..20].iter().chain(&read[1044..]).all(|byte| *byte == 0xEE));
}
