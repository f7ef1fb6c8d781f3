//! What the other crates of this workspace need beside the public API.
//!
//! These items are exempt from semantic versioning: the crates of one release use each other's
//! internals, and no other crate should. Each item is named here, and an item that no crate uses
//! is removed.

pub use crate::backend::contract::capacity::{Capacity, out_of_memory};
pub use crate::backend::driver::class_of_value;
pub use crate::base::clock::Clock;
pub use crate::base::config::{KINDS_REFUSED, setting};
#[cfg(not(loom))]
pub use crate::base::dylib;
pub use crate::base::event_fd::EventFd;
pub use crate::base::fork::Inherited;
pub use crate::base::size::display_bytes;
pub use crate::base::spin::{SpinGuard, SpinMutex};
pub use crate::base::stream_map::Mixer;
pub use crate::base::sync::{LockRank, Mutex, MutexGuard, Sleeper, assert_no_lock_held, park};
pub use crate::base::task_parts::TaskParts;
pub use crate::base::thread::{
    WORKER_STACK_BYTES, contain, longest_park, while_blocked, with_signals_blocked,
};
pub use crate::base::{config, error, fork, machine_memory};
pub use crate::engine::event::future::WhenDone;
pub use crate::engine::frontier::Progress;
pub use crate::engine::log::collector::{Keeps, Taken, Wants, now};
pub use crate::engine::log::context::{
    AllocationContext, NameId, StackId, TOO_MANY_NAMES, exchange_stack,
};
pub use crate::engine::log::process as process_log;
pub use crate::engine::log::process::ProcessSubscription;
pub use crate::engine::log::record::{
    Label, LogRecord, MemoryAction, MemoryRecord, RecordKind, RecordedSource,
};
pub use crate::engine::stream::core::{StreamCore, TaskContext};
pub use crate::engine::stream::enqueue::Checked;
pub use crate::engine::stream::failures::skipped_by;
pub use crate::engine::stream::ffi_launch::NATIVE_CALLS;
pub use crate::engine::stream::interrupt::Interrupt;
pub use crate::engine::stream::lifecycle::{Lifecycle, TaskReport, TaskWatch};
pub use crate::engine::stream::order_watch::{NextUses, Place, UsedBytes};
pub use crate::engine::stream::schedule::{ScheduledStream, Scheduler};
pub use crate::engine::stream::synchronize::SynchronizeFuture;
pub use crate::engine::stream::task::{
    Details, MemoryAccess, OperationKind, catch_panic, panic_cause,
};
pub use crate::engine::stream::{frames, order_watch};
#[cfg(not(loom))]
pub use crate::kinds::KindLibrary;
#[cfg(not(loom))]
pub use crate::kinds::load_environment;
pub use crate::memory::allocator::policy::TorchSizes;
pub use crate::memory::allocator::recorder::KnownBlock;
pub use crate::memory::allocator::recording::{Moment, exchange_tag};
pub use crate::memory::allocator::restore::check_tiling;
pub use crate::memory::buffer::Order as UseOrder;
pub use crate::memory::buffer::allocation::{NotServed, Origin, forget_hints};
pub use crate::memory::buffer::copies::{
    Copy as CopyCommand, Fill as FillCommand, Ranges as CopyRanges,
};
pub use crate::queue::{Class, Command};
pub use crate::runtime::current::Selected;
pub use crate::runtime::memory::{MemoryWatch, check_alignment};
#[cfg(not(loom))]
pub use crate::runtime::process::register_end_handler;
pub use crate::runtime::process::{ProcessHooks, register_process_hooks, report_line};
#[cfg(not(loom))]
pub use crate::runtime::second_copy;
