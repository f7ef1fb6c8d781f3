//! The backends of one runtime, by kind, and the choice of the accelerator among them.

use std::sync::Arc;

use crate::backend::contract::Backend;
use crate::backend::cpu::CpuBackend;
use crate::backend::null::{NullBackend, NullConfig};
#[cfg(feature = "xpu")]
use crate::backend::xpu::XpuBackend;
use crate::base::config::Config;
use crate::base::device::DeviceKind;
use crate::base::error::{Error, Result};

/// The kinds that may become the accelerator without being named, in this order.
const CHOICES: [DeviceKind; 2] = [DeviceKind::Cuda, DeviceKind::Xpu];

/// The backends of one runtime: the cpu's always, others where they were added.
///
/// Made once and read afterwards; reading takes no lock.
///
/// ```
/// use accelrt::backend::null::{NullBackend, NullConfig};
/// use accelrt::backend::registry::Registry;
/// # use accelrt::DeviceKind;
/// # fn with(cpu: std::sync::Arc<dyn accelrt::backend::contract::Backend>) -> accelrt::Result<()> {
/// let registry = Registry::new(cpu).with_backend(NullBackend::new(NullConfig::default()));
/// assert_eq!(registry.backend(DeviceKind::Null)?.device_count()?, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Registry {
    /// Sorted by kind, one a kind.
    backends: Vec<Arc<dyn Backend>>,
}

impl Registry {
    /// The kinds of this build, with their settings. Starts and opens nothing.
    pub fn from_config(config: &Config) -> Result<Self> {
        let registry = Self::new(CpuBackend::new(config)?);
        #[cfg(feature = "xpu")]
        let registry = registry.with_backend(XpuBackend::new(config));
        Ok(registry)
    }

    /// A registry with the cpu kind alone.
    ///
    /// # Panics
    /// When the backend is of another kind.
    #[must_use]
    pub fn new(cpu: Arc<dyn Backend>) -> Self {
        assert_eq!(cpu.kind(), DeviceKind::Cpu, "a registry begins with the cpu backend");
        Self { backends: vec![cpu] }
    }

    /// Adds a backend, or replaces the one of its kind: a wrapper, or a user's own.
    #[must_use]
    pub fn with_backend(mut self, backend: Arc<dyn Backend>) -> Self {
        match self.backends.binary_search_by_key(&backend.kind(), |known| known.kind()) {
            Ok(place) => self.backends[place] = backend,
            Err(place) => self.backends.insert(place, backend),
        }
        self
    }

    /// The backend of a kind. Fails with `KindUnavailable` when this build or this registry has
    /// none. A backend may exist without having a device.
    pub fn backend(&self, kind: DeviceKind) -> Result<&Arc<dyn Backend>> {
        let found = self.backends.iter().find(|backend| backend.kind() == kind);
        found.ok_or_else(|| Error::KindUnavailable { kind, reason: missing(kind) })
    }

    /// Every backend, sorted by kind.
    pub fn backends(&self) -> impl Iterator<Item = &Arc<dyn Backend>> {
        self.backends.iter()
    }

    /// The kinds that have a backend, in the order of their type codes.
    #[must_use]
    pub fn kinds(&self) -> Vec<DeviceKind> {
        self.backends.iter().map(|backend| backend.kind()).collect()
    }

    /// The kind that is used as the accelerator.
    ///
    /// That is `setting` when given, which fails when the kind has no backend or no device, or when
    /// its devices cannot be counted. Otherwise the first of cuda and xpu with a device that is a
    /// GPU, else cpu. A kind with a driver that refuses the probe is then skipped, because it was
    /// not requested. Probes only; may start a short-lived child where a driver needs one.
    pub fn accelerator(&self, setting: Option<DeviceKind>) -> Result<DeviceKind> {
        let Some(kind) = setting else {
            let chosen = CHOICES.into_iter().find(|kind| self.has_gpu(*kind));
            return Ok(chosen.unwrap_or(DeviceKind::Cpu));
        };
        if self.backend(kind)?.device_count()? == 0 {
            let reason = "there is no such device on this machine".to_owned();
            return Err(Error::KindUnavailable { kind, reason });
        }
        Ok(kind)
    }

    fn has_gpu(&self, kind: DeviceKind) -> bool {
        let Ok(backend) = self.backend(kind) else { return false };
        if !backend.may_have_gpu() {
            return false; // no driver is loaded needlessly
        }
        let count = backend.device_count().unwrap_or(0);
        (0..count).any(|index| backend.properties(index).is_ok_and(|device| device.is_gpu))
    }
}

/// One device of numbers in place of memory: allocators are replayed on it.
///
/// # Panics
/// When the granularity is no power of two from 64 on.
#[must_use]
pub fn accounting(capacity_bytes: usize, granularity_bytes: usize) -> Arc<dyn Backend> {
    let config = NullConfig { capacity_bytes, granularity_bytes, ..NullConfig::default() };
    NullBackend::new(config)
}

