//! The xpu kind as a subject, on the OpenCL runtime of this machine.
//!
//! Listed as ignored, because not every machine has one: `make test-xpu` runs these, and where they
//! run a missing runtime is a failure. The capacity is ours, so that the suite fills it.

use std::sync::{Arc, Once};

use accelrt::backend::contract::Backend;
use accelrt::backend::fault::FaultBackend;
use accelrt::backend::xpu::XpuBackend;
use accelrt::size::MIB;
use accelrt::{Config, DeviceKind};

use crate::support::{HostView, OwnMemory, Subject, devices};
use crate::trusted::Trusted;

pub(crate) struct XpuSubject {
    backend: Trusted,
    view: OwnMemory,
}

impl XpuSubject {
    /// Every device, of 256 MiB each.
    pub(crate) fn new() -> Self {
        let opencl_library = std::env::var("ACCELRT_OPENCL_LIBRARY").ok();
        let config = Config::builder()
            .xpu_memory_bytes(256 * MIB)
            .opencl_library(opencl_library)
            .build()
            .unwrap();
        let backend = XpuBackend::new(&config);
        assert_eq!(backend.kind(), DeviceKind::XPU);
        let backend = Trusted(backend as Arc<dyn Backend>);
        print_devices(&backend);
        Self { backend, view: OwnMemory::open() }
    }

    /// A fault layer without a planned fault: it must not be noticed.
    pub(crate) fn behind_faults() -> Self {
        let mut subject = Self::new();
        subject.backend = Trusted(FaultBackend::new(subject.backend.0));
        subject
    }
}

/// Once a process: a failure should not have to be looked for between names.
#[expect(clippy::print_stdout, reason = "which device passed, for who runs these")]
fn print_devices(backend: &Trusted) {
    static PRINTED: Once = Once::new();
    PRINTED.call_once(|| {
        for device in devices(backend) {
            println!("xpu:{device} is {}", backend.properties(device).unwrap().name);
        }
    });
}

impl Subject for XpuSubject {
    fn backend(&self) -> Trusted {
        self.backend.clone()
    }

    fn host_bytes(&self) -> Option<&dyn HostView> {
        Some(&self.view)
    }

    fn assert_nothing_left(&self) {
        for device in devices(&self.backend) {
            let info = self.backend.memory_info(device).unwrap();
            assert_eq!(info.free_bytes, info.total_bytes, "memory of xpu:{device} is out");
        }
    }
}

conformance!(
    every_device,
    crate::xpu_subject::XpuSubject::new(),
    ignore = "needs an OpenCL runtime: make test-xpu"
);
conformance!(
    behind_faults,
    crate::xpu_subject::XpuSubject::behind_faults(),
    ignore = "needs an OpenCL runtime: make test-xpu"
);
