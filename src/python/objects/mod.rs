//! L4, what a program holds: devices, streams, events, generators, and the functions beside them.

pub(crate) mod contexts;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod functions;
pub(crate) mod generator;
pub(crate) mod stream;
