//! Marks: the requested size of each piece in use, which its owner reads without a lock.
#![expect(unsafe_code, reason = "a mark is found again through a word, without its table")]

use std::ptr;

use crossbeam_queue::SegQueue;

use crate::base::sync::Ordering;
use crate::base::sync::unmodelled::{AtomicU16, AtomicU32, AtomicU64};
use crate::memory::allocator::native::chunks::{CHUNK_COUNT, Chunks, Entry, GROUP, Place, Spare};
use crate::memory::allocator::native::piece::Piece;
use crate::memory::allocator::native::slab::SlabId;

#[derive(Debug)]
pub(super) struct Marks {
    blocks: Chunks<AtomicU32>,
    small: Chunks<AtomicU16>,
    tag: Tag,
}

/// How much less than its size was asked for of a block; requested bytes of a small block. What is
/// not in use has a number of its own.
///
/// Relaxed, all of them: the piece's owner writes, and the piece itself changes hands through
/// the allocator's lock or the program's own means.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mark {
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
    pub(super) fn of(self, slot: u8) -> Mark {
        Mark::Small(&self.group[Piece::place_in_group(self.slab, slot)])
    }
}

/// The mark of a block that no program has.
const NOT_IN_USE: u32 = u32::MAX;
/// The mark of a small block that no program has: requests have at least one byte.
const NOT_IN_USE_SMALL: u16 = 0;
/// The bits of an address. The bit above them tells blocks (1) from small blocks (0).
const ADDRESS_BITS: u32 = 48;
const BLOCK: u64 = 1 << ADDRESS_BITS;
/// The bits of a mark's word.
pub(super) const MARK_BITS: u32 = ADDRESS_BITS + 1;

/// The number of tags between the mark's bits and the two highest bits, which handles use.
const TAG_COUNT: u64 = 1 << (62 - MARK_BITS);

/// Tells the handles of one allocator from those of all others; stands above the mark in a handle.
///
/// Another allocator gets a tag only after the one before is gone with all its handles. When all
/// tags are taken, an allocator has none: threads cache none of its pieces, and its handles are
/// told apart by their marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag(pub(super) u64);

static SPARE_TAGS: SegQueue<Tag> = SegQueue::new();

impl Tag {
    const NONE: Self = Self(0);
    /// For tests without an allocator.
    #[cfg(all(test, loom))]
    pub(super) const TEST: Self = Self(1 << MARK_BITS);

    /// Takes a tag that no other allocator has; none when all are taken.
    pub(super) fn take() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        SPARE_TAGS.pop().unwrap_or_else(|| {
            // Relaxed: only uniqueness matters. It counts on beyond the last.
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            if number < TAG_COUNT { Self(number << MARK_BITS) } else { Self::NONE }
        })
    }

    /// Returns a tag that no handle has any more.
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
                self.load(Ordering::Relaxed) == $not_in_use // see `Mark`
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

impl Default for Marks {
    fn default() -> Self {
        Self { blocks: Chunks::default(), small: Chunks::default(), tag: Tag::take() }
    }
}

impl Drop for Marks {
    fn drop(&mut self) {
        // What is in use was never given back: its handle keeps the tag, as it keeps the mark.
        if self.blocks.is_clear() && self.small.is_clear() {
            self.tag.give_back();
        }
    }
}

impl Marks {
    /// What the handles of its pieces have in common, and no other table's.
    pub(super) fn tag(&self) -> Tag {
        self.tag
    }

    /// Makes room for a slab's place; under the allocator's lock.
    pub(super) fn know_slab(&self, place: usize) {
        self.small.grow_to((place as u64 + 1) * 64);
    }

    /// The mark of a piece. `None` when no room was made for it.
    #[inline]
    pub(super) fn mark(&self, piece: Piece) -> Option<Mark> {
        let place = piece.place();
        Some(if piece.is_small() {
            Mark::Small(self.small.get(place)?)
        } else {
            Mark::Block(self.blocks.get(place)?)
        })
    }

    /// The marks of the small blocks of a slab, for which room was made.
    #[inline]
    pub(super) fn marks_of(&self, slab: SlabId) -> SlabMarks {
        let first = Place::of(Piece::first_of_group(slab));
        SlabMarks { group: self.small.group(first).expect("of a known slab"), slab }
    }

    /// The mark of a piece that a program is to have, which is made when there is none; under the
    /// allocator's lock.
    #[inline]
    pub(super) fn mark_of(&self, piece: Piece) -> Mark {
        self.mark(piece).unwrap_or_else(|| {
            assert!(!piece.is_small(), "{piece:?} is of no known slab");
            self.blocks.grow_to(piece.place().index());
            self.mark(piece).expect("just made")
        })
    }

    /// The piece that has a mark, if that is in this table.
    #[inline]
    pub(super) fn piece(&self, mark: Mark) -> Option<Piece> {
        Some(match mark {
            Mark::Small(mark) => Piece::at(self.small.place_of(mark)?, true),
            Mark::Block(mark) => Piece::at(self.blocks.place_of(mark)?, false),
        })
    }
}

impl Mark {
    /// A program has the piece now, for a request.
    #[inline(always)]
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
    pub(super) fn requested(self, bytes: usize) -> Option<usize> {
        match self {
            Self::Small(mark) => {
                let requested_bytes = mark.load(Ordering::Relaxed) as usize; // see `Mark`
                (requested_bytes != NOT_IN_USE_SMALL as usize).then_some(requested_bytes)
            }
            Self::Block(mark) => {
                let slack_bytes = mark.load(Ordering::Relaxed); // see `Mark`
                (slack_bytes != NOT_IN_USE).then(|| bytes - slack_bytes as usize)
            }
        }
    }

    /// In a word of [`MARK_BITS`].
    pub(super) fn to_bits(self) -> u64 {
        let (address, sort) = match self {
            Self::Small(mark) => (ptr::from_ref(mark).expose_provenance() as u64, 0),
            Self::Block(mark) => (ptr::from_ref(mark).expose_provenance() as u64, BLOCK),
        };
        assert!(address < BLOCK, "addresses of programs are below: {self:?}");
        address | sort
    }

    /// What [`Mark::to_bits`] gave. `None` for a word with other bits above.
    ///
    /// # Safety
    /// That gave it, or there are such bits.
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
    /// Such a mark was there.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "an address")]
    unsafe fn small_at(address: u64) -> Self {
        // SAFETY: such a mark was there, as the caller promises, and marks stay where they are for
        // good, as what is in tables does. Shared, as all have it.
        Self::Small(unsafe { &*ptr::with_exposed_provenance(address as usize) })
    }

    /// # Safety
    /// Such a mark was there.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "an address")]
    unsafe fn block_at(address: u64) -> Self {
        // SAFETY: as in `small_at`.
        Self::Block(unsafe { &*ptr::with_exposed_provenance(address as usize) })
    }
}
