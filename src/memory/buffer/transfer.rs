//! Handles of enqueued copies, fills and tasks over views: the wait for one, also as a future.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::base::error::Result;
use crate::base::fork::Inherited;
use crate::base::spin::SpinMutex;
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::interrupt::Interrupt;
use crate::engine::stream::task_future::TaskFuture;

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
    pub(super) target: Arc<Target<O>>,
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

impl Transfer {
    pub(super) fn of(core: &Arc<StreamCore>, ticket: u64, retains_errors: bool) -> Self {
        let task = WatchedTask { stream: Arc::clone(core), ticket, retains_errors };
        Self(Some(Inherited::new(task)))
    }
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
