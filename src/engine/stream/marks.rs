//! Completion marks of one driver stream, by ticket: how far the device is known to be.
//!
//! Beside them stands what is held until the device has passed a task: memory to give back, and
//! owners of memory that a copy still uses. It costs no mark of its own; whoever learns how far the
//! device is drops what it has passed.
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
use crate::engine::stream::commands::drop_quietly;

/// Pending marks of a stream between two looks at the device.
const MARKS_PER_POLL: usize = 64;

/// What a device may still use although nobody can ask it any more.
static ABANDONED: SegQueue<Box<dyn Send>> = SegQueue::new();

/// A mark in a stream. Nobody asks for most of them, so an owner is made for who does.
#[derive(Debug)]
pub(crate) enum PlacedMark {
    /// Nobody else has it: whoever takes it out releases it.
    Alone(BareMark),
    /// Others may have it.
    Shared(Arc<OwnedMark>),
}

impl PlacedMark {
    /// The mark, with one more owner.
    ///
    /// # Safety
    /// A stream of this backend made it.
    unsafe fn share(&mut self, backend: &Arc<dyn Backend>) -> Arc<OwnedMark> {
        match self {
            Self::Shared(mark) => Arc::clone(mark),
            Self::Alone(mark) => {
                // SAFETY: of this backend, as the caller promises; of nobody else, as the variant
                // says, which is left here.
                let mark = unsafe { mark.own(backend) };
                *self = Self::Shared(Arc::clone(&mark));
                mark
            }
        }
    }
}

/// The marks of a stream that the device was not seen to reach, in order of their tickets.
#[derive(Debug)]
pub(crate) struct Marks {
    backend: Arc<dyn Backend>,
    progress: Arc<Progress>,
    /// A spin lock: each record of a driver's stream comes by, and nothing is called under it.
    pending: SpinMutex<VecDeque<(u64, PlacedMark)>>,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    /// By ticket, then by order of arrival.
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

    /// Somebody marked a place behind the task `ticket`, while the consumer may be further.
    pub(crate) fn insert(&self, ticket: u64, mark: Arc<OwnedMark>) {
        let mut pending = self.pending.lock();
        let place = pending.partition_point(|(at, _)| *at <= ticket);
        pending.insert(place, (ticket, PlacedMark::Shared(mark)));
    }

    /// Keeps something until the device has done the task `ticket`.
    pub(crate) fn hold(&self, ticket: u64, thing: Box<dyn Send>) {
        {
            let mut held = self.held.lock();
            held.arrivals += 1;
            let key = (ticket, held.arrivals);
            held.by_ticket.insert(key, thing);
        }
        // Who moved the counter before this thing was there did not see it.
        self.drop_passed();
    }

    /// The last task that something is held for.
    pub(crate) fn held_until(&self) -> Option<u64> {
        self.held.lock().by_ticket.last_key_value().map(|(key, _)| key.0)
    }

    /// Drops what was held for tasks that are done.
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
        // Without the lock: memory is given back to the driver, and owners are a user's.
        for thing in passed.into_values() {
            drop_quietly(|| drop(thing));
        }
    }

    /// Forgets what is held without giving it back: nobody can tell whether the device uses it.
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

    /// True when nobody can tell of something whether the device still uses it.
    pub(crate) fn has_abandoned(&self) -> bool {
        self.held.lock().has_abandoned
    }

    /// The consumer marked the place of its task `ticket`. Asks the device now and then, so that
    /// marks that nobody waits for do not pile up.
    pub(crate) fn push(&self, ticket: u64, mark: PlacedMark) {
        let count = {
            let mut pending = self.pending.lock();
            pending.push_back((ticket, mark));
            pending.len()
        };
        if count.is_multiple_of(MARKS_PER_POLL) {
            // A refusal is no answer: whoever needs one asks again.
            let _ = self.poll();
        }
    }

    /// True when the device was seen to reach every mark.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.lock().is_empty()
    }

    /// The first mark that stands at `ticket` or behind it; `None` when the device has reached it.
    pub(crate) fn at(&self, ticket: u64) -> Option<Arc<OwnedMark>> {
        let mut pending = self.pending.lock();
        let place = pending.partition_point(|(at, _)| *at < ticket);
        let (_, mark) = pending.get_mut(place)?;
        // SAFETY: the marks in here are of one stream, whose backend this is.
        Some(unsafe { mark.share(&self.backend) })
    }

    /// Asks the device how far it is, and forgets what it has reached.
    pub(crate) fn poll(&self) -> Result<()> {
        loop {
            let Some((ticket, mark)) = self.first() else { return Ok(()) };
            // No lock is held while the driver is asked (law 7).
            if !mark.is_done()? {
                return Ok(());
            }
            self.reached(ticket);
        }
    }

    fn first(&self) -> Option<(u64, Arc<OwnedMark>)> {
        let mut pending = self.pending.lock();
        let (ticket, mark) = pending.front_mut()?;
        // SAFETY: as in `at`.
        Some((*ticket, unsafe { mark.share(&self.backend) }))
    }

    /// Releases a mark that was taken out, unless others have it.
    fn release(&self, mark: PlacedMark) {
        match mark {
            // SAFETY: as in `at`; whatever is alone in here is released by nothing else.
            PlacedMark::Alone(mark) => unsafe { mark.release(&*self.backend) },
            PlacedMark::Shared(mark) => drop(mark),
        }
    }

    /// The device has reached the task `ticket`.
    pub(crate) fn reached(&self, ticket: u64) {
        self.progress.reach(ticket);
        // One after the other: releasing a mark calls the driver, hence without the lock.
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
    use crate::backend::null::{NullBackend, NullConfig};

    #[test]
    fn what_is_held_for_a_task_that_was_done_meanwhile_is_dropped_at_once() {
        // Goal: nothing is kept until some later task of the stream is done. Method: the counter
        // moves, and its mover looks, before the thing is there; nobody looks again.
        let backend: Arc<dyn Backend> = NullBackend::new(NullConfig::default());
        let progress = Progress::new(1, false);
        let marks = Marks::new(&backend, &progress);
        let [done, pending] = [(); 2].map(|()| Arc::new(()));
        marks.reached(2);
        marks.hold(2, Box::new(Arc::clone(&done)));
        marks.hold(3, Box::new(Arc::clone(&pending)));
        let owners = [&done, &pending].map(Arc::strong_count);
        assert_eq!((owners, marks.held_until()), ([1, 2], Some(3)));
    }
}
