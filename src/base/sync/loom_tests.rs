//! Loom model of a sleeper's word.
#![expect(unsafe_code, reason = "what the waker wrote has no order of its own")]

use std::sync::Arc;

use loom::thread;

use crate::base::sync::models::{EVERY, model_without_fences};
use crate::base::sync::{Sleeper, UnsafeCell};

/// Goal: who finds a sleeper woken sees what the waker wrote before. Method: a thread asks that is
/// not the sleeper: to that one loom's `unpark` hands everything, whatever the word asks for.
#[test]
fn loom_who_finds_a_sleeper_woken_sees_what_the_waker_wrote() {
    model_without_fences(EVERY, || {
        let sleeper = Sleeper::new();
        let written = Arc::new(UnsafeCell::new(0));
        let (to_wake, to_write) = (Arc::clone(&sleeper), Arc::clone(&written));
        let waker = thread::spawn(move || {
            // SAFETY: nobody else looks before the wake, which is what the model is about.
            to_write.with_mut(|written| unsafe { *written = 1 });
            to_wake.wake();
        });
        let asked = Arc::clone(&sleeper);
        let asking = thread::spawn(move || {
            // SAFETY: nobody writes behind the wake, which is what the model is about.
            let seen = || written.with(|written| unsafe { *written });
            assert!(!asked.is_woken() || seen() == 1);
        });
        sleeper.sleep();
        waker.join().unwrap();
        asking.join().unwrap();
    });
}
