//! `Stream.launch_host`: enqueues Python callables, which the host threads call.

use std::time::{Duration, Instant};

use accelrt::internal::{NameId, NextUses, UsedBytes, order_watch, park};
use accelrt::{Completion, Runtime, Stream};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::launch::host_call::{PyHostCall, Report};
use crate::launch::host_task::HostTask;
use crate::launch::host_threads;
use crate::launch::marks::{PyMarked, unmarked};
use crate::memory::buffer::PyBuffer;
use crate::memory::view::PyView;
use crate::memory::view_memory::ViewMemory;
use crate::support::call_sites::{enclosing, is_anonymous};
use crate::support::deferred_drops::{DeferredDrop, drop_parked};
use crate::support::errors::{OrRaise, wrong_type};
use crate::support::object_text::type_name;
use crate::support::waiting::{enqueue, scheduled};

/// How long a schedule waits for a callable, and how often it looks.
const LONGEST_CALLABLE: Duration = Duration::from_secs(5);
const CALLABLE_PERIOD: Duration = Duration::from_micros(20);

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
