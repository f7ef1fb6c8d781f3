//! What was asked for of each piece in use, known to whoever has the piece without a lock.

use crate::allocator::native::chunks::Chunks;
use crate::allocator::native::piece::{Name, Piece};
use crate::sync::Ordering;
use crate::sync::unmodelled::{AtomicU16, AtomicU32};

/// How much less than its size was asked for of a block; requested bytes of a small block. What is
/// not in use has the mark.
///
/// Relaxed, all of them: whoever has the piece writes, and the piece itself changes hands through
/// the allocator's lock or the program's own means.
#[derive(Debug, Default)]
pub(super) struct Live {
    blocks: Chunks<AtomicU32>,
    small: Chunks<AtomicU16>,
}

/// The mark of a block that a program does not have.
const NOT_IN_USE: u32 = u32::MAX;
/// The mark of a small one: a request is for a byte at least.
const NOT_IN_USE_SMALL: u16 = 0;

impl Live {
    /// Makes room for a block's place; under the allocator's lock.
    pub(super) fn know_block(&self, place: usize) {
        let number = place as u64 + 1; // what its name is made of, in the same chunk
        self.blocks.grow_to(number, || AtomicU32::new(NOT_IN_USE));
    }

    /// Makes room for a slab's place; under the allocator's lock.
    pub(super) fn know_slab(&self, place: usize) {
        let number = (place as u64 + 1) * 64; // as above
        self.small.grow_to(number, || AtomicU16::new(NOT_IN_USE_SMALL));
    }

    /// A program has the piece now, for a request. `None` when nobody made room for it.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(super) fn begin(&self, piece: Piece, bytes: usize, requested_bytes: usize) -> Option<()> {
        #[expect(clippy::cast_possible_truncation, reason = "at most 32 KiB; less than a page")]
        match piece.name() {
            Name::Small(place) => {
                let place = self.small.get(place)?;
                place.store(requested_bytes as u16, Ordering::Relaxed); // see `Live`
            }
            Name::Block(place) => {
                let place = self.blocks.get(place)?;
                place.store((bytes - requested_bytes) as u32, Ordering::Relaxed); // see `Live`
            }
        }
        Some(())
    }

    /// The program gives the piece back: what was asked for. `None` when it does not have it.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(super) fn end(&self, piece: Piece, bytes: usize) -> Option<usize> {
        match piece.name() {
            Name::Small(place) => {
                let place = self.small.get(place)?;
                let requested_bytes = place.load(Ordering::Relaxed); // see `Live`
                place.store(NOT_IN_USE_SMALL, Ordering::Relaxed); // see `Live`
                (requested_bytes != NOT_IN_USE_SMALL).then_some(requested_bytes as usize)
            }
            Name::Block(place) => {
                let place = self.blocks.get(place)?;
                let slack_bytes = place.load(Ordering::Relaxed); // see `Live`
                place.store(NOT_IN_USE, Ordering::Relaxed); // see `Live`
                (slack_bytes != NOT_IN_USE).then(|| bytes - slack_bytes as usize)
            }
        }
    }

    /// What was asked for of a piece that a program has.
    pub(super) fn requested(&self, piece: Piece, bytes: usize) -> Option<usize> {
        match piece.name() {
            Name::Small(place) => {
                let requested_bytes = self.small.get(place)?.load(Ordering::Relaxed); // see `Live`
                (requested_bytes != NOT_IN_USE_SMALL).then_some(requested_bytes as usize)
            }
            Name::Block(place) => {
                let slack_bytes = self.blocks.get(place)?.load(Ordering::Relaxed); // see `Live`
                (slack_bytes != NOT_IN_USE).then(|| bytes - slack_bytes as usize)
            }
        }
    }
}
