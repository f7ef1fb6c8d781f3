//! Vector clocks: of each stream the last task that is before.

/// The number of a stream in one watch. Numbers are not used again.
pub(super) type Slot = u32;

/// A task of a stream, or an access of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) slot: Slot,
    pub(super) ticket: u64,
}

/// The last ticket of each stream that is before, sorted by stream; 0 for streams that are missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Clock(Vec<(Slot, u64)>);

impl Clock {
    pub(super) fn covers(&self, point: Point) -> bool {
        self.place(point.slot).is_ok_and(|place| self.0[place].1 >= point.ticket)
    }

    /// Adds a point, unless the clock covers it.
    pub(super) fn add(&mut self, point: Point) {
        let Point { slot, ticket } = point;
        match self.place(slot) {
            Ok(place) => self.0[place].1 = self.0[place].1.max(ticket),
            Err(place) => self.0.insert(place, (slot, ticket)),
        }
    }

    /// Adds all points of another clock.
    pub(super) fn join(&mut self, other: &Self) {
        other.points().for_each(|point| self.add(point));
    }

    pub(super) fn is_within(&self, other: &Self) -> bool {
        self.points().all(|point| other.covers(point))
    }

    /// Forgets what another clock, which everything is behind, covers.
    pub(super) fn forget(&mut self, done: &Self) {
        self.0.retain(|&(slot, ticket)| !done.covers(Point { slot, ticket }));
    }

    fn points(&self) -> impl Iterator<Item = Point> {
        self.0.iter().map(|&(slot, ticket)| Point { slot, ticket })
    }

    fn place(&self, slot: Slot) -> Result<usize, usize> {
        self.0.binary_search_by_key(&slot, |(known, _)| *known)
    }
}
