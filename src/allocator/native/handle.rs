//! What was handed out, in one word that programs keep and give back.
#![expect(unsafe_code, reason = "marks are found again through the word")]

use std::fmt;

use crate::allocator::block::BlockId;
use crate::allocator::native::live::Mark;

/// The mark of a piece, the number of a block of the other policy, or zero for no bytes. Above zero
/// as a number with a sign only what threads may keep.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::allocator) struct Handle(u64);

/// What a handle stands for.
#[derive(Debug)]
pub(in crate::allocator) enum Held {
    Nothing,
    Block(BlockId),
    Piece,
}

/// Set in handles of what threads do not keep: the sign.
const UNKEPT: u64 = 1 << 63;
/// Set in handles of blocks: no address has them.
const BLOCK: u64 = UNKEPT | 1 << 62;

impl Handle {
    pub(in crate::allocator) fn of_block(id: BlockId) -> Self {
        Self(BLOCK | u64::from(id.number()))
    }

    pub(in crate::allocator::native) fn of_mark(mark: Mark) -> Self {
        let bits = mark.to_bits();
        assert_eq!(bits & BLOCK, 0, "addresses of programs are below: {mark:?}");
        Self(bits)
    }

    /// The same, not to be kept by threads.
    pub(in crate::allocator) fn unkept(self) -> Self {
        Self(self.0 | UNKEPT)
    }

    pub(in crate::allocator) fn is_unkept(self) -> bool {
        self.0 & UNKEPT != 0
    }

    pub(in crate::allocator) fn held(self) -> Held {
        match self {
            Self(0) => Held::Nothing,
            #[expect(clippy::cast_possible_truncation, reason = "as it was made")]
            Self(bits) if bits & BLOCK == BLOCK => Held::Block(BlockId::from_number(bits as u32)),
            Self(_) => Held::Piece,
        }
    }

    /// The mark of the piece that it is, if it is one.
    pub(in crate::allocator::native) fn mark(self) -> Option<Mark> {
        matches!(self.held(), Held::Piece).then(|| Self(self.0 & !UNKEPT).kept_mark())?
    }

    /// True for a piece that threads may keep.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(in crate::allocator) fn is_kept(self) -> bool {
        self.0.cast_signed() > 0
    }

    /// The same where threads may keep it.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(in crate::allocator::native) fn kept_mark(self) -> Option<Mark> {
        if !self.is_kept() {
            return None;
        }
        // SAFETY: what is above zero was made of a mark.
        Some(unsafe { Mark::from_bits(self.0) })
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.held() {
            Held::Nothing => f.write_str("Nothing"),
            Held::Block(id) => write!(f, "{id:?}"),
            Held::Piece => write!(f, "Piece({:#x})", self.0 & !UNKEPT),
        }
    }
}
