//! One reserved address range: which parts hold pages, are vacant, or are lost to other code.

use std::collections::BTreeMap;

use crate::backend::contract::Address;
use crate::base::device::DeviceKind;
use crate::base::error::Error;

/// The record of one reserved range. Makes no system calls.
///
/// `filled` ranges hold pages; they are disjoint and inside `span`. The *gaps* between them are
/// inaccessible pages. Each filled range or gap counts as one kernel mapping in `num_mappings`.
/// `lost` ranges are parts of gaps that other code may own; only `recover` makes them usable.
#[derive(Debug)]
pub(super) struct Reservation {
    span: Span,
    filled: BTreeMap<usize, usize>,
    lost: Vec<Span>,
}

impl Reservation {
    pub(super) fn new(span: Span) -> Self {
        Self { span, filled: BTreeMap::new(), lost: Vec::new() }
    }

    pub(super) fn span(&self) -> Span {
        self.span
    }

    /// True when no filled range overlaps `place`.
    pub(super) fn is_vacant(&self, place: Span) -> bool {
        self.before(place.end()).is_none_or(|filled| !filled.overlaps(place))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.filled.is_empty()
    }

    pub(super) fn fill(&mut self, place: Span) {
        assert!(self.span.contains(place) && self.is_vacant(place), "{place:x?} is a vacant place");
        self.filled.insert(place.base, place.bytes);
    }

    pub(super) fn vacate(&mut self, place: Span) {
        let bytes = self.filled.remove(&place.base);
        assert_eq!(bytes, Some(place.bytes), "{place:x?} is a filled place");
    }

    /// The number of mappings that `fill` would add: one for each gap that remains directly before
    /// or after the vacant `place`. The filled range itself replaces the gap around it.
    pub(super) fn mappings_to_fill(&self, place: Span) -> usize {
        let low = self.before(place.base).map_or(self.span.base, Span::end);
        let high = self.filled.range(place.end()..).next().map_or(self.span.end(), |next| *next.0);
        usize::from(low < place.base) + usize::from(place.end() < high)
    }

    pub(super) fn num_mappings(&self) -> usize {
        let mut next = self.span.base;
        let mut num_gaps = 0;
        for (base, bytes) in &self.filled {
            num_gaps += usize::from(next < *base);
            next = base + bytes;
        }
        self.filled.len() + num_gaps + usize::from(next < self.span.end())
    }

    /// Records that other code may own a vacant range.
    pub(super) fn mark_lost(&mut self, place: Span) {
        self.lost.push(place);
    }

    /// Calls `reclaim` for each lost range that overlaps `place`. A range for which `reclaim`
    /// returns true is no longer lost. Returns the first range that is still lost.
    pub(super) fn recover(&mut self, place: Span, reclaim: impl Fn(Span) -> bool) -> Option<Span> {
        self.lost.retain(|lost| !lost.overlaps(place) || !reclaim(*lost));
        self.lost.iter().copied().find(|lost| lost.overlaps(place))
    }

    /// The parts of the reservation that are not lost, in the order of addresses.
    pub(super) fn owned(&self) -> Vec<Span> {
        let mut lost = self.lost.clone();
        lost.sort();
        let mut owned = Vec::with_capacity(lost.len() + 1);
        let mut next = self.span.base;
        for place in lost {
            owned.push(Span { base: next, bytes: place.base.saturating_sub(next) });
            next = next.max(place.end());
        }
        owned.push(Span { base: next, bytes: self.span.end() - next });
        owned.retain(|span| span.bytes > 0);
        owned
    }

