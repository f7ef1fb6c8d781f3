//! Bindings of the profiler: profiles, their traces, and ranges.

use std::io;
use std::path::PathBuf;

use accelrt::Runtime;
use accelrt::internal::{LockRank, Mutex};
use accelrt_observe::internal::{OpenRange, begin_range};
use accelrt_observe::profiler::{
    DeviceUse, KeyAverage, LongWait, Profile, ProfileOptions, SortKey, StreamUse, Trace, WaitedBy,
};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::objects::device::PyDevice;
use crate::support::errors::{OrRaise, wrong_type};
use crate::support::parameters::{integer, size};

/// A profile of the process's runtime, until `stop`.
#[pyclass(name = "Profile", module = "accelrt._core", frozen)]
pub(crate) struct PyProfile(Mutex<Option<Profile>>);

#[pymethods]
impl PyProfile {
    #[new]
    fn new(
        py: Python<'_>,
        max_records: Option<&Bound<'_, PyAny>>,
        profile_memory: bool,
    ) -> PyResult<Self> {
        let runtime = Runtime::global().or_raise()?;
        let mut options = ProfileOptions::default();
        if let Some(most) = max_records {
            options.most_records = size("max_records", most)?;
        }
        options.has_memory = profile_memory;
        // Without the GIL: it hands over what was printed, whose reader may need the GIL.
        let profile = py.detach(|| Profile::with_options(&runtime, &options));
        Ok(Self(Mutex::new(LockRank::Python, Some(profile))))
    }

    /// Ends the profile; None when it has ended before.
    fn stop(&self, py: Python<'_>) -> Option<PyTrace> {
        let profile = self.0.lock().take();
        profile.map(|profile| PyTrace(py.detach(|| profile.stop())))
    }
}

/// What a profile recorded.
#[pyclass(name = "Trace", module = "accelrt._core", frozen)]
pub(crate) struct PyTrace(Trace);

/// All tasks, all ranges, or all calls of a library, of one name.
#[pyclass(name = "KeyAverage", module = "accelrt.profiler", frozen, get_all)]
pub(crate) struct PyKeyAverage {
    /// The name of the function, kernel, callable or range, else the operation: `copy`, `fill`. Of
    /// a call that a library tells of: `mkl::DGEMM`, `onednn::matmul`.
    key: String,
    /// True for a range of `record_function`, false for tasks and calls.
    is_range: bool,
    /// The number of tasks, of ranges, or of calls.
    count: u64,
    /// The time of the tasks; of a range its time on its thread while no range was there that had
    /// begun later, as those inside of it; of calls what the library says. It is also part of the
    /// task or range that a call was made in.
    self_ms: f64,
    /// The time of the tasks; of a range its whole time on its thread; of calls as `self_ms`.
    total_ms: f64,
    /// The total time by the count.
    mean_ms: f64,
    /// The time of the tasks; of a range the time of the tasks that were enqueued inside of it; of
    /// calls 0.
    stream_ms: f64,
    /// The bytes that the tasks copied and filled.
    bytes: u64,
}

#[pymethods]
impl PyKeyAverage {
    fn __repr__(&self) -> String {
        let (key, count, self_ms, total_ms) = (&self.key, self.count, self.self_ms, self.total_ms);
        format!("KeyAverage({key}, count={count}, self_ms={self_ms:.3}, total_ms={total_ms:.3})")
    }
}

impl From<KeyAverage> for PyKeyAverage {
    fn from(row: KeyAverage) -> Self {
        let mean_ms = row.mean_ms();
        let KeyAverage { key, is_range, count, self_ms, total_ms, stream_ms, bytes, .. } = row;
        Self { key, is_range, count, self_ms, total_ms, mean_ms, stream_ms, bytes }
    }
}

/// How busy a stream was in a profile.
#[pyclass(name = "StreamUse", module = "accelrt.profiler", frozen, get_all)]
pub(crate) struct PyStreamUse {
    /// The stream's device.
    device: PyDevice,
    /// The stream's id on its device.
    stream_id: u64,
    /// The number of tasks that ran; waits for other streams are not among them.
    num_tasks: u64,
    /// How long the stream executed tasks.
    busy_ms: f64,
    /// How long the stream waited for other streams.
    waited_ms: f64,
}

#[pymethods]
impl PyStreamUse {
    fn __repr__(&self) -> String {
        let (device, id, count) = (self.device.__str__(), self.stream_id, self.num_tasks);
        let (busy_ms, waited_ms) = (self.busy_ms, self.waited_ms);
        format!(
            "StreamUse({device} stream {id}, num_tasks={count}, busy_ms={busy_ms:.3}, \
             waited_ms={waited_ms:.3})"
        )
    }
}

/// How busy a device was in a profile.
#[pyclass(name = "DeviceUse", module = "accelrt.profiler", frozen, get_all)]
pub(crate) struct PyDeviceUse {
    /// The device.
    device: PyDevice,
    /// How long at least one of its streams executed a task.
    busy_ms: f64,
    /// How long its streams executed tasks, all added.
    stream_ms: f64,
    /// The part of `busy_ms` in percent in which at least two of its streams executed tasks.
    overlap_percent: f64,
}

#[pymethods]
impl PyDeviceUse {
    fn __repr__(&self) -> String {
        let (device, busy_ms, stream_ms) = (self.device.__str__(), self.busy_ms, self.stream_ms);
        let overlap = self.overlap_percent;
        format!(
            "DeviceUse({device}, busy_ms={busy_ms:.3}, stream_ms={stream_ms:.3}, \
             overlap_percent={overlap:.1})"
        )
    }
}

