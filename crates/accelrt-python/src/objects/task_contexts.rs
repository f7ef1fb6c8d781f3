//! What `with` makes current inside a running asyncio loop belongs to the asyncio task.
//!
//! A context variable holds the open `with` statements of a context in an immutable list, so that
//! what copies a context (a task that is created, `asyncio.to_thread`) inherits them, and a later
//! `with` changes one context alone. Calls read the thread's selection, as without asyncio. Before
//! that, [`apply`] puts there what is current in the context that runs: the thread's own selection,
//! and above it what the context's list selects.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use accelrt::internal::{LockRank, Mutex, Selected, fork};
use accelrt::{DeviceKind, Runtime};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::objects::selection::{Context, Selection};
use crate::objects::tags;
use crate::support::errors::OrRaise;

/// True after the first `with` inside a running loop. Until then no call looks at contexts.
static IS_USED: AtomicBool = AtomicBool::new(false);
/// How many `with` statements of each device, stream, pool and tag are open in any context. Taken
/// under the GIL, so that no thread waits for the lock.
static OPEN: LazyLock<Mutex<HashMap<Context, usize>>> =
    LazyLock::new(|| Mutex::new(LockRank::Bindings, HashMap::new()));

/// The value of the context variable: the open `with` statements, the innermost last.
#[pyclass(module = "accelrt", frozen)]
#[derive(Clone)]
struct Entries(Vec<Entry>);

#[derive(Clone)]
struct Entry {
    context: Context,
    /// What the `with` selects, and what was set inside of it; the latest last.
    selections: Vec<Selection>,
}

/// What this thread's selection stands for while a context with entries runs.
struct Applied {
    entries: Py<Entries>,
    /// The thread's own selection, without the entries.
    own: Selected,
}

thread_local! {
    static APPLIED: RefCell<Option<Applied>> = const { RefCell::new(None) };
}

/// Makes this thread's selection that of the context that runs. Every call does this that reads or
/// changes what is current.
#[inline]
pub(crate) fn apply() {
    // Relaxed: a context with entries carries the store to the threads that it runs on.
    if IS_USED.load(Ordering::Relaxed) {
        apply_entries();
    }
}

#[cold]
fn apply_entries() {
    Python::attach(|py| {
        let entries = entries(py);
        let is_applied = APPLIED.with_borrow(|applied| match (applied, &entries) {
            (Some(applied), Some(entries)) => applied.entries.is(entries),
            (applied, entries) => applied.is_none() && entries.is_none(),
        });
        if !is_applied {
            switch_to(entries);
        }
    });
}

/// Replaces what is applied on this thread.
fn switch_to(entries: Option<Bound<'_, Entries>>) {
    let Ok(runtime) = Runtime::global() else { return };
    let own = APPLIED.take().map_or_else(|| runtime.selected(), |applied| applied.own);
    let mut selected = own.clone();
    let all = entries.iter().flat_map(|entries| &entries.get().0);
    let mut tag = tags::innermost();
    for selection in all.flat_map(|entry| &entry.selections) {
        selection.add_to(&mut selected);
        if let Selection::Tag(inner) = selection {
            tag = *inner;
        }
    }
    tags::select(tag);
    drop(runtime.exchange_selected(selected));
    replace_applied(entries.map(|entries| Applied { entries: entries.unbind(), own }));
}

fn replace_applied(applied: Option<Applied>) {
    let previous = APPLIED.replace(applied);
    drop(previous); // outside of the borrow: it may hold the last handles of streams
}

/// True inside a running loop, and in a context that was copied from an asyncio task inside a
/// `with`.
pub(crate) fn is_inside(py: Python<'_>) -> bool {
    // Relaxed: as in `apply`.
    IS_USED.load(Ordering::Relaxed) && entries(py).is_some() || is_loop_running(py)
}

/// Enters a `with` in the context that runs. An error changes nothing.
pub(crate) fn enter(py: Python<'_>, context: Context) -> PyResult<()> {
    IS_USED.store(true, Ordering::Relaxed); // as in `apply`
    apply();
    let runtime = Runtime::global().or_raise()?;
    let own = APPLIED.with_borrow(|it| it.as_ref().map(|it| it.own.clone()));
    let own = own.unwrap_or_else(|| runtime.selected());
    let selections = context.selections().or_raise()?;
    selections.iter().try_for_each(|selection| selection.select(&runtime)).or_raise()?;
    let mut all = entries(py).map_or_else(Vec::new, |entries| entries.get().0.clone());
    let opened = context.clone();
    all.push(Entry { context, selections });
    let entries = Bound::new(py, Entries(all))?;
    set_variable(&entries)?;
    if !fork::is_child() {
        *OPEN.lock().entry(opened).or_default() += 1;
    }
    replace_applied(Some(Applied { entries: entries.unbind(), own }));
    Ok(())
}

