//! What was asked for of each piece in use, known to whoever has the piece without a lock.
#![expect(unsafe_code, reason = "a mark is found again through a pointer, without its table")]

use crate::allocator::native::chunks::Chunks;
use crate::allocator::native::piece::{Name, Piece};
use crate::sync::Ordering;
use crate::sync::unmodelled::{AtomicU16, AtomicU32};

/// A mark for each piece.
#[derive(Debug, Default)]
pub(super) struct Live {
    blocks: Chunks<AtomicU32>,
    small: Chunks<AtomicU16>,
}

/// How much less than its size was asked for of a block; requested bytes of a small block. What is
/// not in use has a number of its own.
///
/// Relaxed, all of them: whoever has the piece writes, and the piece itself changes hands through
/// the allocator's lock or the program's own means.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mark<'a> {
    Small(&'a AtomicU16),
    Block(&'a AtomicU32),
}

/// A mark without its table, and without its sort.
#[derive(Clone, Copy, Debug)]
pub(super) struct MarkPointer(*const ());

// SAFETY: what it points to is shared by all threads.
unsafe impl Send for MarkPointer {}

/// Of a block that a program does not have.
const NOT_IN_USE: u32 = u32::MAX;
/// Of a small one: a request is for a byte at least.
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

    /// The mark of a piece. `None` when nobody made room for it.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(super) fn mark(&self, piece: Piece) -> Option<Mark<'_>> {
        Some(match piece.name() {
            Name::Small(place) => Mark::Small(self.small.get(place)?),
            Name::Block(place) => Mark::Block(self.blocks.get(place)?),
        })
    }
}

impl Mark<'_> {
    /// A program has the piece now, for a request.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    #[expect(clippy::cast_possible_truncation, reason = "at most 32 KiB; less than a page")]
    pub(super) fn begin(self, bytes: usize, requested_bytes: usize) {
        match self {
            Self::Small(mark) => {
                mark.store(requested_bytes as u16, Ordering::Relaxed); // see `Mark`
            }
            Self::Block(mark) => {
                mark.store((bytes - requested_bytes) as u32, Ordering::Relaxed); // see `Mark`
            }
        }
    }

    /// The program gives the piece back: what was asked for. `None` when it does not have it.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(super) fn end(self, bytes: usize) -> Option<usize> {
        let requested_bytes = self.requested(bytes);
        match self {
            Self::Small(mark) => mark.store(NOT_IN_USE_SMALL, Ordering::Relaxed), // see `Mark`
            Self::Block(mark) => mark.store(NOT_IN_USE, Ordering::Relaxed),       // see `Mark`
        }
        requested_bytes
    }

    /// What was asked for of a piece that a program has.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    pub(super) fn requested(self, bytes: usize) -> Option<usize> {
        match self {
            Self::Small(mark) => {
                let requested_bytes = mark.load(Ordering::Relaxed); // see `Mark`
                (requested_bytes != NOT_IN_USE_SMALL).then_some(requested_bytes as usize)
            }
            Self::Block(mark) => {
                let slack_bytes = mark.load(Ordering::Relaxed); // see `Mark`
                (slack_bytes != NOT_IN_USE).then(|| bytes - slack_bytes as usize)
            }
        }
    }

    /// To be found again with [`MarkPointer::of`].
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    pub(super) fn pointer(self) -> MarkPointer {
        MarkPointer(match self {
            Self::Small(mark) => std::ptr::from_ref(mark).cast(),
            Self::Block(mark) => std::ptr::from_ref(mark).cast(),
        })
    }
}

impl MarkPointer {
    /// The mark again.
    ///
    /// # Safety
    /// It was made of the mark of this piece in this table.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(super) unsafe fn of(self, piece: Piece, _: &Live) -> Mark<'_> {
        match piece.name() {
            // SAFETY: a piece of this sort has such a mark, whose place stays as long as the table.
            Name::Small(_) => Mark::Small(unsafe { &*self.0.cast() }),
            // SAFETY: as above.
            Name::Block(_) => Mark::Block(unsafe { &*self.0.cast() }),
        }
    }
}
