//! What was handed out: where it is, how large, and by which policy.
#![expect(unsafe_code, reason = "a block is freed once, also where its owner is shared")]

use std::fmt;

use crate::base::device::Device;
use crate::base::sync::Ordering;
use crate::base::sync::unmodelled::AtomicU64;
use crate::memory::allocator::block::{Block, BlockId};
use crate::memory::allocator::native::handle::{Handle, Held, Untagged};

/// A block that was handed out: the right to its memory, and to free it once.
///
/// Its allocator alone takes it back. One that is dropped is leaked, as a pointer of `malloc` is:
/// the memory stays in use, statistics and snapshots show it, and it does not go back to the device
/// with the allocator. To free it then, each block would have to hold its allocator. A request for
/// nothing gets one of no bytes at address 0, which any allocator takes back.
///
/// What was freed cannot be freed again:
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
    handle: Untagged,
    address: u64,
    busy_until: u64,
}

/// A block came back to an allocator that did not hand it out, and is the caller's still.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a block that is dropped is leaked: its own allocator frees it"]
pub struct ForeignBlock {
    /// The block, for the allocator whose it is.
    pub block: Allocated,
    /// The device of the allocator that was asked.
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

    /// The block, from an owner that is kept and says itself whether it has it still.
    ///
    /// # Safety
    /// The owner has not given it up before, and does so by this: it frees nothing by what it has
    /// from here on.
    #[inline]
    pub(crate) unsafe fn give_up(&self) -> Self {
        let Self { address, bytes, handle, handout, busy_until } = *self;
        Self { address, bytes, handle, handout, busy_until }
    }

    /// The task of its stream after which nothing from its earlier life uses it.
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

    /// What it has of its own, in use up to a task of its stream, with what is left of its handle.
    #[inline(always)]
    pub(super) fn single_until(&self, ticket: u64, handle: Untagged) -> Single {
        let Self { address, busy_until, .. } = *self;
        Single { handle, address, busy_until: busy_until.max(ticket) }
    }
}

impl Single {
    /// A piece that no program has had yet, in use up to a task of its stream.
    #[inline]
    pub(super) fn new(handle: Untagged, address: u64, busy_until: u64) -> Self {
        Self { handle, address, busy_until }
    }

    /// With what it shares, and its handle again.
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

/// Numbers of what is handed out, which no other allocator gives: taken from all numbers in spans.
#[derive(Debug, Default)]
pub(super) struct Handouts {
    next: u64,
    end: u64,
}

impl Handouts {
    const SPAN: u64 = 1 << 24;

    /// A number that was not given before, by any allocator.
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
