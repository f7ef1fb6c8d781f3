//! A latch that opens only once, and whose opener resumes the stream that is parked on the latch.
//!
//! | state | on `open` | on `wait` | on `abandon` |
//! |---|---|---|---|
//! | closed, no stream waits | open | closed, with the stream | abandoned |
//! | closed, a stream waits | open; resumes the stream | closed; replaces the stream | abandoned |
//! | open | (happens once) | returns false | abandoned |
//! | abandoned | no effect | returns false | (happens once) |
//!
//! The opener and the waiter change the state under one lock, so the later of them sees the earlier
//! change. A latch may therefore open before the stream has parked on it.

use std::mem;
use std::sync::Arc;

use crate::base::error::{FailureCause, StreamFailure};
use crate::base::sync::{LockRank, Mutex};
use crate::engine::stream::consumer_lock::Parking;

/// The outcome of the work that opens a latch.
pub(crate) type Outcome = Result<(), Failed>;

/// The failure of a task that another thread has finished.
pub(crate) enum Failed {
    Cause(FailureCause),
    /// The stream's error, which the task's handle shares.
    Error(Arc<StreamFailure>),
}

impl From<FailureCause> for Failed {
    fn from(cause: FailureCause) -> Self {
        Self::Cause(cause)
    }
}

#[derive(Debug)]
pub(crate) struct Latch<S> {
    state: Mutex<State<S>>,
}

enum State<S> {
    Closed(Option<(Arc<S>, Parking)>),
    /// Contains the outcome until `take` removes it.
    Open(Option<Outcome>),
    Abandoned,
}

impl<S> Latch<S> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(LockRank::Latch, State::Closed(None)) })
    }

    /// Opens the latch. Returns the waiting stream, for the caller to resume.
    #[must_use]
    pub(crate) fn open(&self, outcome: Outcome) -> Option<(Arc<S>, Parking)> {
        let mut state = self.state.lock();
        match &mut *state {
            State::Closed(waiting) => {
                let waiting = waiting.take();
                *state = State::Open(Some(outcome));
                waiting
            }
            // The guard `state` is dropped before `outcome`, whose drop may run a user's code.
            State::Open(_) | State::Abandoned => None,
        }
    }

    /// True when the latch is open or abandoned.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(*self.state.lock(), State::Closed(_))
    }

    /// Registers a stream that parked on the latch. False when the latch is open or abandoned: the
    /// caller then resumes the stream.
    #[must_use]
    pub(crate) fn wait(&self, stream: Arc<S>, parking: Parking) -> bool {
        let mut state = self.state.lock();
        let State::Closed(waiting) = &mut *state else { return false };
        let before = waiting.replace((stream, parking));
        drop(state);
        drop(before); // after the lock: `before` may be the last reference to a stream
        true
    }

    /// Takes the outcome. `None` before the latch is opened, and after the first call.
    pub(crate) fn take(&self) -> Option<Outcome> {
        match &mut *self.state.lock() {
            State::Open(outcome) => outcome.take(),
            State::Closed(_) | State::Abandoned => None,
        }
    }

    /// Drops the latch's outcome or waiting stream. A later opening has no effect.
    pub(crate) fn abandon(&self) {
        let before = mem::replace(&mut *self.state.lock(), State::Abandoned);
        drop(before); // after the lock, as in `wait`
    }
}
