//! Allocated blocks: address, size, and a handle that says which engine frees them.
#![expect(unsafe_code, reason = "a block is freed once, also where its owner is shared")]

use std::fmt;

use crate::base::device::Device;
use crate::base::sync::Ordering;
use crate::base::sync::unmodelled::AtomicU64;
use crate::memory::allocator::block::{Block, BlockId};
use crate::memory::allocator::native::handle::{Handle, Held, Untagged};

/// A block that was handed out: the right to its memory, and to free it once.
///
/// Only its own allocator frees it. A dropped block is leaked, as a pointer from `malloc` is: it
/// stays in use, and does not go back to the device with the allocator. A request for 0 bytes gets
/// a block of 0 bytes at address 0, which any allocator frees.
///
/// A block cannot be freed twice:
///
/// ```compile_fail
/// # use accelrt::allocator::{CachingAllocator, Request};
/// # fn twice(allocator: &CachingAllocator) -> accelrt::Result<()> {
/// let block = allocator.allocate(Request::new(1000, 0))?;
/// allocator.free(block).expect("it is its own");
/// allocator.free(block).expect("it is its own");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default, PartialEq, Eq)]
#[repr(C)] // so that no two words are copied as one: see `Single`
#[must_use = "a block that is dropped is leaked: its allocator frees it"]
pub struct Allocated {
    address: u64,
    bytes: usize,
    handle: Handle,
    /// The unique number of the allocation; of a piece the stream of its heap.
    handout: u64,
    /// The task of its stream after which no use before this allocation is left.
    busy_until: u64,
}

/// The fields that differ among the cached pieces of one size and stream.
///
/// Neighbours here are no neighbours in [`Allocated`], so that compilers copy single words, in one
/// cycle each. A copy of two words takes seven, or twenty behind stores of single words.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Single {
    handle: Untagged,
    address: u64,
    busy_until: u64,
}

/// The error of a free by an allocator that did not hand the block out; the caller keeps it.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a block that is dropped is leaked: its own allocator frees it"]
pub struct ForeignBlock {
    /// The block, for the allocator that handed it out.
    pub block: Allocated,
    /// The device of the allocator that refused it.
    pub device: Device,
}

impl fmt::Display for ForeignBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { block: Allocated { address, bytes, .. }, device } = self;
        write!(
            f,
            "The block of {bytes} B at {address:#x} was not handed out by this allocator of \
             {device}. Give it back to the one that it is from."
        )
    }
}

impl std::error::Error for ForeignBlock {}

impl Allocated {
    /// Returns the first address.
    #[must_use]
    #[inline]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the size: at least the requested one.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes the block from a shared owner, which records itself whether it still has it.
    ///
    /// # Safety
    /// The owner has not given the block up before, and does not free its copy afterwards.
    #[inline]
    pub(crate) unsafe fn give_up(&self) -> Self {
        let Self { address, bytes, handle, handout, busy_until } = *self;
        Self { address, bytes, handle, handout, busy_until }
    }

    #[inline]
    pub(crate) fn busy_until(&self) -> u64 {
        self.busy_until
    }

    pub(super) fn of_block(id: BlockId, block: &Block) -> Self {
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

    pub(super) fn held(&self) -> Held {
        self.handle.held()
    }

    pub(super) fn handout(&self) -> u64 {
        self.handout
    }

    /// Marks the block as one that thread caches do not keep.
    pub(super) fn unkept(self) -> Self {
        Self { handle: self.handle.unkept(), ..self }
    }

    /// Marks the block as one whose free is noted.
    pub(super) fn set_noted(&mut self) {
        self.handle = self.handle.noted();
    }

    pub(super) fn is_noted(&self) -> bool {
        self.handle.is_noted()
    }

    /// A copy of a piece's fields that thread caches keep, also if its free is noted.
    pub(super) fn to_keep(&self) -> Self {
        let Self { address, bytes, handle, handout, busy_until } = *self;
        Self { address, bytes, handle: handle.unnoted(), handout, busy_until }
    }

    pub(super) fn is_unkept(&self) -> bool {
        self.handle.is_unkept()
    }

    /// Returns the stream of a piece's heap; without meaning for other blocks.
    #[inline]
    pub(super) fn stream(&self) -> u64 {
        self.handout
    }

    /// Returns a piece's own fields, in use up to the task `ticket`, with its untagged handle.
    #[inline(always)]
    pub(super) fn single_until(&self, ticket: u64, handle: Untagged) -> Single {
        let Self { address, busy_until, .. } = *self;
        Single { handle, address, busy_until: busy_until.max(ticket) }
    }
}

impl Single {
    /// Returns a free piece of a slab, in use up to a task of its stream.
    #[inline]
    pub(super) fn new(handle: Untagged, address: u64, busy_until: u64) -> Self {
        Self { handle, address, busy_until }
    }

    /// No piece.
    pub(super) fn none() -> Self {
        Self { handle: Untagged::none(), address: 0, busy_until: 0 }
    }

    /// Returns the piece with the fields that it shares and its tagged handle.
    #[inline(always)]
    pub(super) fn of(self, handle: Handle, bytes: usize, stream: u64) -> Allocated {
        let Self { address, busy_until, .. } = self;
        Allocated { address, bytes, handle, handout: stream, busy_until }
    }

    #[inline(always)]
    pub(super) fn handle(self) -> Untagged {
        self.handle
    }
}

/// Numbers for allocations, unique among all allocators: each takes them in spans.
#[derive(Debug, Default)]
pub(super) struct Handouts {
    next: u64,
    end: u64,
}

impl Handouts {
    /// Few in tests, which cross the ends of spans.
    const SPAN: u64 = if cfg!(test) { 5 } else { 1 << 24 };

    pub(super) fn next(&mut self) -> u64 {
        static SPANS: AtomicU64 = AtomicU64::new(0);
        if self.next == self.end {
            // Relaxed: only uniqueness matters.
            self.next = SPANS.fetch_add(Self::SPAN, Ordering::Relaxed);
            self.end = self.next + Self::SPAN;
        }
        self.next += 1;
        self.next
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn handouts_of_two_allocators_are_unique() {
        let mut allocators = [Handouts::default(), Handouts::default()];
        let mut seen = BTreeSet::new();
        for number in 0..400 {
            let handout = allocators[usize::from(number % 3 == 0)].next();
            assert!(handout > 0 && seen.insert(handout), "{handout} was given out before");
        }
    }
}
