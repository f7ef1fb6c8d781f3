//! The end of a copy or fill as a future.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::base::error::Result;
use crate::base::fork::Inherited;
use crate::engine::stream::task_future::TaskFuture;
use crate::memory::buffer::{HostTransfer, Transfer};

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
