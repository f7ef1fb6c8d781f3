//! Converts errors to Python exceptions, of torch's type where torch raises the same error.

use std::fmt::Write;
use std::sync::{Arc, OnceLock};

use accelrt::StreamError::{Failed, SeveralFailed};
use accelrt::internal::{NATIVE_CALLS, StackId, display_bytes};
use accelrt::{
    Device, DriverError, Error, EventError, FailureCause, GeneratorError, MemoryError,
    ProgramError, RuntimeError, Shortage, StreamFailure,
};
use pyo3::exceptions::{PyBufferError, PyRuntimeError, PyTimeoutError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyList, PyTuple};

use crate::support::function_names::name_at;
use crate::support::object_text::type_name;
use crate::support::stacks;
use crate::support::task_exception::RaisedInTask;

pyo3::create_exception!(
    accelrt,
    StreamError,
    PyRuntimeError,
    "Work on a stream failed; the cause is in `__cause__`, the failure of each stream in `errors`.

`device` and `stream_id` name the failed stream; `stream` is the stream while it exists. `ticket` is
the number of the failed task, `skipped` the number of later tasks that did not run. When several
streams failed, these attributes describe the first one."
);
pyo3::create_exception!(
    accelrt,
    DeviceLost,
    PyRuntimeError,
    "The device is gone for good; only a new process can use it again."
);
pyo3::create_exception!(
    accelrt,
    OutOfMemoryError,
    PyRuntimeError,
    "The device, or the limit set on it, has no room for the request.

`requested_bytes` is the size of the request, `allocated_bytes` the size of all allocated blocks,
`reserved_bytes` the memory taken from the device, `limit_bytes` the most that may be taken, and
`largest_bytes` the largest free block for such a request. An unknown size is None."
);

/// Raises the errors of accelrt as Python exceptions.
pub(crate) trait OrRaise<T> {
    fn or_raise(self) -> PyResult<T>;
}

impl<T> OrRaise<T> for accelrt::Result<T> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(exception)
    }
}

/// The Python exception of an error.
pub(crate) fn exception(error: Error) -> PyErr {
    let message = python_text(&error);
    match error {
        Error::Config(_)
        | Error::Generator(
            GeneratorError::InvalidOffset { .. }
            | GeneratorError::SequenceEnd { .. }
            | GeneratorError::FillAlignment { .. },
        )
        | Error::Event(EventError::WithoutTiming | EventError::NotRecorded)
        | Error::Program(ProgramError::LaunchSize { .. } | ProgramError::NoSuchKernel { .. })
        | Error::Memory(
            MemoryError::RangeOutside { .. }
            | MemoryError::CopySizeMismatch { .. }
            | MemoryError::CopyOverlap { .. },
        ) => PyValueError::new_err(message),
        Error::Memory(MemoryError::Released { .. } | MemoryError::Exported { .. }) => {
            PyBufferError::new_err(message)
        }
        Error::Driver(DriverError::Unsupported { .. })
        | Error::Program(
            ProgramError::ArgumentCount { .. }
            | ProgramError::InvalidArgument { .. }
            | ProgramError::DeviceMismatch { .. },
        ) => PyTypeError::new_err(message),
        Error::Memory(MemoryError::OutOfMemory { requested_bytes, total_bytes, cache, .. }) => {
            Python::attach(|py| {
                let message = message + &largest_sites(py, cache.as_deref());
                let raised = OutOfMemoryError::new_err(message);
                let mut sizes = sizes(requested_bytes, total_bytes, cache.as_deref()).into_iter();
                let added = sizes.try_for_each(|(name, size)| raised.value(py).setattr(name, size));
                added.err().unwrap_or(raised)
            })
        }
        Error::Driver(DriverError::DeviceLost { .. }) => DeviceLost::new_err(message),
        Error::Runtime(RuntimeError::TimedOut { .. }) => PyTimeoutError::new_err(message),
        Error::Stream(Failed(error)) => {
            Python::attach(|py| raised(py, named(message, &error), &[error]))
        }
        Error::Stream(SeveralFailed { errors, .. }) => {
            Python::attach(|py| raised(py, named(message, &errors[0]), &errors))
        }
        _ => PyRuntimeError::new_err(message),
    }
}

