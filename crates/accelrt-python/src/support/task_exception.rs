//! Exceptions of callables: the handle keeps the object, and the stream keeps a description.
//!
//! An exception refers to frames, and so to their buffers and streams. If a stream kept it, the
//! garbage collector could not see the cycle. So the stream's error has the exception's type, text
//! and traceback as texts, and a weak reference to the handle's objects.

use std::fmt;
use std::sync::{Arc, Weak};

use accelrt::internal::{LockRank, Mutex, fork};
use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::support::deferred_drops::DeferredDrop;
use crate::support::object_text::type_name;

/// The most characters of an exception's text that a stream's failure keeps, as in
/// `accelrt/_failures.py`.
const MAX_TEXT_CHARACTERS: usize = 1 << 16;

/// Replaces the text of an exception whose `__str__` raises, as in Python's module traceback.
const FAILED_TEXT: &str = "<exception str() failed>";

/// The objects of a finished callable, which its handle keeps: the returned value, or the exception
/// and its traceback.
///
/// Threads take the lock only while they hold the GIL, and run no Python code under it. So the
/// garbage collector always finds it free.
pub(crate) struct HandleObjects(Mutex<Option<DeferredDrop>>);

impl HandleObjects {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(LockRank::Python, None)))
    }

    /// Keeps objects. Called once.
    pub(crate) fn set(&self, _py: Python<'_>, objects: Vec<Py<PyAny>>) {
        *self.0.lock() = Some(DeferredDrop::new(objects));
    }

    /// The object with this index, unless the garbage collector has cleared the handle.
    pub(crate) fn get<'py>(&self, py: Python<'py>, index: usize) -> Option<Bound<'py, PyAny>> {
        self.0.lock().as_ref()?.bind(py).nth(index).cloned()
    }

    /// Drops the objects, which may run Python code.
    pub(crate) fn release(&self, py: Python<'_>) {
        let objects = self.0.lock().take();
        if let Some(objects) = objects {
            objects.release(py);
        }
    }

    /// Shows the objects to the garbage collector. Does not block.
    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        if fork::is_child() {
            return Ok(()); // a leak: the thread that held the lock may not exist in the child
        }
        let objects = self.0.try_lock();
        objects.iter().flat_map(|objects| objects.iter()).try_for_each(|kept| kept.visit(visit))
    }
}

/// The exception that a callable raised, as its stream's error. Holds no Python object.
pub(crate) struct RaisedInTask {
    /// Its type and text, for the error's message.
    message: String,
    description: Option<Description>,
    handle: Weak<HandleObjects>,
}

/// The parts of an exception from which `_failures.rebuild` makes an equal one.
struct Description {
    module: String,
    qualname: String,
    /// The marshalled arguments, if they are plain values.
    arguments: Option<Vec<u8>>,
    text: String,
    notes: Vec<String>,
}

impl RaisedInTask {
    /// Describes an exception whose handle keeps `objects`.
    pub(crate) fn new(exception: &Bound<'_, PyAny>, objects: &Arc<HandleObjects>) -> Self {
        let description = describe(exception).inspect_err(|refusal| {
            refusal.clone_ref(exception.py()).write_unraisable(exception.py(), None);
        });
        let description = description.ok();
        let text = description.as_ref().map_or(FAILED_TEXT, |parts| &parts.text);
        let name = cut(type_name(exception));
        let message = if text.is_empty() { name } else { format!("{name}: {text}") };
        Self { message, description, handle: Arc::downgrade(objects) }
    }

    /// The exception: the object that the callable raised while its handle exists, else an equal
    /// one without frames.
    pub(crate) fn exception(&self, py: Python<'_>) -> PyErr {
        let kept = self.handle.upgrade().and_then(|objects| objects.get(py, 0));
        let exception = kept.map_or_else(|| self.rebuild(py), Ok);
        exception.map_or_else(|error| error, PyErr::from_value)
    }

    fn rebuild<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let Some(parts) = &self.description else {
            return Err(PyRuntimeError::new_err(self.message.clone()));
        };
        let Description { module, qualname, arguments, text, notes } = parts;
        let parts = (module, qualname, arguments.as_deref(), text, notes.clone());
        py.import("accelrt._failures")?.call_method1("rebuild", parts)
    }
}

/// A text of limited length, which says how much it lacks.
fn cut(text: String) -> String {
    let Some((end, _)) = text.char_indices().nth(MAX_TEXT_CHARACTERS) else { return text };
    let (kept, rest) = text.split_at(end);
    format!("{kept}… ({} more characters)", rest.chars().count())
}

fn describe(exception: &Bound<'_, PyAny>) -> PyResult<Description> {
    let module = exception.py().import("accelrt._failures")?;
    let parts = module.call_method1("describe", (exception,))?.cast_into::<PyTuple>()?;
    let (module, qualname, arguments, text, notes) = parts.extract()?;
    Ok(Description { module, qualname, arguments, text, notes })
}

impl fmt::Debug for RaisedInTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RaisedInTask").field(&self.message).finish()
    }
}

impl fmt::Display for RaisedInTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for RaisedInTask {}
