//! Tests that would hang if they failed.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

/// The clock goes on while a process or its whole machine is stopped; a stop takes one of these.
const STEP: Duration = Duration::from_secs(1);

/// Runs such a test; one that takes longer than this, far beyond what it needs, hangs and fails.
#[track_caller]
pub(crate) fn finishes_within(longest: Duration, test: impl FnOnce() + Send + 'static) {
    let (done, over) = mpsc::channel::<()>();
    let name = std::thread::current().name().unwrap_or_default().to_owned(); // the test's
    let run = move || {
        let _done = done;
        test();
    };
    let thread = std::thread::Builder::new().name(name).spawn(run).unwrap();
    match receive_within(longest, &over) {
        Err(RecvTimeoutError::Timeout) => panic!("the test hangs"),
        _ => {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// As `recv_timeout`, of time in which this process could run.
pub(crate) fn receive_within<T>(
    longest: Duration,
    from: &Receiver<T>,
) -> Result<T, RecvTimeoutError> {
    for _ in 0..longest.as_secs() {
        match from.recv_timeout(STEP) {
            Err(RecvTimeoutError::Timeout) => {}
            received => return received,
        }
    }
    Err(RecvTimeoutError::Timeout)
}
