//! The public stream: a handle to in-order work on one device.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use crate::backend::contract::PriorityRange;
use crate::base::device::Device;
use crate::base::error::{DriverError, Error, Result};
use crate::base::fork;
use crate::base::fork::Inherited;
use crate::engine::stream::commands::Call;
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::enqueue::{Always, Checked};
use crate::engine::stream::frames;
use crate::engine::stream::internal::DropTask;
use crate::engine::stream::interrupt::Interrupt;
use crate::engine::stream::task::TaskOutcome;

/// In-order work on one device.
///
/// Tasks run in the order in which they are enqueued. Streams are independent, unless one waits for
/// another: by an event, by [`Stream::wait_stream`] or for a conflicting use of a buffer. Handles
/// are cheap to clone and compare equal when they name the same stream. Get one from
/// [`Runtime::stream`](crate::Runtime::stream).
///
/// A task that fails sets the stream's *error*. The stream then skips users' later tasks, until a
/// call receives the error: [`Stream::synchronize`], a device synchronise, a wait for a transfer
/// that failed, or the host's access to a buffer whose last use failed.
///
/// ```
/// use accelrt::{Config, Device, Error, Runtime, StreamError};
/// let runtime = Runtime::new(Config::default())?;
/// let stream = runtime.stream(Device::cpu(0))?;
/// stream.enqueue(|| Err::<(), _>("no such file"))?;
/// stream.enqueue(|| unreachable!("skipped"))?; // enqueueing never raises
/// let error = stream.synchronize().unwrap_err();
/// assert!(matches!(&error, Error::Stream(StreamError::Failed(_))));
/// assert!(error.to_string().contains("no such file"));
/// stream.synchronize()?; // the error ended
/// # Ok::<(), accelrt::Error>(())
/// ```
///
/// ```
/// use accelrt::Event;
/// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
/// # let device = accelrt::Device::cpu(0);
/// let (load, compute) = (runtime.stream_with_priority(device, -1)?, runtime.stream(device)?);
/// assert!(load.is_dedicated() && load.id() != 0);
/// assert!(load.priority() == -1 && load.priority_range().contains(1));
/// assert!(load.native_handle().is_err(), "the cpu has no driver");
///
/// load.enqueue(|| println!("load"))?;
/// let loaded = load.record_event()?;
/// compute.wait_event(&loaded)?; // or `compute.wait_stream(&load)`, for all of it
/// assert!(compute.is_ordered_after(&loaded));
/// compute.enqueue(|| println!("compute"))?;
/// let end = Event::new();
/// compute.record(&end)?;
/// load.wait_stream(&compute)?;
/// load.synchronize_unless(&mut || false)?; // the check could end the wait
/// assert!(compute.is_done() && compute.is_quiet() && end.is_done());
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Clone)]
pub struct Stream {
    core: Inherited<Arc<StreamCore>>,
    /// The last ticket before the pool issued the stream to this handle; 0 for a handle that sees
    /// all errors of the stream.
    issued_after: u64,
}

impl Stream {
    #[doc(hidden)]
    pub fn from_core(core: Arc<StreamCore>) -> Self {
        Self::issued_after_ticket(0, core)
    }

    /// A handle whose holder does not see the errors of tasks up to `issued_after`.
    pub(crate) fn issued_after_ticket(issued_after: u64, core: Arc<StreamCore>) -> Self {
        Self { core: Inherited::new(core), issued_after }
    }

    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub fn core(&self) -> &Arc<StreamCore> {
        &self.core
    }

    /// The device that executes this stream.
    #[must_use]
    pub fn device(&self) -> Device {
        self.core.identity.device
    }

