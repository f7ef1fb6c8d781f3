//! Waits of tests outside of the API, which make steps where tests run under a schedule.

use std::sync::mpsc::{Receiver, RecvError, TryRecvError};

use accelrt::Stream;

/// True when tests run under a schedule, which waiting threads alone follow; see `scheduled.rs`.
pub(crate) fn is_scheduled() -> bool {
    std::env::var_os("ACCELRT_TEST_SCHEDULE").is_some()
}

/// Makes steps of a stream's runtime, and keeps the stream for that. Without a schedule it does
/// neither.
#[derive(Debug)]
pub(crate) struct Steps(Option<Stream>);

impl Steps {
    pub(crate) fn of(stream: &Stream) -> Self {
        Self(is_scheduled().then(|| stream.clone()))
    }

    /// Receives what a task sends. Without a schedule this thread helps nobody meanwhile.
    pub(crate) fn receive<T>(&self, from: &Receiver<T>) -> Result<T, RecvError> {
        let Some(stream) = &self.0 else { return from.recv() };
        loop {
            match from.try_recv() {
                Err(TryRecvError::Empty) => {
                    let _ = stream.is_done(); // a step
                    std::thread::yield_now();
                }
                received => return received.map_err(|_| RecvError),
            }
        }
    }
}
