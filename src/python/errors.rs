//! Errors as Python sees them: torch's types where torch has the error.

use std::sync::Arc;

use pyo3::exceptions::{PyBufferError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::error::{Error, FailureCause, StreamError as EngineStreamError};
use crate::python::function::name_at;
use crate::python::parked::{Kept, park_error};

pyo3::create_exception!(
    accelrt,
    StreamError,
    PyRuntimeError,
    "Work on a stream failed; the cause is in `__cause__`, the failure of each stream in `errors`."
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
    "The device, or the limit set on it, has no room for the request."
);

/// A Python exception that a task failed with, carried through the engine. May be dropped by any
/// thread.
#[derive(Debug)]
pub(super) struct RaisedInTask {
    message: String,
    exception: Kept,
}

impl RaisedInTask {
    pub(super) fn new(py: Python<'_>, error: PyErr) -> Self {
        let message = error.to_string();
        Self { message, exception: Kept::new(vec![error.into_value(py).into_any()]) }
    }
}

/// Has the exception of a failed task let go of the frames of its tracebacks: the stream is gone,
/// and the error may stay until the process ends. Takes no GIL and does not block.
pub(super) fn fade_later(error: &Arc<EngineStreamError>) {
    if raised_in_task(error).is_some() {
        park_error(Arc::clone(error));
    }
}

/// Replaces the frames by their text. An error that was raised meanwhile is the user's.
pub(super) fn fade(py: Python<'_>, error: &EngineStreamError) {
    if error.is_seen() {
        return;
    }
    let Some(exception) = raised_in_task(error).and_then(|raised| raised.exception.bind(py).next())
    else {
        return;
    };
    let fade = || py.import("accelrt._failures")?.call_method1("fade", (exception,));
    if let Err(refusal) = fade() {
        refusal.write_unraisable(py, None); // its frames stay
    }
}

/// What a callable raised on this very stream.
fn raised_in_task(error: &EngineStreamError) -> Option<&RaisedInTask> {
    match error.failure() {
        FailureCause::Returned(returned) => returned.downcast_ref(),
        _ => None,
    }
}

impl std::fmt::Display for RaisedInTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for RaisedInTask {}

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::EventWithoutTiming
            | Error::EventNotRecorded
            | Error::PriorityOutOfRange { .. }
            | Error::InvalidSetting { .. }
            | Error::AllocatorSetting { .. }
            | Error::UnknownAllocatorSetting { .. }
            | Error::AllocatorSettingWithoutEffect { .. }
            | Error::InvalidVariable { .. }
            | Error::BufferRange { .. }
            | Error::GeneratorOffset { .. }
            | Error::FillAlignment { .. }
            | Error::LaunchSize { .. }
            | Error::NoSuchKernel { .. }
            | Error::CopySizeMismatch { .. }
            | Error::CopyOverlap { .. } => PyValueError::new_err(message),
            Error::BufferReleased { .. } | Error::BufferExported { .. } => {
                PyBufferError::new_err(message)
            }
            Error::Unsupported { .. }
            | Error::KernelArgumentCount { .. }
            | Error::KernelArgument { .. }
            | Error::KernelDeviceMismatch { .. } => PyTypeError::new_err(message),
            Error::OutOfMemory { .. } => OutOfMemoryError::new_err(message),
            Error::DeviceLost { .. } => DeviceLost::new_err(message),
            Error::Stream(error) => {
                Python::attach(|py| raised(py, named(message, &error), &[error]))
            }
            Error::Streams { errors, .. } => {
                Python::attach(|py| raised(py, named(message, &errors[0]), &errors))
            }
            _ => PyRuntimeError::new_err(message),
        }
    }
}

/// A `StreamError` with its `errors` and its cause.
fn raised(py: Python<'_>, message: String, errors: &[Arc<EngineStreamError>]) -> PyErr {
    let raised = StreamError::new_err(message);
    let list = errors.iter().map(|error| single(py, error).into_value(py)).collect::<Vec<_>>();
    let attach = || -> PyResult<()> {
        let list = if list.len() == 1 {
            PyList::new(py, [raised.value(py)])?
        } else {
            PyList::new(py, list)?
        };
        raised.value(py).setattr("errors", list)?;
        errors.first().map_or(Ok(()), |error| add_note(py, &raised, error))
    };
    if let Err(error) = attach() {
        return error;
    }
    raised.set_cause(py, errors.first().and_then(|error| cause(py, error)));
    raised
}

/// The message with the name of a native function that failed.
fn named(message: String, error: &EngineStreamError) -> String {
    let FailureCause::Status { function, .. } = error.root().failure() else { return message };
    let Some(name) = name_at(*function as u64) else { return message };
    let address = format!("function at {function:#x}");
    message.replacen(&address, &format!("function {name} at {function:#x}"), 1)
}

/// What a traceback shows below the message of a status: some functions return none.
fn add_note(py: Python<'_>, raised: &PyErr, error: &EngineStreamError) -> PyResult<()> {
    if let FailureCause::Status { .. } = error.root().failure() {
        let text = "check=True takes what the function returns for a status: 0 is success";
        raised.value(py).call_method1("add_note", (text,))?;
    }
    Ok(())
}

/// The failure of one stream, without `errors`.
fn single(py: Python<'_>, error: &EngineStreamError) -> PyErr {
    let single = StreamError::new_err(named(error.to_string(), error));
    single.set_cause(py, cause(py, error));
    single
}

/// What made the original task fail.
fn cause(py: Python<'_>, error: &EngineStreamError) -> Option<PyErr> {
    match error.root().failure() {
        FailureCause::Returned(returned) => Some(match returned.downcast_ref::<RaisedInTask>() {
            Some(raised) => PyErr::from_value(raised.exception.bind(py).next()?.clone()),
            None => PyRuntimeError::new_err(returned.to_string()),
        }),
        FailureCause::Backend(error) => Some(error.clone().into()),
        FailureCause::Panicked(message) => Some(PyRuntimeError::new_err(message.clone())),
        _ => None,
    }
}

/// A `TypeError` that says what was expected and what was given.
pub(super) fn wrong_type(what: &str, expected: &str, given: &Bound<'_, PyAny>) -> PyErr {
    PyTypeError::new_err(format!("{what} must be {expected}, not {}", type_name(given)))
}

/// The name of an object's type.
pub(super) fn type_name(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string())
}
