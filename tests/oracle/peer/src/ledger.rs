//! The calls that a device got for memory, and the ranges of addresses that it gave.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// A place: the number of a range, in the order in which they were asked for, and an offset in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) range: usize,
    pub(crate) offset: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.range, self.offset)
    }
}

#[derive(Debug)]
struct Range {
    number: usize,
    bytes: usize,
}

/// A page of physical memory.
#[derive(Debug)]
struct Physical {
    bytes: usize,
    at: Option<u64>,
}

/// What a device was asked. Addresses never come again: the null kind gives old ones last.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    ranges: BTreeMap<u64, Range>,
    physical: BTreeMap<(usize, u64), Physical>,
    text: String,
}

impl Ledger {
    pub(crate) fn place(&self, address: u64) -> Option<Place> {
        let (base, range) = self.ranges.range(..=address).next_back()?;
        let offset = address - base;
        (offset < range.bytes as u64).then_some(Place { range: range.number, offset })
    }

    /// The lines since the last question.
    pub(crate) fn take_text(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    fn note(&mut self, device: usize, name: &str, bytes: usize, at: Option<u64>) {
        write!(self.text, "call {device} {name} {bytes}").expect("a string takes all");
        if let Some(place) = at.and_then(|at| self.place(at)) {
            write!(self.text, " {place}").expect("as above");
        }
        self.text.push('\n');
    }

    /// A range, or the refusal of one.
    pub(crate) fn range(&mut self, device: usize, name: &str, bytes: usize, base: Option<u64>) {
        let Some(base) = base else {
            writeln!(self.text, "call {device} {name} {bytes} refused").expect("as above");
            return;
        };
        let number = self.ranges.len();
        self.ranges.insert(base, Range { number, bytes });
        self.note(device, name, bytes, Some(base));
    }

    /// The end of one, from its first byte.
    pub(crate) fn end_range(&mut self, device: usize, name: &str, base: u64) {
        let bytes = self.ranges.get(&base).map_or(0, |range| range.bytes);
        self.note(device, name, bytes, Some(base));
    }

    pub(crate) fn create(&mut self, device: usize, bytes: usize, handle: Option<u64>) {
        let Some(handle) = handle else {
            writeln!(self.text, "call {device} create {bytes} refused").expect("as above");
            return;
        };
        self.physical.insert((device, handle), Physical { bytes, at: None });
        self.note(device, "create", bytes, None);
    }

    pub(crate) fn map(&mut self, device: usize, handle: u64, to: u64) {
        let physical = self.physical.get_mut(&(device, handle)).expect("it was created");
        physical.at = Some(to);
        let bytes = physical.bytes;
        self.note(device, "map", bytes, Some(to));
    }

    pub(crate) fn unmap(&mut self, device: usize, handle: u64) {
        let physical = self.physical.get_mut(&(device, handle)).expect("it was created");
        let (bytes, at) = (physical.bytes, physical.at.take());
        self.note(device, "unmap", bytes, at);
    }

    pub(crate) fn drop_physical(&mut self, device: usize, handle: u64) {
        let physical = self.physical.remove(&(device, handle)).expect("it was created");
        self.note(device, "drop", physical.bytes, None);
    }
}
