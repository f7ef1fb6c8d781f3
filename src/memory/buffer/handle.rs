//! The public [`Buffer`], a view of an allocation. An [`ExportGuard`] prevents its release.

use std::fmt;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

use crate::backend::contract::{Address, MemoryKind};
use crate::base::device::Device;
use crate::base::error::{Error, MemoryError, Result};
use crate::base::fork::{self, Inherited};
use crate::engine::stream::Stream;
use crate::engine::stream::enqueue::Always;
use crate::engine::stream::internal::EmptyTask;
use crate::engine::stream::interrupt::Interrupt;
use crate::engine::stream::order_watch::{self, Told, UsedBytes};
use crate::memory::buffer::allocation::{
    Access, Allocation, NotServed, Origin, Refusal, UnfinishedBuffer, allocate_hinted, take_vacant,
};
use crate::memory::buffer::counted::Counted;
use crate::memory::buffer::uses::Task;

/// Memory on a device, freed in stream order.
///
/// A buffer is a view: clones and slices share one allocation and keep it alive. Copies and fills
/// record their use of the allocation, but their tasks hold no reference to it. Dropping the last
/// view right after a copy is therefore a *stream-ordered free*: the memory is freed when all work
/// on the home stream (current at the buffer's creation) and every recorded use on other streams is
/// done. No thread and no stream waits for a free. The program calls [`Buffer::record_use`] for
/// uses on other streams that the runtime cannot see.
///
/// Copies, fills and host accesses are ordered after conflicting uses on any stream: see
/// [`Buffer::copy_from`]. The program orders functions that take the address, by events or
/// [`Stream::wait_stream`]. A new buffer may reuse memory whose earlier tasks are still queued on
/// the home stream. Whatever is enqueued with its buffers waits for these by itself; on another
/// stream, a function that is given a bare address must be ordered behind the home stream.
///
/// [`Runtime::empty`](crate::Runtime::empty) and similar functions create buffers. A buffer
/// created with zero bytes has no memory; its address is 0.
///
/// ```
/// use accelrt::{Config, Device, Runtime};
/// let runtime = Runtime::new(Config::default())?;
/// let (device, stream) = (Device::cpu(0), runtime.default_stream(Device::cpu(0))?);
/// let buffer = runtime.empty(1024, device)?;
/// buffer.fill(7, &stream)?;
/// let copy = runtime.empty(512, device)?;
/// copy.copy_from(&buffer.slice(..512)?, &stream)?;
/// drop(buffer); // the memory is freed after the copy
/// assert_eq!(copy.read_to_vec()?, [7; 512]); // waits for the uses of `copy`
/// # Ok::<(), accelrt::Error>(())
/// ```
///
/// ```
/// use std::time::Duration;
/// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
/// # let stream = runtime.current_stream()?;
/// let buffer = runtime.empty(4, accelrt::Device::cpu(0))?;
/// buffer.copy_from_slice(&[1, 2, 3, 4], &stream)?; // blocks, and borrows for as long
/// let mut bytes = [0; 4];
/// buffer.copy_to_slice(&mut bytes, &stream)?;
/// assert_eq!(bytes, [1, 2, 3, 4]);
/// assert!(buffer.is_host_accessible() && !buffer.is_pinned() && !buffer.is_shared());
/// assert!(!buffer.is_empty() && !buffer.is_released());
///
/// // Before code that takes the address looks at the bytes:
/// buffer.wait_for_host()?; // or, with an end:
/// buffer.wait_for_host_timeout(Duration::from_secs(60))?;
/// buffer.wait_for_host_unless(&mut || false)?;
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Clone)]
pub struct Buffer {
    allocation: Inherited<Counted<Allocation>>,
    offset: usize,
    bytes: usize,
}

