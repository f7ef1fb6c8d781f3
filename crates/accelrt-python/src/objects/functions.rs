//! Functions of `accelrt._core` for devices, current devices and streams, and the runtime.

use std::collections::BTreeMap;

use accelrt::internal::{Interrupt, fork, setting};
use accelrt::{Device, DeviceError, DeviceKind, Error, MAX_DEVICE_INDEX, Runtime, size};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::objects::device::PyDevice;
use crate::objects::selection::Selection;
use crate::objects::stream::{PyStream, stream_argument};
use crate::objects::task_contexts;
use crate::support::errors::{OrRaise, python_text, wrong_type};
use crate::support::object_text::text_of;
use crate::support::parameters::{Flag, integer_of, kind_argument, timeout_argument};
use crate::support::waiting::without_gil;

/// The name, capacity and features of a device.
#[pyclass(name = "DeviceProperties", module = "accelrt", frozen, get_all, eq, hash)]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct PyDeviceProperties {
    /// The vendor's name.
    name: String,
    /// Capacity in bytes.
    total_memory: usize,
    /// The number of cores that this process may use; on a GPU, of multiprocessors.
    core_count: usize,
    /// The size in bytes of one data cache of each level, from level 1 up.
    cache_bytes: Vec<usize>,
    /// Size of a page in bytes.
    page_bytes: usize,
    /// Size of a huge page in bytes, or None.
    huge_page_bytes: Option<usize>,
    /// True for GPUs.
    is_gpu: bool,
    /// True when the device and the host can share memory.
    has_shared_memory: bool,
    /// True when the device has instructions for conversions from and to bfloat16.
    has_bfloat16_conversions: bool,
}

#[pymethods]
impl PyDeviceProperties {
    fn __repr__(&self) -> String {
        format!(
            "DeviceProperties(name='{}', total_memory={}MB, core_count={})",
            self.name,
            self.total_memory >> 20,
            self.core_count
        )
    }
}

/// The kind of the current accelerator, as a device without index.
#[pyfunction]
pub(crate) fn current_accelerator() -> PyResult<PyDevice> {
    Ok(PyDevice { kind: Runtime::global().or_raise()?.accelerator().or_raise()?, index: None })
}

/// The names of all kinds that `accelrt.device` accepts.
#[pyfunction]
pub(crate) fn kind_names() -> Vec<&'static str> {
    DeviceKind::named().map(DeviceKind::name).collect()
}

/// The number of devices of a kind; 0 for a kind that this build or machine lacks.
#[pyfunction]
pub(crate) fn device_count(kind: &str) -> PyResult<usize> {
    Runtime::global().or_raise()?.device_count(kind_argument(kind)?).or_raise()
}

/// The reason that this process finds no device of a kind; None when the kind has a device.
#[pyfunction]
pub(crate) fn unavailable_reason(kind: &str) -> PyResult<Option<String>> {
    let kind = kind_argument(kind)?;
    match Runtime::global().or_raise()?.properties(Device::new(kind, 0).or_raise()?) {
        Ok(_) => Ok(None),
        Err(Error::Device(DeviceError::KindUnavailable { reason, .. })) => Ok(Some(reason)),
        Err(error) => Ok(Some(python_text(&error))),
    }
}

/// The name of each existing device of a kind that cannot be used, with the reason.
#[pyfunction]
pub(crate) fn left_out_devices(kind: &str) -> PyResult<Vec<(String, String)>> {
    let devices = Runtime::global().or_raise()?.left_out_devices(kind_argument(kind)?);
    Ok(devices.into_iter().map(|device| (device.name, device.reason)).collect())
}

/// True after this process has initialised a device.
#[pyfunction]
pub(crate) fn is_initialized() -> PyResult<bool> {
    Ok(Runtime::global().or_raise()?.is_initialized())
}

/// Initialises the current device of a kind, as its first use would.
#[pyfunction]
pub(crate) fn initialize(kind: &str) -> PyResult<()> {
    task_contexts::apply();
    let runtime = Runtime::global().or_raise()?;
    runtime
        .default_stream(runtime.current_device_of(kind_argument(kind)?).or_raise()?)
        .or_raise()?;
    Ok(())
}

/// Index of this thread's current device of a kind.
#[pyfunction]
pub(crate) fn current_device(kind: &str) -> PyResult<usize> {
    task_contexts::apply();
    Ok(Runtime::global().or_raise()?.current_device_of(kind_argument(kind)?).or_raise()?.index())
}

/// Makes a device current for this thread; returns the previous index. A negative index has no
/// effect.
#[pyfunction]
pub(crate) fn exchange_device(py: Python<'_>, kind: &str, index: i64) -> PyResult<i64> {
    let (runtime, kind) = (Runtime::global().or_raise()?, kind_argument(kind)?);
    let Ok(index) = usize::try_from(index) else { return Ok(-1) };
    fork::check().or_raise()?;
    task_contexts::apply();
    let previous = runtime.current_device_of(kind).or_raise()?;
    task_contexts::set(py, &[Selection::Device(Device::new(kind, index).or_raise()?)])?;
    Ok(i64::try_from(previous.index()).unwrap_or(-1))
}

