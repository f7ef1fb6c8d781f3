//! Turns: the periods in which a runtime thread uses the GIL, until the interpreter exits.
//!
//! | state | meaning | next |
//! |---|---|---|
//! | IDLE | the thread does not need the GIL | BUSY by the thread, CLOSED at exit |
//! | BUSY | the thread holds the GIL, or waits for the GIL | IDLE by the thread, CLOSED at exit |
//! | CLOSED | the interpreter exits: no further turn begins | LEFT by the thread |
//! | LEFT | the thread has ended the turn that was in progress at the exit | |

use std::time::{Duration, Instant};

use crate::base::fork;
use crate::base::sync::unmodelled::AtomicUsize;
use crate::base::sync::{Ordering, park};

const IDLE: usize = 0;
const BUSY: usize = 1;
const CLOSED: usize = 2;
const LEFT: usize = 3;

/// The longest time that the exit of the process waits for a turn in progress.
const GRACE: Duration = Duration::from_millis(100);

const PERIOD: Duration = Duration::from_micros(200);

pub(crate) struct Turns(AtomicUsize);

impl Turns {
    pub(crate) const fn new() -> Self {
        Self(AtomicUsize::new(IDLE))
    }

    /// Begins a turn. False once the interpreter exits: the calling thread must then return.
    pub(crate) fn begin(&self) -> bool {
        self.change(IDLE, BUSY)
    }

    /// Ends a turn. False once the interpreter exits: the calling thread must then return.
    pub(crate) fn end(&self) -> bool {
        let goes_on = self.change(BUSY, IDLE);
        if !goes_on {
            self.change(CLOSED, LEFT);
        }
        goes_on
    }

    /// True until the interpreter exits. Only for the thread that is inside the turn.
    pub(crate) fn is_open(&self) -> bool {
        // Acquire: pairs with the release of `change`, by which `close` set the state.
        self.0.load(Ordering::Acquire) == BUSY
    }

    /// Prevents further turns and waits at most `GRACE` for a turn in progress. The interpreter's
    /// exit calls this without the GIL. Has no effect in a forked child, where no turn can end.
    pub(crate) fn close(&self) {
        if fork::is_child() || self.change(IDLE, CLOSED) || !self.change(BUSY, CLOSED) {
            return;
        }
        let end = Instant::now() + GRACE;
        // Acquire: pairs with the release of `change`, by which `end` set the state.
        while self.0.load(Ordering::Acquire) != LEFT && Instant::now() < end {
            park(Some(PERIOD));
        }
    }

    /// Changes the state from `from` to `to`; false when the state is not `from`.
    fn change(&self, from: usize, to: usize) -> bool {
        // AcqRel, Acquire: pair with the other thread's earlier `change`, so that this thread sees
        // what the other thread wrote before.
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}
