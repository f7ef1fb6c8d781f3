//! The xpu kind as a subject, on a fake OpenCL: its device memory cannot be read, and it counts.

use std::sync::Arc;

use accelrt::Config;
use accelrt::backend::xpu::XpuBackend;
use accelrt::size::MIB;

use crate::fake::Fake;
use crate::support::{HostView, OwnMemory, Subject};
use crate::trusted::Trusted;

pub(crate) struct FakeSubject {
    backend: Arc<XpuBackend>,
    fake: Fake,
    view: OwnMemory,
}

impl FakeSubject {
    /// A fake of its own with these settings, of 256 MiB on each device.
    pub(crate) fn new(settings: &str) -> Self {
        let fake = Fake::new(settings);
        let config =
            Config::builder().opencl_library(fake.path()).xpu_memory_bytes(256 * MIB).build();
        let config = config.unwrap();
        Self { backend: XpuBackend::new(&config), fake, view: OwnMemory::open() }
    }
}

impl Subject for FakeSubject {
    fn backend(&self) -> Trusted {
        Trusted(Arc::clone(&self.backend) as _)
    }

    fn host_bytes(&self) -> Option<&dyn HostView> {
        Some(&self.view)
    }

    fn assert_nothing_left(&self) {
        // The context goes with the backend, which is still here.
        self.fake.assert_none_of(&["allocations", "events", "queues", "ghosts"]);
        assert!(self.fake.live("contexts") <= 1);
    }
}

conformance!(fake_xpu, crate::fake_subject::FakeSubject::new("devices=3,priorities=1"));
conformance!(
    busy_fake_xpu,
    crate::fake_subject::FakeSubject::new(
        "command_us=50,inline_callbacks=1,most_align=128,shared=0"
    )
);
