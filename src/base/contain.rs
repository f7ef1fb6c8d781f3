//! Functions of ours that C calls: a panic must not get out, it would end the process.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Acts where the caller is C. Of a panic its message is printed, and nothing else comes of it.
pub(crate) fn contain(act: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(act)) {
        std::mem::forget(panic); // its drop may panic as well
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Panics when it is dropped, as a panic's value.
    struct Strange;

    impl Drop for Strange {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }

    #[test]
    fn a_panic_stays_inside_and_so_does_that_of_its_value() {
        let mut is_called = false;
        contain(|| is_called = true);
        assert!(is_called);
        contain(|| panic!("on purpose"));
        contain(|| std::panic::panic_any(Strange));
    }
}
