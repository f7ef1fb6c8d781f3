//! Copies and fills: their checks, and their tasks, which hold no buffer.
#![expect(unsafe_code, reason = "addresses that were checked, or that the caller answers for")]

use std::sync::Arc;

use crate::backend::contract::Address;
use crate::base::error::{FailureCause, Result};
use crate::base::spin::SpinMutex;
use crate::engine::stream::Stream;
use crate::engine::stream::core::TaskContext;
use crate::engine::stream::task::{Details, MemoryAccess, OperationKind, drop_quietly};
use crate::memory::buffer::order::{enqueue, read_use, write_use};
use crate::memory::buffer::transfer::WatchedTask;
use crate::memory::buffer::{Buffer, Order};
use crate::queue::{Class, Command};
use crate::{DeviceKind, Error, HostTransfer, MemoryError, Transfer};

/// Two ranges of equal size that do not overlap.
#[derive(Clone, Copy, Debug)]
pub struct Ranges {
    /// The first byte of the destination.
    pub to: Address,
    /// The first byte of the source.
    pub from: Address,
    /// The size of each range in bytes.
    pub bytes: usize,
}

/// Copies one range to another.
#[derive(Debug)]
pub struct Copy(pub Ranges);

impl Command<TaskContext> for Copy {
    const CLASS: Class = Class::User;
    const OPERATION: OperationKind = OperationKind::Copy;

    fn details(&self) -> Details {
        let Ranges { to, from, bytes } = self.0;
        let accesses = vec![MemoryAccess::read(from, bytes), MemoryAccess::write(to, bytes)];
        Details { bytes, accesses, ..Details::default() }
    }

    fn run(self, context: &mut TaskContext) {
        // A host access may wait for this copy, so the retirement of the copy must wake waiters.
        context.is_marker = true;
        let Ranges { to, from, bytes } = self.0;
        // SAFETY: both ranges must be live and ordered against other accesses. `transfer.rs` checks
        // the ranges and records the use of the buffers, whose free follows this task; it also owns
        // or borrows the host's range until the task is done. Streams order all tasks that use the
        // ranges. Other creators of this task, in bindings, have their callers uphold both.
        if let Err(refusal) = unsafe { context.handle.copy(to, from, bytes) } {
            context.fail(FailureCause::Backend(refusal));
        }
    }
}

/// A copy on a host kind, between a buffer and host bytes, which the task owns.
pub(super) struct OwningCopy<O> {
    pub(super) copy: Copy,
    pub(super) owner: O,
}

impl<O: Send + 'static> Command<TaskContext> for OwningCopy<O> {
    const CLASS: Class = Class::User;
    const OPERATION: OperationKind = OperationKind::Copy;

    fn details(&self) -> Details {
        self.copy.details()
    }

    fn run(self, context: &mut TaskContext) {
        self.copy.run(context);
        drop_quietly(|| drop(self.owner));
    }
}

/// Fills a range with one byte value.
#[derive(Debug)]
pub struct Fill {
    /// The first byte of the range.
    pub to: Address,
    /// The size of the range in bytes.
    pub bytes: usize,
    /// The value of each byte.
    pub byte: u8,
}

impl Command<TaskContext> for Fill {
    const CLASS: Class = Class::User;
    const OPERATION: OperationKind = OperationKind::Fill;

    fn details(&self) -> Details {
        let accesses = vec![MemoryAccess::write(self.to, self.bytes)];
        Details { bytes: self.bytes, accesses, ..Details::default() }
    }

    fn run(self, context: &mut TaskContext) {
        context.is_marker = true;
        let Self { to, bytes, byte } = self;
        // SAFETY: the range must be live. `transfer.rs` records the use of the buffer, whose free
        // follows this task. The callers of bindings, the other creators, keep it live.
        if let Err(refusal) = unsafe { context.handle.fill(to, byte, bytes) } {
            context.fail(FailureCause::Backend(refusal));
        }
    }
}

