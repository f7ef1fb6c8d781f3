//! Tests only: makes the n-th page system call or worker start of a thread fail.

use std::cell::RefCell;

/// The number of calls before the failing one, and a function to call in its place.
type Plan = (usize, Box<dyn FnOnce()>);

thread_local! { static PLAN: RefCell<Option<Plan>> = const { RefCell::new(None) }; }

/// Lets this thread make `calls` calls, then makes the next one fail and runs `instead`.
pub(super) fn refuse_after(calls: usize, instead: impl FnOnce() + 'static) {
    PLAN.set(Some((calls, Box::new(instead))));
}

/// Removes the plan of this thread. True when the planned failure has not happened yet.
pub(super) fn clear() -> bool {
    PLAN.take().is_some()
}

/// Counts this call. True when it must fail; then runs the plan's function. A thread whose
/// thread-locals are destroyed has no plan.
pub(super) fn should_fail() -> bool {
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