/// The error's message: torch's text where torch raises the same error, else our text with Python's
/// names of functions and arguments.
pub(crate) fn python_text(error: &Error) -> String {
    match error {
        Error::Event(EventError::WithoutTiming) => {
            "Both events must be created with argument 'enable_timing=True'.".to_owned()
        }
        Error::Runtime(RuntimeError::BadFork) => {
            "Cannot re-initialize accelrt in forked subprocess. To use accelrt with \
             multiprocessing, you must use the 'spawn' start method"
                .to_owned()
        }
        Error::Program(ProgramError::DeviceMismatch { on_host: true, .. }) => {
            format!("{error} (it runs native functions, by launch, and callables, by launch_host)")
        }
        Error::Driver(DriverError::Unsupported { kind, capability: NATIVE_CALLS }) => format!(
            "{kind} devices do not support native functions as tasks (launch): use launch_host, \
             or a kernel of a Program"
        ),
        _ => error.to_string(),
    }
}

/// The sentence about the call sites that hold the most memory; empty while no history knows them.
fn largest_sites(py: Python<'_>, cache: Option<&Shortage>) -> String {
    let mut by_site: Vec<(String, usize, usize)> = Vec::new();
    for user in cache.iter().flat_map(|cache| &cache.largest_stacks) {
        let Some(site) = stacks::site(py, StackId(user.stack)) else { continue };
        match by_site.iter_mut().find(|(known, ..)| *known == site) {
            Some((_, bytes, count)) => {
                (*bytes, *count) = (*bytes + user.bytes, *count + user.count);
            }
            None => by_site.push((site, user.bytes, user.count)),
        }
    }
    let mut text = String::new();
    for (index, (site, bytes, count)) in by_site.into_iter().enumerate() {
        let before = if index == 0 { " In use by call site: " } else { "; " };
        let blocks = if count == 1 { "block" } else { "blocks" };
        let _ = write!(text, "{before}{site} {} in {count} {blocks}", display_bytes(bytes));
    }
    if text.is_empty() { text } else { text + "." }
}

/// The attributes of an `OutOfMemoryError`, in bytes. An unknown size is None.
type Sizes = [(&'static str, Option<usize>); 5];

fn sizes(requested_bytes: usize, total_bytes: usize, cache: Option<&Shortage>) -> Sizes {
    let limit_bytes = cache.and_then(|cache| cache.limit_bytes);
    [
        ("requested_bytes", Some(requested_bytes)),
        ("allocated_bytes", cache.map(|cache| cache.allocated_bytes)),
        ("reserved_bytes", cache.map(|cache| cache.reserved_bytes)),
        ("limit_bytes", limit_bytes.or((total_bytes > 0).then_some(total_bytes))),
        ("largest_bytes", cache.map(|cache| cache.largest_free_bytes)),
    ]
}

/// Converts a device to an `accelrt.device`.
pub(crate) type NewDevice = for<'py> fn(Python<'py>, Device) -> PyResult<Bound<'py, PyAny>>;

/// Creates the attribute `device` of stream errors, whose class a layer above defines.
static NEW_DEVICE: OnceLock<NewDevice> = OnceLock::new();

/// Sets each attribute to None on its exception class, so that instances that a program creates
/// have the attributes too. `stream_of_error` returns the attribute `stream` of a stream error,
/// and `new_device` its attribute `device`.
pub(crate) fn add_attributes(
    module: &Bound<'_, PyModule>,
    stream_of_error: Bound<'_, PyCFunction>,
    new_device: NewDevice,
) -> PyResult<()> {
    let py = module.py();
    let _ = NEW_DEVICE.set(new_device); // an earlier import of the module has set the same
    for (name, _) in sizes(0, 0, None) {
        py.get_type::<OutOfMemoryError>().setattr(name, py.None())?;
    }
    let failed = py.get_type::<StreamError>();
    for name in ["device", "stream_id", "ticket", "skipped", PROCESS, SEVERAL] {
        failed.setattr(name, py.None())?;
    }
    let property = py.import("builtins")?.getattr("property")?;
    failed.setattr("stream", property.call1((stream_of_error,))?)?;
    failed.setattr("errors", property.call1((wrap_pyfunction!(errors_of_error, module)?,))?)
}

/// The attribute with the id of the raising process; another process may unpickle the error.
pub(crate) const PROCESS: &str = "_process_id";

/// The attribute with the errors of several streams; None for the failure of one stream.
const SEVERAL: &str = "_several";

// The error must not hold itself: the cycle would keep the frames of its traceback, and their
// buffers, until a garbage collection. A device that runs out of memory starts no collection.
/// The failure of each stream; the error itself if one stream failed.
#[pyfunction]
fn errors_of_error<'py>(error: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
    match error.getattr(SEVERAL)?.extract::<Option<Bound<'_, PyTuple>>>()? {
        Some(several) => Ok(several.to_list()),
        None => PyList::new(error.py(), [error]),
    }
}