impl Buffer {
    /// Allocates memory with the home stream `home`. When memory is short, the call waits for
    /// streams that use freed memory, if that memory would suffice.
    #[doc(hidden)]
    pub fn allocate(
        home: &Stream,
        bytes: usize,
        origin: &Origin,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<Self> {
        let allocation = Allocation::new(home.core(), bytes, origin, interrupt)?;
        Ok(Self::of(allocation, bytes))
    }

    /// As [`Buffer::allocate`], without waits.
    #[doc(hidden)]
    #[cold]
    pub fn at_once(home: &Stream, bytes: usize, origin: &Origin) -> Result<Self, Box<NotServed>> {
        let begun = Allocation::at_once(home.core(), bytes, origin, take_vacant);
        begun.map(|allocation| Self::of(allocation, bytes))
    }

    /// Allocates without waits, with this thread's hint for the device, or with the hint for
    /// requests without a device.
    #[doc(hidden)]
    #[inline(always)]
    pub fn hinted(bytes: usize, device: Option<Device>) -> Result<Self, Box<NotServed>> {
        allocate_hinted(bytes, device).map(|allocation| Self::of(allocation, bytes))
    }

    /// Goes on with a request that may have to wait.
    #[doc(hidden)]
    #[cold]
    pub fn finish(unfinished: UnfinishedBuffer, interrupt: &mut Interrupt<'_>) -> Result<Self> {
        let allocation = unfinished.finish(interrupt)?;
        let bytes = allocation.memory.bytes;
        Ok(Self::of(allocation, bytes))
    }

    #[inline]
    pub(super) fn of(allocation: Counted<Allocation>, bytes: usize) -> Self {
        Self { allocation: Inherited::new(allocation), offset: 0, bytes }
    }

    /// The size of this view in bytes.
    #[must_use]
    pub fn nbytes(&self) -> usize {
        self.bytes
    }

    /// True for a view of zero bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The device of the memory; for pinned host memory, the device that the request named.
    #[must_use]
    pub fn device(&self) -> Device {
        self.allocation.memory.device
    }

    /// True for host memory that devices access directly.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.allocation.memory.kind == MemoryKind::Host
    }

