//! The cpu kind as a subject: memory from `allocate_host` is this process's, and is looked at.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use accelrt::Config;
use accelrt::backend::contract::{Address, Backend};
use accelrt::backend::cpu::CpuBackend;
use accelrt::size::MIB;

use crate::support::{HostView, Subject};

pub(crate) struct CpuSubject {
    backend: Arc<CpuBackend>,
    view: OwnMemory,
}

impl CpuSubject {
    /// A cpu kind with so many devices, of two workers and 256 MiB each.
    pub(crate) fn new(device_count: usize) -> Self {
        let config = Config {
            cpu_devices: device_count,
            cpu_threads: Some(2),
            cpu_memory_bytes: Some(256 * MIB),
            ..Config::default()
        };
        let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem");
        let view = OwnMemory(memory.expect("a process may read and write its own memory"));
        Self { backend: CpuBackend::new(&config).unwrap(), view }
    }
}

impl Subject for CpuSubject {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.backend) as _
    }

    fn host_bytes(&self) -> Option<&dyn HostView> {
        Some(&self.view)
    }
}

/// This process's memory by way of the kernel: a wrong address is an error, not undefined.
struct OwnMemory(File);

impl HostView for OwnMemory {
    fn read(&self, from: Address, into: &mut [u8]) {
        self.0.read_exact_at(into, from.0).expect("host memory is mapped and readable");
    }

    fn write(&self, to: Address, bytes: &[u8]) {
        self.0.write_all_at(bytes, to.0).expect("host memory is mapped and writable");
    }
}

conformance!(one_device, crate::cpu_subject::CpuSubject::new(1));
conformance!(four_devices, crate::cpu_subject::CpuSubject::new(4));
