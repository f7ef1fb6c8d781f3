//! Loom model of a sleeper's flag.
#![expect(unsafe_code, reason = "what the waker wrote has no order of its own")]

use std::sync::Arc;

use loom::thread;

use crate::base::sync::models::{EVERY, model_without_fences};
use crate::base::sync::{Sleeper, UnsafeCell};

/// Goal: a thread that finds a sleeper woken sees the waker's earlier writes. Method: a third
/// thread reads the flag, because loom's `unpark` orders the sleeper after the waker whatever
/// ordering the flag has.
#[test]
fn loom_a_woken_sleeper_shows_the_wakers_writes() {
    model_without_fences(EVERY, || {
        let sleeper = Sleeper::new();
        let written = Arc::new(UnsafeCell::new(0));
        let (to_wake, to_write) = (Arc::clone(&sleeper), Arc::clone(&written));
        let waker = thread::spawn(move || {
            // SAFETY: no other thread reads before the wake, which the model verifies.
            to_write.with_mut(|written| unsafe { *written = 1 });
            to_wake.wake();
        });
        let asked = Arc::clone(&sleeper);
        let asking = thread::spawn(move || {
            // SAFETY: no thread writes after the wake, which the model verifies.
            let seen = || written.with(|written| unsafe { *written });
            assert!(!asked.is_woken() || seen() == 1);
        });
        sleeper.sleep();
        waker.join().unwrap();
        asking.join().unwrap();
    });
}
