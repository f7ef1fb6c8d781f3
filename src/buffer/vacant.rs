//! Allocations without memory, kept by each thread for its next buffers.
//!
//! They keep the stream and the allocator that they had, so that a thread that asks for the same
//! again counts neither up nor down. That is why only those are kept whose stream and allocator
//! live as long as the process: nothing is kept alive here.

use std::cell::RefCell;

use crate::buffer::allocation::Allocation;
use crate::buffer::counted::Alone;

/// How many a thread keeps.
const MOST: usize = 64;

thread_local! {
    static VACANT: RefCell<Vec<Alone<Allocation>>> = const { RefCell::new(Vec::new()) };
}

/// One that this thread has kept.
#[inline]
pub(super) fn take() -> Option<Alone<Allocation>> {
    VACANT.try_with(|vacant| vacant.borrow_mut().pop()).ok().flatten()
}

/// Keeps one for this thread; when it has enough, or ends, that is dropped instead.
#[inline]
pub(super) fn keep(allocation: Alone<Allocation>) {
    // `try_with`: a buffer may be dropped while its thread's variables are.
    let _ = VACANT.try_with(|vacant| {
        let mut vacant = vacant.borrow_mut();
        if vacant.len() < MOST {
            vacant.push(allocation);
        }
    });
}
