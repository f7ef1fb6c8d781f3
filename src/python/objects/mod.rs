//! L4, the objects of a program: devices, streams, events, generators, and their functions.

pub(crate) mod contexts;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod functions;
pub(crate) mod generator;
pub(crate) mod stream;
