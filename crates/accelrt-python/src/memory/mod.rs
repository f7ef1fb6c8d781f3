//! L4, memory: buffers, views, exports; statistics, histories and replays of allocators.

pub(crate) mod allocator;
pub(crate) mod allocator_settings;
pub(crate) mod buffer;
pub(crate) mod buffer_state;
pub(crate) mod dlpack;
pub(crate) mod dlpack_export;
pub(crate) mod dlpack_import;
pub(crate) mod element;
pub(crate) mod exposure;
pub(crate) mod foreign_memory;
pub(crate) mod history;
pub(crate) mod memory_uses;
pub(crate) mod observers;
pub(crate) mod pickles;
pub(crate) mod replay;
pub(crate) mod shape;
pub(crate) mod sharing;
pub(crate) mod small_float;
pub(crate) mod snapshot;
pub(crate) mod snapshot_writer;
pub(crate) mod strided;
pub(crate) mod transfers;
pub(crate) mod value;
pub(crate) mod view;
pub(crate) mod view_memory;
pub(crate) mod work_state;
