//! What was handed out: where it is, how large, and by which policy.

use crate::allocator::block::{Block, BlockId};
use crate::allocator::books::Books;
use crate::allocator::native::piece::Piece;

/// A block that was handed out. A request for nothing gets one of no bytes at address 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)] // so that no two words are copied as one: see `Single`
pub struct Allocated {
    address: u64,
    bytes: usize,
    handle: Handle,
    /// Which handing out it is; of a piece the stream of the heap that it goes back to.
    handout: u64,
    /// The task of its stream after which nothing from its earlier life uses it.
    busy_until: u64,
}

/// What a piece has of its own, among all of its size for its stream.
///
/// What is side by side here is not in [`Allocated`]: compilers would copy it as a word of sixteen
/// bytes, which takes a processor seven steps from one place to the next, and some places would
/// write halves of what others read as a whole, which takes it twenty. A word each takes it one.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Single {
    handle: Handle,
    address: u64,
    busy_until: u64,
}

/// What was handed out, and by which policy, in one word: the name of a piece, the number of a
/// block with a mark, and zero for no bytes. Only what threads may keep is the name of a known
/// piece as it stands.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Handle(u64);

/// What a handle stands for.
#[derive(Debug)]
pub(super) enum Held {
    Nothing,
    Block(BlockId),
    Piece,
}

/// Set in handles of blocks.
const BLOCK: u64 = 1 << 62 | Piece::BEYOND;

impl Handle {
    fn of_block(id: BlockId) -> Self {
        Self(BLOCK | u64::from(id.number()))
    }

    fn held(self) -> Held {
        match self {
            Self(0) => Held::Nothing,
            #[expect(clippy::cast_possible_truncation, reason = "as it was made")]
            Self(bits) if bits & BLOCK == BLOCK => Held::Block(BlockId::from_number(bits as u32)),
            Self(_) => Held::Piece,
        }
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.held() {
            Held::Nothing => f.write_str("Nothing"),
            Held::Block(id) => write!(f, "{id:?}"),
            Held::Piece => write!(f, "{:?}", Piece::from_bits(self.0 & !Piece::BEYOND)),
        }
    }
}

impl Allocated {
    /// Its first byte.
    #[must_use]
    #[inline]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its size: at least what was asked for.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The task of its stream after which nothing from its earlier life uses it.
    #[inline]
    pub(crate) fn busy_until(&self) -> u64 {
        self.busy_until
    }

    pub(super) fn of(id: BlockId, books: &Books) -> Self {
        let block = &books.blocks[id];
        let Block { address, bytes, busy_until, handout, .. } = *block;
        Self { address, bytes, handle: Handle::of_block(id), busy_until, handout }
    }

    #[inline]
    pub(super) fn of_piece(
        piece: Piece,
        address: u64,
        bytes: usize,
        busy_until: u64,
        stream: u64,
    ) -> Self {
        Self { address, bytes, handle: Handle(piece.to_bits()), busy_until, handout: stream }
    }

    /// What it stands for.
    pub(super) fn held(&self) -> Held {
        self.handle.held()
    }

    /// Which handing out it is.
    pub(super) fn handout(&self) -> u64 {
        self.handout
    }

    /// Not to be kept by threads.
    pub(super) fn unkept(self) -> Self {
        Self { handle: Handle(self.handle.0 | Piece::BEYOND), ..self }
    }

    pub(super) fn is_unkept(&self) -> bool {
        self.handle.0 & Piece::BEYOND != 0
    }

    /// Of a piece: the stream whose cache keeps it.
    #[inline]
    pub(super) fn stream(&self) -> u64 {
        self.handout
    }

    /// The piece that it is.
    pub(super) fn piece(&self) -> Piece {
        Piece::from_bits(self.handle.0 & !Piece::BEYOND)
    }

    /// What it has of its own, in use up to a task of its stream.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(super) fn single_until(&self, ticket: u64) -> Single {
        let Self { handle, address, busy_until, .. } = *self;
        Single { handle, address, busy_until: busy_until.max(ticket) }
    }
}

impl Single {
    /// With what it shares.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(super) fn of(self, bytes: usize, stream: u64) -> Allocated {
        let Self { handle, address, busy_until } = self;
        Allocated { address, bytes, handle, handout: stream, busy_until }
    }

    /// The piece that it is, if threads may keep it. Of anything else a name that no piece has.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    pub(super) fn kept_piece(self) -> Piece {
        Piece::from_bits(self.handle.0)
    }
}
