//! Copies and fills: what is checked before they are enqueued, and waiting for a single one.
#![expect(unsafe_code, reason = "functions that take the address of memory that is not ours")]

use std::fmt;
use std::sync::Arc;

use crate::backend::contract::Address;
use crate::buffer::Buffer;
use crate::buffer::commands::{Copy, Fill, OwningCopy, Ranges};
use crate::buffer::uses::Task;
use crate::device::DeviceKind;
use crate::error::{Error, Result};
use crate::fork::Inherited;
use crate::queue::Command;
use crate::spin::SpinMutex;
use crate::stream::Stream;
use crate::stream::context::TaskContext;
use crate::stream::core::StreamCore;
use crate::stream::direct::Announced;
use crate::stream::synchronize::raise;
use crate::stream::wait::Interrupt;

/// A copy or fill that was enqueued. Dropping it changes nothing: the work goes on.
#[derive(Debug)]
pub struct Transfer(
    /// `None` for one of no bytes, which is no task.
    Option<Inherited<Watched>>,
);

/// A task whose failure is remembered until this is dropped.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) stream: Arc<StreamCore>,
    pub(super) ticket: u64,
    /// False for a task that cannot have failed any more.
    is_bound: bool,
}

impl Watched {
    pub(super) fn new(stream: &Arc<StreamCore>, ticket: u64) -> Self {
        stream.failures.bind();
        Self { stream: Arc::clone(stream), ticket, is_bound: true }
    }

    /// Waits for the task and raises the error that covers it.
    fn wait(&self, interrupt: &mut Interrupt<'_>) -> Result<()> {
        let Self { stream, ticket, .. } = self;
        stream.wait_ticket(*ticket, true, interrupt)?;
        raise(stream.failures.at(*ticket))?;
        // A shutdown retires tasks without running them and leaves no error.
        if stream.lifecycle.is_cancelled() { Err(Error::ShutDown) } else { Ok(()) }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if self.is_bound {
            self.stream.failures.unbind();
        }
    }
}

impl Transfer {
    /// True when the bytes are where they should be, or the failure is known. Does not block; asks
    /// the device.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.0.as_ref().is_none_or(|task| task.stream.poll_ticket(task.ticket))
    }

    /// Blocks until it is done, helping the stream meanwhile. Raises the failure that covers it and
    /// ends none. What was enqueued behind it is not waited for, except that a device may have to
    /// finish what it was given meanwhile. Fails inside a task of the stream.
    pub fn wait(&self) -> Result<()> {
        self.wait_for(&mut None)
    }

    /// As [`Transfer::wait`], asking `is_interrupted` every 50 ms while asleep; when that says true
    /// the wait is given up with [`Error::Interrupted`] and the work goes on.
    pub fn wait_unless(&self, is_interrupted: &mut dyn FnMut() -> bool) -> Result<()> {
        self.wait_for(&mut Some(is_interrupted))
    }

    fn wait_for(&self, interrupt: &mut Interrupt<'_>) -> Result<()> {
        self.0.as_ref().map_or(Ok(()), |task| task.wait(interrupt))
    }
}

/// A copy to memory of the host that was enqueued: the memory comes back when it is done. Dropping
/// this changes nothing: the memory is kept until then.
pub struct HostTransfer<O> {
    transfer: Transfer,
    target: Arc<Target<O>>,
}

/// Shared with the task, which only keeps it alive. A vector, because its element stays where it is
/// while the vector moves.
type Target<O> = SpinMutex<Vec<O>>;

impl<O> HostTransfer<O> {
    /// As [`Transfer::is_done`].
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.transfer.is_done()
    }

    /// As [`Transfer::wait`]; the memory with the copied bytes. After a failure it is dropped.
    ///
    /// # Panics
    /// Never: the memory is taken once.
    pub fn wait(self) -> Result<O> {
        self.transfer.wait()?;
        let target = self.target.lock().pop();
        Ok(target.expect("it is put there once and taken once"))
    }
}

impl<O> fmt::Debug for HostTransfer<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostTransfer").field("transfer", &self.transfer).finish_non_exhaustive()
    }
}

