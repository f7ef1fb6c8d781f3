//! Copies and fills: the checks before the enqueue, and the wait for one, also as a future.
#![expect(unsafe_code, reason = "functions that take the address of memory that is not ours")]

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::backend::contract::Address;
use crate::base::device::DeviceKind;
use crate::base::error::{Error, MemoryError, Result};
use crate::base::fork::Inherited;
use crate::base::spin::SpinMutex;
use crate::engine::stream::Stream;
use crate::engine::stream::context::TaskContext;
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::interrupt::Interrupt;
use crate::engine::stream::task_future::TaskFuture;
use crate::memory::buffer::Buffer;
use crate::memory::buffer::commands::{Copy, Fill, OwningCopy, Ranges};
use crate::memory::buffer::order::{Order, enqueue, read_use, write_use};
use crate::queue::Command;

/// An enqueued copy, fill or task over views. Dropping the handle does not cancel the work.
///
/// ```
/// use std::time::Duration;
/// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
/// # let stream = runtime.current_stream()?;
/// let buffer = runtime.empty(1 << 20, accelrt::Device::cpu(0))?;
/// let filled = buffer.fill(7, &stream)?;
/// stream.enqueue(|| println!("behind the fill"))?; // which `wait` does not wait for
/// filled.wait()?; // or, with an end:
/// filled.wait_timeout(Duration::from_secs(60))?;
/// filled.wait_unless(&mut || false)?;
/// assert!(filled.is_done());
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Debug)]
pub struct Transfer(
    /// `None` for a transfer of zero bytes, which has no task.
    pub(super) Option<Inherited<WatchedTask>>,
);

/// A task of a stream. The stream keeps the task's failure until the drop of this value.
#[derive(Debug)]
pub(super) struct WatchedTask {
    pub(super) stream: Arc<StreamCore>,
    pub(super) ticket: u64,
    /// True when the drop must release the stream's errors. False for a task that is known to have
    /// succeeded.
    retains_errors: bool,
}

impl WatchedTask {
    pub(super) fn new(stream: &Arc<StreamCore>, ticket: u64) -> Self {
        stream.failures.retain_cleared();
        Self { stream: Arc::clone(stream), ticket, retains_errors: true }
    }

    fn wait(&self, interrupt: &mut Interrupt<'_>) -> Result<()> {
        let Self { stream, ticket, .. } = self;
        let waited = stream.wait_ticket(*ticket, true, interrupt);
        stream.tell_waited(*ticket, false, &waited);
        waited?;
        // A cancelled task has a failure too, which `receive` reports as `ShutDown`.
        stream.receive(stream.failures.at(*ticket))
    }
}

impl Drop for WatchedTask {
    fn drop(&mut self) {
        if self.retains_errors {
            self.stream.failures.release_cleared();
        }
    }
}

impl Transfer {
    /// True when the copy or fill is done or has failed. Does not block; queries the device.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let Some(WatchedTask { stream, ticket, .. }) = self.0.as_deref() else { return true };
        let is_done = stream.poll_ticket(*ticket);
        if is_done {
            stream.tell_waited(*ticket, false, &Ok(()));
        }
        is_done
    }

    /// Blocks until the task is done; meanwhile may execute tasks of the stream. If the task failed
    /// or was skipped, fails with the stream's failure, which then ends for tasks that are enqueued
    /// later; a cancellation ends only at a synchronise. Also fails if a
    /// shutdown cancelled the task and, unless the task is already done, inside a task of the
    /// stream and in a forked child. The call does not wait for later tasks, but a driver may have
    /// to finish work that was submitted in the meantime.
    pub fn wait(&self) -> Result<()> {
        self.wait_for(&mut Interrupt::default())
    }

    /// As [`Transfer::wait`]. Calls `is_interrupted` every 50 ms; after a result of true the wait
    /// fails with [`Interrupted`](crate::RuntimeError::Interrupted), and the task continues.
    pub fn wait_unless(&self, is_interrupted: &mut dyn FnMut() -> bool) -> Result<()> {
        self.wait_for(&mut Interrupt::by(is_interrupted))
    }

    /// As [`Transfer::wait`], for at most `timeout`. Then the wait fails with
    /// [`TimedOut`](crate::RuntimeError::TimedOut), and the task continues. This thread executes no
    /// tasks, because their length is unknown.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<()> {
        self.wait_for(&mut Interrupt::after(timeout))
    }

    fn wait_for(&self, interrupt: &mut Interrupt<'_>) -> Result<()> {
        self.0.as_ref().map_or(Ok(()), |task| task.wait(interrupt))
    }
}