impl Buffer {
    /// Copies another buffer of the same size into this one, on `stream`. Does not wait for the
    /// copy; `wait` on the result waits for this copy only. A failed stream skips the copy.
    ///
    /// The copy runs after every conflicting task of other streams. A task conflicts when it writes
    /// the bytes of either buffer, or reads the bytes of this buffer. The runtime knows the tasks
    /// that take buffers and the uses that [`Buffer::record_use`] recorded. The call blocks only as
    /// [`Stream::enqueue`], and while a conflicting host access of another thread is copying
    /// ([`Buffer::read_to_vec`] and similar calls).
    ///
    /// Fails when the sizes differ, the ranges overlap, the stream's device is neither buffer's, or
    /// a handle belongs to another runtime. Also fails after a release, after a shutdown and in a
    /// forked child.
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// # let device = accelrt::Device::cpu(0);
    /// let (source, target) = (runtime.zeros(64, device)?, runtime.empty(64, device)?);
    /// target.copy_from(&source, &runtime.current_stream()?)?.wait()?;
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn copy_from(&self, source: &Self, stream: &Stream) -> Result<Transfer> {
        self.copy(source, stream, Order::BehindConflicts)
    }

    /// As [`Buffer::copy_from`], ordered only by `stream`: for programs that order streams by
    /// events.
    ///
    /// # Safety
    /// While the copy runs, no other task or thread writes the bytes that it reads, or accesses the
    /// bytes that it writes.
    pub unsafe fn copy_from_unordered(&self, source: &Self, stream: &Stream) -> Result<Transfer> {
        self.copy(source, stream, Order::ByCaller)
    }

    fn copy(&self, source: &Self, stream: &Stream, order: Order) -> Result<Transfer> {
        check_sizes(self.nbytes(), source.nbytes())?;
        check_stream(stream, &[self, source])?;
        let bytes = self.nbytes();
        let (target_offset, source_offset) = (self.offset(), source.offset());
        if self.allocation().is_same(source.allocation())
            && target_offset.abs_diff(source_offset) < bytes
        {
            drop(self.access()?); // fails after a release, which is reported before the overlap
            let overlap = MemoryError::CopyOverlap { target_offset, source_offset, bytes };
            return Err(Error::Memory(overlap));
        }
        let ranges = Ranges { to: self.begin(), from: source.begin(), bytes };
        enqueue(stream, [write_use(self), read_use(source)], order, Copy(ranges))
    }

    /// Sets every byte to `byte`, on `stream`, without waiting for the fill. Order, errors and
    /// blocking are those of [`Buffer::copy_from`].
    pub fn fill(&self, byte: u8, stream: &Stream) -> Result<Transfer> {
        self.set(byte, stream, Order::BehindConflicts)
    }

    /// As [`Buffer::fill`], ordered only by `stream`.
    ///
    /// # Safety
    /// While the fill runs, no other task or thread accesses the bytes.
    pub unsafe fn fill_unordered(&self, byte: u8, stream: &Stream) -> Result<Transfer> {
        self.set(byte, stream, Order::ByCaller)
    }

    fn set(&self, byte: u8, stream: &Stream, order: Order) -> Result<Transfer> {
        let bytes = self.nbytes();
        self.overwrite(stream, order, |to| Fill { to, bytes, byte })
    }

    /// Enqueues a task that overwrites the buffer. `task` creates the task from the buffer's
    /// address. An empty buffer needs no task. Blocks and fails as [`Buffer::fill`].
    #[doc(hidden)]
    pub fn overwrite<T: Command<TaskContext>>(
        &self,
        stream: &Stream,
        order: Order,
        task: impl FnOnce(Address) -> T,
    ) -> Result<Transfer> {
        self.check_stream(stream)?;
        enqueue(stream, [write_use(self)], order, task(self.begin()))
    }

    /// Fails when a stream cannot use the buffer, as one of another device or runtime.
    #[doc(hidden)]
    pub fn check_stream(&self, stream: &Stream) -> Result<()> {
        check_stream(stream, &[self])
    }

