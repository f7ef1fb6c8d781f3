//! `accelrt.memory_tag`: what the memory is for that a thread or an asyncio task requests.
//!
//! A thread has its open tags, innermost last. What applies is the innermost one of the context
//! that runs, else the thread's.

use std::cell::RefCell;

use accelrt::internal::{AllocationContext, NameId, exchange_tag, fork};
use pyo3::prelude::*;

use crate::objects::contexts::Context;
use crate::objects::task_contexts;

thread_local! {
    static OPEN: RefCell<Vec<NameId>> = const { RefCell::new(Vec::new()) };
}

/// Enters a tag on this thread.
pub(crate) fn push(tag: NameId) {
    OPEN.with_borrow_mut(|open| open.push(tag));
    select(tag);
}

/// Leaves the innermost entry of a tag on this thread. False when the thread has none.
pub(crate) fn pop(tag: NameId) -> bool {
    let is_open = OPEN.with_borrow_mut(|open| {
        let place = open.iter().rposition(|one| *one == tag);
        place.map(|place| open.remove(place)).is_some()
    });
    select(innermost());
    is_open
}

/// The innermost tag that this thread entered itself.
pub(crate) fn innermost() -> NameId {
    OPEN.with_borrow(|open| open.last().copied().unwrap_or_default())
}

/// Makes a tag that of this thread's requests.
pub(crate) fn select(tag: NameId) {
    if AllocationContext::current().tag != tag {
        exchange_tag(tag);
    }
}

/// Forgets all tags of this thread.
pub(crate) fn forget() {
    OPEN.take();
    select(NameId::NONE);
}

/// Gives the requests of this thread a tag until `exit_memory_tag`; inside a running asyncio loop
/// those of the asyncio task.
#[pyfunction]
pub(crate) fn enter_memory_tag(py: Python<'_>, name: &str) -> PyResult<()> {
    if fork::is_child() {
        return Ok(()); // a child requests no memory, but may run code with tags
    }
    Context::Tag(NameId::of(name)).enter(py)
}

/// Leaves the innermost `with` of a tag.
#[pyfunction]
pub(crate) fn exit_memory_tag(py: Python<'_>, name: &str) -> PyResult<()> {
    if fork::is_child() {
        return Ok(());
    }
    Context::Tag(NameId::of(name)).exit(py)
}

/// The tag of what runs; empty for none.
#[pyfunction]
pub(crate) fn current_memory_tag() -> String {
    task_contexts::apply();
    AllocationContext::current().tag.text().to_string()
}
