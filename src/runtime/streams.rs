//! Creates streams, and finds those that exist.

use std::sync::Arc;

use crate::base::device::Device;
use crate::base::error::Result;
use crate::base::fork;
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::lifecycle::Lifecycle;
use crate::engine::stream::{Stream, order_watch};
use crate::runtime::Runtime;

impl Runtime {
    #[doc(hidden)]
    #[must_use]
    pub fn lifecycle(&self) -> &Arc<Lifecycle> {
        &self.inner.lifecycle
    }

    /// Every stream that exists, of all devices.
    #[doc(hidden)]
    #[must_use]
    pub fn all_streams(&self) -> Vec<Arc<StreamCore>> {
        self.inner.streams()
    }

    /// Creates a stream for the caller alone. The stream ends when its last handle is dropped and
    /// its work is done. Fails when the device does not exist, after a shutdown and in a forked
    /// child.
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// let stream = runtime.stream(accelrt::Device::cpu(0))?;
    /// stream.enqueue(|| println!("on a worker"))?;
    /// stream.synchronize()?;
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn stream(&self, device: Device) -> Result<Stream> {
        self.stream_with_priority(device, 0)
    }

    /// As [`Runtime::stream`], with a priority; a smaller number runs first. A priority outside of
    /// [`Runtime::priority_range`] becomes the nearest one in it.
    pub fn stream_with_priority(&self, device: Device, priority: i32) -> Result<Stream> {
        self.table(device)?.dedicated_stream(priority).map(Stream::from_core)
    }

    /// Takes the next stream of the device's pool of 32, as PyTorch's `Stream()` does. The streams
    /// live as long as the runtime, so a request costs a lock and creates at most 32 streams.
    ///
    /// Request 33 gets the stream of request 1 again. Its callers share the order of their tasks.
    /// Errors of tasks that were enqueued before a request do not fail the tasks of that caller,
    /// who does not see them. But a synchronise by one caller clears the error of a later task of
    /// another: code that must see its own errors takes [`Runtime::stream`].
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// let device = accelrt::Device::cpu(0);
    /// let streams = [(); 33].map(|()| runtime.pooled_stream(device).unwrap());
    /// assert_eq!(streams[0], streams[32]);
    /// assert_ne!(runtime.stream(device)?, runtime.stream(device)?);
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn pooled_stream(&self, device: Device) -> Result<Stream> {
        self.pooled_stream_with_priority(device, 0)
    }

    /// As [`Runtime::pooled_stream`], from the pool of streams with this priority; a smaller number
    /// runs first. A priority out of range becomes the nearest one in it.
    pub fn pooled_stream_with_priority(&self, device: Device, priority: i32) -> Result<Stream> {
        let (stream, issued_after) = self.table(device)?.pooled_stream(priority)?;
        Ok(Stream::issued_after_ticket(issued_after, stream))
    }

    /// The device's default stream: id 0, shared by all threads, not ordered with other streams.
    pub fn default_stream(&self, device: Device) -> Result<Stream> {
        self.table(device)?.default_stream().map(Stream::from_core)
    }

    /// The stream with this id. Fails for an id that was never issued or whose stream has ended.
    pub fn stream_by_id(&self, device: Device, stream_id: u64) -> Result<Stream> {
        self.table(device)?.stream_by_id(stream_id).map(Stream::from_core)
    }

    /// Waits for the device's streams, and tells a watch of the order.
    pub(super) fn told_wait(
        &self,
        device: Device,
        wait: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        if !order_watch::is_on() || fork::is_child() {
            return wait();
        }
        let streams = self.inner.streams().into_iter().map(|stream| (stream.pushed(), stream));
        let of_device: Vec<_> = streams.filter(|(_, it)| it.identity.device == device).collect();
        let waited = wait();
        for (last, stream) in of_device {
            stream.tell_waited(last, true, &waited);
        }
        waited
    }
}