    /// The last filled range that begins before `address`.
    fn before(&self, address: usize) -> Option<Span> {
        let (base, bytes) = self.filled.range(..address).next_back()?;
        Some(Span { base: *base, bytes: *bytes })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn place(base: usize, bytes: usize) -> Span {
        Span { base, bytes }
    }

    #[test]
    fn mappings_are_filled_places_and_the_gaps_between_them() {
        let mut range = Reservation::new(place(100, 50));
        assert_eq!(range.num_mappings(), 1);
        // Each row: the filled range, the mappings that it adds, and the total.
        for (filled, more, total) in [
            (place(120, 10), 2, 3),
            (place(100, 10), 1, 4),
            (place(140, 10), 1, 5),
            (place(110, 10), 0, 5),
            (place(130, 10), 0, 5),
        ] {
            assert!(range.is_vacant(filled));
            assert_eq!(range.mappings_to_fill(filled), more, "{filled:?}");
            range.fill(filled);
            assert_eq!(range.num_mappings(), total, "{filled:?}");
            assert!(!range.is_vacant(filled) && !range.is_vacant(place(filled.base + 9, 2)));
        }
        range.vacate(place(120, 10));
        assert_eq!(range.mappings_to_fill(place(120, 10)), 0);
        assert_eq!(range.num_mappings(), 5);
    }

    #[test]
    fn lost_ranges_are_not_owned_until_reclaimed() {
        let mut range = Reservation::new(place(0, 100));
        range.mark_lost(place(90, 10));
        range.mark_lost(place(20, 10));
        assert_eq!(range.owned(), [place(0, 20), place(30, 60)]);
        assert_eq!(range.recover(place(0, 20), |_| unreachable!()), None);
        assert_eq!(range.recover(place(10, 20), |_| false), Some(place(20, 10)));
        assert_eq!(range.recover(place(10, 20), |_| true), None);
        assert_eq!(range.owned(), [place(0, 90)]);
    }

    #[test]
    #[should_panic(expected = "is a vacant place")]
    fn filling_a_filled_range_panics() {
        let mut range = Reservation::new(place(0, 100));
        range.fill(place(0, 20));
        range.fill(place(10, 20));
    }
}

/// The address range of `bytes` from `base`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub(super) base: usize,
    pub(super) bytes: usize,
}

impl Span {
    pub(super) fn new(base: Address, bytes: usize) -> Self {
        Self { base: usize::try_from(base.0).expect("an address of this machine"), bytes }
    }

    pub(super) fn address(self) -> Address {
        Address(self.base as u64)
    }

    /// The address after the last byte. May saturate, since no mapping reaches the last page.
    pub(super) fn end(self) -> usize {
        self.base.saturating_add(self.bytes)
    }

    pub(super) fn contains(self, other: Self) -> bool {
        self.base <= other.base && other.end() <= self.end()
    }

    pub(super) fn overlaps(self, other: Self) -> bool {
        self.base < other.end() && other.base < self.end()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) call: &'static str,
    pub(super) code: i32,
}

impl Refusal {
    /// An error whose text contains the failed system call, the system's reason and `attempt`.
    pub(super) fn error(self, attempt: &str) -> Error {
        let reason = std::io::Error::from_raw_os_error(self.code);
        Error::refused(DeviceKind::CPU, self.call, self.code, format!("{reason}, {attempt}"))
    }
}

#[cfg(all(test, not(loom)))]
mod span_tests {
    use super::*;

    #[test]
    fn spans_touch_without_overlapping() {
        let span = |base, bytes| Span { base, bytes };
        assert!(!span(10, 10).overlaps(span(20, 10)) && !span(20, 10).overlaps(span(10, 10)));
        assert!(span(10, 11).overlaps(span(20, 10)) && span(0, 100).overlaps(span(20, 10)));
        assert!(span(10, 10).contains(span(10, 10)) && !span(10, 10).contains(span(11, 10)));
        assert!(!span(10, 10).contains(span(usize::MAX, 10)));
        assert_eq!(Span::new(Address(4096), 1).address(), Address(4096));
    }

    #[test]
    fn a_refusal_explains_itself() {
        let refusal = Refusal { call: "mremap", code: libc::ENOMEM };
        let message = refusal.error("moving 2.00 MiB").to_string();
        for part in ["mremap failed on cpu", "code 12", "Cannot allocate", "moving 2.00 MiB"] {
            assert!(message.contains(part), "{message}");
        }
    }
}
