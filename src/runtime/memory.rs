//! Creates buffers, calls observers of shortages, and lets allocators tell the log what they do.
//!
//! The home of a buffer is the current stream of its device.

use std::sync::Arc;

use crate::base::device::Device;
use crate::base::error::{ConfigError, Error, Result};
use crate::base::fork;
use crate::base::size::MIB;
use crate::base::steps::step;
use crate::engine::log::collector::shortened;
use crate::engine::log::immediate::Immediate;
use crate::engine::stream::Stream;
use crate::engine::stream::interrupt::Interrupt;
use crate::memory::allocator::{CachingAllocator, Recorded};
use crate::memory::buffer::Buffer;
use crate::memory::buffer::allocation::{NotServed, Origin, remember_hint};
use crate::runtime::Runtime;
use crate::runtime::instance::Allocators;

/// The largest alignment: the size of a huge page.
const MAX_ALIGN_BYTES: usize = 2 * MIB;

/// Fails for an alignment that no buffer can have. The error quotes `given`, the caller's text.
pub fn check_alignment(align_bytes: usize, given: &impl ToString) -> Result<()> {
    if align_bytes.is_power_of_two() && align_bytes <= MAX_ALIGN_BYTES {
        return Ok(());
    }
    let (name, value) = ("alignment", given.to_string());
    let allowed = "a power of two up to 2097152 bytes (2 MiB)";
    Err(Error::Config(ConfigError::InvalidSetting { name, value, allowed }))
}

impl Runtime {
    /// Allocates memory on a device, with unspecified contents, aligned to 512 bytes. The buffer's
    /// home is this thread's current stream on that device. When memory is short, the call waits
    /// for streams that use freed memory, if that memory would suffice.
    ///
    /// Fails with [`OutOfMemory`](crate::MemoryError::OutOfMemory). Also fails when the device does
    /// not exist, after a shutdown and in a forked child.
    ///
    /// ```
    /// use accelrt::{Config, Device, Runtime};
    /// let runtime = Runtime::new(Config::default())?;
    /// let buffer = runtime.empty(1 << 20, Device::cpu(0))?;
    /// assert_eq!((buffer.nbytes(), buffer.device()), (1 << 20, Device::cpu(0)));
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn empty(&self, bytes: usize, device: Device) -> Result<Buffer> {
        // Only the process's runtime uses hints, because a hint would keep any other runtime alive.
        if !self.is_of_process() {
            return self.empty_unhinted(bytes, device);
        }
        match Buffer::hinted(bytes, Some(device)) {
            Ok(buffer) => Ok(buffer),
            Err(reason) => self.empty_not_served(bytes, device, *reason),
        }
    }

    #[cold]
    #[inline(never)]
    fn empty_not_served(&self, bytes: usize, device: Device, reason: NotServed) -> Result<Buffer> {
        match reason {
            NotServed::Failed(error) => Err(error),
            NotServed::Later(rest) => Buffer::finish(rest, &mut Interrupt::default()),
            NotServed::Unknown => self.empty_unhinted(bytes, device),
        }
    }

    #[cold]
    fn empty_unhinted(&self, bytes: usize, device: Device) -> Result<Buffer> {
        step();
        let (home, origin) = (self.current_stream_of(device)?, self.origin(device)?);
        if self.is_of_process() {
            // Sets the hint first: a task that this thread runs while allocating may change the
            // hint.
            remember_hint(home.clone(), origin.clone(), false);
        }
        Buffer::allocate(&home, bytes, &origin, &mut Interrupt::default())
    }