impl Buffer {
    /// Copies another buffer of the same size into this one, on `stream`. Does not block;
    /// `.wait()` on what is returned waits for this copy alone. A copy on a failed stream is
    /// skipped.
    ///
    /// Fails when the sizes differ, the ranges overlap, the stream's device is neither buffer's, or
    /// one of the handles is another runtime's; after a release, after a shutdown and in a forked
    /// child.
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// # let device = accelrt::Device::cpu(0);
    /// let (source, target) = (runtime.zeros(64, device)?, runtime.empty(64, device)?);
    /// target.copy_from(&source, &runtime.current_stream()?)?.wait()?;
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn copy_from(&self, source: &Self, stream: &Stream) -> Result<Transfer> {
        check_sizes(self.nbytes(), source.nbytes())?;
        check_stream(stream, &[self, source])?;
        let (bytes, offsets) = (self.nbytes(), [self.offset(), source.offset()]);
        let [target_offset, source_offset] = offsets;
        if self.allocation().is_same(source.allocation())
            && target_offset.abs_diff(source_offset) < bytes
        {
            drop(self.access()?); // or it was released, which is told first
            return Err(Error::CopyOverlap { target_offset, source_offset, bytes });
        }
        let ranges = Ranges { to: self.begin(), from: source.begin(), bytes };
        enqueue(stream, bytes, [self, source], Copy(ranges))
    }

    /// Sets every byte, on `stream`. Does not block; see [`Buffer::copy_from`].
    pub fn fill(&self, byte: u8, stream: &Stream) -> Result<Transfer> {
        check_stream(stream, &[self])?;
        let (to, bytes) = (self.begin(), self.nbytes());
        enqueue(stream, bytes, [self], Fill { to, bytes, byte })
    }

    /// Enqueues a task that writes the whole buffer, made from where that begins; none for no
    /// bytes. Does not block; fails as [`Buffer::fill`].
    pub(crate) fn overwrite<T: Command<TaskContext>>(
        &self,
        stream: &Stream,
        task: impl FnOnce(Address) -> T,
    ) -> Result<()> {
        self.check_stream(stream)?;
        enqueue(stream, self.nbytes(), [self], task(self.begin())).map(drop)
    }

    /// Fails when work on this buffer cannot be given to this stream.
    pub(crate) fn check_stream(&self, stream: &Stream) -> Result<()> {
        check_stream(stream, &[self])
    }

    /// Copies bytes of the host into this buffer, on `stream`, and keeps their owner until that is
    /// done. Does not block; fails as [`Buffer::copy_from`], the owner is dropped then.
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
        // An element of a vector stays where it is while the vector moves; an array would not.
        let owner = vec![source];
        let source = owner[0].as_ref();
        let (from, bytes) = (host_address(source.as_ptr()), source.len());
        self.host_copy(Host::Source(from), bytes, owner, stream)
    }

    /// Copies this buffer into memory of the host, on `stream`. Does not block: the memory comes
    /// back from [`HostTransfer::wait`]. Fails as [`Buffer::copy_from`].
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
        let transfer = self.host_copy(Host::Target(to), bytes, Arc::clone(&target), stream)?;
        Ok(HostTransfer { transfer, target })
    }

    /// Copies bytes of the host into this buffer, on `stream`, and blocks until that is done. Fails
    /// as [`Buffer::copy_from`] and [`Transfer::wait`].
    pub fn copy_from_slice(&self, source: &[u8], stream: &Stream) -> Result<()> {
        let from = host_address(source.as_ptr());
        stream.core().check_wait()?;
        self.host_copy(Host::Source(from), source.len(), (), stream)?.wait_to_the_end()
    }

    /// Copies this buffer into bytes of the host, on `stream`, and blocks until that is done. Fails
    /// as [`Buffer::copy_from`] and [`Transfer::wait`]; the bytes are unspecified then.
    pub fn copy_to_slice(&self, target: &mut [u8], stream: &Stream) -> Result<()> {
        let (to, bytes) = (host_address(target.as_mut_ptr()), target.len());
        stream.core().check_wait()?;
        self.host_copy(Host::Target(to), bytes, (), stream)?.wait_to_the_end()
    }

    /// As [`Buffer::copy_from_host`], from an address: for bindings. Does not block.
    ///
    /// # Safety
    /// `bytes` bytes at `source` may be read by any thread and are not written until `owner` is
    /// dropped, which happens on any thread when the copy is done.
    pub unsafe fn copy_from_host_range(
        &self,
        source: *const u8,
        bytes: usize,
        owner: impl Send + 'static,
        stream: &Stream,
    ) -> Result<Transfer> {
        self.host_copy(Host::Source(host_address(source)), bytes, owner, stream)
    }

    /// As [`Buffer::copy_to_host`], to an address: for bindings. Does not block.
    ///
    /// # Safety
    /// `bytes` bytes at `target` may be written by any thread and are not used otherwise until
    /// `owner` is dropped, which happens on any thread when the copy is done.
    pub unsafe fn copy_to_host_range(
        &self,
        target: *mut u8,
        bytes: usize,
        owner: impl Send + 'static,
        stream: &Stream,
    ) -> Result<Transfer> {
        self.host_copy(Host::Target(host_address(target)), bytes, owner, stream)
    }

    /// A copy between this buffer and `bytes` bytes of the host.
    fn host_copy<O: Send + 'static>(
        &self,
        host: Host,
        bytes: usize,
        owner: O,
        stream: &Stream,
    ) -> Result<Transfer> {
        let (own, own_bytes) = (self.begin(), self.nbytes());
        let (to, from) = match host {
            Host::Source(from) => check_sizes(own_bytes, bytes).map(|()| (own, from))?,
            Host::Target(to) => check_sizes(bytes, own_bytes).map(|()| (to, own))?,
        };
        check_stream(stream, &[self])?;
        let (copy, core) = (Copy(Ranges { to, from, bytes }), stream.core());
        if core.on_host {
            return enqueue(stream, bytes, [self], OwningCopy { copy, owner });
        }
        let transfer = enqueue(stream, bytes, [self], copy)?;
        if let Some(task) = &transfer.0 {
            core.hold(task.ticket, Box::new(owner));
        }
        Ok(transfer)
    }
}

