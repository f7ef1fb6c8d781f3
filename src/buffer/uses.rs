//! Which tasks use an allocation: per stream the last one.

use std::sync::Arc;

use crate::stream::core::StreamCore;
use crate::stream_map::StreamMap;

/// A task of a stream. Of two the one with the higher ticket is the later one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Task {
    pub(crate) ticket: u64,
    /// True when it wakes who waits for it: a copy, a fill, a launch that was given its buffers.
    pub(crate) is_marker: bool,
}

impl Task {
    pub(crate) fn marker(ticket: u64) -> Self {
        Self { ticket, is_marker: true }
    }

    pub(crate) fn any(ticket: u64) -> Self {
        Self { ticket, is_marker: false }
    }
}

/// A stream, and its last task that uses the memory.
#[derive(Clone, Debug)]
pub(super) struct Use {
    pub(super) stream: Arc<StreamCore>,
    pub(super) task: Task,
}

impl Use {
    /// True when the task is known to be done.
    pub(super) fn is_done(&self) -> bool {
        self.stream.progress.done() >= self.task.ticket
    }

    /// True when nobody will ask for this use again: it is done, and cannot have failed.
    fn is_over(&self) -> bool {
        self.is_done() && !self.stream.failures.has_failed()
    }

    fn is_on(&self, stream: &Arc<StreamCore>) -> bool {
        Arc::ptr_eq(&self.stream, stream)
    }

    fn raise_to(&mut self, task: Task) {
        self.task = self.task.max(task);
    }
}

/// The uses of one allocation, at most one a stream.
///
/// The usual case is one stream, the home stream or another one: recording is then a comparison and
/// a maximum. A use on a further stream forgets some that are over, in turns: what it costs does
/// not grow with the streams that are known, nor do these with streams that are gone.
#[derive(Debug, Default)]
pub(super) struct Uses {
    /// On the home stream, which the allocation names; ticket 0 when there was none.
    pub(super) at_home: Task,
    first: Option<Use>,
    more: StreamMap<Use>,
}

/// How many uses are looked at, whether they are over, for each stream that is added.
const LOOKS: usize = 8;

impl Uses {
    /// Notes a use on the home stream.
    #[inline]
    pub(super) fn record_home(&mut self, task: Task) {
        self.at_home = self.at_home.max(task);
    }

    /// Notes a use on another stream. What is returned was forgotten, and is dropped without a
    /// lock: it may be the last reference to a stream.
    #[inline]
    pub(super) fn record(&mut self, stream: &Arc<StreamCore>, task: Task) -> Option<Vec<Use>> {
        if let Some(first) = &mut self.first
            && first.is_on(stream)
        {
            first.raise_to(task);
            return None;
        }
        self.record_further(stream, task)
    }

    #[inline(never)]
    fn record_further(&mut self, stream: &Arc<StreamCore>, task: Task) -> Option<Vec<Use>> {
        if let Some(known) = self.more.get_mut(stream.key()) {
            known.raise_to(task);
            return None;
        }
        let mut forgotten = self.more.take_over(LOOKS, |_, known| known.is_over());
        forgotten.extend(self.first.take_if(|known| known.is_over()));
        let new = Use { stream: Arc::clone(stream), task };
        if self.first.is_none() {
            self.first = Some(new);
        } else {
            self.more.insert(stream.key(), new);
        }
        Some(forgotten)
    }

    /// The uses on streams that are not the home stream.
    pub(super) fn others(&self) -> impl Iterator<Item = &Use> {
        self.first.iter().chain(self.more.values())
    }

    /// True when other streams than the home stream may use the memory.
    #[inline]
    pub(super) fn has_others(&self) -> bool {
        self.first.is_some() || !self.more.is_empty()
    }

    /// The same, as the last thing that is asked.
    pub(super) fn into_others(self) -> impl Iterator<Item = Use> {
        self.first.into_iter().chain(self.more.into_values())
    }
}
