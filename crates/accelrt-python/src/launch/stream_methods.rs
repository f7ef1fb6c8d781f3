//! The methods of `accelrt.Stream`.

use accelrt::internal::{Interrupt, SynchronizeFuture, fork};
use accelrt::{Device, DeviceKind, DriverError, Error, Runtime, Stream};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::launch::host_call::PyHostCall;
use crate::launch::host_launch::launch_host;
use crate::objects::device::{PyDevice, device_or_default};
use crate::objects::event::PyEvent;
use crate::objects::selection::Context;
use crate::objects::stream::{PyStream, state_of, stream_argument};
use crate::support::awaiting::Awaiting;
use crate::support::deferred_drops::drop_parked;
use crate::support::errors::{OrRaise, exception, wrong_type};
use crate::support::parameters::{NamedArguments, integer, timeout_argument};
use crate::support::waiting::{enqueue, make_room, step_schedule, without_gil};

#[pymethods]
impl PyStream {
    #[new]
    #[pyo3(signature = (*args, **kwargs))]
    fn new(args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let existing = ["stream_id", "device_index", "device_type"];
        let is_named =
            |name: &&str| kwargs.is_some_and(|kwargs| kwargs.contains(*name).unwrap_or(false));
        let is_existing = args.len() > 2 || existing.iter().any(is_named);
        let positions: &[&str] = if is_existing { &existing } else { &["device", "priority"] };
        let given = NamedArguments::read(positions, args, kwargs, FORMS)?;
        let stream = if is_existing { existing_stream(given) } else { new_stream(given) };
        stream.map(|stream| Self { stream })
    }

    /// The id, unique on its device and never reused; 0 is the default stream.
    #[getter]
    fn stream_id(&self) -> u64 {
        self.stream.id()
    }

    /// Index of the stream's device.
    #[getter]
    fn device_index(&self) -> usize {
        self.stream.device().index()
    }

    /// torch's code of the device type: cpu 0, cuda 1, xpu 12.
    #[getter]
    fn device_type(&self) -> u8 {
        self.stream.device().kind().type_code()
    }

    /// The device that executes the stream's work.
    #[getter]
    fn device(&self) -> PyDevice {
        self.stream.device().into()
    }

    /// The priority; a smaller number runs first.
    #[getter]
    fn priority(&self) -> i32 {
        self.stream.priority()
    }

    /// The driver's handle as an integer; `RuntimeError` on kinds without one.
    #[getter]
    fn native_handle(&self) -> PyResult<u64> {
        self.stream.native_handle().map_err(|error| match error {
            Error::Driver(DriverError::Unsupported { .. }) => {
                PyRuntimeError::new_err("Backend doesn't support getting stream native handle.")
            }
            error => exception(error),
        })
    }

    /// `(least, greatest)` priorities of a device's streams.
    #[staticmethod]
    #[pyo3(signature = (device=None))]
    fn priority_range(device: Option<&Bound<'_, PyAny>>) -> PyResult<(i32, i32)> {
        let runtime = Runtime::global().or_raise()?;
        let range = runtime.priority_range(device_or_default(&runtime, device)?).or_raise()?;
        Ok((range.least, range.greatest))
    }

    /// True when all enqueued work is done. Does not block.
    fn query(&self, py: Python<'_>) -> bool {
        let is_done = self.stream.is_complete() || step_schedule(py) && self.stream.is_complete();
        drop_parked(py);
        is_done
    }

    /// False: streams are not captured into graphs.
    #[expect(clippy::unused_self, reason = "a method in Python")]
    fn is_capturing(&self) -> bool {
        false
    }

    /// Blocks, without the GIL, until all work enqueued before this call is done; raises and clears
    /// the stream's error.
    ///
    /// After `timeout` seconds raises `TimeoutError`: the work goes on, and the stream keeps its
    /// error. None waits without a limit.
    #[pyo3(signature = (timeout=None))]
    fn synchronize(&self, py: Python<'_>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let timeout = timeout_argument(timeout)?;
        if self.stream.is_quiet() {
            drop_parked(py);
            fork::check().or_raise()?;
            self.stream.forget_received();
            return Ok(());
        }
        let stream = &self.stream;
        if timeout.is_none() {
            // Announces the wait, so that workers leave short tasks to this thread. A worker could
            // otherwise execute them while this thread still holds the GIL.
            stream.announce_wait();
        }
        let is_done = || stream.is_passed();
        without_gil(py, is_done, |is_interrupted| {
            stream.synchronize_within(&mut Interrupt::by(is_interrupted).or_after(timeout))
        })
    }

    /// `await stream` waits for all work enqueued before, and raises and clears the stream's error,
    /// as `synchronize`, while the loop runs other tasks. Cancelling the asyncio task ends the wait
    /// only.
    fn __await__(&self) -> PyResult<Awaiting> {
        Ok(Awaiting::new(
            SynchronizeFuture::new(self.stream.core(), self.stream.issued_after()).or_raise()?,
        ))
    }

    /// Makes later work on this stream wait for the work before the event's latest record. Does not
    /// block.
    fn wait_event(&self, event: &Bound<'_, PyAny>) -> PyResult<()> {
        let expected = || wrong_type("event", "an accelrt.Event", event);
        let event = event.cast::<PyEvent>().map_err(|_| expected())?;
        let (py, event) = (event.py(), &event.get().event);
        enqueue(py, &self.stream, || self.stream.wait_event(event))
    }

