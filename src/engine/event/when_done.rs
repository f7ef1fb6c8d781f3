//! A value that waits for an event's record without a thread.

use std::fmt;
use std::sync::Arc;
use std::task::{Wake, Waker};

use crate::base::spin::SpinMutex;
use crate::engine::event::Event;
use crate::engine::event::future::EventFuture;

/// A value, and the record that it waits for.
pub struct WhenDone<T> {
    future: EventFuture,
    /// What waits.
    pub value: T,
    handover: Arc<Handover<T>>,
}

impl<T> fmt::Debug for WhenDone<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WhenDone").finish_non_exhaustive()
    }
}

/// Passes a value that waits to the thread that completes its record.
struct Handover<T> {
    state: SpinMutex<State<T>>,
    receive: fn(WhenDone<T>),
}

enum State<T> {
    /// A thread polls the record.
    Polled,
    /// A thread polls the record, and the waker was woken meanwhile.
    PolledAndWoken,
    /// No thread has the value.
    Left(WhenDone<T>),
}

impl<T: Send + 'static> WhenDone<T> {
    /// Waits for the event's latest record. The thread that completes the record calls `receive`,
    /// which must have the value polled again.
    #[must_use]
    pub fn new(event: Event, value: T, receive: fn(Self)) -> Self {
        let handover = Arc::new(Handover { state: SpinMutex::new(State::Polled), receive });
        Self { future: EventFuture::new(event), value, handover }
    }

    /// Returns `Some` if the record is done. Otherwise the thread that completes the record passes
    /// the value to `receive`.
    pub fn poll(mut self) -> Option<Self> {
        let handover = Arc::clone(&self.handover);
        let waker = Waker::from(Arc::clone(&handover));
        loop {
            // A failed record is done too. Its failure stays unraised: the program has not seen it.
            if self.future.poll_done(&waker).is_ready() {
                return Some(self);
            }
            let mut state = handover.state.lock();
            if let State::PolledAndWoken = *state {
                *state = State::Polled;
                continue;
            }
            *state = State::Left(self);
            return None;
        }
    }
}

impl<T: Send + 'static> Wake for Handover<T> {
    fn wake(self: Arc<Self>) {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::PolledAndWoken) {
            State::Polled | State::PolledAndWoken => {}
            State::Left(value) => {
                *state = State::Polled;
                drop(state);
                (self.receive)(value);
            }
        }
    }
}
