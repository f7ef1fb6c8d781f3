//! Parked objects: released by threads without the GIL, dropped later by a thread with the GIL.
//!
//! A worker that took the GIL would make streams wait for Python code. So a worker parks every
//! Python object that it releases; parking wakes no thread. A later call from Python, as an enqueue
//! or a wait, drops the parked objects, but not inside a callable of `launch_host`: destructors may
//! wait for other callables. Between batches of callables, host threads wake the reaper, which
//! drops parked objects.

use std::cell::Cell;
use std::{fmt, mem};

use accelrt::internal::fork;
use crossbeam_queue::SegQueue;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::support::host_thread::must_not_wait;

static PARKED: SegQueue<Parked> = SegQueue::new();

thread_local! {
    /// True while this thread drops parked objects.
    static IS_DROPPING: Cell<bool> = const { Cell::new(false) };
}

/// A value whose drop or change needs the GIL.
pub(crate) enum Parked {
    Objects(Vec<Py<PyAny>>),
    Lender(Box<dyn Lender>),
}

/// The lender of foreign memory. Any thread may hold the lender; `take_back` frees the memory.
pub(crate) trait Lender: Send {
    fn take_back(self: Box<Self>, py: Python<'_>);
}

/// Parks a value for the next [`drop_parked`]. Takes no GIL and does not block.
pub(crate) fn park(parked: Parked) {
    if fork::is_child() {
        mem::forget(parked); // a leak, because the fork may have interrupted a push to the queue
    } else {
        PARKED.push(parked);
    }
}

pub(crate) fn has_parked() -> bool {
    !PARKED.is_empty()
}

/// Drops parked objects; costs two loads when there are none. Their destructors are Python code
/// that may wait, so a thread that must not wait drops no object.
#[inline]
pub(crate) fn drop_parked(py: Python<'_>) {
    if has_parked() {
        drop_deferred(py);
    }
}

/// Drops the objects that are parked at the call. Their destructors may launch work, park objects,
/// or wait. A wait calls this function again; such a nested call drops no object.
#[cold]
pub(crate) fn drop_deferred(_py: Python<'_>) {
    if fork::is_child() || must_not_wait() || IS_DROPPING.replace(true) {
        return;
    }
    // Attaches explicitly, because pyo3 does not know that a `fastcall` method holds the GIL.
    Python::attach(|py| {
        for _ in 0..PARKED.len() {
            match PARKED.pop() {
                Some(Parked::Objects(objects)) => drop(objects),
                Some(Parked::Lender(lender)) => lender.take_back(py),
                None => break,
            }
        }
    });
    IS_DROPPING.set(false);
}

/// Python objects that a task keeps alive. The drop parks them, so any thread may drop this value.
pub(crate) struct DeferredDrop(Vec<Py<PyAny>>);

impl DeferredDrop {
    pub(crate) fn new(objects: Vec<Py<PyAny>>) -> Self {
        Self(objects)
    }

    /// Yields the objects, bound to the GIL that the calling thread holds.
    pub(crate) fn bind<'a, 'py: 'a>(
        &'a self,
        py: Python<'py>,
    ) -> impl Iterator<Item = &'a Bound<'py, PyAny>> {
        self.0.iter().map(move |object| object.bind(py))
    }

    /// Shows the objects to the garbage collector, for the only owner of this value.
    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.0.iter().try_for_each(|object| visit.call(object))
    }

    /// Drops the objects on this thread instead of parking them.
    pub(crate) fn release(mut self, _py: Python<'_>) {
        drop(mem::take(&mut self.0));
    }
}

impl Drop for DeferredDrop {
    fn drop(&mut self) {
        let objects = mem::take(&mut self.0);
        if !objects.is_empty() {
            park(Parked::Objects(objects));
        }
    }
}

impl fmt::Debug for DeferredDrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeferredDrop({})", self.0.len())
    }
}
