//! The live table: the requested size of each piece in use, which its owner reads without a lock.
#![expect(unsafe_code, reason = "a mark is found again through a word, without its table")]

use std::ptr;

use crossbeam_queue::SegQueue;

use crate::base::sync::Ordering;
use crate::base::sync::unmodelled::{AtomicU16, AtomicU32, AtomicU64};
use crate::memory::allocator::block_ref::{
    BlockRef, CHUNK_COUNT, Chunks, Entry, GROUP, Place, Spare,
};
use crate::memory::allocator::ids::SlabId;
#[derive(Debug)]
pub(super) struct LiveTable {
    blocks: Chunks<AtomicU32>,
    small: Chunks<AtomicU16>,
    tag: Tag,
}

/// The mark of a small block: its requested bytes. Of a block: its size less its requested bytes.
/// Pieces that no program has are marked with a number of their own.
///
/// Relaxed, all accesses: the piece's owner writes, and a piece changes its owner through the
/// allocator's lock or the program's own synchronisation.
#[derive(Clone, Copy, Debug)]
pub(super) enum LiveEntry {
    Small(&'static AtomicU16),
    Block(&'static AtomicU32),
}

/// The marks of one slab's small blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlabMarks {
    group: &'static [AtomicU16; GROUP],
    slab: SlabId,
}

impl SlabMarks {
    #[inline(always)]
    pub(super) fn of(self, slot: u8) -> LiveEntry {
        LiveEntry::Small(&self.group[BlockRef::place_in_group(self.slab, slot)])
    }
}

/// The mark of a block that is not in use.
const NOT_IN_USE: u32 = u32::MAX;
/// The mark of a small block that is not in use: requests have at least one byte.
const NOT_IN_USE_SMALL: u16 = 0;
/// The bits of an address. The bit above them tells blocks (1) from small blocks (0).
const ADDRESS_BITS: u32 = 48;
const BLOCK: u64 = 1 << ADDRESS_BITS;
/// The bits of a mark's word.
pub(super) const MARK_BITS: u32 = ADDRESS_BITS + 1;

/// The number of tags between the mark's bits and the three highest bits, which handles use.
const TAG_COUNT: u64 = 1 << (61 - MARK_BITS);

/// The bits above the mark in all handles of one allocator.
///
/// A tag is reused only when its allocator and all its handles are gone. When all tags are taken,
/// an allocator has none: threads cache none of its pieces, and its marks identify its handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag(pub(super) u64);

static SPARE_TAGS: SegQueue<Tag> = SegQueue::new();

impl Tag {
    const NONE: Self = Self(0);
    /// For tests without an allocator.
    #[cfg(all(test, loom))]
    pub(super) const TEST: Self = Self(1 << MARK_BITS);

    /// Takes a tag that no other allocator has; [`Self::NONE`] when all are taken.
    pub(super) fn take() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        SPARE_TAGS.pop().unwrap_or_else(|| {
            // Relaxed: only uniqueness matters.
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            if number < TAG_COUNT { Self(number << MARK_BITS) } else { Self::NONE }
        })
    }

    /// Releases a tag that no handle has any more.
    pub(super) fn give_back(self) {
        if self.is_some() {
            SPARE_TAGS.push(self);
        }
    }

    /// False for the tag of an allocator without one.
    pub(super) fn is_some(self) -> bool {
        self != Self::NONE
    }
}

macro_rules! entries {
    ($($entry:ty, $not_in_use:expr;)*) => {
        $(impl Entry for $entry {
            fn new() -> Self {
                Self::new($not_in_use)
            }

            fn is_clear(&self) -> bool {
                self.load(Ordering::Relaxed) == $not_in_use // see `LiveEntry`
            }

            fn spare() -> &'static Spare<Self> {
                static SPARE: Spare<$entry> = [const { SegQueue::new() }; CHUNK_COUNT];
                &SPARE
            }
        })*
    };
}

entries! {
    AtomicU32, NOT_IN_USE;
    AtomicU16, NOT_IN_USE_SMALL;
}

impl Default for LiveTable {
    fn default() -> Self {
        Self { blocks: Chunks::default(), small: Chunks::default(), tag: Tag::take() }
    }
}

impl Drop for LiveTable {
    fn drop(&mut self) {
        // A leaked piece keeps its tag and its mark: its handle still exists.
        if self.blocks.is_clear() && self.small.is_clear() {
            self.tag.give_back();
        }
    }
}

impl LiveTable {
    pub(super) fn tag(&self) -> Tag {
        self.tag
    }

    /// Creates the marks of a slab; under the allocator's lock.
    pub(super) fn know_slab(&self, place: usize) {
        self.small.grow_to((place as u64 + 1) * 64);
    }

