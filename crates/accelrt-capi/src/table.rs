//! The table of all functions, for programs that cannot link them: Python's capsule hands it out.
//!
//! The header has the table's fields in this order; its test makes them of the functions' own
//! declarations (`tests/header.rs`). A new function is added at the end, and none is removed.
#![expect(unsafe_code, reason = "exports functions by name, and shares their addresses")]

use crate::runtime::ABI_VERSION;
use crate::{
    allocator, buffer, deferred, description, device, event, generator, history, last_error,
    launch, log, memory, observer, pool, program, runtime, snapshot, stream, transfer,
};

/// The functions by their addresses, behind the size of the table in bytes.
#[derive(Debug)]
#[repr(C)]
pub struct FunctionTable {
    size: usize,
    abi: u32,
    count: u32,
    functions: [Function; COUNT],
}

#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
struct Function(*const ());

// SAFETY: the address of a function of this library, which every thread may call.
unsafe impl Sync for Function {}

/// Makes the table of modules and their functions.
macro_rules! table {
    ($($module:ident::$function:ident)*) => {
        const COUNT: usize = [$(stringify!($function)),*].len();

        static TABLE: FunctionTable = FunctionTable {
            size: size_of::<FunctionTable>(),
            abi: ABI_VERSION,
            #[expect(clippy::cast_possible_truncation, reason = "a few hundred at most")]
            count: COUNT as u32,
            functions: [$(Function($module::$function as *const ())),*],
        };
    };
}

table! {
    runtime::accelrt_abi_version
    runtime::accelrt_version
    last_error::accelrt_error_status
    last_error::accelrt_error_text
    last_error::accelrt_error_clear
    runtime::accelrt_setting_set
    runtime::accelrt_setting_get
    runtime::accelrt_runtime_begin
    runtime::accelrt_runtime_query
    runtime::accelrt_runtime_shutdown
    runtime::accelrt_runtime_get_counters
    runtime::accelrt_kind_get_accelerator
    runtime::accelrt_kind_find
    runtime::accelrt_kind_get_name
    device::accelrt_device_parse
    device::accelrt_device_get_count
    device::accelrt_device_get_current
    device::accelrt_device_exchange
    device::accelrt_device_get_name
    device::accelrt_device_get_properties
    device::accelrt_device_get_memory
    device::accelrt_device_synchronize
    stream::accelrt_stream_create
    stream::accelrt_stream_get_pooled
    stream::accelrt_stream_get_default
    stream::accelrt_stream_get_current
    stream::accelrt_stream_find
    stream::accelrt_stream_wrap
    stream::accelrt_stream_retain
    stream::accelrt_stream_destroy
    stream::accelrt_stream_exchange
    stream::accelrt_stream_get_info
    stream::accelrt_stream_query
    stream::accelrt_stream_synchronize
    stream::accelrt_stream_get_native
    stream::accelrt_stream_wait_stream
    event::accelrt_stream_wait_event
    launch::accelrt_stream_launch
    event::accelrt_event_create
    event::accelrt_event_destroy
    event::accelrt_event_record
    event::accelrt_event_query
    event::accelrt_event_synchronize
    event::accelrt_event_get_elapsed
    buffer::accelrt_buffer_create
    buffer::accelrt_buffer_create_on
    buffer::accelrt_buffer_create_in
    buffer::accelrt_buffer_destroy
    buffer::accelrt_buffer_slice
    buffer::accelrt_buffer_get_info
    buffer::accelrt_buffer_get_address
    buffer::accelrt_buffer_get_home
    buffer::accelrt_buffer_record_use
    buffer::accelrt_buffer_release
    buffer::accelrt_buffer_wait
    transfer::accelrt_buffer_copy
    transfer::accelrt_buffer_fill
    transfer::accelrt_buffer_write
    transfer::accelrt_buffer_read
    transfer::accelrt_buffer_write_later
    transfer::accelrt_buffer_read_later
    transfer::accelrt_stream_copy
    transfer::accelrt_stream_fill
    memory::accelrt_memory_allocate
    memory::accelrt_memory_allocate_in
    memory::accelrt_memory_free
    memory::accelrt_memory_record_use
    memory::accelrt_memory_find
    allocator::accelrt_memory_get_statistics
    allocator::accelrt_memory_get_host_statistics
    allocator::accelrt_memory_reset_peaks
    allocator::accelrt_memory_reset_sums
    allocator::accelrt_memory_empty_cache
    allocator::accelrt_memory_get_fraction
    allocator::accelrt_memory_set_fraction
    allocator::accelrt_memory_get_settings
    allocator::accelrt_memory_set_settings
    snapshot::accelrt_snapshot_take
    snapshot::accelrt_snapshot_destroy
    snapshot::accelrt_snapshot_get_segments
    snapshot::accelrt_snapshot_get_blocks
    history::accelrt_history_start
    history::accelrt_history_destroy
    history::accelrt_history_clear
    history::accelrt_history_get_events
    log::accelrt_log_subscribe
    log::accelrt_log_destroy
    log::accelrt_log_take
    generator::accelrt_generator_create
    generator::accelrt_generator_get_default
    generator::accelrt_generator_clone
    generator::accelrt_generator_destroy
    generator::accelrt_generator_set_seed
    generator::accelrt_generator_get_seed
    generator::accelrt_generator_seed_randomly
    generator::accelrt_generator_set_offset
    generator::accelrt_generator_get_offset
    generator::accelrt_generator_reserve
    generator::accelrt_generator_set_seed_of_all
    generator::accelrt_generator_fill
    program::accelrt_program_compile
    program::accelrt_program_destroy
    program::accelrt_program_get_names
    program::accelrt_program_get_kernel
    program::accelrt_kernel_destroy
    program::accelrt_kernel_get_argument_count
    program::accelrt_stream_launch_kernel
    runtime::accelrt_backend_register
    runtime::accelrt_backend_load
    launch::accelrt_stream_launch_blocking
    deferred::accelrt_stream_launch_deferred
    deferred::accelrt_completion_finish
    observer::accelrt_observer_create
    observer::accelrt_observer_destroy
    pool::accelrt_pool_create
    pool::accelrt_pool_destroy
    pool::accelrt_pool_enter
    pool::accelrt_pool_leave
    pool::accelrt_pool_get_id
    pool::accelrt_memory_enter_tag
    pool::accelrt_memory_leave_tag
    pool::accelrt_memory_get_tags
    description::accelrt_stream_launch_described
}

/// The table of this library's functions, valid for ever.
///
/// Never blocks, never fails.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_get_table() -> *const FunctionTable {
    &raw const TABLE
}