/// Creates a `StreamError` with its cause and attributes.
fn raised(py: Python<'_>, message: String, errors: &[Arc<StreamFailure>]) -> PyErr {
    let raised = StreamError::new_err(message);
    let attach = || -> PyResult<()> {
        if errors.len() > 1 {
            let several = errors.iter().map(|error| exception_of(py, error));
            raised.value(py).setattr(SEVERAL, PyTuple::new(py, several)?)?;
        }
        let Some(first) = errors.first() else { return Ok(()) };
        add_place(raised.value(py), first)?;
        add_note(py, &raised, first)
    };
    if let Err(error) = attach() {
        return error;
    }
    raised.set_cause(py, errors.first().and_then(|error| cause(py, error)));
    raised
}

fn exception_of(py: Python<'_>, error: &Arc<StreamFailure>) -> PyErr {
    raised(py, named(error.to_string(), error), std::slice::from_ref(error))
}

fn add_place(raised: &Bound<'_, PyAny>, error: &StreamFailure) -> PyResult<()> {
    let new_device = NEW_DEVICE.get();
    let device = new_device.map(|new| new(raised.py(), error.device())).transpose()?;
    raised.setattr("device", device)?;
    raised.setattr("stream_id", error.stream_id())?;
    raised.setattr("ticket", error.ticket())?;
    raised.setattr("skipped", error.skipped_count())?;
    raised.setattr(PROCESS, std::process::id())
}

/// Inserts the name of the failed native function into the message, if the name is known.
fn named(message: String, error: &StreamFailure) -> String {
    let FailureCause::Status { function, .. } = error.root().failure() else { return message };
    let Some(name) = name_at(*function as u64) else { return message };
    let address = format!("function at {function:#x}");
    message.replacen(&address, &format!("function {name} at {function:#x}"), 1)
}

/// Adds a note about `check=True`: a function whose result is no status may have succeeded.
fn add_note(py: Python<'_>, raised: &PyErr, error: &StreamFailure) -> PyResult<()> {
    if let FailureCause::Status { .. } = error.root().failure() {
        let text = "check=True takes what the function returns for a status: 0 is success";
        raised.value(py).call_method1("add_note", (text,))?;
    }
    Ok(())
}

/// The exception for `__cause__`, from the failure at the start of a chain of inherited errors.
fn cause(py: Python<'_>, error: &StreamFailure) -> Option<PyErr> {
    match error.root().failure() {
        FailureCause::Returned(returned) => Some(match returned.downcast_ref::<RaisedInTask>() {
            Some(raised) => raised.exception(py),
            None => PyRuntimeError::new_err(returned.to_string()),
        }),
        FailureCause::Backend(error) => Some(exception(error.clone())),
        FailureCause::Panicked(message) => Some(PyRuntimeError::new_err(message.clone())),
        _ => None,
    }
}

pub(crate) fn wrong_type(what: &str, expected: &str, given: &Bound<'_, PyAny>) -> PyErr {
    PyTypeError::new_err(format!("{what} must be {expected}, not {}", type_name(given)))
}
