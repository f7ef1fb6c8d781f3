//! The log: what tasks, waits and user ranges did, as records of fixed size, for subscribers.
//!
//! Each thread writes its records into a ring of its own, without a lock. One collector at a time
//! drains the rings and copies each record to the buffer of every subscription that wants it. So a
//! ring has one reader however many subscriptions there are; with a read position per subscription
//! the slowest one would fill the rings of all. A thread that has filled a chunk of its ring
//! collects by itself, unless another thread does so at this moment: then it links another chunk.
//! There is no log thread to wake, and no producer waits for another. Records are dropped and
//! counted by a subscription at its limit, and by rings that hold as many unread records as all
//! subscriptions together may.
//!
//! Who has to act before the thread goes on subscribes to the source of the events instead, and is
//! called there.
//!
//! * [`record`]: the record
//! * [`ring`]: one thread's records, and its protocol
//! * [`collector`]: rings and subscriptions
//! * [`immediate`]: subscriptions that are told at once, on the thread of the event
//! * [`process`]: the log of this process, and each thread's ring in it
//! * [`context`]: names as numbers, and what a thread's allocations are for
//! * [`device_times`]: tasks of drivers, whose times are read later

pub(crate) mod collector;
pub(crate) mod context;
pub(crate) mod device_times;
pub(crate) mod immediate;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod model_tests;
pub mod process;
pub(crate) mod record;
pub(crate) mod ring;
