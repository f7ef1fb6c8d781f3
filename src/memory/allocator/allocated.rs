//! Allocated blocks: address, size, and the word that identifies a block at its free.
#![expect(unsafe_code, reason = "blocks are freed once; a handle is the address of its mark")]

use std::fmt;

use crate::base::device::Device;
use crate::base::sync::Ordering;
use crate::base::sync::unmodelled::AtomicU64;
use crate::memory::allocator::live_table::{LiveEntry, MARK_BITS, Tag};
use crate::memory::allocator::torch_blocks::{Block, BlockId};
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
#[repr(C)] // so that no two words are copied as one: see `CachedBlock`
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
pub(super) struct CachedBlock {
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

    pub(super) fn held(&self) -> HandleState {
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
    pub(super) fn single_until(&self, ticket: u64, handle: Untagged) -> CachedBlock {
        let Self { address, busy_until, .. } = *self;
        CachedBlock { handle, address, busy_until: busy_until.max(ticket) }
    }
}

impl CachedBlock {
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

/// A piece's mark with its allocator's tag above, the number of a block of engine `torch`, or zero
/// for no bytes. As a signed number above zero only for pieces that threads may cache.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Handle(u64);

/// A piece's handle without the tag, where the allocator is known. Zero for none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Untagged(u64);

#[derive(Debug)]
pub(super) enum HandleState {
    Nothing,
    Block(BlockId),
    Native,
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
    pub(super) fn of_block(id: BlockId) -> Self {
        Self(BLOCK | u64::from(id.number()))
    }

    pub(super) fn of_mark(mark: LiveEntry, tag: Tag) -> Self {
        let handle = Self(mark.to_bits() | tag.0);
        if tag.is_some() { handle } else { handle.unkept() }
    }

    /// The same handle of a piece, which no thread's fast path frees.
    pub(super) fn noted(self) -> Self {
        match self.held() {
            HandleState::Native => Self(self.0 | NOTED),
            _ => self,
        }
    }

    pub(super) fn is_noted(self) -> bool {
        matches!(self.held(), HandleState::Native) && self.0 & NOTED != 0
    }

    /// The handle as it was before [`Self::noted`].
    pub(super) fn unnoted(self) -> Self {
        if self.is_noted() { Self(self.0 & !NOTED) } else { self }
    }

    /// The same handle, not to be cached.
    pub(super) fn unkept(self) -> Self {
        Self(self.0 | UNKEPT)
    }

    pub(super) fn is_unkept(self) -> bool {
        self.0 & UNKEPT != 0
    }

    pub(super) fn held(self) -> HandleState {
        match self {
            Self(0) => HandleState::Nothing,
            #[expect(clippy::cast_possible_truncation, reason = "as it was made")]
            Self(bits) if bits & BLOCK == BLOCK => {
                HandleState::Block(BlockId::from_number(bits as u32))
            }
            Self(_) => HandleState::Native,
        }
    }

    /// The mark of a piece; `None` for other handles.
    pub(super) fn mark(self) -> Option<LiveEntry> {
        if !matches!(self.held(), HandleState::Native) {
            return None;
        }
        // SAFETY: a piece's handle was made of a mark.
        unsafe { LiveEntry::from_bits(self.0 & MARK) }
    }

    /// Returns the handle without the tag, and the mark, of a piece that threads may cache and
    /// whose allocator has `tag`, which is not [`Tag::NONE`]; `None` for all other handles.
    #[inline(always)]
    pub(super) fn untagged(self, tag: Tag) -> Option<(Untagged, LiveEntry)> {
        let bits = self.0 ^ tag.0;
        // SAFETY: a handle with another tag, without one or with a flag leaves bits above a mark's;
        // a handle with this tag was made of a mark.
        let mark = unsafe { LiveEntry::from_bits(bits) }?;
        Some((Untagged(bits), mark))
    }
}

impl Untagged {
    /// Of no piece.
    pub(super) fn none() -> Self {
        Self(0)
    }

    /// For a piece of an allocator with a tag.
    pub(super) fn of_mark(mark: LiveEntry) -> Self {
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
    pub(super) unsafe fn mark(self) -> LiveEntry {
        // SAFETY: `Handle::untagged` made it of a mark's bits.
        let mark = unsafe { LiveEntry::from_bits(self.0) };
        // SAFETY: such bits stand for a mark.
        unsafe { mark.unwrap_unchecked() }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.held() {
            HandleState::Nothing => f.write_str("Nothing"),
            HandleState::Block(id) => write!(f, "{id:?}"),
            HandleState::Native => write!(f, "BlockRef({:#x})", self.0 & MARK),
        }
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
