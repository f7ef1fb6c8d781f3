//! Threads that sleep until another thread changes something under the allocator's lock.
//!
//! A thread that finds another one in its turn, moving pages or giving back memory looks a few
//! times, because that is short, and then sleeps without the lock: the other thread may need this
//! one's processor. The thread that ends such work wakes all sleepers, under the lock.

use std::sync::Arc;

use crate::base::sync::{Mutex, MutexGuard, Sleeper, spin_hint};

/// The looks before a thread sleeps, and the spins between two looks.
#[cfg(not(loom))]
const LOOKS: usize = 8;
#[cfg(loom)]
const LOOKS: usize = 0;
const HINTS: usize = 50;

/// The threads that sleep.
#[derive(Debug, Default)]
pub(super) struct Sleepers(Vec<Arc<Sleeper>>);

impl Sleepers {
    /// Wakes all sleepers, which check their conditions again.
    pub(super) fn wake(&mut self) {
        self.0.drain(..).for_each(|sleeper| sleeper.wake());
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }
}

/// Locks the state once a condition holds. A thread that makes it hold wakes the sleepers.
pub(super) fn lock_when<T>(
    mutex: &Mutex<T>,
    is_so: impl Fn(&T) -> bool,
    sleepers: impl Fn(&mut T) -> &mut Sleepers,
) -> MutexGuard<'_, T> {
    for look in 0.. {
        let mut value = mutex.lock();
        if is_so(&value) {
            return value;
        }
        if look < LOOKS {
            drop(value);
            (0..HINTS).for_each(|_| spin_hint());
            continue;
        }
        let sleeper = Sleeper::new();
        sleepers(&mut value).0.push(Arc::clone(&sleeper));
        drop(value);
        sleeper.sleep();
    }
    unreachable!("it looks until it is so")
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::thread;

    use super::*;
    use crate::base::sync::LockRank;
    use crate::base::sync::models::{EVERY, model_without_fences};

    /// Goal: no thread sleeps on when what it waits for has come. Method: two threads wait for one
    /// that works, of which the first goes on with work of its own.
    #[test]
    fn loom_whoever_waits_for_others_is_woken() {
        model_without_fences(EVERY, || {
            let is_busy = Arc::new(Mutex::new(LockRank::Allocator, (true, Sleepers::default())));
            let wait = |is_busy: &Mutex<(bool, Sleepers)>| {
                drop(lock_when(is_busy, |(is_busy, _)| !is_busy, |(_, sleepers)| sleepers));
            };
            let others = [(); 2].map(|()| {
                let is_busy = Arc::clone(&is_busy);
                thread::spawn(move || wait(&is_busy))
            });
            {
                let (is_busy, sleepers) = &mut *is_busy.lock();
                *is_busy = false;
                sleepers.wake();
            }
            others.into_iter().for_each(|other| other.join().unwrap());
        });
    }
}
