//! The parts of one task: several threads execute them, and the task's thread waits for all.
//!
//! A thread claims a part by incrementing `next`, executes the part, and then decrements `left`.
//! The thread that decrements `left` to zero wakes the task's thread, the creator of `TaskParts`.

use std::fmt;
use std::sync::Arc;

use crate::base::sync::{AtomicUsize, Ordering, Sleeper, spin_hint};

/// Polls of `wait` before it sleeps. They usually suffice: each helper has at most one part left.
#[cfg(not(loom))]
const SPINS: u32 = 2000;
#[cfg(loom)]
const SPINS: u32 = 0;

/// The parts `0..count` of a task, with the numbers of claimed and of unfinished parts.
pub(super) struct TaskParts {
    count: usize,
    next: AtomicUsize,
    left: AtomicUsize,
    /// The sleeper of the thread that called `new`, the only thread that waits.
    creator: Arc<Sleeper>,
}

impl TaskParts {
    pub(super) fn new(count: usize) -> Self {
        let (next, left) = (AtomicUsize::new(0), AtomicUsize::new(count));
        Self { count, next, left, creator: Sleeper::new() }
    }

    /// Executes parts until all are claimed.
    pub(super) fn work(&self, mut part: impl FnMut(usize)) {
        loop {
            // Relaxed: a claim must only be unique; `left` publishes the writes of a part.
            let claimed = self.next.fetch_add(1, Ordering::Relaxed);
            if claimed >= self.count {
                return;
            }
            part(claimed);
            // Release: a thread that reads 0 in `wait` sees the writes of this part, since later
            // decrements of the same counter continue the release sequence.
            if self.left.fetch_sub(1, Ordering::Release) == 1 {
                self.creator.wake();
            }
        }
    }

    pub(super) fn has_unclaimed(&self) -> bool {
        // Relaxed: a hint; a thread claims a part before it executes it.
        self.next.load(Ordering::Relaxed) < self.count
    }

    /// Waits until every part is done. The thread that called `new` calls this after its own
    /// [`TaskParts::work`]. Other threads may then still execute the last claimed parts.
    pub(super) fn wait(&self) {
        for _ in 0..SPINS {
            if self.is_done() {
                return;
            }
            spin_hint();
        }
        while !self.is_done() {
            self.creator.sleep();
        }
    }

    fn is_done(&self) -> bool {
        // Acquire: pairs with the release of each part.
        self.left.load(Ordering::Acquire) == 0
    }
}

impl fmt::Debug for TaskParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskParts").field("count", &self.count).finish_non_exhaustive()
    }
}
