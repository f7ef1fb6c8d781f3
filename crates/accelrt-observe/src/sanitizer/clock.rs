//! Vector clocks: of each stream the last task that is before.

/// The number of a stream in one watch. Numbers are not used again.
pub(super) type Slot = u32;

/// The step of what lasts until its task ends.
pub(super) const WHOLE: u32 = u32::MAX;

/// A task of a stream, an access inside of it, or an access of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) slot: Slot,
    pub(super) ticket: u64,
    /// The number of an access that is over before its task is, else [`WHOLE`].
    pub(super) step: u32,
}

impl Point {
    /// All of a task, or an access of the host.
    pub(super) fn whole(slot: Slot, ticket: u64) -> Self {
        Self { slot, ticket, step: WHOLE }
    }

    /// True when whatever is behind this point is behind the other one, of the same stream, too.
    pub(super) fn reaches(self, other: Self) -> bool {
        self.slot == other.slot && (self.ticket, self.step) >= (other.ticket, other.step)
    }
}

/// The last point of each stream that is before, sorted by stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Clock(Vec<Point>);

impl Clock {
    pub(super) fn covers(&self, point: Point) -> bool {
        self.place(point.slot).is_ok_and(|place| self.0[place].reaches(point))
    }

    /// Adds a point, unless the clock covers it.
    pub(super) fn add(&mut self, point: Point) {
        match self.place(point.slot) {
            Ok(place) if self.0[place].reaches(point) => {}
            Ok(place) => self.0[place] = point,
            Err(place) => self.0.insert(place, point),
        }
    }

    /// Adds all points of another clock.
    pub(super) fn join(&mut self, other: &Self) {
        other.0.iter().for_each(|point| self.add(*point));
    }

    pub(super) fn is_within(&self, other: &Self) -> bool {
        self.0.iter().all(|point| other.covers(*point))
    }

    /// Forgets what another clock, which everything is behind, covers.
    pub(super) fn forget(&mut self, done: &Self) {
        self.0.retain(|point| !done.covers(*point));
    }

    /// Forgets the points of streams that are not kept.
    pub(super) fn retain(&mut self, is_kept: impl Fn(Slot) -> bool) {
        self.0.retain(|point| is_kept(point.slot));
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    fn place(&self, slot: Slot) -> Result<usize, usize> {
        self.0.binary_search_by_key(&slot, |known| known.slot)
    }
}
