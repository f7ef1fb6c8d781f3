//! Bindings of the sanitizer: watches, their findings, and what programs say of foreign order.

use std::sync::Arc;

use accelrt::Runtime;
use accelrt::internal::{LockRank, Mutex, fork, order_watch};
use accelrt_observe::internal::{OpenAccess, Sanitizer, watch};
use pyo3::prelude::*;

use crate::memory::buffer::PyBuffer;
use crate::objects::stream::PyStream;
use crate::support::errors::OrRaise;
use crate::support::findings::{self, FoundTuple, tell_new};
use crate::support::stacks::StackScope;

/// Watches from the first use on, where `ACCELRT_SANITIZER` asks for it.
pub(crate) fn begin_by_environment(runtime: &Runtime) {
    if runtime.config().sanitizer.is_some() {
        findings::begin(runtime, None);
    }
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
        Ok(Self(Mutex::new(LockRank::Python, Some(findings::begin(&runtime, callback)))))
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
        let ended = self.0.lock().take();
        if let Some(sanitizer) = ended {
            findings::end(sanitizer);
        }
    }
}

/// The watch that `ACCELRT_SANITIZER` asks for. Sets what its new findings are told. None in a
/// forked child: the findings are the parent's.
#[pyfunction]
pub(crate) fn process_order_watch(py: Python<'_>, callback: Py<PyAny>) -> Option<PyOrderWatch> {
    if fork::is_child() {
        return None;
    }
    let sanitizer = findings::set_process_callback(py, callback)?;
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
