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
pub struct TaskParts {
    count: usize,
    next: AtomicUsize,
    left: AtomicUsize,
    /// The sleeper of the thread that called `new`, the only thread that waits.
    creator: Arc<Sleeper>,
}

impl TaskParts {
    /// The parts `0..count`, none of them claimed. The calling thread is the one that waits.
    #[must_use]
    pub fn new(count: usize) -> Self {
        let (next, left) = (AtomicUsize::new(0), AtomicUsize::new(count));
        Self { count, next, left, creator: Sleeper::new() }
    }

    /// Executes parts until all are claimed.
    pub fn work(&self, mut part: impl FnMut(usize)) {
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

    /// True while a part is left for another thread.
    #[must_use]
    pub fn has_unclaimed(&self) -> bool {
        // Relaxed: a hint; a thread claims a part before it executes it.
        self.next.load(Ordering::Relaxed) < self.count
    }

    /// Waits until every part is done. The thread that called `new` calls this after its own
    /// [`TaskParts::work`]. Other threads may then still execute the last claimed parts.
    pub fn wait(&self) {
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

#[cfg(all(test, loom))]
mod loom_tests {
    #![expect(unsafe_code, reason = "the parts write without synchronisation")]

    use loom::thread;

    use super::*;
    use crate::base::sync::UnsafeCell;
    use crate::base::sync::models::{EVERY, model_without_fences};

    /// Goal: after the wait, exactly one thread has executed each part, and its writes are visible.
    /// Method: parts increment plain counters; loom reports races on them.
    #[test]
    fn loom_the_waiter_sees_the_writes_of_every_part() {
        model_without_fences(EVERY, || {
            let parts = Arc::new(TaskParts::new(2));
            let done = Arc::new([UnsafeCell::new(0), UnsafeCell::new(0)]);
            let work = |parts: &TaskParts, done: &[UnsafeCell<u32>; 2]| {
                // SAFETY: only the thread that claimed the part accesses its counter. loom checks.
                parts.work(|part| done[part].with_mut(|done| unsafe { *done += 1 }));
            };
            let helper = {
                let (parts, done) = (Arc::clone(&parts), Arc::clone(&done));
                thread::spawn(move || work(&parts, &done))
            };
            work(&parts, &done);
            parts.wait();
            // SAFETY: after `wait`, no thread accesses the counters. loom checks this.
            assert!(done.iter().all(|part| part.with(|done| unsafe { *done }) == 1));
            helper.join().unwrap();
        });
    }
}
