//! Making buffers: on the current stream of a device, which becomes their home.

use crate::buffer::Buffer;
#[cfg(feature = "python")]
use crate::buffer::here;
use crate::device::Device;
use crate::error::Result;
use crate::runtime::Runtime;

impl Runtime {
    /// Memory on a device, with unspecified contents, aligned to 512 bytes. Its home is the current
    /// stream of this thread on that device. Does not wait for any stream, except that memory
    /// which is being freed is waited for when there is too little and that would be enough.
    ///
    /// Fails with [`Error::OutOfMemory`](crate::Error::OutOfMemory), and has changed nothing then;
    /// when the device does not exist, after a shutdown and in a forked child.
    ///
    /// ```
    /// use accelrt::{Config, Device, Runtime};
    /// let runtime = Runtime::new(Config::default())?;
    /// let buffer = runtime.empty(1 << 20, Device::cpu(0))?;
    /// assert_eq!((buffer.nbytes(), buffer.device()), (1 << 20, Device::cpu(0)));
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn empty(&self, bytes: usize, device: Device) -> Result<Buffer> {
        let home = self.current_stream_of(device)?;
        Buffer::allocate(&home, bytes, &self.origin(device, false)?, &mut None)
    }

    /// As [`Runtime::empty`], filled with zeros by a task of the home stream.
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// let buffer = runtime.zeros(3, accelrt::Device::cpu(0))?;
    /// assert_eq!(buffer.read_to_vec()?, [0; 3]);
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn zeros(&self, bytes: usize, device: Device) -> Result<Buffer> {
        let buffer = self.empty(bytes, device)?;
        buffer.fill(0, &buffer.stream())?;
        Ok(buffer)
    }

    /// Host memory that the accelerator's devices reach directly. Its home is the current stream of
    /// the current device, or of the accelerator's first device when another kind is current.
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// let staging = runtime.empty_pinned(4096)?;
    /// assert!(staging.is_pinned());
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn empty_pinned(&self, bytes: usize) -> Result<Buffer> {
        let (current, accelerator) = (self.current_device()?, self.accelerator()?);
        let device =
            if current.kind() == accelerator { current } else { Device::new(accelerator, 0)? };
        let home = self.current_stream_of(device)?;
        Buffer::allocate(&home, bytes, &self.origin(device, true)?, &mut None)
    }

    /// This thread means `device` where it names none, until what is current in it changes.
    #[cfg(feature = "python")]
    pub(crate) fn remember_place(&'static self, device: Device) -> Result<()> {
        here::remember(self.current_stream_of(device)?, self.origin(device, false)?);
        Ok(())
    }
}
