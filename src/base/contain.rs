//! Contains panics where no panic may unwind: in callbacks from C, and in drops of users' values.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls `act` and catches its panic. The panic hook has printed the message by then.
pub fn contain(act: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(act))
        && !panic.is::<&str>()
        && !panic.is::<String>()
    {
        std::mem::forget(panic); // the drop of this value may panic too
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A panic payload that panics when it is dropped.
    struct PanicsOnDrop;

    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }

    #[test]
    fn a_panic_is_contained_and_so_is_that_of_its_payload() {
        let mut is_called = false;
        contain(|| is_called = true);
        assert!(is_called);
        contain(|| panic!("on purpose"));
        contain(|| std::panic::panic_any(PanicsOnDrop));
    }
}
