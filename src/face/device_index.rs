//! The current device by its index, as in torch's `accelerator` module.

use crate::base::device::Device;
use crate::base::error::Result;
use crate::runtime::Runtime;

/// Device-agnostic functions, in which an index names a device of the accelerator's kind.
impl Runtime {
    /// The index of this thread's current device, which is of the accelerator's kind.
    pub fn current_device_index(&self) -> Result<usize> {
        Ok(self.current_device()?.index())
    }

    /// Makes the device of the accelerator's kind with this index current for this thread. Fails,
    /// without a change, when the device does not exist.
    ///
    /// torch ignores a negative index, for a caller that may have no device. Here such a caller
    /// uses [`OptionalDeviceGuard`](crate::OptionalDeviceGuard) with `None`.
    ///
    /// ```
    /// use accelrt::{Config, Device, Runtime};
    /// let runtime = Runtime::new(Config::builder().cpu_devices(2).build()?)?;
    /// runtime.set_device_index(1)?;
    /// assert_eq!(runtime.current_device_index()?, 1);
    /// assert_eq!(runtime.current_device()?, Device::cpu(1));
    /// assert!(runtime.set_device_index(2).is_err());
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn set_device_index(&self, index: usize) -> Result<()> {
        self.set_device(Device::new(self.accelerator()?, index)?)
    }

    /// The older name of [`Runtime::current_device_index`].
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// # #[expect(deprecated)]
    /// let index = runtime.current_device_idx()?;
    /// assert_eq!(index, runtime.current_device_index()?);
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    #[deprecated(since = "0.1.0", note = "use `current_device_index` instead")]
    pub fn current_device_idx(&self) -> Result<usize> {
        self.current_device_index()
    }

    /// The older name of [`Runtime::set_device_index`].
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// # #[expect(deprecated)]
    /// runtime.set_device_idx(0)?;
    /// assert_eq!(runtime.current_device_index()?, 0);
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    #[deprecated(since = "0.1.0", note = "use `set_device_index` instead")]
    pub fn set_device_idx(&self, index: usize) -> Result<()> {
        self.set_device_index(index)
    }
}
