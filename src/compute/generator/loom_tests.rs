//! Loom models of shared parts: each is executed once, and its writes are visible to the waiter.
#![expect(unsafe_code, reason = "the parts write without synchronisation")]

use std::sync::Arc;

use loom::thread;

use crate::base::sync::UnsafeCell;
use crate::base::sync::models::{EVERY, model_without_fences};
use crate::compute::generator::shares::Shares;

/// Goal: after the wait, exactly one thread has executed each part, and its writes are visible.
/// Method: parts increment plain counters; loom reports races on them.
#[test]
fn loom_the_waiter_sees_the_writes_of_every_part() {
    model_without_fences(EVERY, || {
        let shares = Arc::new(Shares::new(2));
        let done = Arc::new([UnsafeCell::new(0), UnsafeCell::new(0)]);
        let work = |shares: &Shares, done: &[UnsafeCell<u32>; 2]| {
            // SAFETY: one thread claims a part: the property under test.
            shares.work(|part| done[part].with_mut(|done| unsafe { *done += 1 }));
        };
        let helper = {
            let (shares, done) = (Arc::clone(&shares), Arc::clone(&done));
            thread::spawn(move || work(&shares, &done))
        };
        work(&shares, &done);
        shares.wait();
        // SAFETY: every part is done: the property under test.
        assert!(done.iter().all(|part| part.with(|done| unsafe { *done }) == 1));
        helper.join().unwrap();
    });
}
