//! The waiters for a stream's counter: parked streams, sleeping threads and futures, by ticket.
//!
//! A *marker* is a task that threads and streams can wait for: a record, a synchronise, a task with
//! buffers. A waiter registers, then reads the counter. A consumer that retires a marker advances
//! the counter, then checks for waiters. This is a Dekker pair on `lowest` and the counter: one
//! side sees the other, so no wake is lost. The retirement of any other task checks for no waiters.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use crate::base::sync::{AtomicU64, LockRank, Mutex, Ordering, Sleeper};
use crate::engine::frontier::Progress;
use crate::engine::stream::consumer_lock::Parking;

pub(crate) enum Waiter<S> {
    Stream(Arc<S>, Parking),
    Thread(Arc<Sleeper>),
    /// A task of an executor of futures.
    Task(Waker),
}

pub(crate) struct Waiters<S> {
    /// The lowest ticket in `list`; `u64::MAX` for an empty list. Written under the list's lock.
    lowest: AtomicU64,
    list: Mutex<List<S>>,
}

struct List<S> {
    /// Sorted by ticket; the waiters for one ticket are in the order of their arrival.
    by_ticket: BTreeMap<Registration, Waiter<S>>,
    arrivals: u64,
}

/// The key of one waiter: its ticket, then its number in the order of arrival.
pub(crate) type Registration = (u64, u64);

impl<S> Waiters<S> {
    pub(crate) fn new() -> Self {
        let list = List { by_ticket: BTreeMap::new(), arrivals: 0 };
        Self { lowest: AtomicU64::new(u64::MAX), list: Mutex::new(LockRank::Waiters, list) }
    }

    /// Adds a waiter for the marker `ticket`. Returns the waiter if the marker was already retired.
    pub(crate) fn register(
        &self,
        ticket: u64,
        waiter: Waiter<S>,
        progress: &Progress,
    ) -> Result<Registration, Waiter<S>> {
        let registration = {
            let mut list = self.list.lock();
            list.arrivals += 1;
            let registration = (ticket, list.arrivals);
            list.by_ticket.insert(registration, waiter);
            self.update_lowest(&list);
            registration
        };
        if progress.retired() >= ticket
            && let Some(waiter) = self.withdraw(registration)
        {
            return Err(waiter);
        }
        // The waiter is still registered, or the consumer has taken the waiter to wake it.
        Ok(registration)
    }

    /// Removes and returns a waiter; `None` if a consumer has already taken the waiter.
    pub(crate) fn withdraw(&self, registration: Registration) -> Option<Waiter<S>> {
        let mut list = self.list.lock();
        let waiter = list.by_ticket.remove(&registration);
        self.update_lowest(&list);
        waiter
    }

    /// Removes and returns all waiters for tickets up to `retired`, if there are any. The consumer
    /// calls this after [`Progress::retire_with_waiters`] has stored `retired`, and then wakes the
    /// waiters without a lock.
    #[inline]
    pub(crate) fn take_up_to(&self, retired: u64) -> Option<Vec<Waiter<S>>> {
        // SeqCst: loaded after the counter was stored; partner: `update_lowest` in `register`.
        let is_waited_for = self.lowest.load(Ordering::SeqCst) <= retired;
        is_waited_for.then(|| self.remove_up_to(retired))
    }

    #[inline(never)]
    fn remove_up_to(&self, retired: u64) -> Vec<Waiter<S>> {
        let mut list = self.list.lock();
        let later = list.by_ticket.split_off(&(retired + 1, 0));
        let ready = std::mem::replace(&mut list.by_ticket, later);
        self.update_lowest(&list);
        ready.into_values().collect()
    }

    /// Shows each waiter, under the lock of the list.
    pub(crate) fn each(&self, see: impl FnMut(&Waiter<S>)) {
        self.list.lock().by_ticket.values().for_each(see);
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn count(&self) -> usize {
        self.list.lock().by_ticket.len()
    }

    fn update_lowest(&self, list: &List<S>) {
        let lowest = list.by_ticket.first_key_value().map_or(u64::MAX, |(key, _)| key.0);
        // SeqCst: stored before the counter is loaded; partner: `take_up_to`.
        self.lowest.store(lowest, Ordering::SeqCst);
    }
}

/// A range of markers with adjacent tickets in a stream's queue.
#[derive(Debug)]
pub(super) struct MarkerRun {
    first: u64,
    last: u64,
}

impl MarkerRun {
    pub(super) const EMPTY: Self = Self { first: 1, last: 0 };

    /// Adds a marker. Threads may call this out of ticket order. A newer marker that is not
    /// adjacent replaces the run, and an older one is ignored; markers outside the run count as
    /// work.
    pub(super) fn add(&mut self, ticket: u64) {
        if ticket == self.last + 1 {
            self.last = ticket;
        } else if ticket + 1 == self.first {
            self.first = ticket;
        } else if ticket > self.last {
            *self = Self { first: ticket, last: ticket };
        }
    }

    /// True when every task behind `retired`, up to `pushed`, is one of these markers.
    pub(super) fn has_only_markers(&self, retired: u64, pushed: u64) -> bool {
        self.last == pushed && self.first <= retired + 1
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn markers_are_one_run_in_whatever_order_their_threads_come() {
        for order in [[4, 5, 6], [6, 5, 4], [5, 6, 4], [5, 4, 6]] {
            let mut run = MarkerRun::EMPTY;
            for ticket in order {
                run.add(ticket);
            }
            let found = [(3, 6), (4, 6), (2, 6), (3, 7), (3, 5)]
                .map(|(retired, pushed)| run.has_only_markers(retired, pushed));
            assert_eq!(found, [true, true, false, false, false], "{order:?}");
        }
        let mut run = MarkerRun::EMPTY;
        run.add(4);
        run.add(6);
        assert!(!run.has_only_markers(3, 6) && run.has_only_markers(5, 6), "5 stands between");
        run.add(4);
        assert!(!run.has_only_markers(3, 6), "5 still does");
    }
}
