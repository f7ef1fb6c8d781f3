//! Streams of in-order work: the public [`Stream`], and the engine that all kinds share.
//!
//! * [`enqueue`]: the entry of every task, and the fast path of a driver's tasks
//! * [`core`], [`drain`]: the state, scheduling, parking and resuming; the consumer's loop
//! * [`consumer_lock`]: one consumer at a time, no task left behind
//! * [`waiters`], [`wait`], [`synchronize`]: the list of waiters, how a thread waits, how a
//!   synchronise ends an error
//! * [`receipt`]: how a handle of one task, and a pool, end an error
//! * [`task_future`]: the end of a task as a future
//! * [`task`], [`commands`]: what every task has; the commands
//! * [`ffi_launch`], [`deferred`]: calls of C functions, and tasks that another thread finishes
//! * [`latch`]: a latch that a parked stream waits for
//! * [`failures`], [`marks`], [`scheduling_hints`], [`frames`], [`lifecycle`]: a stream's state
//! * [`task_report`]: records and reports about each task, while tasks are watched
//! * [`schedule`]: waiting threads run the streams, in an order that tests choose
//! * [`internal`]: commands of the runtime itself, accepted in any state of the stream; tasks for
//!   which no worker can be started
//! * [`table`]: the streams of one device: the default one, the pools, the dedicated ones
//! * [`handle`]: the public types

pub(crate) mod commands;
mod consumer_lock;
pub(crate) mod core;
mod deferred;
mod drain;
pub(crate) mod enqueue;
pub(crate) mod failures;
pub(crate) mod ffi_launch;
pub mod frames;
mod handle;
pub(crate) mod internal;
pub(crate) mod interrupt;
pub(crate) mod latch;
pub(crate) mod lifecycle;
#[cfg(all(test, not(loom)))]
mod log_tests;
#[cfg(all(test, loom))]
pub(crate) mod loom_device;
#[cfg(all(test, loom))]
mod loom_tests;
pub(crate) mod marks;
pub mod order_watch;
pub(crate) mod receipt;
pub(crate) mod schedule;
mod scheduling_hints;
pub(crate) mod synchronize;
pub(crate) mod table;
pub(crate) mod task;
pub(crate) mod task_future;
pub(crate) mod task_report;
#[cfg(all(test, not(loom)))]
mod task_report_tests;
pub(crate) mod wait;
pub(crate) mod waiters;

pub use deferred::Completion;
pub use handle::Stream;
pub use task::TaskOutcome;
