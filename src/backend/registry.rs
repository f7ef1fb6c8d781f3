//! The backends of a runtime, by kind, and the choice of the accelerator.

use std::sync::{Arc, OnceLock};

use crate::backend::contract::Backend;
use crate::backend::cpu::CpuBackend;
use crate::base::config::Config;
use crate::base::device::DeviceKind;
use crate::base::error::{DeviceError, Error, Result};

/// Kinds that precede cpu as the accelerator when no setting names one and they have a GPU.
const CANDIDATES: [DeviceKind; 2] = [DeviceKind::CUDA, DeviceKind::XPU];

/// Creates a kind's backend for a runtime with these settings. Starts no thread, opens no device.
type MakeBackend = dyn Fn(&Config) -> Result<Arc<dyn Backend>> + Send + Sync;

/// The registered constructors, by type code.
static CONSTRUCTORS: [OnceLock<Box<MakeBackend>>; 128] = [const { OnceLock::new() }; 128];

/// Registers a kind with its backend's constructor: all that a kind from outside of this crate
/// needs. Each runtime created later calls `make` once, with its settings. `make` must not start a
/// thread or open a device.
///
/// The first use of the global runtime creates that runtime, so register kinds before. To add a
/// backend to a single runtime, see [`Runtime::with_backends`](crate::Runtime::with_backends).
///
/// Fails as [`DeviceKind::register`], and when the kind already has a backend.
///
/// ```
/// use accelrt_testing::null::{NullBackend, NullConfig};
/// use accelrt::{Config, Runtime};
/// accelrt::backend::register("npu", 64, |kind, _config| {
///     Ok(NullBackend::new(NullConfig { kind, ..NullConfig::default() }))
/// })?;
/// let stream = Runtime::new(Config::default())?.stream("npu:0".parse()?)?;
/// assert_eq!(stream.device().to_string(), "npu:0");
/// # Ok::<(), accelrt::Error>(())
/// ```
pub fn register(
    name: &str,
    type_code: u8,
    make: impl Fn(DeviceKind, &Config) -> Result<Arc<dyn Backend>> + Send + Sync + 'static,
) -> Result<DeviceKind> {
    let kind = DeviceKind::register(name, type_code)?;
    register_backend(kind, move |config| make(kind, config))?;
    Ok(kind)
}

/// As [`register`], for a kind that is registered already.
pub fn register_backend(
    kind: DeviceKind,
    make: impl Fn(&Config) -> Result<Arc<dyn Backend>> + Send + Sync + 'static,
) -> Result<()> {
    register_cpu();
    set_constructor(kind, Box::new(make))
}

fn register_cpu() {
    constructor(DeviceKind::CPU)
        .get_or_init(|| Box::new(|config: &Config| Ok(CpuBackend::new(config)?)));
}

fn set_constructor(kind: DeviceKind, make: Box<MakeBackend>) -> Result<()> {
    constructor(kind).set(make).map_err(|_| Error::Device(DeviceError::BackendRegistered { kind }))
}

fn constructor(kind: DeviceKind) -> &'static OnceLock<Box<MakeBackend>> {
    &CONSTRUCTORS[usize::from(kind.type_code())]
}

/// The backends of one runtime: cpu, and at most one of each other kind. Reads take no lock.
///
/// ```
/// use accelrt_testing::null::{NullBackend, NullConfig};
/// use accelrt::backend::registry::Registry;
/// # use accelrt::DeviceKind;
/// # fn with(cpu: std::sync::Arc<dyn accelrt::backend::contract::Backend>) -> accelrt::Result<()> {
/// let registry = Registry::new(cpu).with_backend(NullBackend::new(NullConfig::default()));
/// assert_eq!(registry.backend(DeviceKind::NULL)?.device_count()?, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Registry {
    /// One backend per kind, sorted by kind.
    backends: Vec<Arc<dyn Backend>>,
}

