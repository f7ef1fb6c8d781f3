//! The extension module `accelrt._core`, which the facade in `python/accelrt` wraps.
//!
//! A binding releases the GIL before it waits. Types carry the name of their public module, so that
//! messages and pickles contain `accelrt.Stream`.
#![expect(rustdoc::broken_intra_doc_links, reason = "these are docstrings of Python")]

mod integrations;
mod launch;
mod memory;
mod objects;
mod support;

use pyo3::prelude::*;

/// The native part of accelrt.
#[pymodule]
mod _core {
    use accelrt::Runtime;
    use accelrt::internal::{ProcessHooks, dylib, register_process_hooks, second_copy};
    use accelrt_observe::internal::set_function_names;
    use pyo3::prelude::*;

    use super::integrations::verbose::library_folder;
    use super::integrations::{outside_kinds, sanitizer};
    use super::launch::ffi_launch::LaunchMethod;
    use super::memory::history;
    use super::objects::stream::stream_of_error;
    use super::support::errors::OrRaise;
    use super::support::function_names::name_at;
    use super::support::{errors, fastcall, interpreter};
    #[pymodule_export]
    use super::{
        integrations::{
            numpy_memory::exchange_numpy_handler,
            outside_kinds::load_kind,
            profiler::{
                PyDeviceUse, PyKeyAverage, PyLongWait, PyOpenRange, PyProfile, PyStreamUse,
                PyTrace, begin_profiled_range,
            },
            sanitizer::{
                PyOpenAccess, PyOrderWatch, begin_host_access, findings_flag, ordered,
                process_order_watch, tell_findings,
            },
            testing::{
                end_faults, end_schedule, finish_streams, prepare_faults, start_faults,
                start_schedule,
            },
            verbose::{
                PyVerboseCapture, PyVerboseLogReader, PyVerboseParser, PyVerboseScope,
                cpu_capability, cudnn_version, has_verbose_library, mkl_allocator, openmp_library,
                use_mkl_allocator, verbose_level, verbose_library_version,
            },
        },
        launch::{
            host_call::PyHostCall,
            host_threads::shut_down,
            kernels::kernel_address,
            marks::{PyMarked, reads, writes},
            program::{PyKernel, PyProgram},
        },
        memory::{
            allocator::{
                PyPool, allocated_bytes, allocated_bytes_of_all, empty_cache, empty_host_cache,
                get_allocator_settings, get_memory_fraction, host_memory_stats, memory_stats,
                reserved_bytes, reset_accumulated_memory_stats, reset_peak_memory_stats,
                set_allocator_settings, set_memory_fraction, shared_memory_stats,
            },
            buffer::{PyBuffer, empty, empty_pinned, empty_shared, zeros},
            buffer_state::{exchange_inference_mode, is_inference_mode},
            dlpack_import::from_dlpack,
            generator::{
                PyGenerator, default_generator, manual_seed, manual_seed_all, manual_seed_device,
            },
            history::{
                memory_snapshot, start_memory_history, stop_memory_history, take_memory_snapshot,
            },
            memory_kind::memory_kind,
            memory_uses::memory_uses,
            observers::{add_oom_observer, add_reclaimer, remove_oom_observer, remove_reclaimer},
            pickles::find_pickle_fault,
            replay::{
                PyAgreement, PyRecording, PyReplayFigures, PyReplayMinimum, PyReplaySurvey,
                PyReplayTimeline, TableError,
            },
            sharing::{is_only_holder, keys_of_shared_memory},
            view::{PyView, as_buffer},
            work_state::work_state,
        },
        objects::{
            contexts::{
                current_memory_tag, enter_index, enter_memory_tag, exit_index, exit_memory_tag,
            },
            device::PyDevice,
            event::PyEvent,
            functions::{
                PyDeviceProperties, accelerator_index, can_access_peer, counters,
                current_accelerator, current_device, current_stream, default_stream, device_count,
                exchange_device, flag, get_device_properties, get_memory_info, initialize,
                is_initialized, kind_index, kind_names, left_out_devices, parse_bytes, set_stream,
                settings, synchronize, unavailable_reason,
            },
            stream::PyStream,
        },
        support::{
            errors::{DeviceLost, OutOfMemoryError, StreamError},
            host_thread::must_not_wait,
        },
    };

    /// Adds what pyo3's macros cannot: the check of the interpreter, error attributes and `launch`.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        interpreter::check_main(module.py())?;
        dylib::set_python_lib_dir(library_folder(module.py())?);
        let stream_of_error = wrap_pyfunction!(stream_of_error, module)?;
        errors::add_attributes(module, stream_of_error, PyDevice::object)?;
        set_function_names(name_at);
        accelrt_opencl::register().or_raise()?;
        outside_kinds::load_named();
        second_copy::watch();
        accelrt_testing::watch_environment();
        accelrt_mkl::watch_environment();
        history::watch_environment();
        let num_running = crate::launch::host_task::num_running;
        register_process_hooks(ProcessHooks { begin, num_running, ..ProcessHooks::default() });
        super::support::capsule::add(module, accelrt_capi::table::accelrt_get_table().cast())?;
        fastcall::add::<LaunchMethod>(&module.py().get_type::<PyStream>())
    }

    /// What the environment asks for at the begin of the process's runtime.
    fn begin(runtime: &Runtime) {
        history::begin_by_environment(runtime);
        sanitizer::begin_by_environment(runtime);
    }

    #[pymodule_export]
    const __VERSION__: &str = env!("CARGO_PKG_VERSION");
}
