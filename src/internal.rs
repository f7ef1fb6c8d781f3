//! What the other crates of this workspace need beside the public API.
//!
//! These items are exempt from semantic versioning: the crates of one release use each other's
//! internals, and no other crate should. Each item is named here, and an item that no crate uses
//! is removed.

/// The table of the functions for C, which the Python module passes to extensions in C.
#[cfg(feature = "capi")]
#[must_use]
pub fn c_functions() -> *const std::ffi::c_void {
    crate::capi::table::accelrt_get_table().cast()
}

pub use crate::base::blocking::longest_park;
pub use crate::base::blocking::while_blocked;
pub use crate::base::config;
pub use crate::base::config::KINDS_REFUSED;
pub use crate::base::config::setting;
pub use crate::base::contain::contain;
pub use crate::base::dylib;
pub use crate::base::error;
pub use crate::base::event_fd::EventFd;
pub use crate::base::fork;
pub use crate::base::signals::with_signals_blocked;
pub use crate::base::size::display_bytes;
pub use crate::base::spin::SpinGuard;
pub use crate::base::spin::SpinMutex;
pub use crate::base::stack::WORKER_STACK_BYTES;
pub use crate::base::sync::LockRank;
pub use crate::base::sync::Mutex;
pub use crate::base::sync::Sleeper;
pub use crate::base::sync::park;
pub use crate::engine::event::when_done::WhenDone;
pub use crate::engine::log::context::AllocationContext;
pub use crate::engine::log::context::StackId;
pub use crate::engine::log::context::exchange_stack;
pub use crate::engine::log::names::NameId;
pub use crate::engine::stream::ffi_launch::NATIVE_CALLS;
pub use crate::engine::stream::frames;
pub use crate::engine::stream::interrupt::Interrupt;
pub use crate::engine::stream::lifecycle::Lifecycle;
pub use crate::engine::stream::operation::OperationKind;
pub use crate::engine::stream::order_watch;
pub use crate::engine::stream::order_watch::NextUses;
pub use crate::engine::stream::order_watch::Place;
pub use crate::engine::stream::order_watch::UsedBytes;
pub use crate::engine::stream::receipt::skipped_by;
pub use crate::engine::stream::synchronize::SynchronizeFuture;
pub use crate::integrations::host_heap;
pub use crate::integrations::host_heap::Functions;
pub use crate::integrations::mkl_allocator::MklAllocator;
pub use crate::integrations::process_runtime;
pub use crate::integrations::verbose::library::cudnn_version;
pub use crate::integrations::verbose::library::openmp;
pub use crate::integrations::verbose::records::VerboseLine;
pub use crate::integrations::verbose::records::VerboseParser;
pub use crate::integrations::verbose::records::VerboseRecord;
pub use crate::kinds::KindLibrary;
pub use crate::kinds::load_environment;
pub use crate::memory::allocator::recorder::KnownBlock;
pub use crate::memory::allocator::recording::Moment;
pub use crate::memory::allocator::recording::exchange_tag;
pub use crate::memory::buffer::allocation::Origin;
pub use crate::memory::buffer::thread_hints;
pub use crate::observe::callers;
pub use crate::observe::callers::Act;
pub use crate::observe::output_file;
pub use crate::observe::profiler::profile::OpenRange;
pub use crate::observe::profiler::profile::begin_range;
pub use crate::observe::profiler::timeline::set_function_names;
pub use crate::observe::sanitizer::finding::FindingKind;
pub use crate::observe::sanitizer::finding::Found;
pub use crate::observe::sanitizer::finding::FoundUse;
pub use crate::observe::sanitizer::watch;
pub use crate::observe::sanitizer::watch::OpenAccess;
pub use crate::observe::sanitizer::watch::Sanitizer;
pub use crate::runtime::current::Selected;
pub use crate::runtime::memory::check_alignment;
pub use crate::runtime::process_hooks;
pub use crate::runtime::process_hooks::ProcessHooks;
pub use crate::runtime::report;
pub use crate::testing::heed_faults;
pub use crate::testing::process;
