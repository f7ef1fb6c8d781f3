//! Parts of one piece of work, claimed by whichever thread comes; one thread waits for the last.
//!
//! A thread claims the next number of `next`, and takes one off `left` when that part is done. Who
//! takes the last one off wakes the thread that made this. Threads that come later find nothing.

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

    /// Does parts until none is unclaimed.
    pub(super) fn work(&self, mut part: impl FnMut(usize)) {
        loop {
            // Relaxed: only that no two threads claim one part matters.
            let claimed = self.next.fetch_add(1, Ordering::Relaxed);
            if claimed >= self.count {
                return;
            }
            part(claimed);
            // Release: what was written in the part is seen by who finds 0 in `wait`: parts that
            // are done later carry it on, as additions to one counter do.
            if self.left.fetch_sub(1, Ordering::Release) == 1 {
                self.maker.wake();
            }
        }
    }

    /// False when nothing is left for a thread that comes now.
    pub(super) fn has_unclaimed(&self) -> bool {
        // Relaxed: a guess; who does a part claims it.
        self.next.load(Ordering::Relaxed) < self.count
    }

    /// Waits until every part is done. For the thread that made this, behind its own
    /// [`Shares::work`]: then every part is claimed, by a thread that is in the middle of it.
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