/// Leaves the innermost `with` of this device, stream, pool or tag in the context that runs. False
/// when the context has none.
pub(crate) fn exit(py: Python<'_>, context: &Context) -> PyResult<bool> {
    // Relaxed: as in `apply`.
    if !IS_USED.load(Ordering::Relaxed) {
        return Ok(false);
    }
    let mut left = entries(py).map_or_else(Vec::new, |entries| entries.get().0.clone());
    let Some(place) = left.iter().rposition(|entry| entry.context == *context) else {
        if APPLIED.with_borrow(Option::is_some) {
            switch_to(None); // what follows is about the thread's own selection
        }
        return Ok(false);
    };
    left.remove(place);
    exit_elsewhere(context);
    if left.is_empty() {
        variable(py)?.call_method1("set", (py.None(),))?;
    } else {
        set_variable(&Bound::new(py, Entries(left))?)?;
    }
    apply();
    Ok(true)
}

/// Counts a `with` of this device, stream, pool or tag as left. False when none is open in any
/// context. What is left in another context than it was entered in changes neither: a generator
/// that the garbage collector closes does so. True in a forked child, which counts nothing.
pub(crate) fn exit_elsewhere(context: &Context) -> bool {
    if fork::is_child() {
        return true;
    }
    let mut open = OPEN.lock();
    let Some(count) = open.get_mut(context) else { return false };
    *count -= 1;
    let last = if *count == 0 { open.remove_entry(context) } else { None };
    drop(open);
    drop(last); // without the lock: perhaps the last handle of a stream
    true
}

/// Makes a device or stream current until the innermost `with` of the context is left; without a
/// `with`, for the thread.
pub(crate) fn set(py: Python<'_>, selections: &[Selection]) -> PyResult<()> {
    apply();
    let runtime = Runtime::global().or_raise()?;
    selections.iter().try_for_each(|selection| selection.select(&runtime)).or_raise()?;
    let Some(mut applied) = APPLIED.take() else { return Ok(()) };
    let mut all = applied.entries.get().clone();
    if let Some(innermost) = all.0.last_mut() {
        innermost.selections.extend_from_slice(selections);
    }
    let entries = Bound::new(py, all)?;
    let outcome = set_variable(&entries);
    applied.entries = entries.unbind();
    replace_applied(Some(applied));
    outcome
}

/// The kind that the innermost `with` of the applied context is of, if there is one.
pub(crate) fn innermost_kind() -> Option<DeviceKind> {
    APPLIED.with_borrow(|applied| {
        let entries = applied.as_ref()?.entries.get();
        entries.0.iter().rev().find_map(|entry| entry.context.kind())
    })
}

/// Forgets what is applied on this thread, whose selection the caller replaces.
pub(crate) fn forget() {
    replace_applied(None);
}

/// The open `with` statements of the context that runs.
fn entries(py: Python<'_>) -> Option<Bound<'_, Entries>> {
    static GET: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let get = GET.get_or_try_init(py, || Ok::<_, PyErr>(variable(py)?.getattr("get")?.unbind()));
    get.ok()?.bind(py).call0().ok()?.cast_into().ok()
}

fn set_variable(entries: &Bound<'_, Entries>) -> PyResult<()> {
    variable(entries.py())?.call_method1("set", (entries,)).map(drop)
}

fn variable(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static VARIABLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let new = || {
        let default = PyDict::new(py);
        default.set_item("default", py.None())?;
        let class = py.import("contextvars")?.getattr("ContextVar")?;
        Ok::<_, PyErr>(class.call(("accelrt",), Some(&default))?.unbind())
    };
    Ok(VARIABLE.get_or_try_init(py, new)?.bind(py))
}

/// True when an asyncio loop runs on this thread. No loop does before `asyncio` is imported.
fn is_loop_running(py: Python<'_>) -> bool {
    static RUNNING: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let Some(running) = RUNNING.get(py) else {
        let found = find_running_loop(py).ok().flatten();
        return found.is_some_and(|running| {
            let _ = RUNNING.set(py, running); // another thread may have set the same
            is_loop_running(py)
        });
    };
    running.call0(py).is_ok_and(|running| !running.is_none(py))
}

/// `asyncio._get_running_loop`, which returns None where no loop runs; `None` before the import.
fn find_running_loop(py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
    static MODULES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let events = MODULES.import(py, "sys", "modules")?.get_item("asyncio.events")?;
    let running = events.map(|events| events.getattr("_get_running_loop")).transpose();
    Ok(running?.map(Bound::unbind))
}
