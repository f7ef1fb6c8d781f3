//! The lock of a stream's consumer: one thread at a time consumes, and no task is left behind.
//!
//! One word records which component is responsible for a stream:
//!
//! | state | meaning |
//! |---|---|
//! | none | idle: the queue is empty, or its producer is about to schedule |
//! | QUEUED | the device's run queue has an entry; a worker will take it |
//! | DRAINING | a thread consumes, and reads the queue again after it leaves |
//! | DRAINING, QUEUED | a helper consumes; a worker will still take the entry |
//! | PARKED | the head is blocked; its completer resumes the stream |
//! | PARKED, QUEUED | a helper parked the stream; the worker only clears QUEUED |
//!
//! A producer pushes, then reads this word. A consumer leaves, then reads the queue. This is a
//! Dekker pair: one side sees the other and schedules the stream. The higher bits count parkings,
//! so that a late resume of an earlier parking has no effect.
#![expect(unsafe_code, reason = "the DRAINING bit is the lock of the consumer's state")]

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::base::sync::{AtomicU64, Ordering, UnsafeCell};

const QUEUED: u64 = 1;
const DRAINING: u64 = 2;
const PARKED: u64 = 4;
const PARKING: u64 = 8;

/// A lock around the consumer's state `T`, whose word also records the scheduling state.
pub(crate) struct ConsumerLock<T> {
    state: AtomicU64,
    consumer: UnsafeCell<T>,
}

// SAFETY: the DRAINING bit gives one thread at a time access to the consumer, as a mutex does.
unsafe impl<T: Send> Sync for ConsumerLock<T> {}

/// The number of one parking. [`ConsumerLock::unpark`] ignores every number but the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parking(u64);

/// The step that the caller must take after a change of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Next {
    /// No step: another component is responsible for the stream.
    Nothing,
    /// The caller must put the stream into the run queue.
    Schedule,
}

/// The right to execute a stream, ended by `leave`, `leave_with_work` or `park`, not by a drop.
pub(crate) struct ConsumerGuard<'a, T>(&'a ConsumerLock<T>);

impl<T> ConsumerLock<T> {
    pub(crate) fn new(consumer: T) -> Self {
        Self { state: AtomicU64::new(0), consumer: UnsafeCell::new(consumer) }
    }

    /// Makes an idle stream QUEUED, for the caller to schedule. Producers call this after a push.
    #[inline]
    pub(crate) fn schedule_if_idle(&self) -> Next {
        // SeqCst: read after the push; partner: `leave`.
        let state = self.state.load(Ordering::SeqCst);
        if state & (QUEUED | DRAINING | PARKED) != 0 {
            return Next::Nothing;
        }
        self.schedule(state)
    }

    /// Adds QUEUED to the idle word, unless another thread has changed the word since it was read.
    #[inline(never)]
    fn schedule(&self, idle: u64) -> Next {
        // Relaxed: the last consumer's leave heads a release sequence, which publishes the
        // consumer's state. On failure: the thread that changed the word is now responsible, and
        // reads the queue when it leaves.
        let change =
            self.state.compare_exchange(idle, idle | QUEUED, Ordering::Relaxed, Ordering::Relaxed);
        if change.is_ok() { Next::Schedule } else { Next::Nothing }
    }

    /// Acquires the right to execute the stream, for a worker that took the stream's entry from the
    /// run queue. `None` while another thread consumes or the stream is parked.
    pub(crate) fn enter_from_run_queue(&self) -> Option<ConsumerGuard<'_, T>> {
        self.change(|state| {
            let busy = state & (DRAINING | PARKED) != 0;
            Some(if busy { state & !QUEUED } else { state & !QUEUED | DRAINING })
        })
        .filter(|state| state & (DRAINING | PARKED) == 0)
        .map(|_| ConsumerGuard(self))
    }

    /// Acquires the right to execute the stream, for a thread that waits for it. `None` while
    /// another thread consumes or the stream is parked.
    #[inline]
    pub(crate) fn enter_to_help(&self) -> Option<ConsumerGuard<'_, T>> {
        self.change(|state| (state & (DRAINING | PARKED) == 0).then_some(state | DRAINING))
            .map(|_| ConsumerGuard(self))
    }

    /// Resumes the stream from this parking. Has no effect if the parking is over.
    pub(crate) fn unpark(&self, parking: Parking) -> Next {
        let old = self.change(|state| {
            let current = state & PARKED != 0 && state / PARKING == parking.0;
            current.then_some(state & !PARKED | QUEUED)
        });
        match old {
            Some(old) if old & QUEUED == 0 => Next::Schedule,
            _ => Next::Nothing,
        }
    }

    /// The current parking, if the stream is parked. A shutdown passes it to `unpark`.
    pub(crate) fn parking(&self) -> Option<Parking> {
        // Relaxed: a hint that `unpark` checks.
        let state = self.state.load(Ordering::Relaxed);
        (state & PARKED != 0).then_some(Parking(state / PARKING))
    }

    /// True when no component is responsible for the stream.
    pub(crate) fn is_idle(&self) -> bool {
        // Relaxed: a hint; the exchange of a thread that enters checks the state.
        self.state.load(Ordering::Relaxed) & (QUEUED | DRAINING | PARKED) == 0
    }

    /// Replaces the word by `next(word)` and returns the old word. `None` if `next` returns `None`.
    #[inline]
    fn change(&self, next: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        // AcqRel: an entering consumer acquires the writes of the last consumer; a consumer that
        // parks or leaves work releases its own. Entering has no part in the Dekker pair of
        // `leave`, because an entering consumer reads the queue later. The first load is Relaxed:
        // the exchange checks its value.
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let wanted = next(state)?;
            match self.state.compare_exchange_weak(
                state,
                wanted,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(old) => return Some(old),
                Err(now) => state = now,
            }
        }
    }
}

