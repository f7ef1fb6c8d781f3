//! References to Python objects that leave the GIL: whoever drops one elsewhere wakes nobody.

use std::fmt;

use crossbeam_queue::SegQueue;
use pyo3::prelude::*;

use crate::fork;

/// Dropped by threads without the GIL; collected by the helper or the next binding call.
static DROPPED: SegQueue<Vec<Py<PyAny>>> = SegQueue::new();

/// Objects that a task keeps alive. May be dropped by any thread, also in a forked child, where the
/// objects stay.
pub(super) struct Kept(Vec<Py<PyAny>>);

impl Kept {
    pub(super) fn new(objects: Vec<Py<PyAny>>) -> Self {
        Self(objects)
    }

    /// The objects, for a thread that has the GIL.
    pub(super) fn bind<'a, 'py: 'a>(
        &'a self,
        py: Python<'py>,
    ) -> impl Iterator<Item = &'a Bound<'py, PyAny>> {
        self.0.iter().map(move |object| object.bind(py))
    }

    /// Drops the objects here and now.
    pub(super) fn release(mut self, _py: Python<'_>) {
        drop(std::mem::take(&mut self.0));
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let objects = std::mem::take(&mut self.0);
        if fork::is_child() {
            std::mem::forget(objects); // the list may be in the middle of something
        } else if !objects.is_empty() {
            DROPPED.push(objects);
        }
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kept({})", self.0.len())
    }
}

/// Ends the references that others dropped. Costs two loads when there are none.
#[inline]
pub(super) fn collect(_py: Python<'_>) {
    if !DROPPED.is_empty() {
        collect_all();
    }
}

/// Only as many as there are now: destructors may launch and drop more.
#[cold]
fn collect_all() {
    if fork::is_child() {
        return;
    }
    for _ in 0..DROPPED.len() {
        drop(DROPPED.pop());
    }
}
