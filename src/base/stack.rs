//! Checks that the calling thread's stack is as large as a worker's, by one query per thread.
#![expect(unsafe_code, reason = "asks the C library where a thread's stack is")]

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr;

/// The stack size of a worker. Native functions expect the stack of a main thread.
pub const WORKER_STACK_BYTES: usize = 8 << 20;

/// The tolerated shortfall of a stack. The thread's frames already use a part of the stack, and the
/// system uses a part of a main thread's eight mebibytes for the program's arguments and guards.
const TOLERANCE_BYTES: usize = 1 << 20;

/// The value of `LOWEST` for a stack that is too small: an address above every frame.
const TOO_SMALL: usize = usize::MAX;

thread_local! {
    /// The lowest frame address with enough stack below it; 0 before the first query.
    static LOWEST: Cell<usize> = const { Cell::new(0) };
}

/// True when a function called here has about as much stack as on a worker.
#[inline]
pub(crate) fn has_worker_size() -> bool {
    let here = MaybeUninit::<u8>::uninit();
    let lowest = LOWEST.get();
    ptr::from_ref(&here).addr() >= if lowest == 0 { query() } else { lowest }
}

#[cold]
fn query() -> usize {
    let needed_bytes = WORKER_STACK_BYTES - TOLERANCE_BYTES;
    // A stack without a description counts as too small: the C library describes workers' stacks.
    let lowest = lowest_address().map_or(TOO_SMALL, |lowest| lowest.saturating_add(needed_bytes));
    LOWEST.set(lowest);
    lowest
}

/// The lowest address of the calling thread's stack. For a main thread this is the lowest address
/// that the limit lets the stack grow to.
fn lowest_address() -> Option<usize> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: the function has no pre-condition.
    let own = unsafe { libc::pthread_self() };
    // SAFETY: the handle is the calling thread's, and the call initialises the attributes behind
    // the pointer when it returns 0.
    let refused = unsafe { libc::pthread_getattr_np(own, attributes.as_mut_ptr()) };
    if refused != 0 {
        return None;
    }
    let (mut lowest, mut bytes) = (ptr::null_mut(), 0);
    // SAFETY: the attributes were initialised above, and both pointers are to variables here.
    let refused = unsafe {
        libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut lowest, &raw mut bytes)
    };
    // SAFETY: the attributes were initialised above, and are not used again.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    (refused == 0 && bytes > 0).then(|| lowest.addr())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::hint::black_box;

    use super::*;

    /// Calls `ask` on a new thread with a stack of `bytes`.
    fn on_a_stack_of<R: Send + 'static>(bytes: usize, ask: fn() -> R) -> R {
        std::thread::Builder::new().stack_size(bytes).spawn(ask).unwrap().join().unwrap()
    }

    #[test]
    fn a_stack_is_as_large_as_a_workers_up_to_the_tolerance() {
        assert!(on_a_stack_of(WORKER_STACK_BYTES, has_worker_size));
        assert!(on_a_stack_of(64 << 20, has_worker_size));
        // The C library may reuse an ended thread's stack, but no stack of four times the size.
        assert!(!on_a_stack_of(WORKER_STACK_BYTES / 8, has_worker_size));
        assert!(!on_a_stack_of(256 << 10, has_worker_size));
    }

    #[test]
    fn used_stack_counts_and_released_stack_does_not() {
        #[inline(never)]
        fn below(used_bytes: usize) -> bool {
            let room = [0_u8; 16 << 10];
            let rest = used_bytes.saturating_sub(black_box(&room).len());
            if rest == 0 { has_worker_size() } else { black_box(below(rest)) }
        }
        let asked = on_a_stack_of(WORKER_STACK_BYTES, || {
            [has_worker_size(), below(2 * TOLERANCE_BYTES), has_worker_size()]
        });
        assert_eq!(asked, [true, false, true]);
    }
}
