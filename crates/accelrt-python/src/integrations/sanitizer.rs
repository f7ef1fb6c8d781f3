//! Bindings of the sanitizer: watches, their findings, and what programs say of foreign order.

use std::sync::Arc;

use accelrt::Runtime;
use accelrt::internal::{LockRank, Mutex, Place, fork, order_watch};
use accelrt_observe::internal::{Found, FoundUse, OpenAccess, Sanitizer, watch};
use accelrt_observe::sanitizer::FindingKind;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::launch::function::name_at;
use crate::memory::buffer::PyBuffer;
use crate::objects::stream::PyStream;
use crate::support::errors::OrRaise;
use crate::support::stacks::{self, StackScope};

/// A watch whose findings are told after the call that made them.
struct Told {
    sanitizer: Arc<Sanitizer>,
    /// `None` for the watch of the process.
    callback: Option<Py<PyAny>>,
    count: usize,
}

static TOLD: Mutex<Vec<Told>> = Mutex::new(LockRank::Bindings, Vec::new());
/// What the watch of the process tells.
static PROCESS_CALLBACK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Watches from the first use on, where `ACCELRT_SANITIZER` asks for it.
pub(crate) fn begin_by_environment(runtime: &Runtime) {
    if runtime.config().sanitizer.is_some() {
        begin(runtime, None);
    }
}

fn begin(runtime: &Runtime, callback: Option<Py<PyAny>>) -> Arc<Sanitizer> {
    stacks::want_for_order(true);
    let sanitizer = Arc::new(Sanitizer::begin(runtime));
    let told = Told { sanitizer: Arc::clone(&sanitizer), callback, count: 0 };
    TOLD.lock().push(told);
    sanitizer
}

/// Tells what has been found since the last call: calls each callback, and returns the first error.
#[cold]
#[inline(never)]
pub(crate) fn tell_new(py: Python<'_>) -> PyResult<()> {
    if watch::take_news() { tell_news(py) } else { Ok(()) }
}

/// Tells what has been found since the last call: extensions that enqueue through C call it where
/// the byte at `findings_flag()` is not 0. What a watch raises is raised.
#[pyfunction]
pub(crate) fn tell_findings(py: Python<'_>) -> PyResult<()> {
    tell_new(py)
}

/// The address of a byte that is not 0 while there is something to tell.
#[pyfunction]
pub(crate) fn findings_flag() -> usize {
    watch::news_flag().as_ptr().addr()
}

fn tell_news(py: Python<'_>) -> PyResult<()> {
    let new = |told: &mut Told| {
        let from = std::mem::replace(&mut told.count, told.sanitizer.num_findings());
        (told.count > from).then(|| (told.callback.as_ref().map(|it| it.clone_ref(py)), from))
    };
    let mut all = Vec::new();
    for told in TOLD.lock().iter_mut() {
        if let Some((callback, from)) = new(told) {
            let callback = callback.or_else(|| Some(PROCESS_CALLBACK.get(py)?.clone_ref(py)));
            all.push((callback, told.sanitizer.findings(from)));
        }
    }
    let mut told = Ok(());
    for (callback, findings) in all {
        let Some(callback) = callback else { continue };
        // Whether the wait for an event without a record does harm shows later.
        let is_sure = |it: &&Found| it.kind != FindingKind::UnrecordedEvent;
        let sure = findings.iter().filter(is_sure);
        let findings: Vec<_> = sure.map(|it| FoundTuple::of(py, it)).collect();
        // Its findings count as told, so that one that raises keeps none from the others.
        let ended = callback.call1(py, (findings,)).map(drop);
        told = first_error(py, told, ended);
    }
    told
}

/// The first error of two calls; an interrupt before another exception.
fn first_error(py: Python<'_>, first: PyResult<()>, second: PyResult<()>) -> PyResult<()> {
    let is_interrupt = |error: &PyErr| !error.is_instance_of::<PyException>(py);
    match (first, second) {
        (Err(first), Err(second)) if is_interrupt(&second) && !is_interrupt(&first) => Err(second),
        (Ok(()), second) => second,
        (first, _) => first,
    }
}

