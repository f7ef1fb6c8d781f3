//! The xpu kind as a subject, on the OpenCL runtime of this machine.
//!
//! Listed as ignored, because not every machine has one: `make test-xpu` runs these, and where they
//! run a missing runtime is a failure. The capacity is ours, so that the suite fills it.

use std::sync::{Arc, Once};

use accelrt::backend::contract::Backend;
use accelrt::size::MIB;
use accelrt::{Config, DeviceKind};
use accelrt_opencl::XpuBackend;
use accelrt_testing::conformance::Subject;
use accelrt_testing::fault::FaultBackend;

/// Every device, of 256 MiB each.
fn xpu(wrap: fn(Arc<XpuBackend>) -> Arc<dyn Backend>) -> Subject {
    let opencl_library = std::env::var("ACCELRT_OPENCL_LIBRARY").ok();
    let config = Config::builder()
        .xpu_memory_bytes(256 * MIB)
        .opencl_library(opencl_library)
        .build()
        .unwrap();
    let xpu = XpuBackend::new(&config);
    assert_eq!(xpu.kind(), DeviceKind::XPU);
    print_devices(&*xpu);
    Subject::new(wrap(Arc::clone(&xpu))).with_end_check(move || {
        for device in 0..xpu.device_count().unwrap() {
            let info = xpu.memory_info(device).unwrap();
            assert_eq!(info.free_bytes, info.total_bytes, "memory of xpu:{device} is out");
        }
    })
}

/// Once a process: a failure should not have to be looked for between names.
#[expect(clippy::print_stdout, reason = "which device passed, for who runs these")]
fn print_devices(backend: &dyn Backend) {
    static PRINTED: Once = Once::new();
    PRINTED.call_once(|| {
        for device in 0..backend.device_count().unwrap() {
            println!("xpu:{device} is {}", backend.properties(device).unwrap().name);
        }
    });
}

accelrt_testing::conformance!(
    every_device,
    xpu(|xpu| xpu),
    ignore = "needs an OpenCL runtime: make test-xpu"
);
// A fault layer without a planned fault: it must not be noticed.
accelrt_testing::conformance!(
    behind_faults,
    xpu(|xpu| FaultBackend::new(xpu)),
    ignore = "needs an OpenCL runtime: make test-xpu"
);