    /// Makes later work on this stream wait for all work enqueued on `stream` before this call.
    /// Blocks only while more than `ACCELRT_STREAM_TASKS` tasks are queued on one of the streams.
    fn wait_stream(&self, stream: &Bound<'_, PyAny>) -> PyResult<()> {
        let stream = stream_argument("stream", stream)?;
        let (py, stream) = (stream.py(), &stream.get().stream);
        make_room(py, stream)?; // because `wait_stream` records an event on `stream`
        enqueue(py, &self.stream, || self.stream.wait_stream(stream))
    }

    /// Records an event, by default a new one without timing, and returns it. Blocks only
    /// while more than `ACCELRT_STREAM_TASKS` tasks are queued.
    #[pyo3(signature = (event=None))]
    fn record_event<'py>(
        &self,
        py: Python<'py>,
        event: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let event = match event {
            None => Bound::new(py, PyEvent::untimed(self))?.into_any(),
            Some(event) => event,
        };
        let expected = || PyRuntimeError::new_err("expected event to be an accelrt.Event object");
        let recorded = event.cast::<PyEvent>().map_err(|_| expected())?;
        let recorded = &recorded.get().event;
        enqueue(py, &self.stream, || self.stream.record(recorded))?;
        Ok(event)
    }

    /// Enqueues a call of a Python callable. Blocks only while more than `ACCELRT_STREAM_TASKS`
    /// tasks are queued.
    ///
    /// A thread of a pool calls `callable` in stream order, with this stream and its device as the
    /// current ones; the returned handle has its result. A callable that sleeps holds back its own
    /// stream only, as long as the pool has threads (`ACCELRT_HOST_THREADS`). An exception fails
    /// the stream and becomes `__cause__` of the `StreamError`. The callable may enqueue work and
    /// read results; a wait for unfinished work raises `RuntimeError` there.
    ///
    /// For the sanitizer, buffers and views among `args` count as read, in `accelrt.writes` as
    /// written. The callable gets them without the mark; the order of execution is unchanged.
    ///
    /// >>> import accelrt
    /// >>> stream, seen = accelrt.Stream(), []
    /// >>> call = stream.launch_host(seen.append, 1)
    /// >>> stream.synchronize()
    /// >>> seen
    /// [1]
    #[pyo3(signature = (callable, *args))]
    fn launch_host(
        &self,
        callable: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
    ) -> PyResult<PyHostCall> {
        launch_host(&self.stream, callable, args)
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        Context::Stream(slf.get().stream.clone()).enter(slf.py())?;
        Ok(slf)
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        Context::Stream(self.stream.clone()).exit(exception.py())
    }

    #[expect(clippy::unused_self, reason = "a method in Python")]
    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err("cannot pickle 'accelrt.Stream' object"))
    }

    fn __repr__(&self) -> String {
        let (device, id) = (self.stream.device(), self.stream.id());
        let (kind, index) = (device.kind(), device.index());
        let core = self.stream.core();
        // No query: a watch of the order learns nothing from what is shown.
        let is_done = core.is_drained() && (core.on_host || core.handle.query().unwrap_or(false));
        let state = state_of(is_done, self.stream.has_failed());
        format!("accelrt.Stream device_type={kind}, device_index={index}, stream_id={id}, {state}")
    }
}

const FORMS: &str = "Stream(device=None, priority=0, *, dedicated=False) or \
                     Stream(stream_id, device_index, device_type)";

/// Takes a stream of the device's pool, or creates one if the argument `dedicated` is true.
fn new_stream(mut given: NamedArguments<'_>) -> PyResult<Stream> {
    let device = given.device();
    let priority = given.take("priority").map_or(Ok(0), |it| integer("priority", &it))?;
    let is_dedicated = given.flag("dedicated")?;
    given.end()?;
    let runtime = Runtime::global().or_raise()?;
    let device = device_or_default(&runtime, device.as_ref())?;
    let limit = if priority < 0 { i32::MIN } else { i32::MAX };
    let priority = i32::try_from(priority).unwrap_or(limit);
    Ok(if is_dedicated {
        runtime.stream_with_priority(device, priority).or_raise()?
    } else {
        runtime.pooled_stream_with_priority(device, priority).or_raise()?
    })
}

/// Finds the stream that the arguments `stream_id`, `device_index` and `device_type` name.
fn existing_stream(mut given: NamedArguments<'_>) -> PyResult<Stream> {
    let stream_id = given.integer("stream_id")?;
    let device_index = given.integer("device_index")?;
    let device_type = given.integer("device_type")?;
    given.end()?;
    let kind = DeviceKind::from_type_code(device_type)
        .filter(|kind| *kind != DeviceKind::NULL)
        .ok_or_else(|| unknown_type(device_type))?;
    let index = usize::try_from(device_index).map_err(|_| {
        PyRuntimeError::new_err(format!("Device index must not be negative: {device_index}"))
    })?;
    let device = Device::new(kind, index).or_raise()?;
    let stream_id = u64::try_from(stream_id).map_err(|_| {
        let text = format!("Device {device} has no stream with id {stream_id}");
        PyRuntimeError::new_err(format!("{text}: ids are not negative"))
    })?;
    Runtime::global().or_raise()?.stream_by_id(device, stream_id).or_raise()
}

fn unknown_type(device_type: i64) -> PyErr {
    let known = DeviceKind::named().map(|kind| format!("{} for {kind}", kind.type_code()));
    let known = known.collect::<Vec<_>>().join(", ");
    PyRuntimeError::new_err(format!(
        "Expected isValidDeviceType(device_type) to be true, but got false. \
         device_type is {device_type}; it is {known}"
    ))
}
