//! Turns: the periods in which runtime threads use the GIL, until the interpreter exits.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use accelrt::internal::{fork, park};

/// Flag: the interpreter exits, and no further turn begins. The number of turns in progress is
/// above it.
const CLOSED: usize = 1;
const TURN: usize = 2;

/// The longest time that the exit of the process waits for turns in progress.
const GRACE: Duration = Duration::from_millis(100);

const PERIOD: Duration = Duration::from_micros(200);

pub(crate) struct Turns(AtomicUsize);

impl Turns {
    pub(crate) const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Begins a turn. False once the interpreter exits: the calling thread must then return.
    pub(crate) fn begin(&self) -> bool {
        let next = |turns: usize| (turns & CLOSED == 0).then_some(turns + TURN);
        // AcqRel, Acquire: pair with `close`, which then waits for this turn.
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).is_ok()
    }

    /// Ends a turn. False once the interpreter exits: the calling thread must then return.
    pub(crate) fn end(&self) -> bool {
        // AcqRel: pairs with the loads of `close`, which sees what this thread wrote in its turn.
        self.0.fetch_sub(TURN, Ordering::AcqRel) & CLOSED == 0
    }

    /// True until the interpreter exits. Only for threads that are inside a turn.
    pub(crate) fn is_open(&self) -> bool {
        // Acquire: pairs with `close`.
        self.0.load(Ordering::Acquire) & CLOSED == 0
    }

    /// Prevents further turns and waits at most `GRACE` for turns in progress. The interpreter's
    /// exit calls this without the GIL. Has no effect in a forked child, where no turn can end.
    pub(crate) fn close(&self) {
        // AcqRel: pairs with `begin`: a turn that began before is waited for.
        if fork::is_child() || self.0.fetch_or(CLOSED, Ordering::AcqRel) & CLOSED != 0 {
            return;
        }
        let end = Instant::now() + GRACE;
        // Acquire: pairs with `end`.
        while self.0.load(Ordering::Acquire) != CLOSED && Instant::now() < end {
            park(Some(PERIOD));
        }
    }
}
