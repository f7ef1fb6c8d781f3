//! L4, objects: devices, streams and events, and functions for them.

pub(crate) mod contexts;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod functions;
pub(crate) mod selection;
pub(crate) mod stream;
pub(crate) mod tags;
pub(crate) mod task_contexts;
