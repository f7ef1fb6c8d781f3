//! Tests only: fails the n-th system call of a thread that moves pages or starts workers.

use std::cell::RefCell;

/// The number of calls before the failing one, and an action in place of that call.
type Plan = (usize, Box<dyn FnOnce()>);

thread_local! { static PLAN: RefCell<Option<Plan>> = const { RefCell::new(None) }; }

/// After `calls` more calls of this thread, the next one fails; `instead` runs in its place.
pub(super) fn refuse_after(calls: usize, instead: impl FnOnce() + 'static) {
    PLAN.set(Some((calls, Box::new(instead))));
}

/// Removes the plan. True when its call had not yet failed.
pub(super) fn clear() -> bool {
    PLAN.take().is_some()
}

/// True when this call must fail. A thread whose thread-locals are destroyed has no plan.
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