/// `(stream, name, access, start, stop, file, line, thread)`; a stream is its device and id.
type UseTuple =
    (Option<(String, u64)>, String, &'static str, usize, usize, Option<String>, i32, String);

/// A finding as `accelrt.sanitizer` takes it.
#[derive(IntoPyObject)]
struct FoundTuple(
    &'static str,
    Option<UseTuple>,
    UseTuple,
    Option<(u64, usize, Option<String>, i32)>,
    String,
    u64,
);

impl FoundTuple {
    fn of(py: Python<'_>, finding: &Found) -> Self {
        let place = |place: Option<Place>| {
            let found = place.and_then(|place| stacks::program_place(py, place.stack));
            found.map_or((None, 0), |(file, line, _)| (Some(file), line))
        };
        let side = |used: &FoundUse| {
            let stream = used.stream.map(|(device, id)| (device.to_string(), id));
            let own = Some(used.name.text()).filter(|name| !name.is_empty());
            let called = || name_at(used.function).unwrap_or_else(|| used.operation.to_owned());
            let name = own.map_or_else(called, |name| name.to_string());
            let (file, line) = place(Some(used.place));
            let (start, stop) = (used.range.start, used.range.end);
            let thread = used.place.thread.text().to_string();
            (stream, name, used.access, start, stop, file, line, thread)
        };
        let buffer = finding.buffer.map(|buffer| {
            let (file, line) = place(buffer.made);
            (buffer.address, buffer.bytes, file, line)
        });
        let (first, second) = (finding.first.as_ref().map(side), side(&finding.second));
        Self(finding.kind.name(), first, second, buffer, finding.fix(), finding.count)
    }
}

/// A watch of the process's runtime.
#[pyclass(name = "OrderWatch", module = "accelrt._core", frozen)]
pub(crate) struct PyOrderWatch(Mutex<Option<Arc<Sanitizer>>>);

#[pymethods]
impl PyOrderWatch {
    /// Begins a watch, whose new findings `callback` is told.
    #[new]
    fn new(callback: Option<Py<PyAny>>) -> PyResult<Self> {
        fork::check().or_raise()?;
        let runtime = Runtime::global().or_raise()?;
        Ok(Self(Mutex::new(LockRank::Python, Some(begin(&runtime, callback)))))
    }

    /// What was found.
    fn findings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        fork::check().or_raise()?;
        let sanitizer = self.0.lock().clone();
        let findings = sanitizer.map(|it| it.findings(0)).unwrap_or_default();
        let harmful = findings.iter().filter(|finding| !finding.is_harmless);
        let tuples: Vec<_> = harmful.map(|finding| FoundTuple::of(py, finding)).collect();
        tuples.into_pyobject(py)
    }

    /// How much was forgotten for want of room.
    fn num_forgotten(&self) -> PyResult<u64> {
        fork::check().or_raise()?;
        let sanitizer = self.0.lock().clone();
        Ok(sanitizer.map_or(0, |it| it.num_forgotten()))
    }

    /// Ends the watch. Has no effect in a forked child.
    fn stop(&self) {
        if fork::is_child() {
            return;
        }
        let Some(ended) = self.0.lock().take() else { return };
        let is_it = |told: &mut Told| Arc::ptr_eq(&told.sanitizer, &ended);
        let (told, is_last) = {
            let mut all = TOLD.lock();
            (all.extract_if(.., is_it).collect::<Vec<_>>(), all.is_empty())
        };
        stacks::want_for_order(!is_last);
        drop((told, ended)); // without the lock
    }
}

/// The watch that `ACCELRT_SANITIZER` asks for. Sets what its new findings are told. None in a
/// forked child: the findings are the parent's.
#[pyfunction]
pub(crate) fn process_order_watch(py: Python<'_>, callback: Py<PyAny>) -> Option<PyOrderWatch> {
    if fork::is_child() {
        return None;
    }
    let _ = PROCESS_CALLBACK.set(py, callback);
    let told = TOLD.lock();
    let of_process = told.iter().find(|told| told.callback.is_none())?;
    let sanitizer = Arc::clone(&of_process.sanitizer);
    Some(PyOrderWatch(Mutex::new(LockRank::Python, Some(sanitizer))))
}

/// Declares that what is enqueued on `second` from here on runs behind what `first` has so far, by
/// an order that accelrt cannot see, as that of another library. Only a watch of the sanitizer
/// takes notice; nothing waits.
///
/// >>> import accelrt
/// >>> ours, theirs = accelrt.Stream(), accelrt.Stream()
/// >>> with accelrt.sanitizer.watch() as report:
/// ...     buffer = accelrt.zeros(8)  # on the default stream
/// ...     accelrt.ordered(buffer.stream, ours)
/// ...     with ours:
/// ...         _ = buffer.fill_(1)
/// ...     accelrt.accelerator.synchronize()
/// >>> report.findings
/// []
#[pyfunction]
pub(crate) fn ordered(first: &Bound<'_, PyStream>, second: &Bound<'_, PyStream>) {
    watch::order(first.get().stream.core(), second.get().stream.core());
}

/// An access of the host that has begun.
#[pyclass(name = "OpenAccess", module = "accelrt._core", frozen)]
pub(crate) struct PyOpenAccess(Mutex<Option<OpenAccess>>);

#[pymethods]
impl PyOpenAccess {
    /// Ends the access.
    fn end(&self) {
        if !fork::is_child() {
            let access = self.0.lock().take();
            drop(access);
        }
    }
}

/// Begins an access of the host to a buffer; None while nothing watches.
#[pyfunction]
pub(crate) fn begin_host_access(
    py: Python<'_>,
    buffer: &Bound<'_, PyBuffer>,
    writes: bool,
) -> PyResult<Option<PyOpenAccess>> {
    if !order_watch::is_on() {
        return Ok(None);
    }
    let used = buffer.get().state.buffer(py).used_bytes(Some(writes));
    let _scope = StackScope::of_order(py);
    let access = PyOpenAccess(Mutex::new(LockRank::Python, Some(OpenAccess::begin(used))));
    tell_new(py)?;
    Ok(Some(access))
}
