//! The tags of a thread: the purposes of the memory that it requests.
//!
//! A thread has its open tags, innermost last. What applies is the innermost one of the context
//! that runs, else the thread's.

use std::cell::RefCell;

use accelrt::internal::{AllocationContext, NameId, exchange_tag};

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
