//! The settings of the allocators, by the keys that torch's snapshots have for them.

use accelrt::{AllocatorConfig, Runtime};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Torch's number for blocks of which every size is split.
const NO_LIMIT: i64 = i64::MAX;

/// The settings that apply to later requests. Those that only torch knows have the values that
/// describe accelrt.
pub(crate) fn settings_dict<'py>(
    py: Python<'py>,
    runtime: &Runtime,
) -> PyResult<Bound<'py, PyDict>> {
    let text = runtime.allocator_settings();
    let config = text.parse::<AllocatorConfig>().unwrap_or_default();
    let max_split = config.max_split_bytes().map(|bytes| i64::try_from(bytes).unwrap_or(NO_LIMIT));
    let divisions = PyDict::new(py);
    for (interval, divided) in config.roundup_power2_divisions.iter().enumerate() {
        divisions.set_item((1_u64 << interval).to_string(), divided)?;
    }
    let dict = PyDict::new(py);
    dict.set_item("PYTORCH_CUDA_ALLOC_CONF", text)?;
    dict.set_item("max_split_size", max_split.unwrap_or(NO_LIMIT))?;
    let threshold = config.garbage_collection_threshold.unwrap_or(0.0);
    dict.set_item("garbage_collection_threshold", threshold)?;
    dict.set_item("expandable_segments", config.expandable_segments())?;
    dict.set_item("pinned_num_register_threads", 1)?;
    dict.set_item("release_lock_on_malloc", true)?;
    dict.set_item("pinned_use_host_register", false)?;
    dict.set_item("graph_capture_record_stream_reuse", false)?;
    dict.set_item("roundup_power2_divisions", divisions)?;
    Ok(dict)
}
