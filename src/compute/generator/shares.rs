//! Parts of one piece of work that several threads claim; one thread waits for the last.
//!
//! A thread claims the next number of `next`, and decrements `left` when that part is done. The
//! thread that makes `left` zero wakes the one that made this. Threads that come later find
//! nothing.

use std::fmt;
use std::sync::Arc;

use crate::base::sync::{AtomicUsize, Ordering, Sleeper, spin_hint};

/// Turns before the waiting thread sleeps: the others are in the middle of their last parts.
#[cfg(not(loom))]
const SPINS: u32 = 2000;
#[cfg(loom)]
const SPINS: u32 = 0;

/// The parts `0..count`.
pub(super) struct Shares {
    count: usize,
    next: AtomicUsize,
    left: AtomicUsize,
    /// The thread that made this, which alone waits.
    maker: Arc<Sleeper>,
}

impl Shares {
    pub(super) fn new(count: usize) -> Self {
        let (next, left) = (AtomicUsize::new(0), AtomicUsize::new(count));
        Self { count, next, left, maker: Sleeper::new() }
    }

    /// Does parts until all are claimed.
    pub(super) fn work(&self, mut part: impl FnMut(usize)) {
        loop {
            // Relaxed: it only has to be unique which thread claims a part.
            let claimed = self.next.fetch_add(1, Ordering::Relaxed);
            if claimed >= self.count {
                return;
            }
            part(claimed);
            // Release: a thread that reads 0 in `wait` sees the writes of this part: later
            // decrements of the same counter continue the release sequence.
            if self.left.fetch_sub(1, Ordering::Release) == 1 {
                self.maker.wake();
            }
        }
    }

    /// False when nothing is left for a thread that comes now.
    pub(super) fn has_unclaimed(&self) -> bool {
        // Relaxed: a hint; a thread that does a part claims it first.
        self.next.load(Ordering::Relaxed) < self.count
    }

    /// Waits until every part is done. For the thread that made this, after its own
    /// [`Shares::work`]: every part is then claimed, and another thread may still be at work on it.
    pub(super) fn wait(&self) {
        for _ in 0..SPINS {
            if self.is_done() {
                return;
            }
            spin_hint();
        }
        while !self.is_done() {
            self.maker.sleep();
        }
    }

    fn is_done(&self) -> bool {
        // Acquire: pairs with the release of each part.
        self.left.load(Ordering::Acquire) == 0
    }
}

impl fmt::Debug for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shares").field("count", &self.count).finish_non_exhaustive()
    }
}