/// This thread's current stream on a device.
#[pyfunction]
pub(crate) fn current_stream(kind: &str, index: i64) -> PyResult<PyStream> {
    task_contexts::apply();
    let stream = Runtime::global()
        .or_raise()?
        .current_stream_of(device_argument(kind, index)?)
        .or_raise()?;
    Ok(PyStream { stream })
}

/// The default stream of a device, current in threads that have set no other.
#[pyfunction]
pub(crate) fn default_stream(kind: &str, index: i64) -> PyResult<PyStream> {
    let stream =
        Runtime::global().or_raise()?.default_stream(device_argument(kind, index)?).or_raise()?;
    Ok(PyStream { stream })
}

/// True when a device can access the memory of `peer`, which may be the same device. The cpu
/// devices share the machine's memory; OpenCL reports no peer access.
#[pyfunction]
pub(crate) fn can_access_peer(kind: &str, index: i64, peer: i64) -> PyResult<bool> {
    let (device, peer) = (device_argument(kind, index)?, device_argument(kind, peer)?);
    let runtime = Runtime::global().or_raise()?;
    runtime.properties(device).or_raise()?; // fails for a missing device
    runtime.properties(peer).or_raise()?;
    Ok(device == peer || device.kind() == DeviceKind::CPU)
}

/// Makes a stream and its device current for this thread.
#[pyfunction]
pub(crate) fn set_stream(stream: &Bound<'_, PyAny>) -> PyResult<()> {
    let stream = stream_argument("stream", stream)?;
    let selected = &stream.get().stream;
    // The stream first, which the runtime may refuse.
    let selections = [Selection::Stream(selected.clone()), Selection::Device(selected.device())];
    task_contexts::set(stream.py(), &selections)
}

/// Blocks, without the GIL, until all streams of a device are done; raises and clears their errors.
/// After `timeout` seconds raises `TimeoutError`: the work goes on, and the streams keep their
/// errors. None waits without a limit.
#[pyfunction]
#[pyo3(signature = (kind, index, timeout=None))]
pub(crate) fn synchronize(
    py: Python<'_>,
    kind: &str,
    index: i64,
    timeout: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let timeout = timeout_argument(timeout)?;
    let (runtime, device) = (Runtime::global().or_raise()?, device_argument(kind, index)?);
    let is_done = || runtime.is_passed(device);
    without_gil(py, is_done, |is_interrupted| {
        let interrupt = &mut Interrupt::by(is_interrupted).or_after(timeout);
        runtime.synchronize_within(device, interrupt)
    })
}

/// The free and total bytes of a device's memory at this moment.
#[pyfunction]
pub(crate) fn get_memory_info(kind: &str, index: i64) -> PyResult<(usize, usize)> {
    let info =
        Runtime::global().or_raise()?.memory_info(device_argument(kind, index)?).or_raise()?;
    Ok((info.free_bytes, info.total_bytes))
}

/// The name, capacity and features of a device. Initialises no device.
#[pyfunction]
pub(crate) fn get_device_properties(kind: &str, index: i64) -> PyResult<PyDeviceProperties> {
    let properties =
        Runtime::global().or_raise()?.properties(device_argument(kind, index)?).or_raise()?;
    Ok(PyDeviceProperties {
        name: properties.name,
        total_memory: properties.total_memory_bytes,
        core_count: properties.core_count,
        cache_bytes: properties.cache_bytes,
        page_bytes: properties.page_bytes,
        huge_page_bytes: properties.huge_page_bytes,
        is_gpu: properties.is_gpu,
        has_shared_memory: properties.has_shared_memory,
        has_bfloat16_conversions: properties.has_bfloat16_conversions,
    })
}

/// The device index of an argument of `accelrt.accelerator`. With `optional`, `None` is the current
/// device.
#[pyfunction]
pub(crate) fn accelerator_index(device: &Bound<'_, PyAny>, optional: bool) -> PyResult<i64> {
    let runtime = Runtime::global().or_raise()?;
    let accelerator = runtime.accelerator().or_raise()?;
    let mismatch = |kind: DeviceKind| {
        let text = format!("{kind} doesn't match the current accelerator {accelerator}.");
        PyValueError::new_err(text)
    };
    index_of(&runtime, accelerator, device, optional, mismatch)
}

/// The device index of an argument of a kind's module. With `optional`, `None` is the current
/// device.
#[pyfunction]
pub(crate) fn kind_index(kind: &str, device: &Bound<'_, PyAny>, optional: bool) -> PyResult<i64> {
    let (runtime, kind) = (Runtime::global().or_raise()?, kind_argument(kind)?);
    let mismatch = |given: DeviceKind| {
        PyValueError::new_err(format!("Expected a {kind} device, but got: {given}"))
    };
    index_of(&runtime, kind, device, optional, mismatch)
}

