//! `Stream.launch_host`: enqueues Python callables, which the host threads call.
#![expect(unsafe_code, reason = "calls Python so that the end of the interpreter stops the thread")]

use std::ffi::c_void;
use std::hint::black_box;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use accelrt::internal::{NameId, NextUses, UsedBytes, order_watch, park};
use accelrt::{Completion, Runtime, Stream, StreamFailure};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::launch::host_call::{PyHostCall, Report};
use crate::launch::host_threads;
use crate::launch::marks::{PyMarked, unmarked};
use crate::memory::buffer::PyBuffer;
use crate::memory::view::PyView;
use crate::memory::view_memory::ViewMemory;
use crate::objects::contexts;
use crate::support::call_sites::{enclosing, is_anonymous};
use crate::support::deferred_drops::{DeferredDrop, drop_parked};
use crate::support::errors::{OrRaise, wrong_type};
use crate::support::object_text::type_name;
use crate::support::waiting::{enqueue, scheduled};

/// How long a schedule waits for a callable, and how often it looks.
const LONGEST_CALLABLE: Duration = Duration::from_secs(5);
const CALLABLE_PERIOD: Duration = Duration::from_micros(20);

/// The callables that threads are inside of.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn num_running() -> usize {
    RUNNING.load(Ordering::Relaxed) // Relaxed, here and below: a count
}

pub(crate) struct HostTask {
    stream: Stream,
    /// The callable, and the tuple of its arguments.
    call: DeferredDrop,
    report: Report,
    /// The file, line and function that enqueued the callable, if tracebacks are on.
    enqueued_at: Option<String>,
}

pub(crate) fn launch_host(
    stream: &Stream,
    callable: &Bound<'_, PyAny>,
    args: &Bound<'_, PyTuple>,
) -> PyResult<PyHostCall> {
    let py = callable.py();
    drop_parked(py);
    if !callable.is_callable() {
        return Err(wrong_type("callable", "callable", callable));
    }
    accelrt::internal::fork::check().or_raise()?;
    let runtime = Runtime::global().or_raise()?;
    host_threads::ensure_started(runtime.config().host_threads)?;
    let enqueued_at = runtime.config().tracebacks.then(|| place_of_caller(py)).transpose()?;
    let kept = if order_watch::is_on() { used_arguments(args) } else { Vec::new() };
    let args = unmarked_arguments(args)?;
    let call = DeferredDrop::new(vec![callable.clone().unbind(), args.into_any().unbind()]);
    let (report, shared) = Report::new();
    let task = HostTask { stream: stream.clone(), call, report, enqueued_at };
    let start = move |completion| start(task, completion);
    let name = log_name(stream, callable);
    let ticket = enqueue(py, stream, || {
        if !kept.is_empty() {
            order_watch::declare(Some(NextUses { kept, ..NextUses::NONE }));
        }
        let enqueued = stream.enqueue_deferred_as(Some(name), start);
        enqueued.inspect_err(|_| order_watch::declare(None))
    })?;
    Ok(PyHostCall::new(shared, stream, ticket))
}

/// The memory of the buffers and views among the arguments, for a watch of the order: read, unless
/// `accelrt.writes` marks it.
fn used_arguments(args: &Bound<'_, PyTuple>) -> Vec<UsedBytes> {
    let used = |argument: Bound<'_, PyAny>| {
        let (memory, mark) = unmarked(&argument);
        let writes = Some(mark.writes() == Some(true));
        if let Ok(buffer) = memory.cast::<PyBuffer>() {
            let buffer = buffer.get().state.buffer(memory.py());
            return Some(buffer.used_bytes(writes));
        }
        match &*memory.cast::<PyView>().ok()?.get().memory {
            ViewMemory::Ours(buffer) => Some(buffer.used_bytes(writes)),
            ViewMemory::Foreign(..) => None,
        }
    };
    args.iter().filter_map(used).collect()
}

/// The arguments that the callable gets: objects without their marks.
fn unmarked_arguments<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyTuple>> {
    if !args.iter_borrowed().any(|argument| argument.is_instance_of::<PyMarked>()) {
        return Ok(args.clone());
    }
    PyTuple::new(args.py(), args.iter().map(|argument| unmarked(&argument).0.clone()))
}

/// Hands a callable to the host threads. Under a schedule waits for its end, so that the callable
/// is over at a moment that the seed has chosen; one that blocks for longer ends when it may.
fn start(task: HostTask, completion: Completion) {
    let ended = scheduled().map(|_| completion.watch());
    host_threads::post(task, completion);
    if let Some(has_ended) = ended {
        let deadline = Instant::now() + LONGEST_CALLABLE;
        while !has_ended() && Instant::now() < deadline {
            park(Some(CALLABLE_PERIOD));
        }
    }
}

/// The name of a callable for the log, while the stream's tasks are watched.
fn log_name(stream: &Stream, callable: &Bound<'_, PyAny>) -> NameId {
    if !stream.core().lifecycle.is_watched() {
        return NameId::NONE;
    }
    let name = callable.getattr("__qualname__").and_then(|name| name.extract::<String>());
    NameId::of(&name.unwrap_or_else(|_| type_name(callable)))
}

/// The file, line and function of the Python code that called this library.
fn place_of_caller(py: Python<'_>) -> PyResult<String> {
    let mut frame = py.import("sys")?.call_method0("_getframe")?;
    while is_anonymous(&frame.getattr("f_code")?.getattr("co_name")?.extract::<String>()?) {
        let back = frame.getattr("f_back")?;
        if back.is_none() {
            break;
        }
        frame = back;
    }
    let (code, line) = (frame.getattr("f_code")?, frame.getattr("f_lineno")?);
    let (file, function) = (code.getattr("co_filename")?, code.getattr("co_qualname")?);
    let function: String = function.extract()?;
    Ok(format!("{} in {file}:{line}", enclosing(&function)))
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
