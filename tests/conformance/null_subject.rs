//! The null kind as a subject: at once, when asked, with four devices, behind an idle fault layer.

use std::sync::Arc;

use accelrt::backend::fault::FaultBackend;
use accelrt::backend::null::{CompletionMode, NullBackend, NullConfig, ResourceCounts};

use crate::support::{HostView, Subject};
use crate::trusted::Trusted;

pub(crate) struct NullSubject {
    null: Arc<NullBackend>,
    backend: Trusted,
}

impl NullSubject {
    fn new(config: NullConfig) -> Self {
        let null = NullBackend::new(config);
        Self { backend: Trusted(Arc::<NullBackend>::clone(&null)), null }
    }

    pub(crate) fn at_once() -> Self {
        Self::new(NullConfig::default())
    }

    pub(crate) fn when_asked() -> Self {
        let completion = CompletionMode::WhenAsked { polls: 3 };
        Self::new(NullConfig { completion, ..NullConfig::default() })
    }

    pub(crate) fn four_devices() -> Self {
        let completion = CompletionMode::WhenAsked { polls: 1 };
        let has_shared_memory = false;
        let null = NullConfig::default();
        Self::new(NullConfig { device_count: 4, completion, has_shared_memory, ..null })
    }

    /// A fault layer without a planned fault: it must not be noticed.
    pub(crate) fn behind_faults() -> Self {
        let mut subject = Self::when_asked();
        subject.backend = Trusted(FaultBackend::new(subject.backend.0));
        subject
    }
}

impl Subject for NullSubject {
    fn backend(&self) -> Trusted {
        self.backend.clone()
    }

    fn host_bytes(&self) -> Option<&dyn HostView> {
        None
    }

    fn assert_nothing_left(&self) {
        assert_eq!(self.null.resource_counts(), ResourceCounts::default());
    }
}

conformance!(at_once, crate::null_subject::NullSubject::at_once());
conformance!(when_asked, crate::null_subject::NullSubject::when_asked());
conformance!(four_devices, crate::null_subject::NullSubject::four_devices());
conformance!(behind_faults, crate::null_subject::NullSubject::behind_faults());
