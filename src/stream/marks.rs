//! Completion marks of one driver stream, by ticket: how far the device is known to be.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use crate::backend::contract::{Backend, Mark};
use crate::error::Result;
use crate::frontier::Progress;
use crate::sync::{LockRank, Mutex};

/// Pending marks of a stream between two looks at the device.
const MARKS_PER_POLL: usize = 64;

/// A mark that is released when nobody needs it any more.
pub(crate) struct OwnedMark {
    backend: Arc<dyn Backend>,
    mark: Mark,
}

impl OwnedMark {
    pub(crate) fn new(backend: &Arc<dyn Backend>, mark: Mark) -> Arc<Self> {
        Arc::new(Self { backend: Arc::clone(backend), mark })
    }

    pub(crate) fn mark(&self) -> Mark {
        self.mark
    }
}

impl Drop for OwnedMark {
    fn drop(&mut self) {
        // A refusal leaves nothing to do: the driver keeps the mark, and the next call tells.
        let _ = self.backend.mark_release(self.mark);
    }
}

impl fmt::Debug for OwnedMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.mark, f)
    }
}

/// The marks of a stream that the device was not seen to reach, in order of their tickets.
#[derive(Debug)]
pub(crate) struct Marks {
    backend: Arc<dyn Backend>,
    progress: Arc<Progress>,
    pending: Mutex<VecDeque<(u64, Arc<OwnedMark>)>>,
}

impl Marks {
    pub(crate) fn new(backend: &Arc<dyn Backend>, progress: &Arc<Progress>) -> Self {
        let pending = Mutex::new(LockRank::Marks, VecDeque::new());
        Self { backend: Arc::clone(backend), progress: Arc::clone(progress), pending }
    }

    /// The consumer marked the place of its task `ticket`. Asks the device now and then, so that
    /// marks that nobody waits for do not pile up.
    pub(crate) fn push(&self, ticket: u64, mark: Arc<OwnedMark>) {
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

    /// The first mark that stands at `ticket` or behind it; `None` when the device has reached it.
    pub(crate) fn at(&self, ticket: u64) -> Option<Arc<OwnedMark>> {
        let pending = self.pending.lock();
        pending.iter().find(|(at, _)| *at >= ticket).map(|(_, mark)| Arc::clone(mark))
    }

    /// Asks the device how far it is, and forgets what it has reached.
    pub(crate) fn poll(&self) -> Result<()> {
        loop {
            let Some((ticket, mark)) = self.pending.lock().front().cloned() else { return Ok(()) };
            // No lock is held while the driver is asked (law 7).
            if !self.backend.mark_done(mark.mark())? {
                return Ok(());
            }
            self.reached(ticket);
        }
    }

    /// The device has reached the task `ticket`.
    pub(crate) fn reached(&self, ticket: u64) {
        self.progress.reach(ticket);
        let passed: Vec<_> = {
            let mut pending = self.pending.lock();
            let count = pending.partition_point(|(at, _)| *at <= ticket);
            pending.drain(..count).collect()
        };
        drop(passed); // releases marks: calls the driver, hence without the lock
    }
}