    /// Copies host bytes into this buffer, on `stream`, and keeps their owner alive until the copy
    /// is done. Does not wait for the copy; blocks, is ordered and fails as [`Buffer::copy_from`].
    /// A failed call drops the owner.
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// let buffer = runtime.empty(3, accelrt::Device::cpu(0))?;
    /// buffer.copy_from_host(vec![1, 2, 3], &runtime.current_stream()?)?;
    /// assert_eq!(buffer.read_to_vec()?, [1, 2, 3]);
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn copy_from_host<O>(&self, source: O, stream: &Stream) -> Result<Transfer>
    where
        O: AsRef<[u8]> + Send + 'static,
    {
        // The elements of a vector stay in place when it moves; those of an array would not.
        let owner = vec![source];
        let source = owner[0].as_ref();
        let (from, bytes) = (host_address(source.as_ptr()), source.len());
        self.host_copy(Host::Source(from), bytes, owner, stream, Order::BehindConflicts)
    }

    /// Copies this buffer into host memory, on `stream`. [`HostTransfer::wait`] returns the memory.
    /// Does not wait for the copy; blocks, is ordered and fails as [`Buffer::copy_from`].
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// # let stream = runtime.current_stream()?;
    /// let buffer = runtime.empty(4, accelrt::Device::cpu(0))?;
    /// buffer.fill(9, &stream)?;
    /// let copy = buffer.copy_to_host(vec![0; 4], &stream)?;
    /// assert_eq!(copy.wait()?, [9; 4]);
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn copy_to_host<O>(&self, target: O, stream: &Stream) -> Result<HostTransfer<O>>
    where
        O: AsMut<[u8]> + Send + 'static,
    {
        let mut owner = vec![target];
        let target = owner[0].as_mut();
        let (to, bytes) = (host_address(target.as_mut_ptr()), target.len());
        let target = Arc::new(SpinMutex::new(owner));
        let (host, owner) = (Host::Target(to), Arc::clone(&target));
        let transfer = self.host_copy(host, bytes, owner, stream, Order::BehindConflicts)?;
        Ok(HostTransfer { transfer, target })
    }

    /// Copies host bytes into this buffer, on `stream`, and blocks until the copy is done. Ordered
    /// as [`Buffer::copy_from`]; fails like that function and like [`Transfer::wait`].
    pub fn copy_from_slice(&self, source: &[u8], stream: &Stream) -> Result<()> {
        self.copy_borrowed(Host::Source(host_address(source.as_ptr())), source.len(), stream)
    }

    /// Copies this buffer into host bytes, on `stream`, and blocks until the copy is done. Ordered
    /// as [`Buffer::copy_from`]; fails like that function and like [`Transfer::wait`]. A failed
    /// call leaves the host bytes unspecified.
    pub fn copy_to_slice(&self, target: &mut [u8], stream: &Stream) -> Result<()> {
        let (to, bytes) = (host_address(target.as_mut_ptr()), target.len());
        self.copy_borrowed(Host::Target(to), bytes, stream)
    }

    fn copy_borrowed(&self, host: Host, bytes: usize, stream: &Stream) -> Result<()> {
        stream.core().check_wait()?;
        let transfer = self.host_copy(host, bytes, (), stream, Order::BehindConflicts)?;
        let _end = transfer.0.as_deref().map(BorrowEnd);
        transfer.wait()
    }

    /// As [`Buffer::copy_from_host`], from an address and ordered only by `stream`: for bindings.
    ///
    /// # Safety
    /// Until `owner` is dropped, which can happen on any thread after the copy, any thread may read
    /// the `bytes` bytes at `source`, and no thread writes them. While the copy runs, no other task
    /// or thread accesses the buffer's bytes.
    pub unsafe fn copy_from_host_range(
        &self,
        source: *const u8,
        bytes: usize,
        owner: impl Send + 'static,
        stream: &Stream,
    ) -> Result<Transfer> {
        self.host_copy(Host::Source(host_address(source)), bytes, owner, stream, Order::ByCaller)
    }

