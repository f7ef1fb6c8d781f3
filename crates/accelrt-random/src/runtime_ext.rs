//! The generators of a runtime.

use std::sync::Arc;

use accelrt::{Device, DeviceKind, Result, Runtime};

use crate::Generator;
use crate::defaults::Defaults;

/// Generators of a [`Runtime`]: new ones, and the default ones of its devices.
///
/// ```
/// use accelrt::{Config, Device, DeviceKind, Runtime};
/// use accelrt_random::RuntimeExt;
/// let runtime = Runtime::new(Config::default())?;
/// runtime.manual_seed(7)?;
/// runtime.manual_seed_all(DeviceKind::CPU, 8)?; // the later seed applies
/// assert_eq!(runtime.default_generator(Device::cpu(0))?.initial_seed()?, 8);
/// runtime.manual_seed_device(Device::cpu(0), 9)?;
/// let own = runtime.generator(Device::cpu(0))?;
/// assert_ne!(own.initial_seed()?, 9);
/// assert!(!runtime.is_initialized());
/// # Ok::<(), accelrt::Error>(())
/// ```
pub trait RuntimeExt: sealed::Sealed {
    /// Creates a generator for buffers of a device, with the seed 67280421310721, torch's default.
    /// Fails when the device does not exist. Initialises no device.
    fn generator(&self, device: Device) -> Result<Generator>;

    /// The default generator of a device, shared by all threads. Until a program sets the seed, the
    /// seed is unpredictable. Fails when the device does not exist, and in a forked child.
    /// Initialises no device.
    fn default_generator(&self, device: Device) -> Result<Generator>;

    /// Seeds the default generators of all devices of all kinds, also those created later. Queries
    /// and initialises no device. Fails in a forked child.
    fn manual_seed(&self, seed: u64) -> Result<()>;

    /// As [`RuntimeExt::manual_seed`], for the devices of one kind.
    fn manual_seed_all(&self, kind: DeviceKind, seed: u64) -> Result<()>;

    /// Seeds the default generator of one device, without checking that the device exists. Fails in
    /// a forked child.
    fn manual_seed_device(&self, device: Device, seed: u64) -> Result<()>;
}

impl RuntimeExt for Runtime {
    fn generator(&self, device: Device) -> Result<Generator> {
        self.backend(device)?;
        Ok(defaults(self).generator(device))
    }

    fn default_generator(&self, device: Device) -> Result<Generator> {
        self.backend(device)?;
        defaults(self).of(device)
    }

    fn manual_seed(&self, seed: u64) -> Result<()> {
        defaults(self).manual_seed(seed)
    }

    fn manual_seed_all(&self, kind: DeviceKind, seed: u64) -> Result<()> {
        defaults(self).manual_seed_all(kind, seed)
    }

    fn manual_seed_device(&self, device: Device, seed: u64) -> Result<()> {
        defaults(self).of(device)?.manual_seed(seed)
    }
}

fn defaults(runtime: &Runtime) -> Arc<Defaults> {
    runtime.extension(Defaults::new)
}

mod sealed {
    /// Implemented by [`accelrt::Runtime`] alone.
    pub trait Sealed {}
    impl Sealed for accelrt::Runtime {}
}
