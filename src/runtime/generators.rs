//! Creates generators, and seeds the default generators.

use crate::base::device::{Device, DeviceKind};
use crate::base::error::Result;
use crate::compute::generator::Generator;
use crate::runtime::Runtime;

impl Runtime {
    /// Creates a generator for buffers of a device, with the seed 67280421310721, torch's default.
    /// Fails when the device does not exist. Initialises no device.
    pub fn generator(&self, device: Device) -> Result<Generator> {
        self.backend(device)?;
        Ok(self.inner.generators.generator(device))
    }

    /// The default generator of a device, shared by all threads. Until a program sets the seed, the
    /// seed is unpredictable. Fails when the device does not exist, and in a forked child.
    /// Initialises no device.
    pub fn default_generator(&self, device: Device) -> Result<Generator> {
        self.backend(device)?;
        self.inner.generators.of(device)
    }

    /// Seeds the default generators of all devices of all kinds, also those created later. Queries
    /// and initialises no device.
    ///
    /// ```
    /// use accelrt::{Config, Device, DeviceKind, Runtime};
    /// let runtime = Runtime::new(Config::default())?;
    /// runtime.manual_seed(7)?;
    /// runtime.manual_seed_all(DeviceKind::CPU, 8)?; // the later seed applies
    /// assert!(!runtime.is_initialized());
    /// assert_eq!(runtime.default_generator(Device::cpu(0))?.initial_seed()?, 8);
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn manual_seed(&self, seed: u64) -> Result<()> {
        self.inner.generators.manual_seed(seed)
    }

    /// As [`Runtime::manual_seed`], for the devices of one kind.
    pub fn manual_seed_all(&self, kind: DeviceKind, seed: u64) -> Result<()> {
        self.inner.generators.manual_seed_all(kind, seed)
    }

    /// Seeds the default generator of one device, without checking that the device exists.
    pub fn manual_seed_device(&self, device: Device, seed: u64) -> Result<()> {
        self.inner.generators.of(device)?.manual_seed(seed)
    }
}
