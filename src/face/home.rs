//! Buffers whose home stream the caller names.

use crate::base::error::Result;
use crate::engine::stream::Stream;
use crate::engine::stream::interrupt::Interrupt;
use crate::memory::buffer::Buffer;
use crate::runtime::Runtime;

impl Runtime {
    /// As [`Runtime::empty`], on the device of `home`, which becomes the buffer's home stream
    /// whatever is current: the memory is free for others behind the work of that stream.
    ///
    /// Fails as [`Runtime::empty`], and when the stream belongs to another runtime.
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// let stream = runtime.stream(accelrt::Device::cpu(0))?;
    /// let buffer = runtime.empty_on(1 << 20, &stream)?;
    /// assert_eq!(buffer.stream(), stream);
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn empty_on(&self, bytes: usize, home: &Stream) -> Result<Buffer> {
        home.core().lifecycle.check_same_runtime("a runtime", self.id())?;
        let origin = self.origin(home.device())?;
        Buffer::allocate(home, bytes, &origin, &mut Interrupt::default())
    }

    /// As [`Runtime::empty_on`], filled with zeros by a task of `home`.
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// let stream = runtime.stream(accelrt::Device::cpu(0))?;
    /// assert_eq!(runtime.zeros_on(3, &stream)?.read_to_vec()?, [0; 3]);
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn zeros_on(&self, bytes: usize, home: &Stream) -> Result<Buffer> {
        let buffer = self.empty_on(bytes, home)?;
        buffer.fill(0, home)?;
        Ok(buffer)
    }
}
