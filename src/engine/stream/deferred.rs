//! Deferred tasks: started in stream order and finished by another thread; no thread waits.
//!
//! | stage | the task is asked | becomes |
//! |---|---|---|
//! | queued | the device is behind: its callback opens a latch | approaching |
//! | queued, approaching | everything before is done: calls `start` | started |
//! | started | the completion has opened the latch: runs, which reads the outcome | over |
//!
//! The stream parks on the latch of the task's stage.

use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::base::error::{FailureCause, Result, TaskError};
use crate::base::fork::{self, Inherited};
use crate::base::sync::assert_no_lock_held;
use crate::engine::stream::Stream;
use crate::engine::stream::commands::{drop_quietly, panicked};
use crate::engine::stream::context::{Blocker, TaskContext};
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::enqueue::Checked;
use crate::engine::stream::latch::{Latch, Outcome};
use crate::engine::stream::latched::{LatchWaiter, open};
use crate::engine::stream::operation::OperationKind;
use crate::queue::{Class, Command};

/// Finishes a deferred task: see [`Stream::enqueue_deferred`].
///
/// May be sent to any thread. One that is dropped unfinished fails the stream. After a shutdown,
/// and in a forked child, it does nothing.
#[must_use = "a completion that is dropped unfinished fails its stream"]
pub struct Completion {
    latch: Inherited<Arc<Latch<StreamCore>>>,
    is_finished: bool,
}

impl Completion {
    fn new(latch: &Arc<Latch<StreamCore>>) -> Self {
        Self { latch: Inherited::new(Arc::clone(latch)), is_finished: false }
    }

    /// The task is done; an error fails its stream. The stream goes on where its kind executes
    /// tasks, never on this thread's stack. Does not block.
    pub fn finish(mut self, outcome: Result<(), TaskError>) {
        self.is_finished = true;
        self.open(outcome.map_err(FailureCause::Returned));
    }

    fn open(&self, outcome: Outcome) {
        if !fork::is_child() {
            open(&self.latch, outcome);
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if !self.is_finished {
            self.open(Err(FailureCause::Unfinished));
        }
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Completion")
    }
}

/// The task. Its stages are described at the head of this file.
struct Deferred<F>(Stage<F>);

enum Stage<F> {
    Queued(F),
    Approaching(F, LatchWaiter),
    /// With the failure of `start`, if it failed.
    Started(LatchWaiter, Option<Box<FailureCause>>),
    /// The failure is recorded, or the outcome was read.
    Over,
}

impl<F: FnOnce(Completion) + Send + 'static> Stage<F> {
    /// The next stage, if the stream can enter it now.
    fn next(self, context: &mut TaskContext) -> Self {
        match self {
            Self::Queued(start) if context.on_host => Self::begin(start),
            Self::Queued(start) => match approach(context) {
                Some(waiter) if waiter.0.is_open() => Self::begin(start),
                Some(waiter) => Self::Approaching(start, waiter),
                None => {
                    drop_quietly(|| drop(start));
                    Self::Over
                }
            },
            Self::Approaching(start, waiter) if waiter.0.is_open() => Self::begin(start),
            stage => stage,
        }
    }

    fn begin(start: F) -> Self {
        assert_no_lock_held();
        let latch = Latch::new();
        let completion = Completion::new(&latch);
        let started = catch_unwind(AssertUnwindSafe(|| start(completion)));
        Self::Started(LatchWaiter(latch), started.err().map(|panic| Box::new(panicked(panic))))
    }
}

/// A latch that opens when the device has done everything before. `None` when the driver refuses to
/// tell: the stream then fails instead of hanging.
fn approach(context: &mut TaskContext) -> Option<LatchWaiter> {
    let mark = context.mark(false)?;
    let latch = Latch::new();
    let reached = Arc::clone(&latch);
    let registered = match mark.is_done() {
        Ok(true) => {
            open(&latch, Ok(()));
            Ok(())
        }
        Ok(false) => {
            let callback = Box::new(move || open(&reached, Ok(())));
            mark.when_done(callback)
        }
        Err(refusal) => Err(refusal),
    };
    match registered {
        Ok(()) => Some(LatchWaiter(latch)),
        Err(refusal) => {
            context.fail(FailureCause::Backend(refusal));
            None
        }
    }
}

impl<F: FnOnce(Completion) + Send + 'static> Command<TaskContext> for Deferred<F> {
    const CLASS: Class = Class::User;
    const OPERATION: OperationKind = OperationKind::Deferred;
    const MAY_WAIT: bool = true;

    fn is_ready(&mut self, context: &mut TaskContext) -> bool {
        self.0 = mem::replace(&mut self.0, Stage::Over).next(context);
        let latch = match &self.0 {
            // The latch may be open by now: parking then reports it, and the next look calls
            // `start`. The task is ready only after that.
            Stage::Approaching(_, LatchWaiter(latch)) => latch,
            Stage::Started(LatchWaiter(latch), _) if !latch.is_open() => latch,
            _ => return true,
        };
        context.effects().blocked_on = Some(Blocker::Latch(Arc::clone(latch)));
        false
    }

    fn run(self, context: &mut TaskContext) {
        let Stage::Started(waiter, panic) = self.0 else { return };
        let outcome = waiter.0.take().expect("a task that is ready was finished, and once");
        match (panic, outcome) {
            (None, Ok(())) => {}
            (None, Err(cause)) => context.fail(cause),
            (Some(panic), outcome) => {
                context.fail(*panic); // it came first
                drop_quietly(|| drop(outcome));
            }
        }
    }
}

impl Stream {
    /// Enqueues a task that is started here and finished elsewhere. When everything enqueued before
    /// is done, on the device too, `start` is called once, on the thread that executes the stream;
    /// it hands the [`Completion`] to the thread or library that does the work, and returns
    /// quickly. The stream goes on when the completion is finished, before `start` returns or at
    /// any later time, by any thread. Meanwhile no thread waits, so any number of tasks may be
    /// under way. The holder of the completion must not wait for the stream, by a synchronise, by a
    /// request for memory that only the stream can give back, or by enqueueing there beyond the
    /// limit of its tasks.
    ///
    /// Returns the task's ticket, which identifies this use of memory. An error, a panic of `start`
    /// or a completion that is dropped unfinished becomes the stream's error. On a failed stream
    /// `start` is dropped unrun. A shutdown waits for started tasks until its timeout, and counts
    /// the others as cancelled. Does not block, except as [`Stream::enqueue`]; fails after a
    /// shutdown and in a forked child.
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// # let stream = runtime.stream(accelrt::Device::cpu(0))?;
    /// let (sender, started) = std::sync::mpsc::channel::<accelrt::Completion>();
    /// let helper = std::thread::spawn(move || {
    ///     for completion in started {
    ///         // Here the work is done that this thread alone can do.
    ///         completion.finish(Ok(()));
    ///     }
    /// });
    /// stream.enqueue_deferred(move |completion| sender.send(completion).expect("a helper"))?;
    /// stream.enqueue(|| { /* runs when the helper has finished */ })?;
    /// stream.synchronize()?;
    /// helper.join().expect("it ends with the last sender");
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn enqueue_deferred<F>(&self, start: F) -> Result<u64>
    where
        F: FnOnce(Completion) + Send + 'static,
    {
        let pushed = self.core().enqueue(Deferred(Stage::Queued(start)), Checked)?;
        Ok(pushed.ticket)
    }
}