    /// True for memory that its device shares with the host.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.allocation.memory.kind == MemoryKind::Shared
    }

    /// The home stream, which was current at the buffer's creation. A free follows all work on this
    /// stream, recorded or not.
    #[must_use]
    pub fn stream(&self) -> Stream {
        Stream::from_core(Arc::clone(&self.allocation.home))
    }

    /// The offset of this view in its allocation, in bytes.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// True after a successful [`Buffer::release`] of any view of the memory. False in a forked
    /// child.
    #[must_use]
    pub fn is_released(&self) -> bool {
        !fork::is_child() && self.allocation.is_released()
    }

    /// The device address of the first byte; 0 for an empty allocation. Fails after a release. Does
    /// not block: tasks may still be writing to the memory.
    pub fn address(&self) -> Result<u64> {
        self.check_not_released()?;
        Ok(self.begin().0)
    }

    /// A view of a range of the bytes; the view keeps the memory alive. Fails when the range
    /// exceeds this view, and after a release.
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// let buffer = runtime.empty(100, accelrt::Device::cpu(0))?;
    /// let middle = buffer.slice(25..75)?.slice(5..)?;
    /// assert_eq!((middle.nbytes(), middle.offset()), (45, 30));
    /// assert!(buffer.slice(90..101).is_err());
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        self.check_not_released()?;
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => self.bytes,
        };
        if start > end || end > self.bytes {
            return Err(Error::Memory(MemoryError::RangeOutside { start, end, bytes: self.bytes }));
        }
        let (offset, bytes) = (self.offset + start, end - start);
        Ok(Self { allocation: self.allocation.clone(), offset, bytes })
    }

    /// Records that all work enqueued on `stream` until now may use the memory. Programs call this
    /// for uses that the runtime cannot see, such as those of a function that takes the address. On
    /// the home stream the free needs no record, but host accesses do, and copies and fills on
    /// other streams. Does not block.
    ///
    /// Fails when the stream belongs to another runtime, after a release and in a forked child.
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// # let device = accelrt::Device::cpu(0);
    /// let (buffer, other) = (runtime.zeros(64, device)?, runtime.stream(device)?);
    /// let address = buffer.address()?;
    /// other.enqueue(move || { let _ = address; /* native code works there */ })?;
    /// buffer.record_use(&other)?;
    /// drop(buffer); // the memory is freed after the task
    /// # other.synchronize()?;
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn record_use(&self, stream: &Stream) -> Result<()> {
        let core = stream.core();
        core.lifecycle.check_same_runtime("a buffer", self.runtime())?;
        let access = self.access()?;
        if order_watch::is_on() {
            order_watch::tell(Told::RecordedUse(self.used_bytes(None), core));
        }
        if core.on_host {
            access.record(core, Task::any(core.pushed()));
        } else {
            // The program may have submitted work without a ticket through the native handle. The
            // ticket of a new task covers that work.
            access.record(core, Task::any(core.enqueue(EmptyTask, Always).ticket));
        }
        Ok(())
    }

    /// Frees the memory in stream order, even when other views exist. Every later use of any view
    /// fails. A second release has no effect. Does not block.
    ///
    /// Fails with [`MemoryError::Exported`] while exports exist; the memory then remains allocated.
    /// Also fails in a forked child.
    pub fn release(&self) -> Result<()> {
        fork::check()?;
        self.allocation.release().map_err(|refusal| self.refused(refusal))
    }

    /// Exports the memory to code whose accesses the runtime cannot track. Until the guard is
    /// dropped, the memory stays allocated and a release fails. Does not block: call
    /// [`Buffer::wait_for_host`] before accessing the bytes. Fails after a release and in a forked
    /// child.
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// use accelrt::{Error, MemoryError::{Exported, Released}};
    /// let buffer = runtime.zeros(64, accelrt::Device::cpu(0))?;
    /// let export = buffer.export()?;
    /// assert!(matches!(buffer.release(), Err(Error::Memory(Exported { exports: 1, .. }))));
    /// drop(export);
    /// buffer.release()?;
    /// assert!(matches!(buffer.address(), Err(Error::Memory(Released { .. }))));
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn export(&self) -> Result<ExportGuard> {
        fork::check()?;
        self.allocation.export().ok_or_else(|| self.refused(Refusal::Released))?;
        Ok(ExportGuard { allocation: self.allocation.clone() })
    }

    /// True if `device` can access the memory: its own memory, or pinned memory of its kind.
    pub(crate) fn is_reached_by(&self, device: Device) -> bool {
        let own = self.device();
        own == device || self.is_pinned() && own.kind() == device.kind()
    }

    /// The number of buffers and exports that share this buffer's allocation, itself included.
    #[doc(hidden)]
    #[must_use]
    pub fn num_handles(&self) -> usize {
        self.allocation.handles()
    }

    /// A number that only buffers of the same allocation have while one of them exists.
    #[doc(hidden)]
    #[must_use]
    pub fn allocation_id(&self) -> usize {
        self.allocation.address()
    }

    pub(crate) fn runtime(&self) -> u64 {
        self.allocation.home.lifecycle.runtime
    }

    /// Delays a free of the memory until the caller has enqueued uses. Fails after a release and in
    /// a forked child.
    pub(crate) fn access(&self) -> Result<Access<'_>> {
        fork::check()?;
        self.allocation.access().ok_or_else(|| self.refused(Refusal::Released))
    }

    pub(super) fn allocation(&self) -> &Counted<Allocation> {
        &self.allocation
    }

    pub(super) fn begin(&self) -> Address {
        self.allocation.memory.address().offset(self.offset)
    }

    pub(super) fn bytes(&self) -> Range<usize> {
        self.offset..self.offset + self.bytes
    }

    /// This view's bytes, for a watch of the order.
    #[doc(hidden)]
    #[must_use]
    pub fn used_bytes(&self, writes: Option<bool>) -> UsedBytes {
        let Allocation { memory, home, .. } = &**self.allocation;
        UsedBytes { range: self.bytes(), writes, ..memory.all_bytes(home) }
    }

    fn check_not_released(&self) -> Result<()> {
        if self.is_released() { Err(self.refused(Refusal::Released)) } else { Ok(()) }
    }

    #[cold]
    pub(super) fn refused(&self, refusal: Refusal) -> Error {
        let (device, address, bytes) = (self.device(), self.begin().0, self.bytes);
        match refusal {
            Refusal::Released => Error::Memory(MemoryError::Released { device, address, bytes }),
            Refusal::Exported(exports) => {
                Error::Memory(MemoryError::Exported { device, address, bytes, exports })
            }
            Refusal::SliceOfExported(exports) => {
                Error::Memory(MemoryError::SliceOfExported { device, address, bytes, exports })
            }
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("device", &format_args!("{}", self.device()))
            .field("address", &format_args!("{:#x}", self.begin().0))
            .field("bytes", &self.bytes)
            .field("kind", &self.allocation.memory.kind)
            .finish_non_exhaustive()
    }
}

/// Keeps exported memory allocated; see [`Buffer::export`].
#[must_use = "the memory may be released when the guard is dropped"]
pub struct ExportGuard {
    allocation: Inherited<Counted<Allocation>>,
}

impl Drop for ExportGuard {
    fn drop(&mut self) {
        if !fork::is_child() {
            self.allocation.end_export();
        }
    }
}

impl fmt::Debug for ExportGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ExportGuard").field(&**self.allocation).finish()
    }
}
