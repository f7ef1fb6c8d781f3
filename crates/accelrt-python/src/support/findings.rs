//! The findings of the sanitizer's watches: calls their callbacks after the call that made them.

use std::sync::Arc;

use accelrt::Runtime;
use accelrt::internal::{LockRank, Mutex, Place};
use accelrt_observe::internal::{Found, FoundUse, Sanitizer, watch};
use accelrt_observe::sanitizer::FindingKind;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::support::function_names::name_at;
use crate::support::stacks;

/// A watch, with the callback for its findings.
struct ReportedWatch {
    sanitizer: Arc<Sanitizer>,
    /// `None` for the watch of the process.
    callback: Option<Py<PyAny>>,
    count: usize,
}

static WATCHES: Mutex<Vec<ReportedWatch>> = Mutex::new(LockRank::Bindings, Vec::new());
/// The callback of the watch of the process.
static PROCESS_CALLBACK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Begins a watch. The callback receives its new findings.
pub(crate) fn begin(runtime: &Runtime, callback: Option<Py<PyAny>>) -> Arc<Sanitizer> {
    stacks::want_for_order(true);
    let sanitizer = Arc::new(Sanitizer::begin(runtime));
    let watch = ReportedWatch { sanitizer: Arc::clone(&sanitizer), callback, count: 0 };
    WATCHES.lock().push(watch);
    sanitizer
}

/// Ends a watch that [`begin`] returned.
pub(crate) fn end(sanitizer: Arc<Sanitizer>) {
    let is_ended = |watch: &mut ReportedWatch| Arc::ptr_eq(&watch.sanitizer, &sanitizer);
    let (ended, is_last) = {
        let mut all = WATCHES.lock();
        (all.extract_if(.., is_ended).collect::<Vec<_>>(), all.is_empty())
    };
    stacks::want_for_order(!is_last);
    drop((ended, sanitizer)); // without the lock
}

/// Sets the callback of the watch of the process, and returns this watch, if there is one.
pub(crate) fn set_process_callback(py: Python<'_>, callback: Py<PyAny>) -> Option<Arc<Sanitizer>> {
    let _ = PROCESS_CALLBACK.set(py, callback);
    let watches = WATCHES.lock();
    let of_process = watches.iter().find(|watch| watch.callback.is_none())?;
    Some(Arc::clone(&of_process.sanitizer))
}

/// Tells what has been found since the last call: calls each callback, and returns the first error.
#[cold]
#[inline(never)]
pub(crate) fn tell_new(py: Python<'_>) -> PyResult<()> {
    if watch::take_news() { tell_news(py) } else { Ok(()) }
}

fn tell_news(py: Python<'_>) -> PyResult<()> {
    let new = |told: &mut ReportedWatch| {
        let from = std::mem::replace(&mut told.count, told.sanitizer.num_findings());
        (told.count > from).then(|| (told.callback.as_ref().map(|it| it.clone_ref(py)), from))
    };
    let mut all = Vec::new();
    for told in WATCHES.lock().iter_mut() {
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
pub(crate) struct FoundTuple(
    &'static str,
    Option<UseTuple>,
    UseTuple,
    Option<(u64, usize, Option<String>, i32)>,
    String,
    u64,
);

impl FoundTuple {
    pub(crate) fn of(py: Python<'_>, finding: &Found) -> Self {
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
