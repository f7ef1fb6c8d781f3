//! Loom models of parts that several threads claim: each is done once, and seen by who waits.

use std::sync::Arc;

use loom::thread;

use crate::generator::shares::Shares;
use crate::sync::{AtomicUsize, Ordering};

/// Goal: when the wait ends, every part was done by exactly one thread, and what it wrote is there.
/// Method: relaxed counters for parts, of which loom shows old values to who is not behind them.
#[test]
fn loom_who_waits_sees_what_every_thread_wrote() {
    loom::model(|| {
        let shares = Arc::new(Shares::new(2));
        let done = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let work = |shares: &Shares, done: &[AtomicUsize; 2]| {
            // Relaxed, here and below: their order is what the model is about.
            shares.work(|part| {
                done[part].store(1 + done[part].load(Ordering::Relaxed), Ordering::Relaxed)
            });
        };
        let helper = {
            let (shares, done) = (Arc::clone(&shares), Arc::clone(&done));
            thread::spawn(move || work(&shares, &done))
        };
        work(&shares, &done);
        shares.wait();
        assert!(done.iter().all(|part| part.load(Ordering::Relaxed) == 1));
        helper.join().unwrap();
    });
}