    /// Returns the mark of a piece. `None` when it was not created.
    #[inline]
    pub(super) fn mark(&self, piece: BlockRef) -> Option<LiveEntry> {
        let place = piece.place();
        Some(if piece.is_small() {
            LiveEntry::Small(self.small.get(place)?)
        } else {
            LiveEntry::Block(self.blocks.get(place)?)
        })
    }

    /// Returns the marks of a known slab.
    #[inline]
    pub(super) fn marks_of(&self, slab: SlabId) -> SlabMarks {
        let first = Place::of(BlockRef::first_of_group(slab));
        SlabMarks { group: self.small.group(first).expect("of a known slab"), slab }
    }

    /// Returns the mark of a piece, which it creates if needed; under the allocator's lock.
    #[inline]
    pub(super) fn mark_of(&self, piece: BlockRef) -> LiveEntry {
        self.mark(piece).unwrap_or_else(|| {
            assert!(!piece.is_small(), "{piece:?} is of no known slab");
            self.blocks.grow_to(piece.place().index());
            self.mark(piece).expect("just made")
        })
    }

    /// Returns the piece that has a mark of this table.
    #[inline(always)]
    pub(super) fn piece(&self, mark: LiveEntry) -> Option<BlockRef> {
        Some(match mark {
            LiveEntry::Small(mark) => BlockRef::at(self.small.place_of(mark)?, true),
            LiveEntry::Block(mark) => BlockRef::at(self.blocks.place_of(mark)?, false),
        })
    }
}

impl LiveEntry {
    /// Marks the piece as in use for a request.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "at most 32 KiB; less than a page")]
    pub(super) fn begin(self, bytes: usize, requested_bytes: usize) {
        match self {
            Self::Small(mark) => {
                mark.store(requested_bytes as u16, Ordering::Relaxed); // see `LiveEntry`
            }
            Self::Block(mark) => {
                mark.store((bytes - requested_bytes) as u32, Ordering::Relaxed); // see `LiveEntry`
            }
        }
    }

    /// Marks the piece as not in use. Returns its requested bytes; `None` when it was not in use.
    #[inline(always)]
    pub(super) fn end(self, bytes: usize) -> Option<usize> {
        let requested_bytes = self.requested(bytes);
        match self {
            Self::Small(mark) => mark.store(NOT_IN_USE_SMALL, Ordering::Relaxed), // see `LiveEntry`
            Self::Block(mark) => mark.store(NOT_IN_USE, Ordering::Relaxed),       // see `LiveEntry`
        }
        requested_bytes
    }

    /// Returns the requested bytes of a piece in use.
    #[inline(always)]
    pub(super) fn requested(self, bytes: usize) -> Option<usize> {
        match self {
            Self::Small(mark) => {
                let requested_bytes = mark.load(Ordering::Relaxed) as usize; // see `LiveEntry`
                (requested_bytes != NOT_IN_USE_SMALL as usize).then_some(requested_bytes)
            }
            Self::Block(mark) => {
                let slack_bytes = mark.load(Ordering::Relaxed); // see `LiveEntry`
                (slack_bytes != NOT_IN_USE).then(|| bytes - slack_bytes as usize)
            }
        }
    }

    /// Converts the mark into [`MARK_BITS`] bits.
    pub(super) fn to_bits(self) -> u64 {
        let (address, sort) = match self {
            Self::Small(mark) => (ptr::from_ref(mark).expose_provenance() as u64, 0),
            Self::Block(mark) => (ptr::from_ref(mark).expose_provenance() as u64, BLOCK),
        };
        assert!(address < BLOCK, "addresses of programs are below: {self:?}");
        address | sort
    }

    /// Converts bits from [`LiveEntry::to_bits`] back. `None` for a word with higher bits.
    ///
    /// # Safety
    /// [`LiveEntry::to_bits`] returned the bits, or the word has higher ones.
    #[inline(always)]
    pub(super) unsafe fn from_bits(bits: u64) -> Option<Self> {
        match bits >> ADDRESS_BITS {
            // SAFETY: of this sort, as the caller promises.
            0 => Some(unsafe { Self::small_at(bits) }),
            // SAFETY: as above.
            1 => Some(unsafe { Self::block_at(bits - BLOCK) }),
            _ => None,
        }
    }

    /// # Safety
    /// The address is that of such a mark.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "an address")]
    unsafe fn small_at(address: u64) -> Self {
        // SAFETY: the caller upholds that a mark was there. Chunks never free or move their
        // entries, which are atomic.
        Self::Small(unsafe { &*ptr::with_exposed_provenance(address as usize) })
    }

    /// # Safety
    /// The address is that of such a mark.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "an address")]
    unsafe fn block_at(address: u64) -> Self {
        // SAFETY: as in `small_at`.
        Self::Block(unsafe { &*ptr::with_exposed_provenance(address as usize) })
    }
}
