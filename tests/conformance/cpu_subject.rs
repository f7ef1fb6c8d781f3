//! The cpu kind as a subject: memory from `allocate_host` is this process's, and is looked at.

use std::sync::Arc;

use accelrt::Config;
use accelrt::backend::cpu::CpuBackend;
use accelrt::size::MIB;

use crate::support::{HostView, OwnMemory, Subject};
use crate::trusted::Trusted;

pub(crate) struct CpuSubject {
    backend: Arc<CpuBackend>,
    view: OwnMemory,
}

impl CpuSubject {
    /// A cpu kind with so many devices, of two workers and 256 MiB each.
    pub(crate) fn new(device_count: usize) -> Self {
        let config = Config::builder()
            .cpu_devices(device_count)
            .cpu_threads(2)
            .cpu_memory_bytes(256 * MIB)
            .build()
            .unwrap();
        Self { backend: CpuBackend::new(&config).unwrap(), view: OwnMemory::open() }
    }
}

impl Subject for CpuSubject {
    fn backend(&self) -> Trusted {
        Trusted(Arc::clone(&self.backend) as _)
    }

    fn host_bytes(&self) -> Option<&dyn HostView> {
        Some(&self.view)
    }
}

conformance!(one_device, crate::cpu_subject::CpuSubject::new(1));
conformance!(four_devices, crate::cpu_subject::CpuSubject::new(4));
