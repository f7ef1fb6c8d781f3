//! The streams whose tasks the calling thread is executing.
//!
//! A task that waits for a second stream may execute the second stream on its own thread. A thread
//! inside two streams does not help a third one: it drains a third one only to submit tasks to a
//! driver, or to retire cancelled tasks.
//! The frames form a list through the thread's stack, so only the stack limits the depth.
#![expect(unsafe_code, reason = "the list's nodes are in the stack frames of calls under way")]

use std::cell::Cell;
use std::ptr;

use crate::base::sync::per_thread;

/// A list entry for one stream that this thread is executing.
struct Frame {
    stream_key: u64,
    /// The frame around this one; null for the outermost.
    outer: *const Self,
}

per_thread! {
    /// Null while this thread executes no task.
    static INNERMOST: Cell<*const Frame> = Cell::new(ptr::null());
}

/// Calls `act` within a frame of the stream.
#[inline]
pub fn inside<R>(stream_key: u64, act: impl FnOnce() -> R) -> R {
    struct Leave(*const Frame);
    impl Drop for Leave {
        #[inline]
        fn drop(&mut self) {
            INNERMOST.with(|innermost| innermost.set(self.0));
        }
    }
    let frame = Frame { stream_key, outer: INNERMOST.with(Cell::get) };
    // Unlinks the frame before its stack slot is freed, also on a panic.
    let _leave = Leave(frame.outer);
    INNERMOST.with(|innermost| innermost.set(&raw const frame));
    act()
}

/// This thread's frames, innermost first.
#[inline]
fn frames() -> impl Iterator<Item = &'static Frame> {
    let mut next = INNERMOST.with(Cell::get);
    std::iter::from_fn(move || {
        // SAFETY: the pointer is null or points to the frame of an active call of `inside` on this
        // thread, which unlinks the frame before it returns. Only functions of this file use the
        // references, and each of them returns before the enclosing `inside` does.
        let frame = unsafe { next.as_ref() }?;
        next = frame.outer;
        Some(frame)
    })
}

/// True when this thread executes a task of some stream.
#[inline]
#[must_use]
pub fn is_inside_task() -> bool {
    frames().next().is_some()
}

/// True when this thread executes a task of this stream, at any depth.
#[inline]
pub(crate) fn is_inside(stream_key: u64) -> bool {
    frames().any(|frame| frame.stream_key == stream_key)
}

/// The keys of the streams whose tasks this thread executes, innermost first.
#[must_use]
pub fn streams() -> Vec<u64> {
    frames().map(|frame| frame.stream_key).collect()
}

/// True when this thread may execute a stream that it waits for.
#[inline]
pub(crate) fn may_help() -> bool {
    frames().nth(1).is_none()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn a_thread_knows_each_stream_that_it_is_inside_of_until_it_leaves() {
        fn go_down(depth: u64) {
            assert_eq!((is_inside_task(), may_help()), (depth > 1, depth < 3));
            assert!((1..depth).all(is_inside) && !is_inside(depth));
            if depth < 20 {
                inside(depth, || go_down(depth + 1));
                assert!((1..depth).all(is_inside) && !is_inside(depth));
            }
        }
        go_down(1);
    }

    #[test]
    fn a_panic_leaves_the_streams_that_it_goes_through() {
        inside(1, || {
            let panicked = catch_unwind(|| inside(2, || inside(3, || panic!("on purpose"))));
            assert!(panicked.is_err());
            assert!(is_inside(1) && !is_inside(2) && !is_inside(3) && may_help());
        });
        assert!(!is_inside_task());
    }
}
