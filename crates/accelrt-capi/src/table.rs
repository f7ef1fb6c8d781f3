//! The table of all functions, for programs that cannot link them: Python's capsule hands it out.
//!
//! The header has the table's fields in this order; its test makes them of the functions' own
//! declarations (`tests/header.rs`). A new function is added at the end, and none is removed.
#![expect(unsafe_code, reason = "exports functions by name, and shares their addresses")]

use crate::runtime::ABI_VERSION;
use crate::{
    buffer, compute, device, event, history, launch, log, memory, pool, runtime, status, stream,
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
    status::accelrt_error_status
    status::accelrt_error_text
    status::accelrt_error_clear
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
    buffer::accelrt_buffer_copy
    buffer::accelrt_buffer_fill
    buffer::accelrt_buffer_write
    buffer::accelrt_buffer_read
    buffer::accelrt_buffer_write_later
    buffer::accelrt_buffer_read_later
    buffer::accelrt_stream_copy
    buffer::accelrt_stream_fill
    memory::accelrt_memory_allocate
    memory::accelrt_memory_allocate_in
    memory::accelrt_memory_free
    memory::accelrt_memory_record_use
    memory::accelrt_memory_find
    memory::accelrt_memory_get_statistics
    memory::accelrt_memory_get_host_statistics
    memory::accelrt_memory_reset_peaks
    memory::accelrt_memory_reset_sums
    memory::accelrt_memory_empty_cache
    memory::accelrt_memory_get_fraction
    memory::accelrt_memory_set_fraction
    memory::accelrt_memory_get_settings
    memory::accelrt_memory_set_settings
    history::accelrt_snapshot_take
    history::accelrt_snapshot_destroy
    history::accelrt_snapshot_get_segments
    history::accelrt_snapshot_get_blocks
    history::accelrt_history_start
    history::accelrt_history_destroy
    history::accelrt_history_clear
    history::accelrt_history_get_events
    log::accelrt_log_subscribe
    log::accelrt_log_destroy
    log::accelrt_log_take
    compute::accelrt_generator_create
    compute::accelrt_generator_get_default
    compute::accelrt_generator_clone
    compute::accelrt_generator_destroy
    compute::accelrt_generator_set_seed
    compute::accelrt_generator_get_seed
    compute::accelrt_generator_seed_randomly
    compute::accelrt_generator_set_offset
    compute::accelrt_generator_get_offset
    compute::accelrt_generator_reserve
    compute::accelrt_generator_set_seed_of_all
    compute::accelrt_generator_fill
    compute::accelrt_program_compile
    compute::accelrt_program_destroy
    compute::accelrt_program_get_names
    compute::accelrt_program_get_kernel
    compute::accelrt_kernel_destroy
    compute::accelrt_kernel_get_argument_count
    compute::accelrt_stream_launch_kernel
    runtime::accelrt_backend_register
    runtime::accelrt_backend_load
    launch::accelrt_stream_launch_blocking
    launch::accelrt_stream_launch_deferred
    launch::accelrt_completion_finish
    pool::accelrt_observer_create
    pool::accelrt_observer_destroy
    pool::accelrt_pool_create
    pool::accelrt_pool_destroy
    pool::accelrt_pool_enter
    pool::accelrt_pool_leave
    pool::accelrt_pool_get_id
    pool::accelrt_memory_enter_tag
    pool::accelrt_memory_leave_tag
    pool::accelrt_memory_get_tags
    launch::accelrt_stream_launch_described
}

/// The table of this library's functions, valid for ever.
///
/// Never blocks, never fails.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_get_table() -> *const FunctionTable {
    &raw const TABLE
}
