//! Schedules: the threads that wait run the streams of a host kind, in an order that is chosen.
//!
//! While a runtime has a scheduler, its streams go there in place of the workers. A thread that
//! waits, and one that polls, runs a task of the stream that the scheduler chooses. Tasks are
//! watched meanwhile, so that a runtime without one pays nothing: what looks for it stands behind
//! the check for a watch.

use std::sync::Arc;
use std::task::Waker;

use crate::base::error::Result;
use crate::engine::stream::commands::OperationKind;
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::interrupt::Interrupt;
use crate::engine::stream::lifecycle::Lifecycle;
use crate::engine::stream::waiters::Waiter;

/// Chooses which runnable stream goes next. Any thread may call.
pub trait Scheduler: Send + Sync {
    /// Adds a stream that is runnable.
    fn add(&self, stream: Arc<StreamCore>);

    /// Runs at most one user's task of a stream on this thread. False when no stream is runnable,
    /// and while another thread runs one.
    fn step(&self) -> bool;

    /// Makes steps until `is_over`, which needs the stream with the key `awaited`.
    fn follow(
        &self,
        awaited: u64,
        is_over: &dyn Fn() -> bool,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<()>;

    /// Called behind each user's task that has run.
    fn end_task(&self, operation: OperationKind, bytes: usize);
}

impl Lifecycle {
    /// Makes a step of the schedule, if there is one. True when a task may have run.
    pub fn step(&self) -> bool {
        self.scheduler().is_some_and(|scheduler| scheduler.step())
    }

    /// As [`Lifecycle::step`], before a poll with this waker. Nothing else runs tasks, so the waker
    /// is woken for the next poll.
    pub(crate) fn step_for(&self, waker: &Waker) {
        if let Some(scheduler) = self.scheduler() {
            scheduler.step();
            waker.wake_by_ref();
        }
    }
}

/// For schedulers.
impl StreamCore {
    #[doc(hidden)]
    #[must_use]
    pub fn priority(&self) -> i32 {
        self.identity.priority
    }

    /// True when no thread runs the stream or has it in its queue.
    #[doc(hidden)]
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.consumer_lock.is_idle()
    }

    /// The streams that are parked until this one has gone on.
    #[doc(hidden)]
    #[must_use]
    pub fn parked_behind(&self) -> Vec<Arc<Self>> {
        let mut parked = Vec::new();
        self.waiters.each(|waiter| {
            if let Waiter::Stream(stream, _) = waiter {
                parked.push(Arc::clone(stream));
            }
        });
        parked
    }

    /// Takes its tasks for long ones: a turn looks behind each whether it is over, and no waiting
    /// thread helps.
    #[doc(hidden)]
    pub fn assume_long_tasks(&self) {
        self.batch_state.hints.assume_long();
    }

    /// Gives the stream to the scheduler. False without one.
    pub(super) fn add_to_schedule(self: &Arc<Self>) -> bool {
        let scheduler = self.lifecycle.scheduler().filter(|_| self.on_host);
        scheduler.map(|it| it.add(Arc::clone(self))).is_some()
    }
}