impl<T> ConsumerGuard<'_, T> {
    /// Releases the right. True when the stream is now idle. The caller must then read the queue
    /// and, unless the queue is empty, call [`ConsumerLock::schedule_if_idle`].
    #[inline]
    pub(crate) fn leave(self) -> bool {
        // SeqCst: stored before the queue is read; partner: the claim in `Sender::push`. Its
        // release half publishes the consumer's state; pairs with `change`. `fetch_sub` is one
        // instruction; a `fetch_and` that returns the old word is a loop.
        let old = self.0.state.fetch_sub(DRAINING, Ordering::SeqCst);
        old & QUEUED == 0
    }

    /// Releases the right and makes the stream QUEUED, because work is left.
    pub(crate) fn leave_with_work(self) -> Next {
        // One exchange, not two: in between, a worker that still saw DRAINING could clear QUEUED.
        let old = self.0.change(|state| Some(state & !DRAINING | QUEUED));
        if old.is_some_and(|old| old & QUEUED == 0) { Next::Schedule } else { Next::Nothing }
    }

    /// Releases the right and parks the stream. Returns the parking, which
    /// [`ConsumerLock::unpark`] takes to resume the stream.
    pub(crate) fn park(self) -> Parking {
        let parked = |state: u64| (state & !DRAINING | PARKED) + PARKING;
        let old = self.0.change(|state| Some(parked(state))).expect("the change is unconditional");
        Parking(parked(old) / PARKING)
    }
}

impl<T> Deref for ConsumerGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard's thread holds the DRAINING bit, which one thread holds at a time.
        self.0.consumer.with(|consumer| unsafe { &*consumer })
    }
}

impl<T> DerefMut for ConsumerGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard's thread holds the DRAINING bit, and the guard is borrowed exclusively.
        self.0.consumer.with_mut(|consumer| unsafe { &mut *consumer })
    }
}

impl<T> fmt::Debug for ConsumerLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: for debug output.
        let state = self.state.load(Ordering::Relaxed);
        let bits = [(QUEUED, "queued"), (DRAINING, "draining"), (PARKED, "parked")];
        f.debug_list()
            .entries(bits.iter().filter(|bit| state & bit.0 != 0).map(|bit| bit.1))
            .finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::numbers::Numbers;
    use crate::seed::seed;

    #[test]
    fn states_agree_with_the_table() {
        // Goal: each step has the effect that the table at the head of this file gives it, and a
        // resume of an earlier parking has none. Method: random steps of one thread.
        let mut random = Numbers::new(seed());
        let lock = ConsumerLock::new(());
        let (mut is_queued, mut guard, mut parked) = (false, None, None);
        let mut earlier = Vec::<Parking>::new();
        let next = |is_new: bool| if is_new { Next::Schedule } else { Next::Nothing };
        for step in 0..5_000 {
            let is_idle = !is_queued && guard.is_none() && parked.is_none();
            assert_eq!((lock.is_idle(), lock.parking()), (is_idle, parked), "{step}");
            match random.below(7) {
                0 => {
                    assert_eq!(lock.schedule_if_idle(), next(is_idle), "{step}");
                    is_queued |= is_idle;
                }
                1 if is_queued => {
                    let entered = lock.enter_from_run_queue();
                    assert_eq!(entered.is_some(), guard.is_none() && parked.is_none(), "{step}");
                    is_queued = false;
                    guard = entered.or(guard);
                }
                2 => {
                    let entered = lock.enter_to_help();
                    assert_eq!(entered.is_some(), guard.is_none() && parked.is_none(), "{step}");
                    guard = entered.or(guard);
                }
                3 => {
                    let Some(inside) = guard.take() else { continue };
                    assert_eq!(inside.leave(), !is_queued, "{step}");
                }
                4 => {
                    let Some(inside) = guard.take() else { continue };
                    assert_eq!(inside.leave_with_work(), next(!is_queued), "{step}");
                    is_queued = true;
                }
                5 => {
                    let Some(inside) = guard.take() else { continue };
                    let parking = inside.park();
                    assert!(!earlier.contains(&parking), "{step}");
                    parked = Some(parking);
                }
                _ if random.below(3) == 0 && !earlier.is_empty() => {
                    let late = earlier[random.below(earlier.len())];
                    assert_eq!(lock.unpark(late), Next::Nothing, "{step}");
                }
                _ => {
                    let Some(parking) = parked.take() else { continue };
                    assert_eq!(lock.unpark(parking), next(!is_queued), "{step}");
                    is_queued = true;
                    earlier.push(parking);
                }
            }
        }
        assert!(earlier.len() > 100);
    }
}
