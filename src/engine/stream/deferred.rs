//! Deferred tasks: started in stream order, finished by another thread, without a blocked thread.
//!
//! | stage | on a poll | next stage |
//! |---|---|---|
//! | queued | the device has pending work: its callback will open a latch | approaching |
//! | queued, approaching | all earlier work is done: calls `start` | started |
//! | started | the completion has opened the latch: the task runs and reads the outcome | over |
//!
//! The stream parks on the latch of the task's stage.

use std::any::type_name;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::base::error::{FailureCause, Result, StreamFailure, TaskError};
use crate::base::fork::{self, Inherited};
use crate::base::sync::assert_no_lock_held;
use crate::engine::log::context::NameId;
use crate::engine::stream::Stream;
use crate::engine::stream::commands::{LatchWaiter, open_latch};
use crate::engine::stream::core::{Blocker, StreamCore, TaskContext};
use crate::engine::stream::enqueue::Checked;
use crate::engine::stream::latch::{Failed, Latch, Outcome};
use crate::engine::stream::task::{Details, OperationKind, drop_quietly, panic_cause};
use crate::queue::{Class, Command};

/// Finishes a deferred task: see [`Stream::enqueue_deferred`].
///
/// May be sent to any thread. Dropping it unfinished fails the stream. A completion has no effect
/// after a shutdown and in a forked child.
#[derive(Debug)]
#[must_use = "a completion that is dropped unfinished fails its stream"]
pub struct Completion {
    latch: Inherited<Arc<Latch<StreamCore>>>,
    is_finished: bool,
}

impl Completion {
    fn new(latch: &Arc<Latch<StreamCore>>) -> Self {
        Self { latch: Inherited::new(Arc::clone(latch)), is_finished: false }
    }

    /// What says whether the task was finished.
    #[doc(hidden)]
    pub fn watch(&self) -> impl Fn() -> bool + use<> {
        let latch = Arc::clone(&self.latch);
        move || latch.is_open()
    }

    /// Finishes the task. An error fails the stream. The stream's later tasks run on the threads of
    /// the stream's kind, never inside this call. Does not block.
    pub fn finish(mut self, outcome: Result<(), TaskError>) {
        self.is_finished = true;
        self.open(outcome.map_err(|error| FailureCause::Returned(error).into()));
    }

    /// As [`Completion::finish`], with an error that the task's handle shares. The handle can then
    /// receive the error before the stream has failed.
    #[doc(hidden)]
    pub fn finish_with(mut self, outcome: Result<(), Arc<StreamFailure>>) {
        self.is_finished = true;
        self.open(outcome.map_err(Failed::Error));
    }

    fn open(&self, outcome: Outcome) {
        if !fork::is_child() {
            open_latch(&self.latch, outcome);
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if !self.is_finished {
            self.open(Err(FailureCause::Unfinished.into()));
        }
    }
}

/// A deferred task as a command. The table at the head of this file describes its stages.
struct Deferred<F> {
    stage: Stage<F>,
    /// The name for the log; `None` stands for the type of `F`.
    name: Option<NameId>,
}

enum Stage<F> {
    Queued(F),
    Approaching(F, LatchWaiter),
    /// `start` was called, and the cause is present if `start` panicked.
    Started(LatchWaiter, Option<Box<FailureCause>>),
    /// The task failed before `start`. Also the placeholder while `next` runs.
    Over,
}

impl<F: FnOnce(Completion) + Send + 'static> Stage<F> {
    /// The next stage if the task can enter it now, else the same stage.
    fn next(self, context: &mut TaskContext) -> Self {
        match self {
            Self::Queued(start) if context.on_host => Self::begin(start),
            Self::Queued(start) => match earlier_work_latch(context) {
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
        Self::Started(LatchWaiter(latch), started.err().map(|panic| Box::new(panic_cause(panic))))
    }
}

/// Returns a latch that opens when the device has done all earlier work. `None` when the driver
/// refuses the mark or its callback: the stream then fails instead of hanging.
fn earlier_work_latch(context: &mut TaskContext) -> Option<LatchWaiter> {
    let mark = context.mark(false)?;
    let latch = Latch::new();
    let reached = Arc::clone(&latch);
    let registered = match mark.is_done() {
        Ok(true) => {
            open_latch(&latch, Ok(()));
            Ok(())
        }
        Ok(false) => {
            let callback = Box::new(move || open_latch(&reached, Ok(())));
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

    fn details(&self) -> Details {
        let name = self.name.unwrap_or_else(|| NameId::of_static(type_name::<F>()));
        Details { name, ..Details::default() }
    }

    const MAY_WAIT: bool = true;

    fn is_ready(&mut self, context: &mut TaskContext) -> bool {
        self.stage = mem::replace(&mut self.stage, Stage::Over).next(context);
        let latch = match &self.stage {
            // The latch may have opened meanwhile. Parking on an open latch resumes the stream at
            // once, and the next poll calls `start`.
            Stage::Approaching(_, LatchWaiter(latch)) => latch,
            Stage::Started(LatchWaiter(latch), _) if !latch.is_open() => latch,
            _ => return true,
        };
        context.effects().blocked_on = Some(Blocker::Latch(Arc::clone(latch)));
        false
    }

    fn run(self, context: &mut TaskContext) {
        let Stage::Started(waiter, panic) = self.stage else { return };
        let outcome = waiter.0.take().expect("a task that is ready was finished, and once");
        match (panic, outcome) {
            (None, Ok(())) => {}
            (None, Err(Failed::Cause(cause))) => context.fail(cause),
            (None, Err(Failed::Error(error))) => context.fail_with(error),
            (Some(panic), outcome) => {
                context.fail(*panic); // in place of the completion's outcome
                drop_quietly(|| drop(outcome));
            }
        }
    }
}

impl Stream {
    /// Enqueues a task that the stream starts and another thread finishes. When all earlier work is
    /// done, on the device too, the thread that executes the stream calls `start` once. `start`
    /// hands the [`Completion`] to the thread or library that does the work, and returns quickly.
    /// The stream continues when any thread finishes the completion, even before `start` returns.
    /// No thread blocks until then, so any number of tasks may be in flight. The holder of the
    /// completion must not wait for the stream: by a synchronise, by a request for memory that only
    /// the stream can release, or by enqueueing beyond the stream's task limit.
    ///
    /// Returns the task's ticket. An error, a panic of `start` or a completion that is dropped
    /// unfinished becomes the stream's error. On a failed stream `start` is dropped without being
    /// called. A shutdown waits for all tasks until its timeout, and counts the unfinished ones as
    /// cancelled. Does not block, except as [`Stream::enqueue`]; fails after a shutdown and in a
    /// forked child.
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
        self.enqueue_deferred_as(None, start)
    }

    /// As [`Stream::enqueue_deferred`], with a name for the log.
    #[doc(hidden)]
    pub fn enqueue_deferred_as<F>(&self, name: Option<NameId>, start: F) -> Result<u64>
    where
        F: FnOnce(Completion) + Send + 'static,
    {
        let task = Deferred { stage: Stage::Queued(start), name };
        Ok(self.core().enqueue(task, Checked)?.ticket)
    }
}