impl Registry {
    /// Creates a backend of kind cpu and of each [registered](register) kind. Starts no thread and
    /// opens no device. Fails when a constructor fails.
    pub fn from_config(config: &Config) -> Result<Self> {
        register_cpu();
        let mut registry = Self { backends: Vec::new() };
        for kind in DeviceKind::registered() {
            let Some(make) = constructor(kind).get() else { continue };
            let backend = make(config)?;
            if backend.kind() != kind {
                let reason = format!("its backend is one of kind {}", backend.kind());
                return Err(Error::Device(DeviceError::KindUnavailable { kind, reason }));
            }
            registry = registry.with_backend(match WRAP.get() {
                Some(wrap) => wrap(backend),
                None => backend,
            });
        }
        Ok(registry)
    }

    /// Creates a registry with only this cpu backend.
    ///
    /// # Panics
    /// When the backend is of another kind.
    #[must_use]
    pub fn new(cpu: Arc<dyn Backend>) -> Self {
        assert_eq!(cpu.kind(), DeviceKind::CPU, "a registry begins with the cpu backend");
        Self { backends: vec![cpu] }
    }

    /// Adds a backend, or replaces the backend of the same kind.
    #[must_use]
    pub fn with_backend(mut self, backend: Arc<dyn Backend>) -> Self {
        match self.backends.binary_search_by_key(&backend.kind(), |known| known.kind()) {
            Ok(place) => self.backends[place] = backend,
            Err(place) => self.backends.insert(place, backend),
        }
        self
    }

