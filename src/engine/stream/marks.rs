//! Completion marks of one driver stream, by ticket: the known progress of the device.
//!
//! The same struct holds values until the device has passed a task: memory to free, and owners of
//! memory that a copy still uses. A held value needs no mark of its own: each poll drops the values
//! of the tasks that the device has passed.
#![expect(unsafe_code, reason = "marks that have no owner are of this stream's backend")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crossbeam_queue::SegQueue;

use crate::backend::contract::Backend;
use crate::backend::contract::owned::{BareMark, OwnedMark};
use crate::base::error::Result;
use crate::base::spin::SpinMutex;
use crate::base::sync::{LockRank, Mutex};
use crate::engine::frontier::Progress;
use crate::engine::stream::task::drop_quietly;

/// A stream polls the device each time its pending marks reach a multiple of this number.
const MARKS_PER_POLL: usize = 64;

/// Values leaked when a wait for the device failed, because the device may still use them.
static ABANDONED: SegQueue<Box<dyn Send>> = SegQueue::new();

/// A mark in a stream. Most marks have one owner, so only [`PlacedMark::share`] creates an `Arc`.
#[derive(Debug)]
pub(crate) enum PlacedMark {
    /// No other reference exists: the code that removes the mark from the list releases it.
    Sole(BareMark),
    /// Other references may exist.
    Shared(Arc<OwnedMark>),
}

impl PlacedMark {
    /// Returns one more owner of the mark.
    ///
    /// # Safety
    /// A stream of `backend` must have created the mark.
    unsafe fn share(&mut self, backend: &Arc<dyn Backend>) -> Arc<OwnedMark> {
        match self {
            Self::Shared(mark) => Arc::clone(mark),
            Self::Sole(mark) => {
                // SAFETY: the caller guarantees that a stream of `backend` created the mark.
                // `Sole` means that it has no other owner, and the variant is replaced here.
                let mark = unsafe { mark.into_owned(backend) };
                *self = Self::Shared(Arc::clone(&mark));
                mark
            }
        }
    }
}

/// The marks of a stream that the device is not known to have reached, in order of their tickets.
#[derive(Debug)]
pub(crate) struct Marks {
    backend: Arc<dyn Backend>,
    progress: Arc<Progress>,
    /// A spin lock, because every record takes it, and no driver is called under it.
    pending: SpinMutex<VecDeque<(u64, PlacedMark)>>,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    /// The held values; the key is the ticket, then the number in the order of arrival.
    by_ticket: BTreeMap<(u64, u64), Box<dyn Send>>,
    arrivals: u64,
    has_abandoned: bool,
}

impl Marks {
    pub(crate) fn new(backend: &Arc<dyn Backend>, progress: &Arc<Progress>) -> Self {
        let pending = SpinMutex::new(VecDeque::new());
        let held = Mutex::new(LockRank::Marks, Held::default());
        Self { backend: Arc::clone(backend), progress: Arc::clone(progress), pending, held }
    }

    /// Adds a mark that was placed behind the task `ticket`. Later tasks may already have marks.
    pub(crate) fn insert(&self, ticket: u64, mark: Arc<OwnedMark>) {
        let mut pending = self.pending.lock();
        let index = pending.partition_point(|(at, _)| *at <= ticket);
        pending.insert(index, (ticket, PlacedMark::Shared(mark)));
    }

    /// Keeps `thing` until the device has done the task `ticket`.
    pub(crate) fn hold(&self, ticket: u64, thing: Box<dyn Send>) {
        {
            let mut held = self.held.lock();
            held.arrivals += 1;
            let key = (ticket, held.arrivals);
            held.by_ticket.insert(key, thing);
        }
        // Drops the value at once if its task is done: a thread that moved the counter before the
        // insertion did not see the value.
        self.drop_passed();
    }

    /// The highest ticket that a value is held for; `None` when no value is held.
    pub(crate) fn held_until(&self) -> Option<u64> {
        self.held.lock().by_ticket.last_key_value().map(|(key, _)| key.0)
    }

    /// Drops the values held for tasks that are done.
    pub(crate) fn drop_passed(&self) {
        let passed = {
            let mut held = self.held.lock();
            if held.by_ticket.is_empty() {
                return;
            }
            let later = match self.progress.done().checked_add(1) {
                Some(next) => held.by_ticket.split_off(&(next, 0)),
                None => BTreeMap::new(),
            };
            std::mem::replace(&mut held.by_ticket, later)
        };
        // Without the lock: memory is returned to the driver, and owners are users' values.
        for thing in passed.into_values() {
            drop_quietly(|| drop(thing));
        }
    }

