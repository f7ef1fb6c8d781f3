//! L2, the engine: ordered execution of work, the same for every kind of device.
//!
//! * `stream`: in-order work, with its tickets, errors and waiters
//! * `event`: positions in streams that threads and other streams wait for
//! * `frontier`: which work of other streams is ordered before a stream's task
//! * `log`: what tasks, waits and user ranges did, as records for subscribers

pub(crate) mod event;
pub(crate) mod frontier;
pub(crate) mod log;
pub(crate) mod stream;