/// Why a kind has no backend.
fn missing(kind: DeviceKind) -> String {
    match kind {
        DeviceKind::Cuda | DeviceKind::Xpu => {
            format!("this build has no {kind} backend (cargo feature `{kind}`)")
        }
        DeviceKind::Cpu | DeviceKind::Null => {
            format!("no {kind} backend was added to this runtime")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::fault::{Fault, FaultBackend, FaultError, Method};
    use crate::backend::null::{NullBackend, NullConfig};

    fn stand_in(kind: DeviceKind, device_count: usize, is_gpu: bool) -> Arc<dyn Backend> {
        NullBackend::new(NullConfig { kind, is_gpu, device_count, ..NullConfig::default() })
    }

    fn cpu() -> Registry {
        Registry::new(stand_in(DeviceKind::Cpu, 1, false))
    }

    #[test]
    fn a_missing_kind_says_what_the_build_lacks() {
        for kind in [DeviceKind::Cuda, DeviceKind::Xpu] {
            for refused in [cpu().backend(kind).map(drop), cpu().accelerator(Some(kind)).map(drop)]
            {
                let message = refused.unwrap_err().to_string();
                assert!(message.contains(&format!("no {kind} backend")), "{message}");
                assert!(message.contains(&format!("cargo feature `{kind}`")), "{message}");
            }
        }
        let message = cpu().backend(DeviceKind::Null).unwrap_err().to_string();
        assert!(message.contains("No null device is available"), "{message}");
    }

    #[test]
    fn a_backend_is_added_or_takes_the_place_of_its_kind() {
        let registry = cpu()
            .with_backend(stand_in(DeviceKind::Xpu, 1, true))
            .with_backend(stand_in(DeviceKind::Null, 0, false))
            .with_backend(stand_in(DeviceKind::Xpu, 3, true));
        assert_eq!(registry.kinds(), [DeviceKind::Cpu, DeviceKind::Null, DeviceKind::Xpu]);
        assert_eq!(registry.backend(DeviceKind::Xpu).unwrap().device_count().unwrap(), 3);
        let replaced = registry.with_backend(stand_in(DeviceKind::Cpu, 2, false));
        assert_eq!(replaced.backend(DeviceKind::Cpu).unwrap().device_count().unwrap(), 2);
    }

    #[test]
    fn only_a_gpu_becomes_the_accelerator_unnamed() {
        // Goal: the order cuda, xpu, cpu, and that a device alone is not enough. Method: every mix.
        let cuda = |count| stand_in(DeviceKind::Cuda, count, true);
        let xpu = |is_gpu| stand_in(DeviceKind::Xpu, 2, is_gpu);
        let null = stand_in(DeviceKind::Null, 1, true);
        let choice = |registry: Registry| registry.accelerator(None).unwrap();
        assert_eq!(choice(cpu()), DeviceKind::Cpu);
        assert_eq!(choice(cpu().with_backend(xpu(false))), DeviceKind::Cpu);
        assert_eq!(choice(cpu().with_backend(xpu(true))), DeviceKind::Xpu);
        let both = cpu().with_backend(xpu(true));
        assert_eq!(choice(both.clone().with_backend(cuda(0))), DeviceKind::Xpu);
        assert_eq!(choice(both.with_backend(cuda(1))), DeviceKind::Cuda);
        assert_eq!(choice(cpu().with_backend(null)), DeviceKind::Cpu);
    }

    #[test]
    fn a_named_kind_is_the_accelerator_when_it_has_a_device() {
        let registry = cpu()
            .with_backend(stand_in(DeviceKind::Cuda, 0, true))
            .with_backend(stand_in(DeviceKind::Xpu, 1, false));
        assert_eq!(registry.accelerator(Some(DeviceKind::Xpu)).unwrap(), DeviceKind::Xpu);
        assert_eq!(registry.accelerator(Some(DeviceKind::Cpu)).unwrap(), DeviceKind::Cpu);
        let refused = registry.accelerator(Some(DeviceKind::Cuda)).unwrap_err();
        assert!(matches!(refused, Error::KindUnavailable { kind: DeviceKind::Cuda, .. }));
    }

    #[test]
    fn a_driver_that_cannot_be_probed_is_passed_over_unless_named() {
        for method in [Method::DeviceCount, Method::Properties] {
            let broken = FaultBackend::new(stand_in(DeviceKind::Cuda, 1, true));
            broken.plan(Fault::always(method, FaultError::Driver));
            let registry = cpu().with_backend(broken);
            assert_eq!(registry.accelerator(None).unwrap(), DeviceKind::Cpu);
            let named = registry.accelerator(Some(DeviceKind::Cuda));
            assert_eq!(named.is_err(), method == Method::DeviceCount, "{named:?}");
        }
    }
}
