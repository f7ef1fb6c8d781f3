//! Handles: one word that a program keeps for an allocation and returns at the free.
#![expect(unsafe_code, reason = "marks are found again through the word")]

use std::fmt;

use crate::memory::allocator::block::BlockId;
use crate::memory::allocator::native::marks::{MARK_BITS, Mark, Tag};

/// A piece's mark with its allocator's tag above, the number of a block of engine `torch`, or zero
/// for no bytes. As a signed number above zero only for pieces that threads may cache.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::memory::allocator) struct Handle(u64);

/// A piece's handle without the tag, where the allocator is known. Zero for none.
#[derive(Clone, Copy, Debug)]
pub(in crate::memory::allocator) struct Untagged(u64);

#[derive(Debug)]
pub(in crate::memory::allocator) enum Held {
    Nothing,
    Block(BlockId),
    Piece,
}

/// The sign: set for allocations that threads do not cache.
const UNKEPT: u64 = 1 << 63;
/// Set for pieces whose free is noted by the recorder.
const NOTED: u64 = 1 << 61;
/// Set for blocks of engine `torch`; no mark and no tag has both bits.
const BLOCK: u64 = UNKEPT | 1 << 62;
/// The bits of the mark, below the tag.
const MARK: u64 = (1 << MARK_BITS) - 1;

impl Handle {
    pub(in crate::memory::allocator) fn of_block(id: BlockId) -> Self {
        Self(BLOCK | u64::from(id.number()))
    }

    pub(super) fn of_mark(mark: Mark, tag: Tag) -> Self {
        let handle = Self(mark.to_bits() | tag.0);
        if tag.is_some() { handle } else { handle.unkept() }
    }

    /// The same handle of a piece, which no thread's fast path frees.
    pub(in crate::memory::allocator) fn noted(self) -> Self {
        match self.held() {
            Held::Piece => Self(self.0 | NOTED),
            _ => self,
        }
    }

    pub(in crate::memory::allocator) fn is_noted(self) -> bool {
        matches!(self.held(), Held::Piece) && self.0 & NOTED != 0
    }

    /// The handle as it was before [`Self::noted`].
    pub(in crate::memory::allocator) fn unnoted(self) -> Self {
        if self.is_noted() { Self(self.0 & !NOTED) } else { self }
    }

    /// The same handle, not to be cached.
    pub(in crate::memory::allocator) fn unkept(self) -> Self {
        Self(self.0 | UNKEPT)
    }

    pub(in crate::memory::allocator) fn is_unkept(self) -> bool {
        self.0 & UNKEPT != 0
    }

    pub(in crate::memory::allocator) fn held(self) -> Held {
        match self {
            Self(0) => Held::Nothing,
            #[expect(clippy::cast_possible_truncation, reason = "as it was made")]
            Self(bits) if bits & BLOCK == BLOCK => Held::Block(BlockId::from_number(bits as u32)),
            Self(_) => Held::Piece,
        }
    }

    /// The mark of a piece; `None` for other handles.
    pub(super) fn mark(self) -> Option<Mark> {
        if !matches!(self.held(), Held::Piece) {
            return None;
        }
        // SAFETY: a piece's handle was made of a mark.
        unsafe { Mark::from_bits(self.0 & MARK) }
    }

    /// Returns the handle without the tag, and the mark, of a piece that threads may cache and
    /// whose allocator has `tag`, which is not [`Tag::NONE`]; `None` for all other handles.
    #[inline(always)]
    pub(super) fn untagged(self, tag: Tag) -> Option<(Untagged, Mark)> {
        let bits = self.0 ^ tag.0;
        // SAFETY: a handle with another tag, without one or with a flag leaves bits above a mark's;
        // a handle with this tag was made of a mark.
        let mark = unsafe { Mark::from_bits(bits) }?;
        Some((Untagged(bits), mark))
    }
}

impl Untagged {
    /// Of no piece.
    pub(in crate::memory::allocator) fn none() -> Self {
        Self(0)
    }

    /// For a piece of an allocator with a tag.
    pub(super) fn of_mark(mark: Mark) -> Self {
        Self(mark.to_bits())
    }

    /// True for a piece.
    #[inline(always)]
    pub(super) fn is_some(self) -> bool {
        self.0 != 0
    }

    /// The complete handle.
    #[inline(always)]
    pub(super) fn tagged(self, tag: Tag) -> Handle {
        Handle(self.0 ^ tag.0)
    }

    /// The mark of the piece.
    ///
    /// # Safety
    /// The handle is that of a piece.
    #[inline(always)]
    pub(super) unsafe fn mark(self) -> Mark {
        // SAFETY: `Handle::untagged` made it of a mark's bits.
        let mark = unsafe { Mark::from_bits(self.0) };
        // SAFETY: such bits stand for a mark.
        unsafe { mark.unwrap_unchecked() }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.held() {
            Held::Nothing => f.write_str("Nothing"),
            Held::Block(id) => write!(f, "{id:?}"),
            Held::Piece => write!(f, "Piece({:#x})", self.0 & MARK),
        }
    }
}
