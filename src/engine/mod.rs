//! L2, the engine: what keeps work in order, the same for every kind of device.
//!
//! * `stream`: in-order work, with its tickets, errors and waiters
//! * `event`: marks in streams that others wait for
//! * `frontier`: which work of other streams is ordered before a stream's task

pub(crate) mod event;
pub(crate) mod frontier;
pub(crate) mod stream;