    /// The stream's id on its device. Never reused; 0 is the default stream.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.core.identity.id
    }

    /// The priority that the stream was created with; smaller values are more urgent.
    #[must_use]
    pub fn priority(&self) -> i32 {
        self.core.identity.priority
    }

    /// The priorities that streams of this device may have.
    #[must_use]
    pub fn priority_range(&self) -> PriorityRange {
        self.core.backend.priority_range(self.device().index())
    }

    /// True for a dedicated stream, which ends with its last handle and its last task.
    #[must_use]
    pub fn is_dedicated(&self) -> bool {
        self.core.identity.is_dedicated
    }

    /// The driver's handle. Fails on kinds without driver handles, such as cpu.
    pub fn native_handle(&self) -> Result<u64> {
        self.core.handle.native()
    }

    /// Enqueues a function. Does not block, except that the caller helps or waits while the stream
    /// has more tasks queued than its limit. The function runs once, on some thread, after
    /// everything enqueued before. If the stream has failed by then, it drops the function unrun.
    ///
    /// An error that the function returns, or a panic, becomes the stream's error; any other
    /// [value](TaskOutcome) is dropped. A function larger than 40 bytes is boxed. A worker has a
    /// stack of 8 MiB; a thread that waits for the stream may execute the function on its own
    /// stack. Fails on kinds whose streams do not run on the host, after a shutdown, and in a
    /// forked child.
    #[inline]
    pub fn enqueue<F, R>(&self, function: F) -> Result<()>
    where
        F: FnOnce() -> R + Send + 'static,
        R: TaskOutcome + 'static,
    {
        if !self.core.on_host {
            return Err(self.no_host_functions());
        }
        self.core.enqueue(Call(function), Checked).map(drop)
    }

    #[cold]
    fn no_host_functions(&self) -> Error {
        Error::Driver(DriverError::Unsupported {
            kind: self.device().kind(),
            capability: "functions of the host as tasks",
        })
    }

    /// Drops `owner` when everything enqueued before is done, failed or cancelled. Must not be
    /// called in a forked child.
    #[doc(hidden)]
    pub fn drop_after_all<T: Send + 'static>(&self, owner: T) {
        self.core.enqueue(DropTask(owner), Always);
    }

    /// Drops `owner` when the device has done the task `ticket`, which was just enqueued. Must not
    /// be called in a forked child.
    #[doc(hidden)]
    pub fn drop_after<T: Send + 'static>(&self, ticket: u64, owner: T) {
        if self.core.on_host {
            self.drop_after_all(owner);
        } else {
            self.core.hold(ticket, Box::new(owner));
        }
    }

    /// True when the next enqueue will not be throttled.
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub fn is_below_limit(&self) -> bool {
        self.core.is_below_limit()
    }

    /// Helps the stream or blocks until it is below its task limit. Calls `is_interrupted` as
    /// [`Stream::synchronize_unless`] does; fails after a shutdown.
    #[doc(hidden)]
    pub fn wait_below_limit_unless(&self, is_interrupted: &mut dyn FnMut() -> bool) -> Result<()> {
        self.core.wait_below_limit(&mut Interrupt::by(is_interrupted))
    }

    /// Calls `task` as a task of the stream: during the call this thread may not wait for the
    /// stream, and its enqueues are not throttled.
    #[doc(hidden)]
    pub fn inside_task<R>(&self, task: impl FnOnce() -> R) -> R {
        frames::inside(self.core.key(), task)
    }

    /// True when [`Stream::synchronize`] would neither wait nor raise.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let last = self.core.pushed();
        let is_quiet = self.core.is_quiet(self.issued_after);
        if is_quiet {
            self.core.tell_waited(last, true, &Ok(()));
        }
        is_quiet
    }

    /// Announces a wait: workers leave the stream's short tasks to this thread, which waits soon.
    #[doc(hidden)]
    #[inline]
    pub fn announce_wait(&self) {
        self.core.announce_helper();
    }

    /// True when everything enqueued is done. Does not block. False when the driver refuses to
    /// answer. Under a schedule, runs one task unless everything is done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.is_complete() || self.core.lifecycle.step() && self.is_complete()
    }

    /// As [`Stream::is_done`], and never runs a task.
    #[doc(hidden)]
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let is_done = |core: &StreamCore| core.handle.query().unwrap_or(false);
        let until = self.core.pushed();
        let is_done = self.core.is_drained() && (self.core.on_host || is_done(&self.core));
        if is_done {
            self.core.tell_waited(until, true, &Ok(()));
        }
        is_done
    }

    /// True when all tasks are done, and no marker is left in the queue.
    #[doc(hidden)]
    #[must_use]
    pub fn is_passed(&self) -> bool {
        // The counter is read first, as in `StreamCore::is_drained`.
        self.core.progress.retired() >= self.core.pushed() && self.is_complete()
    }

    /// The last ticket before the pool issued the stream to this handle.
    #[doc(hidden)]
    #[must_use]
    pub fn issued_after(&self) -> u64 {
        self.issued_after
    }

    /// As a synchronise of a stream for which [`Stream::is_quiet`] is true.
    #[doc(hidden)]
    pub fn forget_received(&self) {
        self.core.failures.forget_received(self.issued_after);
    }

    /// True while the stream has an error, which the next synchronise raises. Never blocks. False
    /// in a forked child, where the lock of the errors may be held by a thread of the parent.
    #[doc(hidden)]
    #[must_use]
    pub fn has_failed(&self) -> bool {
        !fork::is_child() && self.core.failures.has_unraised(self.issued_after)
    }

    /// Blocks until everything enqueued before this call is done; this thread may execute short
    /// tasks itself. Then clears the stream's error and raises it to every thread that synchronises
    /// with the stream at that moment. Fails inside a task of this stream.
    pub fn synchronize(&self) -> Result<()> {
        self.synchronize_within(&mut Interrupt::default())
    }

    /// As [`Stream::synchronize`], for at most `timeout`. Then the wait fails with
    /// [`TimedOut`](crate::RuntimeError::TimedOut); the work continues, and the stream keeps its
    /// error. This thread executes no tasks, because their length is unknown.
    ///
    /// ```
    /// use std::time::Duration;
    /// use accelrt::{Config, Device, Error, Runtime, RuntimeError};
    /// let runtime = Runtime::new(Config::default())?;
    /// let stream = runtime.stream(Device::cpu(0))?;
    /// stream.enqueue(|| std::thread::sleep(Duration::from_millis(50)))?;
    /// let waited = stream.synchronize_timeout(Duration::from_millis(1));
    /// assert!(matches!(waited, Err(Error::Runtime(RuntimeError::TimedOut { .. }))));
    /// stream.synchronize_timeout(Duration::from_secs(60))?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn synchronize_timeout(&self, timeout: Duration) -> Result<()> {
        self.synchronize_within(&mut Interrupt::after(timeout))
    }

    /// As [`Stream::synchronize`], but calls `is_interrupted` every 50 ms. If the call returns
    /// true, the wait fails with [`Interrupted`](crate::RuntimeError::Interrupted), and the work
    /// continues. The check runs between the tasks that this thread executes. If the stream's
    /// recent tasks were long, this thread executes none.
    pub fn synchronize_unless(&self, is_interrupted: &mut dyn FnMut() -> bool) -> Result<()> {
        self.synchronize_within(&mut Interrupt::by(is_interrupted))
    }

    #[doc(hidden)]
    pub fn synchronize_within(&self, interrupt: &mut Interrupt<'_>) -> Result<()> {
        self.core.synchronize(self.issued_after, interrupt)
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.core, &other.core)
    }
}

