//! A gate: closed until somebody opens it, once; a parked stream goes on then.
//!
//! | state | who opens | who waits | who leaves |
//! |---|---|---|---|
//! | closed, nobody waits | open | closed, with the stream | abandoned |
//! | closed, a stream waits | open; resumes the stream | closed, with the newer parking | abandoned |
//! | open | (an opener opens once) | told that it is open | abandoned |
//! | abandoned | nothing | told that it is open | (one leaves once) |
//!
//! Whoever comes second, opener or waiter, sees the first: one lock, held for the change alone. So
//! a gate may be opened before the stream has parked in front of it.

use std::fmt;
use std::mem;
use std::sync::Arc;

use crate::base::error::FailureCause;
use crate::base::sync::{LockRank, Mutex};
use crate::engine::stream::turnstile::Parking;

/// What a gate is opened with: how the work behind it ended.
pub(crate) type Outcome = Result<(), FailureCause>;

/// See the head of this file.
pub(crate) struct Gate<S> {
    state: Mutex<State<S>>,
}

enum State<S> {
    Closed(Option<(Arc<S>, Parking)>),
    /// With the outcome until that is taken.
    Open(Option<Outcome>),
    Abandoned,
}

impl<S> Gate<S> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(LockRank::Gate, State::Closed(None)) })
    }

    /// Opens. Returns the stream that waits, for the caller to resume.
    #[must_use]
    pub(crate) fn open(&self, outcome: Outcome) -> Option<(Arc<S>, Parking)> {
        let mut state = self.state.lock();
        match &mut *state {
            State::Closed(waiting) => {
                let waiting = waiting.take();
                *state = State::Open(Some(outcome));
                waiting
            }
            // The outcome, a user's, is dropped when the lock is given back: after `state`.
            State::Open(_) | State::Abandoned => None,
        }
    }

    /// True when the gate needs no more waiting.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(*self.state.lock(), State::Closed(_))
    }

    /// The stream parked in front of the gate. False when it is open: the caller resumes it then.
    #[must_use]
    pub(crate) fn wait(&self, stream: Arc<S>, parking: Parking) -> bool {
        let mut state = self.state.lock();
        let State::Closed(waiting) = &mut *state else { return false };
        let before = waiting.replace((stream, parking));
        drop(state);
        drop(before); // after the lock: it may be the last reference to a stream
        true
    }

    /// What it was opened with, once; nothing before.
    pub(crate) fn take(&self) -> Option<Outcome> {
        match &mut *self.state.lock() {
            State::Open(outcome) => outcome.take(),
            State::Closed(_) | State::Abandoned => None,
        }
    }

    /// Nobody will wait or look any more: an opening does nothing from now on, and nothing is kept.
    pub(crate) fn abandon(&self) {
        let before = mem::replace(&mut *self.state.lock(), State::Abandoned);
        drop(before); // after the lock, as above
    }
}

impl<S> fmt::Debug for Gate<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("is_open", &self.is_open()).finish()
    }
}
