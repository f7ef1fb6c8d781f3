//! A number without an order of its own: what a test claims is seen, the thread sanitizer checks.
#![expect(unsafe_code, reason = "an atomic would hide that nothing orders its accesses")]

use std::cell::UnsafeCell;

/// Written and read by tasks and threads that the product orders.
#[derive(Debug, Default)]
pub(crate) struct Plain(UnsafeCell<usize>);

// SAFETY: what a test does with it is ordered, which is what the test is about; the sanitizer
// reports a run in which it was not.
unsafe impl Sync for Plain {}

impl Plain {
    pub(crate) fn get(&self) -> usize {
        // SAFETY: nothing writes meanwhile: see above.
        unsafe { *self.0.get() }
    }

    pub(crate) fn set(&self, number: usize) {
        // SAFETY: nothing else reads or writes meanwhile: see above.
        unsafe { *self.0.get() = number };
    }
}
