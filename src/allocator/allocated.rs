//! What was handed out: where it is, how large, and by which policy.

use crate::allocator::block::{Block, BlockId};
use crate::allocator::books::Books;
use crate::allocator::native::handle::{Handle, Held};

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
        handle: Handle,
        address: u64,
        bytes: usize,
        busy_until: u64,
        stream: u64,
    ) -> Self {
        Self { address, bytes, handle, busy_until, handout: stream }
    }

    pub(super) fn handle(&self) -> Handle {
        self.handle
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
        Self { handle: self.handle.unkept(), ..self }
    }

    pub(super) fn is_unkept(&self) -> bool {
        self.handle.is_unkept()
    }

    /// Of a piece: the stream whose cache keeps it.
    #[inline]
    pub(super) fn stream(&self) -> u64 {
        self.handout
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

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    pub(super) fn handle(self) -> Handle {
        self.handle
    }
}
