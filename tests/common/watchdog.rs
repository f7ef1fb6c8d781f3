//! Tests that would hang if they failed.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Runs such a test; one that takes longer than this, far beyond what it needs, hangs and fails.
pub(crate) fn finishes_within(longest: Duration, test: impl FnOnce() + Send + 'static) {
    let (done, over) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let _done = done;
        test();
    });
    match over.recv_timeout(longest) {
        Err(RecvTimeoutError::Timeout) => panic!("the test hangs"),
        _ => {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}
