//! The cpu kind as a subject, with one device and with several.

use std::sync::Arc;

use accelrt::Config;
use accelrt::backend::cpu::CpuBackend;
use accelrt::size::MIB;

/// A cpu kind with so many devices, of two workers and 256 MiB each.
pub(crate) fn cpu(device_count: usize) -> Arc<CpuBackend> {
    let config = Config::builder()
        .cpu_devices(device_count)
        .cpu_threads(2)
        .cpu_memory_bytes(256 * MIB)
        .build()
        .unwrap();
    CpuBackend::new(&config).unwrap()
}

accelrt_testing::conformance!(one_device, cpu(1));
accelrt_testing::conformance!(four_devices, cpu(4));
