//! The shadow of one allocation: which tasks use which of its bytes, and which were written.

use std::ops::Range;

use crate::engine::log::names::NameId;
use crate::engine::stream::operation::OperationKind;
use crate::engine::stream::order_watch::Place;
use crate::observe::sanitizer::clock::Point;
use crate::observe::sanitizer::timeline::StreamName;

/// The most uses, and the most written ranges, of one allocation that are known.
const MOST_USES: usize = 1024;

/// The bytes of an allocation of any size.
const EVERYTHING: Range<usize> = 0..usize::MAX;

/// What uses memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    /// `None` for the host.
    pub(crate) stream: StreamName,
    pub(crate) operation: OperationKind,
    pub(crate) name: NameId,
    /// The address of the function that it calls; else 0.
    pub(crate) function: u64,
    pub(crate) place: Place,
    /// When the task was enqueued, or the host did it: a count of such steps.
    pub(crate) step: u64,
}

/// One use of some bytes.
#[derive(Clone, Debug)]
pub(crate) struct ShadowUse {
    pub(super) point: Point,
    pub(crate) range: Range<usize>,
    /// `None` when the direction is unknown.
    pub(crate) writes: Option<bool>,
    /// False for a bare address: the allocation's free does not wait for it.
    pub(super) is_recorded: bool,
    /// True for an argument of a callable: the task keeps the buffer, and waits for nothing.
    pub(super) is_kept: bool,
    /// True for what `record_stream` says: it delays a free and is no access.
    pub(super) is_marker: bool,
    /// The number of an access of the host, or of a task, that has not ended; else 0.
    pub(super) open: u64,
    pub(crate) user: User,
    /// Which use of its task it is.
    pub(super) nth: usize,
}

impl ShadowUse {
    pub(super) fn may_write(&self) -> bool {
        self.writes != Some(false)
    }

    /// True when both use a byte and one may write it.
    pub(super) fn conflicts(&self, other: &Self) -> bool {
        let (own, others) = (&self.range, &other.range);
        own.start.max(others.start) < own.end.min(others.end)
            && (self.may_write() || other.may_write())
    }

    /// True when whatever would find the other, earlier use unordered finds this one too.
    fn hides(&self, other: &Self) -> bool {
        self.open == 0
            && other.open == 0
            && self.range.start <= other.range.start
            && other.range.end <= self.range.end
            && (self.may_write() || !other.may_write())
            && (self.is_recorded || !other.is_recorded)
            && (self.is_recorded || self.is_kept == other.is_kept)
            && (!self.is_marker || other.is_marker)
    }
}

/// Memory from its allocation to the next one at its place.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) address: u64,
    pub(super) bytes: usize,
    /// `None` for memory that is older than the watch.
    pub(super) made: Option<Place>,
    pub(super) freed: Option<Place>,
    pub(super) uses: Vec<ShadowUse>,
    /// Sorted, apart from each other.
    written: Vec<Range<usize>>,
}

impl Life {
    pub(super) fn new(address: u64, bytes: usize, made: Option<Place>) -> Self {
        let written = if made.is_some() { Vec::new() } else { vec![EVERYTHING] };
        Self { address, bytes, made, freed: None, uses: Vec::new(), written }
    }

    /// Adds a use, and forgets those that it hides and those that `is_done`. What finds one that
    /// `is_reached` unordered finds the new one too. Returns how many others were forgotten.
    pub(super) fn add(
        &mut self,
        new: ShadowUse,
        is_done: impl Fn(Point) -> bool,
        is_reached: impl Fn(Point) -> bool,
    ) -> u64 {
        self.uses.retain(|old| !(is_done(old.point) || new.hides(old) && is_reached(old.point)));
        let writes = new.may_write() && !new.is_marker;
        let num_unwritten = if writes { self.write(&new.range) } else { 0 };
        self.uses.push(new);
        if self.uses.len() <= MOST_USES {
            return num_unwritten;
        }
        num_unwritten + self.uses.drain(..MOST_USES / 2).count() as u64
    }

    /// Ends the open access with this number, at the point that `end` has for its former one.
    pub(super) fn close(&mut self, number: u64, end: impl FnOnce(Point) -> Point) {
        let Some(place) = self.uses.iter().position(|known| known.open == number) else { return };
        let mut ended = self.uses.remove(place);
        (ended.point, ended.open) = (end(ended.point), 0);
        self.uses.retain(|old| !(ended.point.reaches(old.point) && ended.hides(old)));
        self.uses.push(ended);
    }

    /// Notes that the bytes have contents. Returns how many gaps between what was written found no
    /// room: all bytes count as written then.
    pub(super) fn write(&mut self, range: &Range<usize>) -> u64 {
        let first = self.written.partition_point(|known| known.end < range.start);
        let end = self.written.partition_point(|known| known.start <= range.end);
        let mut joined = range.clone();
        for known in self.written.drain(first..end) {
            joined = joined.start.min(known.start)..joined.end.max(known.end);
        }
        self.written.insert(first, joined);
        if self.written.len() <= MOST_USES {
            return 0;
        }
        std::mem::replace(&mut self.written, vec![EVERYTHING]).len() as u64 - 1
    }

    pub(super) fn is_written(&self, range: &Range<usize>) -> bool {
        let place = self.written.partition_point(|known| known.end < range.end);
        self.written.get(place).is_some_and(|known| known.start <= range.start)
    }
}
