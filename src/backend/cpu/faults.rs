//! Tests only: makes the n-th system call of a thread that moves pages or starts workers fail.

use std::cell::RefCell;

/// The action in place of the refused call, and how many calls come before it.
type Plan = (usize, Box<dyn FnOnce()>);

thread_local! { static PLAN: RefCell<Option<Plan>> = const { RefCell::new(None) }; }

/// After `calls` more calls of this thread one is refused; `instead` happens in its place.
pub(super) fn refuse_after(calls: usize, instead: impl FnOnce() + 'static) {
    PLAN.set(Some((calls, Box::new(instead))));
}

/// Forgets the plan; true when it was still to come.
pub(super) fn clear() -> bool {
    PLAN.take().is_some()
}

/// True when this call is the one. A thread that has destroyed its thread-locals has no plan.
pub(super) fn is_due() -> bool {
    match PLAN.try_with(RefCell::take).ok().flatten() {
        None => false,
        Some((0, instead)) => {
            instead();
            true
        }
        Some((calls, instead)) => {
            PLAN.set(Some((calls - 1, instead)));
            false
        }
    }
}