fn index_of(
    runtime: &Runtime,
    kind: DeviceKind,
    device: &Bound<'_, PyAny>,
    is_optional: bool,
    mismatch: impl Fn(DeviceKind) -> PyErr,
) -> PyResult<i64> {
    if let Some(index) = integer_of(device)? {
        if index > i64::from(MAX_DEVICE_INDEX) {
            let (given, allowed) = (text_of(device)?, format!("at most {MAX_DEVICE_INDEX}"));
            return Err(PyRuntimeError::new_err(format!(
                "Device index {given} of {kind} is out of range: an index is {allowed}"
            )));
        }
        return Ok(index);
    }
    let named = if device.is_none() {
        PyDevice { kind, index: None }
    } else {
        PyDevice::extract(device).map_err(|error| argument_error(error, device))?
    };
    if named.kind != kind {
        return Err(mismatch(named.kind));
    }
    if named.index.is_none() && !is_optional {
        let expected = "an accelrt.device with a specified index or an integer";
        let text = format!("Expected {expected}, but got:{}", text_of(device)?);
        return Err(PyValueError::new_err(text));
    }
    Ok(i64::try_from(named.resolve(runtime).or_raise()?.index()).unwrap_or(-1))
}

/// Replaces a `TypeError` by an error that names the allowed types; returns other errors unchanged.
fn argument_error(error: PyErr, device: &Bound<'_, PyAny>) -> PyErr {
    if error.is_instance_of::<PyTypeError>(device.py()) {
        wrong_type("device", "an accelrt.device, a string, an integer or None", device)
    } else {
        error
    }
}

/// Converts an argument to a bool; the `TypeError` for other types names the parameter.
#[pyfunction]
pub(crate) fn flag(name: &str, value: Flag<'_>) -> PyResult<bool> {
    value.get(name)
}

/// Parses a device from its kind and index. The first use of the device checks that it exists.
pub(crate) fn device_argument(kind: &str, index: i64) -> PyResult<Device> {
    let kind = kind_argument(kind)?;
    let negative = || {
        let allowed = format!("an index is 0 to {MAX_DEVICE_INDEX}");
        PyRuntimeError::new_err(format!("Device index {index} of {kind} is negative: {allowed}"))
    };
    let index = usize::try_from(index).map_err(|_| negative())?;
    Device::new(kind, index).or_raise()
}

/// Counters of tasks and workers since the runtime's start.
#[pyfunction]
pub(crate) fn counters() -> PyResult<BTreeMap<&'static str, u64>> {
    let counters = Runtime::global().or_raise()?.counters();
    Ok(BTreeMap::from([
        ("num_cancelled_tasks", counters.num_cancelled_tasks),
        ("num_helped_tasks", counters.num_helped_tasks),
        ("num_skipped_tasks", counters.num_skipped_tasks),
        ("num_spare_workers", counters.num_spare_workers),
        ("num_worker_wakes", counters.num_worker_wakes),
    ]))
}

/// Converts a size to bytes, with or without a unit of powers of 1024, as `256M` or `8GiB`. None
/// for other text, as `256KB`, and for a size beyond 64 bits.
#[pyfunction]
pub(crate) fn parse_bytes(text: &str) -> Option<usize> {
    size::parse_bytes(text)
}

/// The settings in effect, by the names of their environment variables.
#[pyfunction]
pub(crate) fn settings(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let runtime = Runtime::global().or_raise()?;
    let config = runtime.config();
    let dict = PyDict::new(py);
    dict.set_item("ACCELRT_ACCELERATOR", config.accelerator.map(DeviceKind::name))?;
    dict.set_item("ACCELRT_CPU_DEVICES", config.cpu_devices)?;
    dict.set_item("ACCELRT_CPU_THREADS", config.cpu_threads)?;
    dict.set_item("ACCELRT_CPU_MEMORY", config.cpu_memory_bytes)?;
    dict.set_item("ACCELRT_XPU_MEMORY", config.xpu_memory_bytes)?;
    dict.set_item("ACCELRT_OPENCL_LIBRARY", config.opencl_library.as_deref())?;
    dict.set_item("ACCELRT_MKL_LIBRARY", config.mkl_library.as_deref())?;
    dict.set_item("ACCELRT_DNNL_LIBRARY", config.dnnl_library.as_deref())?;
    dict.set_item("ACCELRT_ALLOC_CONF", config.allocator.text())?;
    dict.set_item("ACCELRT_EXIT_MS", config.exit_timeout.as_millis())?;
    dict.set_item("ACCELRT_STREAM_TASKS", config.stream_task_limit)?;
    dict.set_item("ACCELRT_HOST_THREADS", config.host_threads)?;
    dict.set_item("ACCELRT_TRACEBACKS", u8::from(config.tracebacks))?;
    dict.set_item("ACCELRT_PROFILE", config.profile.as_deref())?;
    let history = config.memory_history.as_ref().map(|file| format!("dump-on-oom:{file}"));
    dict.set_item("ACCELRT_MEMORY_HISTORY", history)?;
    dict.set_item("ACCELRT_SANITIZER", config.sanitizer.as_deref())?;
    let others =
        ["ACCELRT_KINDS", "ACCELRT_SANITIZER_SUPPRESS", "ACCELRT_CPU_SCHEDULE", "ACCELRT_FAULTS"];
    for name in others {
        dict.set_item(name, setting(name))?;
    }
    Ok(dict)
}