impl Transfer {
    fn of(core: &Arc<StreamCore>, ticket: u64, is_bound: bool) -> Self {
        let task = Watched { stream: Arc::clone(core), ticket, is_bound };
        Self(Some(Inherited::new(task)))
    }

    /// As [`Transfer::wait`], but returns only when the task will not touch its memory any more,
    /// whatever went wrong: the memory is borrowed.
    fn wait_to_the_end(&self) -> Result<()> {
        let waited = self.wait();
        if let Some(task) = self.0.as_ref().filter(|_| waited.is_err()) {
            task.stream.wait_to_the_end(task.ticket);
        }
        waited
    }
}

/// Which end of a copy is memory of the host.
#[derive(Clone, Copy)]
enum Host {
    Source(Address),
    Target(Address),
}

/// Enqueues a task that uses buffers, unless it has no bytes to work on.
#[inline]
fn enqueue<T: Command<TaskContext>, const N: usize>(
    stream: &Stream,
    bytes: usize,
    buffers: [&Buffer; N],
    task: T,
) -> Result<Transfer> {
    let core = stream.core();
    if core.on_host || bytes == 0 {
        return enqueue_accessing(stream, bytes, buffers, task);
    }
    core.lifecycle.check()?;
    // Known before it runs: a free on another thread meanwhile stands behind it.
    let announce =
        |ticket| buffers.iter().try_for_each(|buffer| buffer.note_use(core, Task::marker(ticket)));
    match core.push_watched_directly(task, announce) {
        Announced::Ran { ticket, has_failed } => Ok(Transfer::of(core, ticket, has_failed)),
        Announced::Refused(refusal) => Err(refusal),
        Announced::Queueable(task) => enqueue_accessing(stream, bytes, buffers, task),
    }
}

/// The same through the queue: a release meanwhile takes effect when the use is known.
fn enqueue_accessing<T: Command<TaskContext>, const N: usize>(
    stream: &Stream,
    bytes: usize,
    buffers: [&Buffer; N],
    task: T,
) -> Result<Transfer> {
    let core = stream.core();
    let mut accesses = [const { None }; N];
    for (access, buffer) in accesses.iter_mut().zip(buffers) {
        *access = Some(buffer.access()?);
    }
    if bytes == 0 {
        return core.lifecycle.check().map(|()| Transfer(None));
    }
    let ticket = core.push_watched(task)?;
    for access in accesses.into_iter().flatten() {
        access.record(core, Task::marker(ticket));
    }
    Ok(Transfer::of(core, ticket, true))
}

/// The address of memory of the host, by which tasks come back to it.
fn host_address(pointer: *const u8) -> Address {
    Address(pointer.expose_provenance() as u64)
}

fn check_sizes(target_bytes: usize, source_bytes: usize) -> Result<()> {
    if target_bytes == source_bytes {
        return Ok(());
    }
    Err(Error::CopySizeMismatch { target_bytes, source_bytes })
}

/// A stream reaches memory of its own kind and of the host's cores, and is of the device of one of
/// the buffers. Pinned memory belongs to every device of its kind.
fn check_stream(stream: &Stream, buffers: &[&Buffer]) -> Result<()> {
    let (device, lifecycle) = (stream.device(), &stream.core().lifecycle);
    buffers.iter().try_for_each(|buffer| lifecycle.check_own("a buffer", buffer.runtime()))?;
    let is_reached =
        |buffer: &Buffer| [device.kind(), DeviceKind::Cpu].contains(&buffer.device().kind());
    let unreached = buffers.iter().find(|buffer| !is_reached(buffer));
    let strange = unreached.or_else(|| {
        let has_own = buffers.iter().any(|buffer| buffer.is_reached_by(device));
        buffers.first().filter(|_| !has_own)
    });
    match strange {
        None => Ok(()),
        Some(buffer) => {
            Err(Error::BufferDeviceMismatch { buffer: buffer.device(), stream: device })
        }
    }
}
