//! Cancels a stream: what is queued and has not begun is retired without running.

use crate::base::error::Result;
use crate::base::sync::Ordering;
use crate::engine::stream::Stream;
use crate::engine::stream::context::TaskContext;
use crate::engine::stream::enqueue::Always;
use crate::engine::stream::operation::OperationKind;
use crate::engine::stream::task_report::TaskWatch;
use crate::queue::{Class, Command};

impl Stream {
    /// Retires every task that is queued and has not begun, without running it. Does not block.
    ///
    /// The stream fails at the first of these tasks with
    /// [`StreamCancelled`](crate::FailureCause::StreamCancelled), and goes on as behind a task that
    /// failed: the next synchronise raises the failure, which
    /// [counts](crate::StreamFailure::skipped_count) the tasks that did not run, and ends it; what
    /// is enqueued before that is skipped too. A stream without such tasks stays as it is.
    ///
    /// What has begun goes on: a running function, a deferred task that was started, work that a
    /// driver has. The runtime's own tasks are never cancelled. Events that were recorded behind
    /// are done and failed, and dropped buffers are freed. A wait for another stream remains, so a
    /// stream that is parked retires its tasks when the wait is over: the order that other streams
    /// and memory rely on holds. To end the wait as well, cancel the stream that it waits for.
    ///
    /// A task that another thread enqueues during the call may be cancelled or not. A report at the
    /// end of the process does not repeat the failure. Fails after a shutdown, which cancels by
    /// itself, and in a forked child.
    ///
    /// ```
    /// use accelrt::{Error, FailureCause, StreamError};
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// # let stream = runtime.stream(accelrt::Device::cpu(0))?;
    /// let (open, opened) = std::sync::mpsc::channel::<()>();
    /// let (enter, entered) = std::sync::mpsc::channel();
    /// stream.enqueue(move || enter.send(()).map(|()| opened.recv()))?;
    /// stream.enqueue(|| println!("never printed"))?;
    /// entered.recv().expect("the first task begins");
    /// stream.cancel()?;
    /// open.send(()).expect("the first task goes on");
    /// let Err(Error::Stream(StreamError::Failed(failure))) = stream.synchronize() else {
    ///     panic!("a task was cancelled")
    /// };
    /// assert!(matches!(failure.failure(), FailureCause::StreamCancelled));
    /// assert_eq!(failure.skipped_count(), 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn cancel(&self) -> Result<()> {
        let core = self.core();
        core.lifecycle.check()?;
        // While tasks are watched, the consumer looks at the ticket; else no task pays for that.
        let watch = core.lifecycle.watch(None);
        // Relaxed: a task that races with this call may be cancelled or not.
        core.cancelled_until.fetch_max(core.pushed(), Ordering::Relaxed);
        core.enqueue(EndOfCancel(watch), Always);
        Ok(())
    }
}

/// Stands behind the last task that a cancel covers, and ends its watch.
struct EndOfCancel(TaskWatch);

impl Command<TaskContext> for EndOfCancel {
    const CLASS: Class = Class::Internal;
    const OPERATION: OperationKind = OperationKind::Internal;

    fn run(self, _context: &mut TaskContext) {
        drop(self.0);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc;

    use crate::base::config::Config;
    use crate::base::device::Device;
    use crate::runtime::Runtime;

    #[test]
    fn a_cancel_watches_the_tasks_until_the_last_one_that_it_covers() {
        // Goal: tasks behind a cancel cost what they cost before it. Method: a gate holds the
        // cancelled ones.
        let runtime = Runtime::new(Config::default()).unwrap();
        let stream = runtime.stream(Device::cpu(0)).unwrap();
        let is_watched = || stream.core().lifecycle.is_watched();
        let ((enter, entered), (open, opened)) = (mpsc::channel(), mpsc::channel::<()>());
        stream.enqueue(move || enter.send(()).map(|()| opened.recv())).unwrap();
        entered.recv().unwrap();
        stream.enqueue(|| ()).unwrap();
        stream.cancel().unwrap();
        stream.cancel().unwrap();
        assert!(is_watched());
        open.send(()).unwrap();
        stream.synchronize().unwrap_err();
        assert!(!is_watched());
    }
}
