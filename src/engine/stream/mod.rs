//! Streams: in-order work. The public [`Stream`], and the engine below it, the same for every kind.
//!
//! * [`core`], [`drain`]: push, schedule, park, resume; what the consumer does
//! * [`direct`]: a driver's tasks past an empty queue
//! * [`turnstile`]: one consumer at a time, nothing left behind
//! * [`waiters`], [`wait`], [`synchronize`]: who waits, how a thread waits, what ends an error
//! * [`context`], [`commands`]: what runs, and what it is given
//! * [`native`], [`deferred`]: calls of C functions, tasks that somebody else finishes
//! * [`gate`], [`gated`]: what a stream stands in front of until somebody opens it
//! * [`failures`], [`marks`], [`pace`], [`frames`], [`lifecycle`]: what is known of a stream
//! * [`action`]: what is told of each task to who watches
//! * [`refusal`]: what becomes of tasks for which no worker can be started
//! * [`own`]: what the runtime itself needs of a stream, whatever state that is in
//! * [`table`]: the streams of one device: the default one, the pools, the dedicated ones
//! * [`handle`], [`scope`]: the public face

pub(crate) mod action;
pub(crate) mod commands;
pub(crate) mod context;
pub(crate) mod core;
mod deferred;
pub(crate) mod direct;
mod drain;
mod failures;
pub(crate) mod frames;
pub(crate) mod gate;
pub(crate) mod gated;
mod handle;
pub(crate) mod lifecycle;
#[cfg(all(test, loom))]
pub(crate) mod loom_device;
#[cfg(all(test, loom))]
mod loom_tests;
pub(crate) mod marks;
mod native;
pub(crate) mod own;
mod pace;
mod refusal;
mod scope;
pub(crate) mod synchronize;
pub(crate) mod table;
mod turnstile;
pub(crate) mod wait;
mod waiters;

pub use commands::TaskOutcome;
pub use deferred::Completion;
pub use handle::Stream;
pub use scope::Scope;