    /// Leaks the held values: it is unknown whether the device still uses them.
    pub(crate) fn abandon_held(&self) {
        let things = {
            let mut held = self.held.lock();
            held.has_abandoned = true;
            std::mem::take(&mut held.by_ticket)
        };
        for thing in things.into_values() {
            ABANDONED.push(thing);
        }
    }

    /// True when values were leaked because the device may still use them.
    pub(crate) fn has_abandoned(&self) -> bool {
        self.held.lock().has_abandoned
    }

    /// Adds the mark that the task `ticket` placed. Polls the device at every 64th pending mark, so
    /// that marks without a waiter do not pile up.
    pub(crate) fn push(&self, ticket: u64, mark: PlacedMark) {
        let count = {
            let mut pending = self.pending.lock();
            pending.push_back((ticket, mark));
            pending.len()
        };
        if count.is_multiple_of(MARKS_PER_POLL) {
            // A refusal is ignored: a caller that needs the result polls again.
            let _ = self.poll();
        }
    }

    /// True while the device is not known to have reached every mark.
    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.lock().is_empty()
    }

    /// The first pending mark at or behind `ticket`, if there is one.
    pub(crate) fn at(&self, ticket: u64) -> Option<Arc<OwnedMark>> {
        let mut pending = self.pending.lock();
        let index = pending.partition_point(|(at, _)| *at < ticket);
        let (_, mark) = pending.get_mut(index)?;
        // SAFETY: this stream's backend, `self.backend`, created all marks in `pending`.
        Some(unsafe { mark.share(&self.backend) })
    }

    /// Polls the device, and removes the marks that it has reached.
    pub(crate) fn poll(&self) -> Result<()> {
        loop {
            let Some((ticket, mark)) = self.first() else { return Ok(()) };
            // No lock is held during the driver's call.
            if !mark.is_done()? {
                return Ok(());
            }
            self.reached(ticket);
        }
    }

    fn first(&self) -> Option<(u64, Arc<OwnedMark>)> {
        let mut pending = self.pending.lock();
        let (ticket, mark) = pending.front_mut()?;
        // SAFETY: this stream's backend, `self.backend`, created all marks in `pending`.
        Some((*ticket, unsafe { mark.share(&self.backend) }))
    }

    /// Releases a mark that was removed from the list, unless it has other owners.
    fn release(&self, mark: PlacedMark) {
        match mark {
            // SAFETY: this stream's backend created the mark, and a `Sole` mark has no other
            // owner that releases it.
            PlacedMark::Sole(mark) => unsafe { mark.release(&*self.backend) },
            PlacedMark::Shared(mark) => drop(mark),
        }
    }

    /// Notes that the device has done the task `ticket`. Releases the marks and the held values up
    /// to this task.
    pub(crate) fn reached(&self, ticket: u64) {
        self.progress.advance_device_done(ticket);
        // Takes one mark at a time: the release calls the driver, so the lock must not be held.
        while let Some(passed) = self.take_passed(ticket) {
            self.release(passed);
        }
        self.drop_passed();
    }

    fn take_passed(&self, ticket: u64) -> Option<PlacedMark> {
        let mut pending = self.pending.lock();
        if pending.front()?.0 > ticket {
            return None;
        }
        pending.pop_front().map(|(_, mark)| mark)
    }
}

impl Drop for Marks {
    fn drop(&mut self) {
        let left = self.pending.with_mut(std::mem::take);
        for (_, mark) in left {
            self.release(mark);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::null::{NullBackend, NullConfig};
    use crate::numbers::Numbers;
    use crate::seed::seed;

    #[test]
    fn values_are_held_until_their_task_is_done() {
        // Goal: a value is dropped as soon as the device has done its task, also when that is
        // before it is held, and not earlier. Method: random tickets next to the known progress.
        let backend: Arc<dyn Backend> = NullBackend::new(NullConfig::default());
        let progress = Progress::new(1, false);
        let marks = Marks::new(&backend, &progress);
        let mut random = Numbers::new(seed());
        let (mut held, mut done) = (Vec::<(u64, Arc<()>)>::new(), 5);
        marks.reached(done);
        for _ in 0..1_000 {
            let near = done + 3 - random.below(6) as u64;
            if random.below(3) == 0 {
                marks.reached(near);
                done = done.max(near);
            } else {
                let value = Arc::new(());
                marks.hold(near, Box::new(Arc::clone(&value)));
                held.push((near, value));
            }
            for (ticket, value) in &held {
                let is_held = Arc::strong_count(value) == 2;
                assert_eq!(is_held, *ticket > done, "{ticket} after {done}");
            }
            held.retain(|(ticket, _)| *ticket > done);
            let last = held.iter().map(|(ticket, _)| *ticket).max();
            assert_eq!(marks.held_until(), last);
        }
    }
}