    /// As [`Buffer::copy_to_host`], to an address and ordered only by `stream`: for bindings.
    ///
    /// # Safety
    /// Until `owner` is dropped, which can happen on any thread after the copy, any thread may
    /// write the `bytes` bytes at `target`, and no thread accesses them otherwise. While the copy
    /// runs, no other task or thread writes the buffer's bytes.
    pub unsafe fn copy_to_host_range(
        &self,
        target: *mut u8,
        bytes: usize,
        owner: impl Send + 'static,
        stream: &Stream,
    ) -> Result<Transfer> {
        self.host_copy(Host::Target(host_address(target)), bytes, owner, stream, Order::ByCaller)
    }

    /// Enqueues a copy between this buffer and `bytes` bytes of the host.
    fn host_copy<O: Send + 'static>(
        &self,
        host: Host,
        bytes: usize,
        owner: O,
        stream: &Stream,
        order: Order,
    ) -> Result<Transfer> {
        let (own, own_bytes) = (self.begin(), self.nbytes());
        let (to, from, used) = match host {
            Host::Source(from) => {
                check_sizes(own_bytes, bytes).map(|()| (own, from, write_use(self)))?
            }
            Host::Target(to) => {
                check_sizes(bytes, own_bytes).map(|()| (to, own, read_use(self)))?
            }
        };
        check_stream(stream, &[self])?;
        let (copy, core) = (Copy(Ranges { to, from, bytes }), stream.core());
        if core.on_host {
            return enqueue(stream, [used], order, OwningCopy { copy, owner });
        }
        let transfer = enqueue(stream, [used], order, copy)?;
        if let Some(task) = &transfer.0 {
            core.hold(task.ticket, Box::new(owner));
        }
        Ok(transfer)
    }
}

/// Ends a borrow: its drop blocks until the task no longer accesses the borrowed memory, even after
/// an error or a panic.
struct BorrowEnd<'a>(&'a WatchedTask);

impl Drop for BorrowEnd<'_> {
    fn drop(&mut self) {
        self.0.stream.wait_done_despite_errors(self.0.ticket);
    }
}

/// The address of a copy's host side, and the direction of the copy.
#[derive(Clone, Copy)]
enum Host {
    Source(Address),
    Target(Address),
}

/// The exposed address of host memory, from which tasks rebuild a pointer.
fn host_address(pointer: *const u8) -> Address {
    Address(pointer.expose_provenance() as u64)
}

pub(super) fn check_sizes(target_bytes: usize, source_bytes: usize) -> Result<()> {
    if target_bytes == source_bytes {
        return Ok(());
    }
    Err(Error::Memory(MemoryError::CopySizeMismatch { target_bytes, source_bytes }))
}

/// Checks that each buffer is of the stream's kind or of the cpu, and that one of them is on the
/// stream's device. Pinned memory belongs to every device of its kind.
fn check_stream(stream: &Stream, buffers: &[&Buffer]) -> Result<()> {
    let (device, lifecycle) = (stream.device(), &stream.core().lifecycle);
    buffers
        .iter()
        .try_for_each(|buffer| lifecycle.check_same_runtime("a buffer", buffer.runtime()))?;
    let is_reached =
        |buffer: &Buffer| [device.kind(), DeviceKind::CPU].contains(&buffer.device().kind());
    let unreachable = buffers.iter().find(|buffer| !is_reached(buffer));
    let mismatched = unreachable.or_else(|| {
        let has_own = buffers.iter().any(|buffer| buffer.is_reached_by(device));
        buffers.first().filter(|_| !has_own)
    });
    let Some(buffer) = mismatched.map(|buffer| buffer.device()) else { return Ok(()) };
    Err(Error::Memory(MemoryError::DeviceMismatch { buffer, stream: device }))
}