/// One wait of a stream or of a thread, and what it waited for.
#[pyclass(name = "LongWait", module = "accelrt.profiler", frozen, get_all)]
pub(crate) struct PyLongWait {
    /// What waited: a stream as `cpu:0 stream 3`, or a thread by its name.
    waiter: String,
    /// How long.
    ms: f64,
    /// The device of the stream that was waited for.
    device: PyDevice,
    /// The id of the stream that was waited for.
    stream_id: u64,
    /// The last task before the place that was waited for, by its name or operation; None when the
    /// profile does not have it.
    awaited: Option<String>,
}

#[pymethods]
impl PyLongWait {
    fn __repr__(&self) -> String {
        let (waiter, ms, id) = (&self.waiter, self.ms, self.stream_id);
        let awaited = self.awaited.as_deref().unwrap_or("?");
        format!("LongWait({waiter} waited {ms:.3} ms for {awaited} on stream {id})")
    }
}

impl From<LongWait> for PyLongWait {
    fn from(wait: LongWait) -> Self {
        let waiter = match wait.waiter {
            WaitedBy::Stream(device, id) => format!("{device} stream {id}"),
            WaitedBy::Thread(name, _) => name,
            _ => String::new(),
        };
        let LongWait { ms, device, stream_id, awaited, .. } = wait;
        Self { waiter, ms, device: device.into(), stream_id, awaited }
    }
}

#[pymethods]
impl PyTrace {
    /// The rows of the table, the largest own time first.
    fn key_averages(&self, py: Python<'_>) -> Vec<PyKeyAverage> {
        let rows = py.detach(|| self.0.key_averages()).rows;
        rows.into_iter().map(PyKeyAverage::from).collect()
    }

    /// The rows as a text.
    #[pyo3(signature = (sort_by, row_limit))]
    fn table(
        &self,
        py: Python<'_>,
        sort_by: Option<&Bound<'_, PyAny>>,
        row_limit: &Bound<'_, PyAny>,
    ) -> PyResult<String> {
        let sort_by = sort_by.map(sort_key).transpose()?;
        let row_limit = integer("row_limit", row_limit)?;
        Ok(py.detach(|| self.0.key_averages().table(sort_by, row_limit)))
    }

    /// How busy each stream was.
    fn streams(&self, py: Python<'_>) -> Vec<PyStreamUse> {
        let of = |it: StreamUse| PyStreamUse {
            device: it.device.into(),
            stream_id: it.stream_id,
            num_tasks: it.num_tasks,
            busy_ms: it.busy_ms,
            waited_ms: it.waited_ms,
        };
        py.detach(|| self.0.streams()).into_iter().map(of).collect()
    }

    /// How busy each device was, and how much its streams overlapped.
    fn devices(&self, py: Python<'_>) -> Vec<PyDeviceUse> {
        let of = |it: DeviceUse| PyDeviceUse {
            device: it.device.into(),
            busy_ms: it.busy_ms,
            stream_ms: it.stream_ms,
            overlap_percent: it.overlap_percent,
        };
        py.detach(|| self.0.devices()).into_iter().map(of).collect()
    }

    /// The longest waits of streams and threads.
    fn longest_waits(&self, py: Python<'_>, count: &Bound<'_, PyAny>) -> PyResult<Vec<PyLongWait>> {
        let count = size("count", count)?;
        let waits = py.detach(|| self.0.longest_waits(count));
        Ok(waits.into_iter().map(PyLongWait::from).collect())
    }

    /// The number of tasks that failed streams skipped.
    #[getter]
    fn num_skipped_tasks(&self) -> u64 {
        self.0.num_skipped_tasks()
    }

    /// The number of records that found no room.
    #[getter]
    fn num_dropped_records(&self) -> u64 {
        self.0.num_dropped_records()
    }

    /// Writes the trace to a file.
    fn export_chrome_trace(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.0.export_chrome_trace(&path)).map_err(|error| os_error(error, path))
    }
}

/// The exception that Python's own functions raise, with the number, its text and the file.
fn os_error(error: io::Error, path: PathBuf) -> PyErr {
    if error.kind() == io::ErrorKind::InvalidInput {
        return PyValueError::new_err("embedded null byte");
    }
    let Some(number) = error.raw_os_error() else { return error.into() };
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default().to_owned();
    PyOSError::new_err((number, text, path.into_os_string()))
}

fn sort_key(given: &Bound<'_, PyAny>) -> PyResult<SortKey> {
    let name = given.cast::<PyString>().map_err(|_| wrong_type("sort_by", "a str", given))?;
    let name = name.to_string_lossy();
    Ok(match &*name {
        "self_ms" => SortKey::SelfMs,
        "total_ms" => SortKey::TotalMs,
        "mean_ms" => SortKey::MeanMs,
        "stream_ms" => SortKey::StreamMs,
        "count" => SortKey::Count,
        _ => {
            return Err(PyValueError::new_err(format!(
                "a table is sorted by self_ms, total_ms, mean_ms, stream_ms or count, not {name:?}"
            )));
        }
    })
}

/// A range that has begun.
#[pyclass(name = "OpenRange", module = "accelrt._core", frozen)]
pub(crate) struct PyOpenRange(OpenRange);

#[pymethods]
impl PyOpenRange {
    /// Ends the range, on the thread that began it.
    fn end(&self) {
        self.0.end();
    }
}

/// Begins a range of this thread; None while no profile is on. What of the name is no Unicode, as
/// in names of files, is replaced.
#[pyfunction]
pub(crate) fn begin_profiled_range(name: &Bound<'_, PyString>) -> Option<PyOpenRange> {
    begin_range(&name.to_string_lossy()).map(PyOpenRange)
}
