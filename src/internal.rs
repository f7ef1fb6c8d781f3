//! What the other crates of this workspace need beside the public API.
//!
//! These items are exempt from semantic versioning: the crates of one release use each other's
//! internals, and no other crate should. Each item is named here, and an item that no crate uses
//! is removed.

pub use crate::backend::contract::capacity::Capacity;
pub use crate::backend::contract::capacity::out_of_memory;
pub use crate::backend::driver::class_of_value;
pub use crate::base::clock::Clock;
pub use crate::base::config;
pub use crate::base::config::KINDS_REFUSED;
pub use crate::base::config::setting;
#[cfg(not(loom))]
pub use crate::base::dylib;
pub use crate::base::error;
pub use crate::base::event_fd::EventFd;
pub use crate::base::fork;
pub use crate::base::fork::Inherited;
pub use crate::base::machine_memory;
pub use crate::base::size::display_bytes;
pub use crate::base::spin::SpinGuard;
pub use crate::base::spin::SpinMutex;
pub use crate::base::stream_map::Mixer;
pub use crate::base::sync::LockRank;
pub use crate::base::sync::Mutex;
pub use crate::base::sync::MutexGuard;
pub use crate::base::sync::Sleeper;
pub use crate::base::sync::assert_no_lock_held;
pub use crate::base::sync::park;
pub use crate::base::task_parts::TaskParts;
pub use crate::base::thread::WORKER_STACK_BYTES;
pub use crate::base::thread::contain;
pub use crate::base::thread::longest_park;
pub use crate::base::thread::while_blocked;
pub use crate::base::thread::with_signals_blocked;
pub use crate::engine::event::future::WhenDone;
pub use crate::engine::frontier::Progress;
pub use crate::engine::log::collector::Keeps;
pub use crate::engine::log::collector::Taken;
pub use crate::engine::log::collector::Wants;
pub use crate::engine::log::collector::now;
pub use crate::engine::log::context::AllocationContext;
pub use crate::engine::log::context::NameId;
pub use crate::engine::log::context::StackId;
pub use crate::engine::log::context::TOO_MANY_NAMES;
pub use crate::engine::log::context::exchange_stack;
pub use crate::engine::log::process as process_log;
pub use crate::engine::log::process::ProcessSubscription;
pub use crate::engine::log::record::Label;
pub use crate::engine::log::record::LogRecord;
pub use crate::engine::log::record::MemoryAction;
pub use crate::engine::log::record::MemoryRecord;
pub use crate::engine::log::record::RecordKind;
pub use crate::engine::log::record::RecordedSource;
pub use crate::engine::stream::core::StreamCore;
pub use crate::engine::stream::core::TaskContext;
pub use crate::engine::stream::enqueue::Checked;
pub use crate::engine::stream::failures::skipped_by;
pub use crate::engine::stream::ffi_launch::NATIVE_CALLS;
pub use crate::engine::stream::frames;
pub use crate::engine::stream::interrupt::Interrupt;
pub use crate::engine::stream::lifecycle::Lifecycle;
pub use crate::engine::stream::lifecycle::TaskReport;
pub use crate::engine::stream::lifecycle::TaskWatch;
pub use crate::engine::stream::order_watch;
pub use crate::engine::stream::order_watch::NextUses;
pub use crate::engine::stream::order_watch::Place;
pub use crate::engine::stream::order_watch::UsedBytes;
pub use crate::engine::stream::schedule::ScheduledStream;
pub use crate::engine::stream::schedule::Scheduler;
pub use crate::engine::stream::synchronize::SynchronizeFuture;
pub use crate::engine::stream::task::Details;
pub use crate::engine::stream::task::MemoryAccess;
pub use crate::engine::stream::task::OperationKind;
pub use crate::engine::stream::task::catch_panic;
pub use crate::engine::stream::task::panic_cause;
#[cfg(not(loom))]
pub use crate::kinds::KindLibrary;
#[cfg(not(loom))]
pub use crate::kinds::load_environment;
pub use crate::memory::allocator::policy::TorchSizes;
pub use crate::memory::allocator::recorder::KnownBlock;
pub use crate::memory::allocator::recording::Moment;
pub use crate::memory::allocator::recording::exchange_tag;
pub use crate::memory::allocator::restore::check_tiling;
pub use crate::memory::buffer::Order as UseOrder;
pub use crate::memory::buffer::allocation::Origin;
pub use crate::memory::buffer::allocation::forget_hints;
pub use crate::memory::buffer::copies::Copy as CopyCommand;
pub use crate::memory::buffer::copies::Fill as FillCommand;
pub use crate::memory::buffer::copies::Ranges as CopyRanges;
pub use crate::queue::Class;
pub use crate::queue::Command;
pub use crate::runtime::current::Selected;
pub use crate::runtime::memory::MemoryWatch;
pub use crate::runtime::memory::check_alignment;
pub use crate::runtime::process::ProcessHooks;
#[cfg(not(loom))]
pub use crate::runtime::process::register_end_handler;
pub use crate::runtime::process::register_process_hooks;
pub use crate::runtime::process::report_line;
#[cfg(not(loom))]
pub use crate::runtime::second_copy;
