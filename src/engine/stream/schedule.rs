//! Schedules: the threads that wait run the streams of a host kind, in an order that is chosen.
//!
//! While a runtime has a scheduler, its streams go there in place of the workers. A thread that
//! waits, and one that polls, runs a task of the stream that the scheduler chooses. Tasks are
//! watched meanwhile, so that a runtime without one pays nothing: what looks for it stands behind
//! the check for a watch.

use std::sync::Arc;

use crate::backend::contract::Work;
use crate::base::error::Result;
use crate::engine::stream::interrupt::Interrupt;
use crate::engine::stream::task::OperationKind;

/// Chooses which runnable stream goes next. Any thread may call.
pub trait Scheduler: Send + Sync {
    /// Adds a stream that is runnable.
    fn add(&self, stream: Arc<dyn ScheduledStream>);

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

/// A stream as a scheduler has it. [`Work::run`] runs its tasks.
pub trait ScheduledStream: Work {
    /// A number that no other stream of this process has.
    fn key(&self) -> u64;

    /// The priority of the stream; a lower number is more urgent.
    fn priority(&self) -> i32;

    /// The streams that are parked until this one has gone on.
    fn parked_behind(&self) -> Vec<Arc<dyn ScheduledStream>>;

    /// Takes its tasks for long ones: a turn looks behind each whether it is over, and no waiting
    /// thread helps.
    fn assume_long_tasks(&self);

    /// Hands the stream to the workers of its backend.
    fn submit(self: Arc<Self>);
}
