//! The shadow of one allocation: which tasks use which of its bytes.

use std::ops::Range;

use accelrt::internal::{NameId, OperationKind, Place};

use crate::sanitizer::clock::Point;
use crate::sanitizer::timeline::StreamName;
use crate::sanitizer::written::Written;

/// The most uses of one allocation that are known.
const MOST_USES: usize = 1024;

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
    /// True for an argument of a callable and for a view: they keep the buffer, and nothing waits
    /// for them.
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
    pub(super) written: Written,
}

impl Life {
    pub(super) fn new(address: u64, bytes: usize, made: Option<Place>) -> Self {
        let written = if made.is_some() { Written::nothing() } else { Written::everything() };
        Self { address, bytes, made, freed: None, uses: Vec::new(), written }
    }

    /// Adds a use, and forgets those that it hides and those that `is_done`. What finds one that
    /// `is_reached` unordered finds the new one too. `is_retired` is that of [`Written::write_by`].
    /// Returns how many others were forgotten.
    pub(super) fn add(
        &mut self,
        new: ShadowUse,
        is_done: impl Fn(Point) -> bool,
        is_reached: impl Fn(Point) -> bool,
        is_retired: impl Fn(Point) -> bool,
    ) -> u64 {
        self.uses.retain(|old| !(is_done(old.point) || new.hides(old) && is_reached(old.point)));
        let writes = new.may_write() && !new.is_marker;
        let is_task = new.user.stream.is_some();
        let num_unwritten = match (writes, is_task) {
            (true, true) => self.written.write_by(new.point, &new.range, is_retired),
            (true, false) => self.written.write(&new.range),
            (false, _) => 0,
        };
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
}
