//! Which tasks use an allocation: per stream the last one, the last one that writes, and the bytes.

use std::ops::Range;
use std::sync::Arc;

use crate::base::stream_map::StreamMap;
use crate::engine::stream::core::StreamCore;

/// A task of a stream. Of two the one with the higher ticket is the later one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Task {
    pub(crate) ticket: u64,
    /// True when it wakes its waiters: a copy, a fill, a launch that was given its buffers.
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

/// The use of an allocation by a task: which bytes, and whether it writes any.
#[derive(Clone, Debug)]
pub(super) struct Touch {
    pub(super) bytes: Range<usize>,
    pub(super) writes: bool,
}

impl Touch {
    /// The touch of a task with unknown uses.
    pub(super) const UNKNOWN: Self = Self { bytes: 0..usize::MAX, writes: true };

    /// True when both use some byte, and one of them writes.
    pub(super) fn conflicts(&self, other: &Self) -> bool {
        let (own, bytes) = (&self.bytes, &other.bytes);
        (self.writes || other.writes) && bytes.start < own.end && own.start < bytes.end
    }
}

/// The last tasks of a stream that use an allocation; ticket 0 when there was none.
#[derive(Clone, Debug, Default)]
pub(super) struct Last {
    pub(super) task: Task,
    /// The last one that writes.
    write: Task,
    /// A range around the bytes that they use.
    bytes: Range<usize>,
}

impl Last {
    /// Notes one more task of a stream with tasks done up to `done`: forgets bytes that only those
    /// used.
    #[inline]
    fn note(&mut self, task: Task, touch: &Touch, done: u64) {
        let Touch { bytes, writes } = touch;
        let Range { start, end } = self.bytes;
        self.bytes = if self.task.ticket <= done {
            bytes.clone()
        } else {
            start.min(bytes.start)..end.max(bytes.end)
        };
        self.task = self.task.max(task);
        if *writes {
            self.write = self.write.max(task);
        }
    }

    /// The task that another one must come after: readers may run side by side.
    pub(super) fn conflict(&self, touch: &Touch) -> Task {
        let Touch { bytes, writes } = touch;
        if bytes.start >= self.bytes.end || self.bytes.start >= bytes.end {
            return Task::default();
        }
        if *writes { self.task } else { self.write }
    }
}

/// A stream, and its last tasks that use the memory.
#[derive(Clone, Debug)]
pub(super) struct Use {
    pub(super) stream: Arc<StreamCore>,
    pub(super) last: Last,
}

impl Use {
    /// True when the last task is known to be done.
    pub(super) fn is_done(&self) -> bool {
        self.stream.progress.done() >= self.last.task.ticket
    }

    /// True when no wait needs this use any more: it is done, and cannot have failed.
    fn is_over(&self) -> bool {
        self.is_done() && !self.stream.failures.has_failed()
    }

    fn is_on(&self, stream: &Arc<StreamCore>) -> bool {
        Arc::ptr_eq(&self.stream, stream)
    }
}

/// The uses of one allocation, at most one a stream.
///
/// The usual case is one stream, the home stream or another one: recording is then a comparison and
/// a maximum. With more streams, each use forgets some that are over, in turns: its cost does not
/// grow with the known streams, nor does their number grow with streams that are gone.
#[derive(Debug, Default)]
pub(super) struct Uses {
    /// On the home stream, which the allocation names.
    pub(super) at_home: Last,
    first: Option<Use>,
    more: StreamMap<Use>,
}

/// How many known uses are checked for each new one.
pub(super) const LOOKS: usize = 8;
/// All of them: for callers that have looked at each already.
pub(super) const ALL: usize = usize::MAX;

/// Failed uses that are kept when there are many: a wait reports at least as many.
const MOST_FAILED: usize = 64;

impl Uses {
    /// Notes a use on the home stream, with tasks known to be done up to `done`. As for
    /// [`Uses::record`], `looks` uses are checked and the forgotten ones are returned.
    #[inline]
    pub(super) fn record_home(
        &mut self,
        task: Task,
        touch: &Touch,
        done: u64,
        looks: usize,
    ) -> Option<Vec<Use>> {
        self.at_home.note(task, touch, done);
        self.forget_over(looks)
    }

    /// Notes a use on another stream, and checks whether some others are over. Returns the
    /// forgotten uses, which are dropped without a lock: one may be the last reference to a stream.
    #[inline]
    pub(super) fn record(
        &mut self,
        stream: &Arc<StreamCore>,
        task: Task,
        touch: &Touch,
        done: u64,
        looks: usize,
    ) -> Option<Vec<Use>> {
        if let Some(first) = &mut self.first
            && first.is_on(stream)
        {
            first.last.note(task, touch, done);
            return self.forget_over(looks);
        }
        self.record_further(stream, task, touch, done, looks)
    }

    /// Checks the next few uses, and forgets those that are over.
    #[inline]
    pub(super) fn forget_over(&mut self, looks: usize) -> Option<Vec<Use>> {
        if self.more.is_empty() { None } else { Some(self.take_over(looks)) }
    }

    #[inline(never)]
    fn take_over(&mut self, looks: usize) -> Vec<Use> {
        self.more.take_over(looks, |_, known| known.is_over())
    }

    /// Called when the map is full: forgets all uses that are over, and most of those that failed.
    fn make_room(&mut self) -> Vec<Use> {
        let mut num_failed = 0;
        let forgotten = self.more.take_over(ALL, |_, known| {
            let has_failed = known.is_done() && known.stream.failures.has_failed();
            num_failed += usize::from(has_failed);
            known.is_over() || has_failed && num_failed > MOST_FAILED
        });
        self.more.make_room();
        forgotten
    }

    #[inline(never)]
    fn record_further(
        &mut self,
        stream: &Arc<StreamCore>,
        task: Task,
        touch: &Touch,
        done: u64,
        looks: usize,
    ) -> Option<Vec<Use>> {
        if let Some(known) = self.more.get_mut(stream.key()) {
            known.last.note(task, touch, done);
            return self.forget_over(looks);
        }
        let is_full = self.more.is_full();
        let mut forgotten = if is_full { self.make_room() } else { self.take_over(looks) };
        forgotten.extend(self.first.take_if(|known| known.is_over()));
        let mut new = Use { stream: Arc::clone(stream), last: Last::default() };
        new.last.note(task, touch, done);
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

    /// The same, by value.
    pub(super) fn into_others(self) -> impl Iterator<Item = Use> {
        self.first.into_iter().chain(self.more.into_values())
    }
}
