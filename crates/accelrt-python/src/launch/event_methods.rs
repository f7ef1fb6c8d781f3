//! The methods of `accelrt.Event`.

use std::borrow::Cow;

use accelrt::internal::{Interrupt, fork};
use accelrt::{Device, DeviceError, Error, Event, EventFuture, Runtime, Stream};
use pyo3::exceptions::{PyNotImplementedError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyTuple};

use crate::launch::event_callback::EventCallback;
use crate::launch::host_threads;
use crate::objects::device::PyDevice;
use crate::objects::event::PyEvent;
use crate::objects::stream::{current_stream_of_kind, state_of, stream_argument};
use crate::support::awaiting::Awaiting;
use crate::support::deferred_drops::{DeferredDrop, drop_parked};
use crate::support::errors::{OrRaise, exception, wrong_type};
use crate::support::parameters::{NamedArguments, timeout_argument};
use crate::support::waiting::{enqueue, step_schedule, without_gil};

const FORMS: &str = concat!(
    "Event(device=None, *, enable_timing=False, blocking=False, interprocess=False) or ",
    "Event(enable_timing, blocking=False, interprocess=False)",
);

#[pymethods]
impl PyEvent {
    #[new]
    #[pyo3(signature = (*args, **kwargs))]
    fn new(args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        // A bool as the first argument is `enable_timing`, as in `torch.cuda.Event`.
        let is_flag = args.get_item(0).is_ok_and(|first| first.is_instance_of::<PyBool>());
        let flags = ["enable_timing", "blocking", "interprocess"];
        let positions: &[&str] = if is_flag { &flags } else { &["device"] };
        let mut given = NamedArguments::read(positions, args, kwargs, FORMS)?;
        // Checks `blocking` and `interprocess`, which have no effect.
        let [is_timed, _, _] =
            [given.flag(flags[0])?, given.flag(flags[1])?, given.flag(flags[2])?];
        let device = given.device();
        given.end()?;
        let device = match device {
            Some(device) => checked_device(PyDevice::extract(&device)?)?,
            None => PyDevice {
                kind: Runtime::global().or_raise()?.accelerator().or_raise()?,
                index: None,
            },
        };
        let event = Event::for_kind(device.kind, is_timed);
        Ok(Self { event, device: PyDevice { index: None, ..device } })
    }

    /// The device of the latest record. Before the first record it has no index.
    #[getter]
    fn device(&self) -> PyDevice {
        self.event.device().map_or(self.device, PyDevice::from)
    }

    /// The id of this event, unique while it lives; 0 before the first record.
    #[getter]
    fn event_id(&self) -> u64 {
        self.event.id()
    }

    /// Records the work enqueued on `stream`, by default the current stream. Blocks only while
    /// more than `ACCELRT_STREAM_TASKS` tasks are queued.
    #[pyo3(signature = (stream=None))]
    fn record(&self, py: Python<'_>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let stream = self.stream_or_current(stream)?;
        enqueue(py, &stream, || stream.record(&self.event))
    }

    /// Makes later work on `stream`, by default the current one, wait for the latest record.
    /// Blocks only while more than `ACCELRT_STREAM_TASKS` tasks are queued.
    #[pyo3(signature = (stream=None))]
    fn wait(&self, py: Python<'_>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let stream = self.stream_or_current(stream)?;
        enqueue(py, &stream, || stream.wait_event(&self.event))
    }

    /// True when all work before the latest record is done or has failed.
    fn query(&self, py: Python<'_>) -> bool {
        let is_done = self.event.is_complete() || step_schedule(py) && self.event.is_complete();
        // `is_done` reports the query to the watch of the order. The event is complete, so the call
        // runs no task.
        is_done && self.event.is_done()
    }

    /// Blocks, without the GIL, until all work before the latest record is done. Raises the error
    /// that the stream was in at the record, if any.
    ///
    /// After `timeout` seconds raises `TimeoutError`, and the work goes on. None waits without a
    /// limit.
    #[pyo3(signature = (timeout=None))]
    fn synchronize(&self, py: Python<'_>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let timeout = timeout_argument(timeout)?;
        if self.event.is_complete() {
            drop_parked(py);
            return self.event.synchronize().or_raise();
        }
        let event = &self.event;
        let is_done = || event.is_complete();
        without_gil(py, is_done, |is_interrupted| {
            event.synchronize_within(&mut Interrupt::by(is_interrupted).or_after(timeout))
        })
    }