impl Eq for Stream {}

impl Hash for Stream {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.core.key().hash(state);
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("device", &format_args!("{}", self.device()))
            .field("id", &self.id())
            .field("priority", &self.priority())
            .finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::base::config::Config;
    use crate::base::error::{RuntimeError, StreamError};
    use crate::runtime::Runtime;

    #[test]
    fn code_that_runs_as_a_task_may_not_wait_for_its_stream() {
        let runtime = Runtime::new(Config::default()).unwrap();
        let [stream, other] = [(); 2].map(|()| runtime.stream(Device::cpu(0)).unwrap());
        stream.inside_task(|| {
            let refused = stream.core().check_wait().unwrap_err();
            let Error::Stream(StreamError::WaitInsideTask { stream_id, .. }) = refused else {
                panic!("{refused}")
            };
            assert_eq!(stream_id, stream.id());
            other.core().check_wait().unwrap();
        });
        stream.core().check_wait().unwrap();
    }

    #[test]
    fn a_throttled_wait_ends_when_it_is_interrupted_and_below_the_limit() {
        let config = Config::builder().stream_task_limit(64).cpu_threads(1).build().unwrap();
        let runtime = Runtime::new(config).unwrap();
        let stream = runtime.stream(Device::cpu(0)).unwrap();
        let ((enter, entered), (open, opened)) = (mpsc::channel(), mpsc::channel::<()>());
        let gate = move || enter.send(()).map(|()| opened.recv().is_ok()).map(drop);
        stream.enqueue(gate).unwrap();
        entered.recv().unwrap(); // the worker is in the task, so this thread cannot help
        while stream.is_below_limit() {
            stream.enqueue(|| ()).unwrap();
        }
        let refused = stream.wait_below_limit_unless(&mut || true).unwrap_err();
        assert!(matches!(refused, Error::Runtime(RuntimeError::Interrupted)), "{refused}");
        open.send(()).unwrap();
        stream.wait_below_limit_unless(&mut || false).unwrap();
        stream.synchronize().unwrap();
    }
}
