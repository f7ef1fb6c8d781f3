//! L4, launches: native functions, kernels and callables as tasks; methods of streams and events.

pub(crate) mod argument;
pub(crate) mod ctypes;
pub(crate) mod descriptor;
pub(crate) mod event_callback;
mod event_methods;
pub(crate) mod ffi_launch;
pub(crate) mod function;
pub(crate) mod host_call;
pub(crate) mod host_launch;
pub(crate) mod host_task;
pub(crate) mod host_threads;
pub(crate) mod kernel_launch;
pub(crate) mod kernels;
pub(crate) mod marks;
pub(crate) mod program;
pub(crate) mod signature;
mod stream_methods;
