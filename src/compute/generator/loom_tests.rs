//! Loom model of [`TaskParts`]: one thread executes each part, and the waiter sees its writes.
#![expect(unsafe_code, reason = "the parts write without synchronisation")]

use std::sync::Arc;

use loom::thread;

use crate::base::sync::UnsafeCell;
use crate::base::sync::models::{EVERY, model_without_fences};
use crate::compute::generator::task_parts::TaskParts;

/// Goal: after the wait, exactly one thread has executed each part, and its writes are visible.
/// Method: parts increment plain counters; loom reports races on them.
#[test]
fn loom_the_waiter_sees_the_writes_of_every_part() {
    model_without_fences(EVERY, || {
        let parts = Arc::new(TaskParts::new(2));
        let done = Arc::new([UnsafeCell::new(0), UnsafeCell::new(0)]);
        let work = |parts: &TaskParts, done: &[UnsafeCell<u32>; 2]| {
            // SAFETY: only the thread that claimed the part accesses its counter. loom checks this.
            parts.work(|part| done[part].with_mut(|done| unsafe { *done += 1 }));
        };
        let helper = {
            let (parts, done) = (Arc::clone(&parts), Arc::clone(&done));
            thread::spawn(move || work(&parts, &done))
        };
        work(&parts, &done);
        parts.wait();
        // SAFETY: after `wait`, no thread accesses the counters. loom checks this.
        assert!(done.iter().all(|part| part.with(|done| unsafe { *done }) == 1));
        helper.join().unwrap();
    });
}