    /// As [`Runtime::empty`], at a multiple of `align_bytes`, a power of two up to 2 MiB. The bytes
    /// that the alignment skips stay free. Fails with [`ConfigError::InvalidSetting`] for any other
    /// number.
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// let buffer = runtime.empty_aligned(1000, 1 << 16, accelrt::Device::cpu(0))?;
    /// assert!(buffer.address()?.is_multiple_of(1 << 16));
    /// assert!(runtime.empty_aligned(1000, 48, accelrt::Device::cpu(0)).is_err());
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn empty_aligned(
        &self,
        bytes: usize,
        align_bytes: usize,
        device: Device,
    ) -> Result<Buffer> {
        check_alignment(align_bytes, &align_bytes)?;
        self.allocate(bytes, device, &Origin { align_bytes, ..self.origin(device)? })
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

    /// As [`Runtime::empty`], in memory that the device shares with the host. On kinds whose
    /// addresses are backed by memory, the host can access the memory after all uses are done. The
    /// memory counts against the device's memory, is cached apart from the device's own memory, and
    /// belongs to no pool.
    ///
    /// Fails as [`Runtime::empty`], and with [`Unsupported`](crate::DriverError::Unsupported) on a
    /// device whose properties lack `has_shared_memory`.
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// let shared = runtime.empty_shared(4, accelrt::Device::cpu(0))?;
    /// shared.fill(7, &shared.stream())?;
    /// assert_eq!(shared.read_to_vec()?, [7; 4]); // waits for the fill
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn empty_shared(&self, bytes: usize, device: Device) -> Result<Buffer> {
        self.allocate(bytes, device, &self.shared_origin(device)?)
    }

    /// As [`Runtime::empty`], in host memory that the accelerator's devices access directly, at an
    /// address that is a multiple of 64. The buffer's home is the current stream of the current
    /// device.
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// let staging = runtime.empty_pinned(4096)?;
    /// assert!(staging.is_pinned());
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn empty_pinned(&self, bytes: usize) -> Result<Buffer> {
        let device = self.current_device()?;
        self.allocate(bytes, device, &self.pinned_origin(device)?)
    }

    fn allocate(&self, bytes: usize, device: Device, origin: &Origin) -> Result<Buffer> {
        Buffer::allocate(&self.current_stream_of(device)?, bytes, origin, &mut Interrupt::default())
    }

    /// Sets this thread's hint, for requests that name no device. The hint lasts until the thread's
    /// current device, stream, pool or mode changes.
    #[doc(hidden)]
    pub fn set_thread_hint(&'static self, device: Device) -> Result<()> {
        remember_hint(self.current_stream_of(device)?, self.origin(device)?, true);
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::config::Config;
    use crate::base::steps::steps_of;
    use crate::engine::stream::order_watch;

    #[test]
    fn the_process_runtime_computes_a_threads_hint_once() {
        let _alone = order_watch::alone();
        let steps = |runtime: &Runtime| {
            [(); 3].map(|()| steps_of(|| drop(runtime.empty(512, Device::cpu(0)).unwrap())).1)
        };
        let process = Runtime::global().unwrap();
        let [first, second, third] = steps(&process);
        assert!(first > 0, "{first} steps");
        assert_eq!([second, third], [0, 0]);
        process.set_device(Device::cpu(0)).unwrap();
        let [first, second, _] = steps(&process);
        assert!(first > 0 && second == 0, "{first} and {second} steps");
        let own = steps(&Runtime::new(Config::default()).unwrap());
        assert!(own.iter().all(|steps| *steps > 0), "{own:?} steps");
    }

    #[test]
    fn the_hint_of_requests_without_a_device_is_set_separately_and_cleared_at_a_change() {
        let _alone = order_watch::alone();
        let (runtime, device) = (Runtime::of_process().unwrap(), Device::cpu(0));
        let is_known = |device| {
            let served = Buffer::hinted(512, device).map_err(|reason| *reason);
            !matches!(served, Err(NotServed::Unknown))
        };
        drop([(); 2].map(|()| runtime.empty(512, device).unwrap()));
        assert!(!is_known(None), "a device was named");
        runtime.set_thread_hint(device).unwrap();
        assert!(is_known(None));
        runtime.set_stream(&runtime.stream(device).unwrap()).unwrap();
        assert!(!is_known(None) && !is_known(Some(device)));
    }

    #[test]
    fn pinned_memory_is_at_home_on_the_current_device() {
        let runtime = Runtime::new(Config::builder().cpu_devices(2).build().unwrap()).unwrap();
        runtime.set_device(Device::cpu(1)).unwrap();
        assert_eq!(runtime.empty_pinned(1).unwrap().stream().device(), Device::cpu(1));
    }
}

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

impl Runtime {
    /// Calls `observer` with each out-of-memory error of this runtime's allocators, on the
    /// requesting thread and without a lock. Returns the id for [`Runtime::remove_oom_observer`].
    /// Errors inside an observer, of the host heap and of separate allocators are not reported. A
    /// forked child reports nothing.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    /// use accelrt::{Config, Device, Runtime};
    ///
    /// let config = Config::builder().cpu_memory_bytes(8 << 20).build()?;
    /// let runtime = Runtime::new(config)?;
    /// let told = Arc::new(AtomicUsize::new(0));
    /// let counter = Arc::clone(&told);
    /// let id = runtime.add_oom_observer(move |_| _ = counter.fetch_add(1, Ordering::Relaxed));
    /// assert!(runtime.empty(1 << 30, Device::cpu(0)).is_err());
    /// runtime.remove_oom_observer(id);
    /// assert!(runtime.empty(1 << 30, Device::cpu(0)).is_err());
    /// assert_eq!(told.load(Ordering::Relaxed), 1);
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn add_oom_observer(&self, observer: impl Fn(&Error) + Send + Sync + 'static) -> u64 {
        self.shortages().map_or(NO_SUBSCRIBER, |all| all.subscribe(observer))
    }

    /// Removes an observer by the id that [`Runtime::add_oom_observer`] returned. An unknown id has
    /// no effect.
    pub fn remove_oom_observer(&self, id: u64) {
        if let Some(all) = self.shortages() {
            all.unsubscribe(id);
        }
    }

    /// Asks `reclaimer` for memory before a request of this runtime's allocators fails, as
    /// [`add_reclaimer`](crate::CachingAllocator::add_reclaimer) of an allocator. Returns the id
    /// for [`Runtime::remove_reclaimer`].
    pub fn add_reclaimer(&self, reclaimer: impl Fn(&Error) -> bool + Send + Sync + 'static) -> u64 {
        self.reclaimers().map_or(NO_SUBSCRIBER, |all| all.subscribe(reclaimer))
    }

    /// Removes a reclaimer by the id that [`Runtime::add_reclaimer`] returned. An unknown id has no
    /// effect.
    pub fn remove_reclaimer(&self, id: u64) {
        if let Some(all) = self.reclaimers() {
            all.unsubscribe(id);
        }
    }

    /// `None` in a forked child, where a thread that the child lacks may hold the lock.
    fn reclaimers(&self) -> Option<Arc<Immediate<Error, bool>>> {
        (!fork::is_child()).then(|| Arc::clone(&self.inner.allocators.lock().reclaimers))
    }

    /// As [`Runtime::reclaimers`].
    fn shortages(&self) -> Option<Arc<Immediate<Error>>> {
        (!fork::is_child()).then(|| Arc::clone(&self.inner.allocators.lock().shortages))
    }
}

/// The id that an observer or a reclaimer gets in a forked child, where it is never called.
const NO_SUBSCRIBER: u64 = u64::MAX;

/// Makes allocators tell the log what they do, until the drop. Requests and frees take the slow
/// path meanwhile.
#[must_use = "the drop ends the watch"]
#[derive(Debug)]
pub struct MemoryWatch(Runtime);

impl Runtime {
    /// Begins a watch. Several may be there at once. Allocators of pinned and shared memory,
    /// separate ones and that of the host heap are not recorded.
    #[doc(hidden)]
    pub fn log_memory(&self) -> MemoryWatch {
        self.change_watches(|count| *count += 1);
        MemoryWatch(self.clone())
    }

    /// Has no effect in a forked child, where a thread that the child lacks may hold the lock.
    fn change_watches(&self, change: fn(&mut usize)) {
        if fork::is_child() {
            return;
        }
        let mut allocators = self.inner.allocators.lock();
        change(&mut allocators.watch_count);
        for (device, allocator) in &allocators.by_device {
            self.record(allocator, *device, &allocators);
        }
    }

    /// The allocators of all devices that have one, which watches are about. None in a forked
    /// child, as above.
    #[must_use]
    pub fn allocators_of_devices(&self) -> Vec<Arc<CachingAllocator>> {
        if fork::is_child() {
            return Vec::new();
        }
        self.inner.allocators.lock().by_device.values().cloned().collect()
    }

    /// Makes an allocator do what the watches ask for.
    pub(super) fn record(&self, allocator: &CachingAllocator, device: Device, of: &Allocators) {
        let recorded = Recorded { device, runtime: shortened(self.id()) };
        allocator.record((of.watch_count > 0).then_some(recorded));
    }
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        self.0.change_watches(|count| *count -= 1);
    }
}