    /// `await event` waits for the latest record at the call, as `synchronize`, while the loop runs
    /// other tasks. Cancelling the asyncio task ends the wait only.
    fn __await__(&self) -> Awaiting {
        Awaiting::new(EventFuture::new(self.event.clone()))
    }

    /// Calls `callback(event)` once all work before the latest record is done or has failed.
    /// Records after this call do not delay the callback. Does not block.
    ///
    /// A thread of the pool of `launch_host` calls the callback. There, the default streams are
    /// current, and a wait for unfinished work raises `RuntimeError`. An exception of the callback
    /// is passed to `sys.unraisablehook`. Callbacks of one event are called in any order.
    ///
    /// >>> import accelrt, threading
    /// >>> event, called = accelrt.Stream().record_event(), threading.Event()
    /// >>> event.add_done_callback(lambda event: called.set())
    /// >>> called.wait()
    /// True
    fn add_done_callback(slf: &Bound<'_, Self>, callback: &Bound<'_, PyAny>) -> PyResult<()> {
        call_when_done(slf, callback)
    }

    /// The milliseconds from this event's record to the record of `other`.
    fn elapsed_time(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<f64> {
        let Ok(other) = other.cast::<Self>() else {
            let text = "expected other to be an accelrt.Event object";
            return Err(PyRuntimeError::new_err(text));
        };
        let other = other.get();
        // Releases the GIL: the first call of a process may wait until the clock is calibrated.
        py.detach(|| self.event.elapsed_ms(&other.event)).or_raise()
    }

    /// Not supported, as in torch.
    #[expect(clippy::unused_self, reason = "a method in Python")]
    fn ipc_handle(&self) -> PyResult<()> {
        Err(PyNotImplementedError::new_err("accelrt.Event ipc is not supported"))
    }

    /// Not supported, as in torch.
    #[classmethod]
    #[pyo3(signature = (device, handle))]
    fn from_ipc_handle(
        _class: &Bound<'_, pyo3::types::PyType>,
        #[expect(unused_variables, reason = "torch's signature")] device: &Bound<'_, PyAny>,
        #[expect(unused_variables, reason = "torch's signature")] handle: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        Err(PyNotImplementedError::new_err("accelrt.Event ipc is not supported"))
    }

    fn __repr__(&self) -> String {
        let index =
            self.event.device().map_or(-1, |device| i64::try_from(device.index()).unwrap_or(-1));
        // Prints the id as C++ prints a pointer.
        let id = match self.event.id() {
            0 => "0".to_owned(),
            id => format!("{id:#x}"),
        };
        format!(
            "accelrt.Event device_type={}, device_index={index}, event_flag={}, event_id={id}, {}",
            self.device.kind,
            u8::from(self.event.is_timed()),
            state_of(self.event.looks_complete(), self.event.has_failed()),
        )
    }
}

impl PyEvent {
    /// Borrows the stream of an argument, if any, because a clone would cost a locked instruction.
    fn stream_or_current<'a>(
        &self,
        stream: Option<&'a Bound<'_, PyAny>>,
    ) -> PyResult<Cow<'a, Stream>> {
        match stream {
            Some(stream) => Ok(Cow::Borrowed(&stream_argument("stream", stream)?.get().stream)),
            None => current_stream_of_kind(self.device.kind).map(Cow::Owned),
        }
    }
}

/// Checks the device of a new event. An available kind must have a device with the given index. An
/// unavailable kind fails later, at the event's first use.
fn checked_device(device: PyDevice) -> PyResult<PyDevice> {
    if let Some(index) = device.index {
        let count = Runtime::global().or_raise()?.device_count(device.kind).or_raise()?;
        if count > 0 && index >= count {
            let device = Device::new(device.kind, index).or_raise()?;
            return Err(exception(Error::Device(DeviceError::NotFound { device, count })));
        }
    }
    Ok(device)
}

/// Registers a callable, which a host thread calls when the event's latest record is done.
fn call_when_done(event: &Bound<'_, PyEvent>, callable: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = event.py();
    drop_parked(py);
    if !callable.is_callable() {
        return Err(wrong_type("callback", "callable", callable));
    }
    fork::check().or_raise()?;
    host_threads::ensure_started(Runtime::global().or_raise()?.config().host_threads)?;
    let arguments = (event,).into_pyobject(py)?.into_any().unbind();
    let call = DeferredDrop::new(vec![callable.clone().unbind(), arguments]);
    let callback = EventCallback::new(event.get().event.clone(), call, host_threads::post_callback);
    if let Some(done) = callback.poll() {
        host_threads::post_callback(done);
    }
    Ok(())
}