/// An enqueued copy to host memory that it owns; [`wait`](Self::wait) returns the memory. Dropping
/// the handle does not cancel the copy: the memory lives until the copy is done.
///
/// ```
/// use std::time::Duration;
/// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
/// # let stream = runtime.current_stream()?;
/// let buffer = runtime.zeros(4, accelrt::Device::cpu(0))?;
/// let copy = buffer.copy_to_host([1_u8; 4], &stream)?;
/// copy.wait_timeout(Duration::from_secs(60))?;
/// copy.wait_unless(&mut || false)?;
/// assert!(copy.is_done());
/// assert_eq!(copy.wait()?, [0; 4]);
/// # Ok::<(), accelrt::Error>(())
/// ```
#[must_use = "the copied bytes are dropped with it"]
pub struct HostTransfer<O> {
    pub(super) transfer: Transfer,
    target: Arc<Target<O>>,
}

/// Host memory, shared with the task. Elements of a vector stay in place when the vector moves.
type Target<O> = SpinMutex<Vec<O>>;

impl<O> HostTransfer<O> {
    /// As [`Transfer::is_done`].
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.transfer.is_done()
    }

    /// As [`Transfer::wait_unless`]. After a success, [`wait`](Self::wait) returns at once.
    pub fn wait_unless(&self, is_interrupted: &mut dyn FnMut() -> bool) -> Result<()> {
        self.transfer.wait_unless(is_interrupted)
    }

    /// As [`Transfer::wait_timeout`]. After a success, [`wait`](Self::wait) returns at once.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<()> {
        self.transfer.wait_timeout(timeout)
    }

    /// As [`Transfer::wait`]. Returns the memory with the copied bytes; a failure drops it.
    ///
    /// # Panics
    /// Never: only this call takes the memory out.
    pub fn wait(self) -> Result<O> {
        self.transfer.wait()?;
        Ok(self.take())
    }

    /// Takes the memory out; the copy is done.
    pub(super) fn take(&self) -> O {
        self.target.lock().pop().expect("it is put there once and taken once")
    }
}

impl<O> fmt::Debug for HostTransfer<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostTransfer").field("transfer", &self.transfer).finish_non_exhaustive()
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

impl Transfer {
    pub(super) fn of(core: &Arc<StreamCore>, ticket: u64, retains_errors: bool) -> Self {
        let task = WatchedTask { stream: Arc::clone(core), ticket, retains_errors };
        Self(Some(Inherited::new(task)))
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

/// The future of `transfer.await`. Its output is the result of [`Transfer::wait`].
///
/// A poll never blocks and executes no tasks. The thread that completes the copy or fill wakes the
/// executor's task. Dropping the future changes nothing: the work goes on. In a forked child a poll
/// fails.
#[must_use = "futures do nothing unless polled"]
pub struct TransferFuture {
    transfer: Transfer,
    task: Task,
}

/// The future of an awaited [`HostTransfer`]. Its output is the result of [`HostTransfer::wait`]:
/// the host memory with the copied bytes. Else as [`TransferFuture`].
#[must_use = "futures do nothing unless polled"]
pub struct HostTransferFuture<O> {
    transfer: HostTransfer<O>,
    task: Task,
}

/// The task of a transfer; `None` for a transfer of zero bytes.
struct Task(Option<Inherited<TaskFuture>>);

impl Task {
    fn new(transfer: &Transfer) -> Self {
        let task = transfer.0.as_ref().map(|it| TaskFuture::new(&it.stream, it.ticket));
        Self(task.map(Inherited::new))
    }

    fn poll(&mut self, transfer: &Transfer, waker: &Waker) -> Poll<Result<()>> {
        let (Some(task), Some(watched)) = (&mut self.0, &transfer.0) else {
            return Poll::Ready(Ok(()));
        };
        watched.stream.lifecycle.step_for(waker);
        match task.poll(waker) {
            Poll::Ready(Ok(())) => {
                Poll::Ready(watched.stream.receive(watched.stream.failures.at(watched.ticket)))
            }
            not_done => not_done,
        }
    }
}

impl Future for TransferFuture {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let Self { transfer, task } = &mut *self;
        task.poll(transfer, context.waker())
    }
}

impl<O> Future for HostTransferFuture<O> {
    type Output = Result<O>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<O>> {
        let Self { transfer, task } = &mut *self;
        task.poll(&transfer.transfer, context.waker()).map_ok(|()| transfer.take())
    }
}

#[cfg(feature = "async")]
impl IntoFuture for Transfer {
    type Output = Result<()>;
    type IntoFuture = TransferFuture;

    /// Waits as [`Transfer::wait`] does, without a thread.
    fn into_future(self) -> TransferFuture {
        TransferFuture { task: Task::new(&self), transfer: self }
    }
}

#[cfg(feature = "async")]
impl<O> IntoFuture for HostTransfer<O> {
    type Output = Result<O>;
    type IntoFuture = HostTransferFuture<O>;

    /// Waits as [`HostTransfer::wait`] does, without a thread.
    fn into_future(self) -> HostTransferFuture<O> {
        HostTransferFuture { task: Task::new(&self.transfer), transfer: self }
    }
}

impl fmt::Debug for TransferFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TransferFuture").field(&self.transfer).finish()
    }
}

impl<O> fmt::Debug for HostTransferFuture<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HostTransferFuture").field(&self.transfer).finish()
    }
}