    /// The backend of a kind. Fails with `KindUnavailable` when this registry has none. The backend
    /// may have no device.
    pub fn backend(&self, kind: DeviceKind) -> Result<&Arc<dyn Backend>> {
        let found = self.backends.iter().find(|backend| backend.kind() == kind);
        let missing = || DeviceError::KindUnavailable { kind, reason: missing_reason(kind) };
        Ok(found.ok_or_else(missing)?)
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

    /// Chooses the kind of the accelerator. Only probes the drivers.
    ///
    /// With a `setting`, returns this kind. Fails when the kind has no backend or no device, or
    /// when its driver cannot count the devices. Without a setting, returns the first of cuda and
    /// xpu that has a GPU, else cpu. A kind whose driver refuses the probe counts as a kind without
    /// a GPU.
    pub fn accelerator(&self, setting: Option<DeviceKind>) -> Result<DeviceKind> {
        let Some(kind) = setting else {
            let chosen = CANDIDATES.into_iter().find(|kind| self.has_gpu(*kind));
            return Ok(chosen.unwrap_or(DeviceKind::CPU));
        };
        if self.backend(kind)?.device_count()? == 0 {
            let reason = "there is no such device on this machine".to_owned();
            return Err(Error::Device(DeviceError::KindUnavailable { kind, reason }));
        }
        Ok(kind)
    }

    fn has_gpu(&self, kind: DeviceKind) -> bool {
        let Ok(backend) = self.backend(kind) else { return false };
        if !backend.may_have_gpu() {
            return false; // saves loading a driver
        }
        let count = backend.device_count().unwrap_or(0);
        (0..count).any(|index| backend.properties(index).is_ok_and(|device| device.is_gpu))
    }
}

/// Wraps the backends of runtimes that are made from then on, so that tests can fail their calls.
#[doc(hidden)]
pub static WRAP: OnceLock<Wrap> = OnceLock::new();

/// Wraps a backend.
#[doc(hidden)]
pub type Wrap = fn(Arc<dyn Backend>) -> Arc<dyn Backend>;

fn missing_reason(kind: DeviceKind) -> String {
    if constructor(kind).get().is_some() {
        format!("this runtime was made before the {kind} backend was registered")
    } else {
        format!("no {kind} backend is registered")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::{Fault, FaultBackend, FaultError, Method};
    use crate::null::{NullBackend, NullConfig};

    fn null_backend(kind: DeviceKind, device_count: usize, is_gpu: bool) -> Arc<dyn Backend> {
        NullBackend::new(NullConfig { kind, is_gpu, device_count, ..NullConfig::default() })
    }

    fn cpu() -> Registry {
        Registry::new(null_backend(DeviceKind::CPU, 1, false))
    }

    #[test]
    fn the_error_for_a_missing_kind_says_that_no_backend_is_registered() {
        for kind in [DeviceKind::CUDA, DeviceKind::XPU, DeviceKind::NULL] {
            for refused in [cpu().backend(kind).map(drop), cpu().accelerator(Some(kind)).map(drop)]
            {
                let message = refused.unwrap_err().to_string();
                let expected =
                    format!("No {kind} device is available: no {kind} backend is registered");
                assert!(message.starts_with(&expected), "{message}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "begins with the cpu backend")]
    fn a_registry_of_another_kind_than_cpu_is_a_mistake() {
        let _ = Registry::new(null_backend(DeviceKind::XPU, 1, true));
    }

    #[test]
    fn with_backend_adds_or_replaces() {
        let registry = cpu()
            .with_backend(null_backend(DeviceKind::XPU, 1, true))
            .with_backend(null_backend(DeviceKind::NULL, 0, false))
            .with_backend(null_backend(DeviceKind::XPU, 3, true));
        assert_eq!(registry.kinds(), [DeviceKind::CPU, DeviceKind::NULL, DeviceKind::XPU]);
        assert_eq!(registry.backend(DeviceKind::XPU).unwrap().device_count().unwrap(), 3);
        let replaced = registry.with_backend(null_backend(DeviceKind::CPU, 2, false));
        assert_eq!(replaced.backend(DeviceKind::CPU).unwrap().device_count().unwrap(), 2);
    }

    #[test]
    fn only_a_gpu_becomes_the_accelerator_by_default() {
        // Goal: cuda precedes xpu, xpu precedes cpu; only GPUs count. Method: combined devices.
        let cuda = |count| null_backend(DeviceKind::CUDA, count, true);
        let xpu = |is_gpu| null_backend(DeviceKind::XPU, 2, is_gpu);
        let null = null_backend(DeviceKind::NULL, 1, true);
        let choice = |registry: Registry| registry.accelerator(None).unwrap();
        assert_eq!(choice(cpu()), DeviceKind::CPU);
        assert_eq!(choice(cpu().with_backend(xpu(false))), DeviceKind::CPU);
        assert_eq!(choice(cpu().with_backend(xpu(true))), DeviceKind::XPU);
        let both = cpu().with_backend(xpu(true));
        assert_eq!(choice(both.clone().with_backend(cuda(0))), DeviceKind::XPU);
        assert_eq!(choice(both.with_backend(cuda(1))), DeviceKind::CUDA);
        assert_eq!(choice(cpu().with_backend(null)), DeviceKind::CPU);
    }

    #[test]
    fn a_named_kind_is_the_accelerator_when_it_has_a_device() {
        let registry = cpu()
            .with_backend(null_backend(DeviceKind::CUDA, 0, true))
            .with_backend(null_backend(DeviceKind::XPU, 1, false));
        assert_eq!(registry.accelerator(Some(DeviceKind::XPU)).unwrap(), DeviceKind::XPU);
        assert_eq!(registry.accelerator(Some(DeviceKind::CPU)).unwrap(), DeviceKind::CPU);
        let refused = registry.accelerator(Some(DeviceKind::CUDA)).unwrap_err();
        assert!(matches!(
            refused,
            Error::Device(DeviceError::KindUnavailable { kind: DeviceKind::CUDA, .. })
        ));
    }

    #[test]
    fn a_failing_probe_is_skipped_unless_the_kind_is_named() {
        for method in [Method::DeviceCount, Method::Properties] {
            let broken = FaultBackend::new(null_backend(DeviceKind::CUDA, 1, true));
            broken.plan(Fault::always(method, FaultError::Driver));
            let registry = cpu().with_backend(broken);
            assert_eq!(registry.accelerator(None).unwrap(), DeviceKind::CPU);
            let named = registry.accelerator(Some(DeviceKind::CUDA));
            assert_eq!(named.is_err(), method == Method::DeviceCount, "{named:?}");
        }
    }
}
