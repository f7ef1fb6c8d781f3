//! The class `accelrt.Stream`: in-order work on one device.

use accelrt::{DeviceKind, Runtime, Stream};
use pyo3::prelude::*;

use crate::objects::device::PyDevice;
use crate::objects::task_contexts;
use crate::support::errors::{OrRaise, PROCESS, wrong_type};

/// In-order work on one device.
///
/// `Stream(device=None, priority=0, *, dedicated=False)` takes the next of the 32 pooled streams of
/// the device and the priority, or creates a dedicated one.
/// `Stream(stream_id, device_index, device_type)` finds an existing stream. Inside a `with`, the
/// stream is this thread's current stream, and its device is the current device.
///
/// `await stream` waits in asyncio, as `synchronize` does. In asyncio a `with` belongs to the task.
///
/// A smaller `priority` runs first; one outside of `priority_range` becomes the nearest one in it.
///
/// A process that takes more than 32 streams of a device and a priority gets earlier ones again.
/// Users of the same stream share its task order and its errors; the first `synchronize` raises and
/// clears the errors.
///
/// >>> import accelrt
/// >>> stream = accelrt.Stream()
/// >>> with stream:
/// ...     accelrt.accelerator.current_stream() == stream
/// True
#[pyclass(name = "Stream", module = "accelrt", subclass, weakref, frozen, eq, hash)]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct PyStream {
    pub(crate) stream: Stream,
}

/// The word for the state of a stream or buffer in its `repr`.
pub(crate) fn state_of(is_done: bool, has_failed: bool) -> &'static str {
    match (has_failed, is_done) {
        (true, _) => "failed",
        (false, true) => "done",
        (false, false) => "pending",
    }
}

/// Casts an argument to a stream. The `TypeError` for other objects names `what` and their type.
pub(crate) fn stream_argument<'a, 'py>(
    what: &str,
    stream: &'a Bound<'py, PyAny>,
) -> PyResult<&'a Bound<'py, PyStream>> {
    stream.cast::<PyStream>().map_err(|_| wrong_type(what, "an accelrt.Stream", stream))
}

pub(crate) fn current_stream_of_kind(kind: DeviceKind) -> PyResult<Stream> {
    task_contexts::apply();
    let runtime = Runtime::global().or_raise()?;
    runtime.current_stream_of(runtime.current_device_of(kind).or_raise()?).or_raise()
}

/// The failed stream while it exists; None in another process.
#[pyfunction]
pub(crate) fn stream_of_error(error: &Bound<'_, PyAny>) -> PyResult<Option<PyStream>> {
    let process_id: Option<u32> = error.getattr(PROCESS)?.extract()?;
    if process_id != Some(std::process::id()) {
        return Ok(None);
    }
    let device = *error.getattr("device")?.cast_into::<PyDevice>()?.get();
    let stream_id = error.getattr("stream_id")?.extract()?;
    let find = |runtime: &Runtime| runtime.stream_by_id(device.resolve(runtime)?, stream_id);
    let stream = Runtime::global().and_then(|runtime| find(&runtime));
    Ok(stream.ok().map(|stream| PyStream { stream }))
}
