//! Host threads that access the bytes of an allocation, and the queue of waiting host threads.
//!
//! An access without a conflict is *counted*; it lasts as long as one copy. An access with a
//! conflict is *queued*: it waits for the tasks and accesses before it. A later conflicting task
//! waits for the queued access by a latch in the task's stream. A later conflicting access waits
//! behind it in the queue. A task that conflicts with counted accesses is *announced* until it is
//! enqueued. Accesses that begin in this interval are queued, so the task waits only for earlier
//! accesses.
//!
//! New arrivals therefore never delay an earlier thread.

use std::sync::Arc;
use std::time::Duration;

use crate::base::stream_map::StreamMap;
use crate::engine::stream::commands::WaitForLatch;
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::latch::Latch;
use crate::memory::buffer::uses::AccessedBytes;

/// The polling period of a thread that waits until another thread's host access has ended.
pub(super) const HOST_PERIOD: Duration = Duration::from_micros(50);

/// One latch for each stream that waits for a queued access.
pub(super) type Latches = StreamMap<Arc<Latch<StreamCore>>>;

#[derive(Debug, Default)]
pub(super) struct HostAccesses {
    /// The number of counted and queued accesses and announced tasks: usually zero.
    count: usize,
    /// The number of counted accesses that only read.
    readers: usize,
    /// True while a counted access writes.
    is_writing: bool,
    /// The number of announced tasks: each waits for counted accesses before it is enqueued.
    pub(super) announced: usize,
    /// Queued accesses, oldest first.
    queue: Vec<Waiter>,
    last_ticket: u64,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    accessed: AccessedBytes,
    latches: Latches,
}

impl HostAccesses {
    /// True when a host thread accesses or waits for the bytes, or a task is announced.
    #[inline]
    pub(super) fn has_any(&self) -> bool {
        self.count != 0
    }

    /// True when a counted access conflicts with a new use; `writes` tells whether the use writes.
    pub(super) fn conflict_with(&self, writes: bool) -> bool {
        self.is_writing || writes && self.readers > 0
    }

    /// True when a queued access conflicts with a new use.
    pub(super) fn has_waiter_before(&self, accessed: &AccessedBytes) -> bool {
        self.queue.iter().any(|queued| queued.accessed.conflicts(accessed))
    }

    /// Announces a task that waits for counted accesses.
    pub(super) fn announce(&mut self) {
        self.announced += 1;
        self.count += 1;
    }

    /// Ends the announcement of a task that may now be enqueued or was refused.
    pub(super) fn withdraw(&mut self) {
        self.announced -= 1;
        self.count -= 1;
    }

    /// Calls `found` with a wait for each conflicting queued access that the stream does not wait
    /// for yet.
    pub(super) fn each_wait(
        &mut self,
        core: &StreamCore,
        accessed: &AccessedBytes,
        found: &mut dyn FnMut(WaitForLatch),
    ) {
        for queued in self.queue.iter_mut().filter(|queued| queued.accessed.conflicts(accessed)) {
            let mut is_new = false;
            let latch = queued.latches.get_or_insert_with(core.key(), || {
                is_new = true;
                Latch::new()
            });
            // A host access leaves the queue before its latches open. An open latch in the queue
            // therefore means that a refused task dropped the wait: the stream needs a new latch
            // and a new wait.
            if !is_new && latch.is_open() {
                *latch = Latch::new();
                is_new = true;
            }
            if is_new {
                found(WaitForLatch::new(Arc::clone(latch)));
            }
        }
    }

    pub(super) fn enter(&mut self, writes: bool) {
        self.count += 1;
        self.is_writing |= writes;
        self.readers += usize::from(!writes);
    }

    pub(super) fn leave(&mut self, writes: bool) {
        self.count -= 1;
        if writes {
            self.is_writing = false;
        } else {
            self.readers -= 1;
        }
    }

    pub(super) fn add_waiter(&mut self, accessed: AccessedBytes) -> u64 {
        self.count += 1;
        self.last_ticket += 1;
        self.queue.push(Waiter { ticket: self.last_ticket, accessed, latches: Latches::default() });
        self.last_ticket
    }

    /// True when no earlier access conflicts with the access `ticket`.
    pub(super) fn is_next(&self, ticket: u64, accessed: &AccessedBytes) -> bool {
        let mut before = self.queue.iter().take_while(|queued| queued.ticket < ticket);
        !self.conflict_with(accessed.writes)
            && !before.any(|queued| queued.accessed.conflicts(accessed))
    }

    pub(super) fn remove_waiter(&mut self, ticket: u64) -> Latches {
        let index = self.queue.iter().position(|queued| queued.ticket == ticket);
        self.count -= 1;
        self.queue.remove(index.expect("it is removed once")).latches
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::numbers::Numbers;
    use crate::seed::seed;

    /// An access of the model: 0 for a counted one.
    type Entry = (u64, AccessedBytes);

    #[test]
    fn host_accesses_agree_with_a_list() {
        // Goal: each new use finds what it conflicts with, and nothing is counted when all have
        // left. Method: random accesses to four bytes enter, queue, are announced and leave.
        let mut random = Numbers::new(seed());
        let mut known = HostAccesses::default();
        let (mut inside, mut announced, mut last) = (Vec::<Entry>::new(), 0, 0);
        for step in 0..3_000 {
            let start = random.below(4);
            let bytes = start..start + 1 + random.below(4 - start);
            let accessed = AccessedBytes::new(bytes, random.below(2) == 0);
            let writes = accessed.writes;
            let counted = || inside.iter().filter(|(ticket, _)| *ticket == 0);
            let queued = || inside.iter().filter(|(ticket, _)| *ticket > 0);
            let meets = counted().any(|(_, it)| it.writes || writes);
            assert_eq!(known.conflict_with(writes), meets, "{step}");
            let waits = queued().any(|(_, it)| it.conflicts(&accessed));
            assert_eq!(known.has_waiter_before(&accessed), waits, "{step}");
            for (ticket, own) in queued() {
                let before = queued().filter(|(other, it)| other < ticket && it.conflicts(own));
                let is_next =
                    before.count() == 0 && !counted().any(|(_, it)| it.writes || own.writes);
                assert_eq!(known.is_next(*ticket, own), is_next, "{step}");
            }
            assert_eq!(known.has_any(), announced + inside.len() > 0, "{step}");
            let leaves = step % 60 > 30 || inside.len() > 6;
            match random.below(4) {
                _ if leaves && !inside.is_empty() => {
                    let (ticket, gone) = inside.remove(random.below(inside.len()));
                    match ticket {
                        0 => known.leave(gone.writes),
                        _ => assert!(known.remove_waiter(ticket).is_empty()),
                    }
                }
                0 if announced > 0 => {
                    known.withdraw();
                    announced -= 1;
                }
                1 if announced < 3 && !leaves => {
                    known.announce();
                    announced += 1;
                }
                _ if meets || waits => {
                    last += 1;
                    assert_eq!(known.add_waiter(accessed.clone()), last);
                    inside.push((last, accessed));
                }
                _ => {
                    known.enter(writes);
                    inside.push((0, accessed));
                }
            }
        }
    }
}
