//! What was asked for of each piece in use.
//!
//! Read and written by whoever has the piece, without the allocator's lock.

use std::sync::OnceLock;

use crate::allocator::native::piece::{Part, Piece};
use crate::allocator::native::slab::SlabId;
use crate::sync::Ordering;
use crate::sync::unmodelled::{AtomicU16, AtomicU32};

/// How much less than its size was asked for of a block; requested bytes of a small block. What is
/// not in use has the mark.
#[derive(Debug, Default)]
pub(super) struct Live {
    blocks: Chunks<AtomicU32>,
    small: Chunks<AtomicU16>,
}

/// Relaxed: whoever has a piece reads and writes its entry, and the piece itself changes hands
/// through the allocator's lock or the program's own means.
const RELAXED: Ordering = Ordering::Relaxed;
/// The mark of a block that a program does not have.
const NOT_IN_USE: u32 = u32::MAX;
/// The mark of a small one: a request is for a byte at least.
const NOT_IN_USE_SMALL: u16 = 0;

impl Live {
    /// Makes room for a block's place; under the allocator's lock.
    pub(super) fn know_block(&self, place: usize) {
        self.blocks.grow_to(place, || AtomicU32::new(NOT_IN_USE));
    }

    /// Makes room for a slab's place; under the allocator's lock.
    pub(super) fn know_slab(&self, place: usize) {
        self.small.grow_to(place * 64 + 63, || AtomicU16::new(NOT_IN_USE_SMALL));
    }

    /// A program has the piece now, for a request.
    #[inline]
    pub(super) fn begin(&self, piece: Piece, bytes: usize, requested_bytes: usize) {
        #[expect(clippy::cast_possible_truncation, reason = "at most 32 KiB; less than a page")]
        match piece.part() {
            Part::Small(slab, slot) => {
                self.small_at(slab, slot).store(requested_bytes as u16, RELAXED);
            }
            Part::Block(id) => {
                let slack_bytes = (bytes - requested_bytes) as u32;
                self.blocks.at(id.place()).store(slack_bytes, RELAXED);
            }
        }
    }

    /// The program gives the piece back: what was asked for. `None` when it did so before.
    #[inline]
    pub(super) fn end(&self, piece: Piece, bytes: usize) -> Option<usize> {
        match piece.part() {
            Part::Small(slab, slot) => {
                let place = self.small_at(slab, slot);
                let requested_bytes = place.load(RELAXED);
                place.store(NOT_IN_USE_SMALL, RELAXED);
                (requested_bytes != NOT_IN_USE_SMALL).then_some(requested_bytes as usize)
            }
            Part::Block(id) => {
                let place = self.blocks.at(id.place());
                let slack_bytes = place.load(RELAXED);
                place.store(NOT_IN_USE, RELAXED);
                (slack_bytes != NOT_IN_USE).then(|| bytes - slack_bytes as usize)
            }
        }
    }

    /// What was asked for of a piece that a program has.
    pub(super) fn requested(&self, piece: Piece, bytes: usize) -> Option<usize> {
        match piece.part() {
            Part::Small(slab, slot) => {
                let requested_bytes = self.small_at(slab, slot).load(RELAXED);
                (requested_bytes != NOT_IN_USE_SMALL).then_some(requested_bytes as usize)
            }
            Part::Block(id) => {
                let slack_bytes = self.blocks.at(id.place()).load(RELAXED);
                (slack_bytes != NOT_IN_USE).then(|| bytes - slack_bytes as usize)
            }
        }
    }

    #[inline]
    fn small_at(&self, slab: SlabId, slot: u8) -> &AtomicU16 {
        self.small.at(slab.place() * 64 + slot as usize)
    }
}

/// A table that grows and whose entries stay where they are: each chunk is twice the one before.
#[derive(Debug)]
struct Chunks<T>([OnceLock<Box<[T]>>; CHUNK_COUNT]);

const CHUNK_COUNT: usize = 32;
const FIRST_CHUNK: usize = 1 << FIRST_CHUNK_BITS;
const FIRST_CHUNK_BITS: u32 = 6;

impl<T> Default for Chunks<T> {
    fn default() -> Self {
        Self([const { OnceLock::new() }; CHUNK_COUNT])
    }
}

/// The chunk of a place, and the place in it.
#[inline]
fn split(place: usize) -> (usize, usize) {
    let number = place + FIRST_CHUNK;
    let chunk = number.ilog2() - FIRST_CHUNK_BITS;
    (chunk as usize, number - (FIRST_CHUNK << chunk))
}

impl<T> Chunks<T> {
    fn grow_to(&self, place: usize, mut make: impl FnMut() -> T) {
        for (chunk, entries) in self.0[..=split(place).0].iter().enumerate().rev() {
            if entries.get().is_some() {
                break;
            }
            entries.get_or_init(|| (0..FIRST_CHUNK << chunk).map(|_| make()).collect());
        }
    }

    /// An entry that [`Self::grow_to`] made.
    #[inline]
    fn at(&self, place: usize) -> &T {
        let (chunk, place) = split(place);
        &self.0[chunk].get().expect("a place that is known")[place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_each_other_through_the_chunks() {
        let mut next = (0, 0);
        for place in 0..10_000 {
            assert_eq!(split(place), next, "{place}");
            next.1 += 1;
            if next.1 == FIRST_CHUNK << next.0 {
                next = (next.0 + 1, 0);
            }
        }
    }
}
