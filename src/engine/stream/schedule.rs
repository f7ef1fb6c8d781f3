//! Schedules: waiting threads run the streams of a host kind, in an order that a scheduler chooses.
//!
//! While a runtime has a scheduler, it passes runnable streams to the scheduler instead of to the
//! workers. A thread that waits or polls runs a task of the stream that the scheduler chooses. The
//! runtime's tasks are watched meanwhile. Only the code path of watched tasks looks for a
//! scheduler, so a runtime without a watch has no extra cost.

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

    /// Called after each user's task that has run.
    fn end_task(&self, operation: OperationKind, bytes: usize);
}

/// A stream that a scheduler can run. [`Work::run`] runs its tasks.
pub trait ScheduledStream: Work {
    /// A number that is unique among the streams of this process.
    fn key(&self) -> u64;

    /// The priority of the stream; a lower number is more urgent.
    fn priority(&self) -> i32;

    /// The streams that are parked because they wait for tasks of this stream.
    fn parked_behind(&self) -> Vec<Arc<dyn ScheduledStream>>;

    /// Makes each run of the stream check after every task whether its turn is over, and keeps
    /// waiting threads from executing the stream. Lasts until some batches of short tasks were
    /// measured, so the scheduler repeats the call for each [`Scheduler::add`].
    fn request_single_steps(&self);

    /// Hands the stream to the workers of its backend.
    fn submit(self: Arc<Self>);
}
