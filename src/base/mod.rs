//! L0, base: values and mechanisms for every layer. No file here imports another layer.

pub(crate) mod asymmetric;
pub(crate) mod clock;
pub mod config;
pub(crate) mod device;
#[cfg(not(loom))]
pub mod dylib;
pub mod error;
pub(crate) mod event_fd;
pub mod fork;
pub mod machine_memory;
pub(crate) mod shortage;
pub mod size;
pub(crate) mod spin;
pub(crate) mod steps;
pub(crate) mod stream_map;
pub(crate) mod sync;
pub(crate) mod table;
pub(crate) mod task_parts;
pub(crate) mod thread;
