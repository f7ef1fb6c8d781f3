//! Loom models of parts that several threads claim: each is done once, and visible to the waiter.
#![expect(unsafe_code, reason = "what the parts write has no order of its own")]

use std::sync::Arc;

use loom::thread;

use crate::base::sync::UnsafeCell;
use crate::base::sync::models::{EVERY, model_without_fences};
use crate::compute::generator::shares::Shares;

/// Goal: when the wait ends, every part was done by exactly one thread, and its writes are visible.
/// Method: plain counters for parts; loom reports a race on one.
#[test]
fn loom_who_waits_sees_what_every_thread_wrote() {
    model_without_fences(EVERY, || {
        let shares = Arc::new(Shares::new(2));
        let done = Arc::new([UnsafeCell::new(0), UnsafeCell::new(0)]);
        let work = |shares: &Shares, done: &[UnsafeCell<u32>; 2]| {
            // SAFETY: one thread claims a part, which is what the model is about.
            shares.work(|part| done[part].with_mut(|done| unsafe { *done += 1 }));
        };
        let helper = {
            let (shares, done) = (Arc::clone(&shares), Arc::clone(&done));
            thread::spawn(move || work(&shares, &done))
        };
        work(&shares, &done);
        shares.wait();
        // SAFETY: every part is done, which is what the model is about.
        assert!(done.iter().all(|part| part.with(|done| unsafe { *done }) == 1));
        helper.join().unwrap();
    });
}
