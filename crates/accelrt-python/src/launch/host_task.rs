//! Python callables as tasks: how host threads call them.
#![expect(unsafe_code, reason = "calls Python so that the end of the interpreter stops the thread")]

use std::ffi::c_void;
use std::hint::black_box;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use accelrt::internal::park;
use accelrt::{Runtime, Stream, StreamFailure};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::launch::host_call::Report;
use crate::objects::contexts;
use crate::support::deferred_drops::DeferredDrop;
use crate::support::errors::OrRaise;

/// The callables that threads are inside of.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn num_running() -> usize {
    RUNNING.load(Ordering::Relaxed) // Relaxed, here and below: a count
}

pub(crate) struct HostTask {
    pub(crate) stream: Stream,
    /// The callable, and the tuple of its arguments.
    pub(crate) call: DeferredDrop,
    pub(crate) report: Report,
    /// The file, line and function that enqueued the callable, if tracebacks are on.
    pub(crate) enqueued_at: Option<String>,
}

impl HostTask {
    /// Makes the stream and its device current on this thread, and calls the callable.
    pub(crate) fn run(self, py: Python<'_>) -> Result<(), Arc<StreamFailure>> {
        let Self { stream, call, report, enqueued_at } = self;
        RUNNING.fetch_add(1, Ordering::Relaxed);
        let run = || Self::call(py, &stream, call, report, enqueued_at.as_deref());
        let outcome = stream.inside_task(run);
        RUNNING.fetch_sub(1, Ordering::Relaxed);
        outcome
    }

    fn call(
        py: Python<'_>,
        stream: &Stream,
        call: DeferredDrop,
        report: Report,
        enqueued_at: Option<&str>,
    ) -> Result<(), Arc<StreamFailure>> {
        let outcome = Runtime::global().or_raise().and_then(|runtime| {
            runtime.adopt_stream(Some(stream));
            let outcome = call_python(py, &call);
            contexts::forget();
            runtime.adopt_stream(None);
            outcome
        });
        if let (Err(error), Some(place)) = (&outcome, enqueued_at) {
            // The result is ignored: the exception is raised without a note then.
            let _ =
                add_note_once(error.value(py), &format!("The callable was enqueued by {place}"));
        }
        let outcome = report.finish(py, stream, outcome);
        call.release(py);
        outcome
    }

    pub(crate) fn release(self, py: Python<'_>) {
        self.call.release(py);
    }
}

/// Adds a note to an exception, unless an earlier raise of the same object has added it.
fn add_note_once(exception: &Bound<'_, PyAny>, note: &str) -> PyResult<()> {
    let notes = exception.getattr_opt("__notes__")?;
    if notes.is_some_and(|notes| notes.contains(note).unwrap_or(false)) {
        return Ok(());
    }
    exception.call_method1("add_note", (note,)).map(drop)
}

/// A value whose drop sleeps for ever. Only the interpreter's unwinding of this thread drops it.
struct Hang;

impl Drop for Hang {
    fn drop(&mut self) {
        loop {
            park(None);
        }
    }
}

/// `PyObject_Call`, declared as able to unwind.
type Call = unsafe extern "C-unwind" fn(
    *mut ffi::PyObject,
    *mut ffi::PyObject,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

/// Calls the first of the kept objects with the second one, a tuple, as its arguments.
pub(crate) fn call_python<'py>(
    py: Python<'py>,
    call: &DeferredDrop,
) -> PyResult<Bound<'py, PyAny>> {
    let mut objects = call.bind(py);
    match (objects.next(), objects.next()) {
        (Some(callable), Some(args)) => call_object(callable, args),
        _ => unreachable!("a callable and its arguments are kept"),
    }
}

/// Calls a callable, which may release the GIL and take it again. Before Python 3.14, a thread that
/// takes the GIL after the interpreter's end is unwound, and unwinding into code that forbids it
/// aborts the process. The drop of `hang` stops the unwinding: it sleeps until the process ends.
fn call_object<'py>(
    callable: &Bound<'py, PyAny>,
    args: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    // pyo3 declares `PyObject_Call` as unable to unwind. A second declaration would be merged with
    // pyo3's at link time. `black_box` hides the address from the optimiser, so the call has the
    // type `Call`.
    let call = black_box(ffi::PyObject_Call as *const c_void);
    // SAFETY: the address is that of `PyObject_Call`. The new type differs only in the unwinding.
    let call = unsafe { mem::transmute::<*const c_void, Call>(call) };
    let hang = Hang;
    // SAFETY: the bound references imply that the callable and the argument tuple are alive and
    // that the GIL is held.
    let returned = unsafe { call(callable.as_ptr(), args.as_ptr(), std::ptr::null_mut()) };
    mem::forget(hang);
    // SAFETY: the call returns a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(callable.py(), returned) }
}
