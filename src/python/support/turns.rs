//! Turns of our threads with the GIL, which the end of the interpreter stops.
//!
//! | state | meaning | becomes |
//! |---|---|---|
//! | IDLE | the thread does not need the GIL | BUSY by the thread, CLOSED at exit |
//! | BUSY | it has the GIL, or asks for it | IDLE by the thread, CLOSED at exit |
//! | CLOSED | the interpreter ends: no new turn, no new asking | LEFT by the thread |
//! | LEFT | it was busy then, and is no more | |

use std::time::{Duration, Instant};

use crate::base::sync::unmodelled::AtomicUsize;
use crate::base::sync::{Ordering, park};

const IDLE: usize = 0;
const BUSY: usize = 1;
const CLOSED: usize = 2;
const LEFT: usize = 3;

/// How long the end of the process waits for a turn that is under way.
const GRACE: Duration = Duration::from_millis(100);

/// Polling period of that wait.
const PERIOD: Duration = Duration::from_micros(200);

/// The turns of one thread.
pub(crate) struct Turns(AtomicUsize);

impl Turns {
    pub(crate) const fn new() -> Self {
        Self(AtomicUsize::new(IDLE))
    }

    /// Begins a turn; false when the interpreter ends, and the thread with it.
    pub(crate) fn begin(&self) -> bool {
        self.change(IDLE, BUSY)
    }

    /// Ends a turn; false when the interpreter ends, and the thread with it.
    pub(crate) fn end(&self) -> bool {
        let goes_on = self.change(BUSY, IDLE);
        if !goes_on {
            self.change(CLOSED, LEFT);
        }
        goes_on
    }

    /// True until the interpreter ends, in a turn.
    pub(crate) fn goes_on(&self) -> bool {
        // Acquire: pairs with `close`.
        self.0.load(Ordering::Acquire) == BUSY
    }

    /// Called when the interpreter ends: no turn begins any more. Waits a moment for one that is
    /// under way, without the GIL; one that does not end is left.
    pub(crate) fn close(&self) {
        if self.change(IDLE, CLOSED) || !self.change(BUSY, CLOSED) {
            return;
        }
        let end = Instant::now() + GRACE;
        // Acquire: pairs with `change`.
        while self.0.load(Ordering::Acquire) != LEFT && Instant::now() < end {
            park(Some(PERIOD));
        }
    }

    /// Changes the state, if it is the expected one.
    fn change(&self, from: usize, to: usize) -> bool {
        // AcqRel, Acquire: `close` and the thread see each other's earlier writes.
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}
