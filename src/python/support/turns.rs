//! Turns: the periods in which a runtime thread uses the GIL, until the interpreter exits.
//!
//! | state | meaning | next |
//! |---|---|---|
//! | IDLE | the thread does not need the GIL | BUSY by the thread, CLOSED at exit |
//! | BUSY | it holds the GIL, or waits for it | IDLE by the thread, CLOSED at exit |
//! | CLOSED | the interpreter exits: no further turn begins | LEFT by the thread |
//! | LEFT | the turn that was in progress at the exit is over | |

use std::time::{Duration, Instant};

use crate::base::fork;
use crate::base::sync::unmodelled::AtomicUsize;
use crate::base::sync::{Ordering, park};

const IDLE: usize = 0;
const BUSY: usize = 1;
const CLOSED: usize = 2;
const LEFT: usize = 3;

/// The time for which the exit of the process waits for a turn in progress.
const GRACE: Duration = Duration::from_millis(100);

const PERIOD: Duration = Duration::from_micros(200);

pub(crate) struct Turns(AtomicUsize);

impl Turns {
    pub(crate) const fn new() -> Self {
        Self(AtomicUsize::new(IDLE))
    }

    /// Begins a turn. False after the interpreter's exit began: the thread must end.
    pub(crate) fn begin(&self) -> bool {
        self.change(IDLE, BUSY)
    }

    /// Ends a turn. False after the interpreter's exit began: the thread must end.
    pub(crate) fn end(&self) -> bool {
        let goes_on = self.change(BUSY, IDLE);
        if !goes_on {
            self.change(CLOSED, LEFT);
        }
        goes_on
    }

    /// True until the interpreter exits. Called inside a turn.
    pub(crate) fn is_open(&self) -> bool {
        // Acquire: pairs with `close`.
        self.0.load(Ordering::Acquire) == BUSY
    }

    /// Prevents further turns. Called at the interpreter's exit, without the GIL. Waits for a turn
    /// in progress, for at most `GRACE`. Has no effect in a forked child, which lacks the thread.
    pub(crate) fn close(&self) {
        if fork::is_child() || self.change(IDLE, CLOSED) || !self.change(BUSY, CLOSED) {
            return;
        }
        let end = Instant::now() + GRACE;
        // Acquire: pairs with `change`.
        while self.0.load(Ordering::Acquire) != LEFT && Instant::now() < end {
            park(Some(PERIOD));
        }
    }

    /// Changes the state from `from` to `to`; false when the state is not `from`.
    fn change(&self, from: usize, to: usize) -> bool {
        // AcqRel, Acquire: pair with each other. The closing thread and the turn's thread see each
        // other's earlier writes.
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}
