//! References to native blocks and small blocks, and the growing table of their entries.
//!
//! # The table
//!
//! Entries never move, so that threads read them while the table grows, and are never returned to
//! the system. A dropped table leaves its chunks to the next one, except chunks with an entry in
//! use. So a reference to an entry outlives its table, and an entry in use belongs to one table for
//! good.

use std::sync::OnceLock;

use crossbeam_queue::SegQueue;

use crate::memory::allocator::ids::{BlockId, SlabId};
/// A piece's number in one word. The marks of adjacent pieces are at least 64 places apart, and so
/// are those of equal slots in adjacent slabs, so that marks that two threads write are on
/// different cache lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct BlockRef(u64);

/// The block of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Block(BlockId),
    Small(SlabId, u8),
}

/// A piece that was taken for a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockSelection {
    pub(super) piece: BlockRef,
    /// True when it is of the request's heap, and of the planned arena and size there.
    pub(super) is_as_planned: bool,
}

/// Set for small blocks.
const SMALL: u64 = 1 << 63;
/// The distance between equal slots of adjacent slabs, in steps of 64 places: the first slots,
/// which are used most, share no cache line within several slabs.
const SLAB_STRIDE: u64 = 39;

/// Spreads numbers: adjacent ones, and those 64 apart (equal slots of two slabs), are at least 64
/// places apart.
fn spread(number: u64) -> u64 {
    let (slot, slab) = (number & 0x3F, (number >> 6) & 0x3F);
    number & !0xFFF | ((slot + SLAB_STRIDE * slab) & 0x3F) << 6 | slab
}

/// The inverse of [`spread`].
fn unspread(place: u64) -> u64 {
    let (line, slab) = ((place >> 6) & 0x3F, place & 0x3F);
    place & !0xFFF | slab << 6 | line.wrapping_sub(SLAB_STRIDE * slab) & 0x3F
}

impl BlockRef {
    pub(super) fn block(id: BlockId) -> Self {
        Self(u64::from(id.number()))
    }

    pub(super) fn small(slab: SlabId, slot: u8) -> Self {
        debug_assert!(slot < 64, "a slab has 64 blocks at most: {slot}");
        Self(SMALL | u64::from(slab.number()) << 6 | u64::from(slot))
    }

    /// The first index of the group that contains the marks of a slab's small blocks.
    #[inline]
    pub(super) fn first_of_group(slab: SlabId) -> u64 {
        (u64::from(slab.number()) << 6) & !(GROUP as u64 - 1)
    }

    /// The position of a small block's mark in that group.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "below the length of a group")]
    pub(super) fn place_in_group(slab: SlabId, slot: u8) -> usize {
        spread(u64::from(slab.number()) << 6 | u64::from(slot)) as usize % GROUP
    }

    #[expect(clippy::cast_possible_truncation, reason = "32 bits, and six below them")]
    pub(super) fn part(self) -> Part {
        if self.is_small() {
            Part::Small(SlabId::from_number((self.0 >> 6) as u32), self.0 as u8 & 0x3F)
        } else {
            Part::Block(BlockId::from_number(self.0 as u32))
        }
    }

    #[inline]
    pub(super) fn is_small(self) -> bool {
        self.0 & SMALL != 0
    }

    /// The place of the mark in the table of small blocks, or of blocks.
    #[inline]
    pub(super) fn place(self) -> Place {
        Place::of(spread(self.0 & !SMALL))
    }

    #[inline]
    pub(super) fn at(place: Place, is_small: bool) -> Self {
        Self(unspread(place.index()) | if is_small { SMALL } else { 0 })
    }
}

impl BlockSelection {
    pub(super) fn as_planned(piece: BlockRef) -> Self {
        Self { piece, is_as_planned: true }
    }

    pub(super) fn other(piece: BlockRef) -> Self {
        Self { piece, is_as_planned: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_stand_for_what_they_were_made_of_and_neighbours_are_apart() {
        let again = |piece: BlockRef| BlockRef::at(piece.place(), piece.is_small());
        for number in (1..10_000).chain([1 << 26, (1 << 27) - 65]) {
            let (block, slab) = (BlockId::from_number(number), SlabId::from_number(number));
            assert_eq!(BlockRef::block(block).part(), Part::Block(block));
            assert_eq!(again(BlockRef::block(block)), BlockRef::block(block));
            for slot in 0..64 {
                assert_eq!(BlockRef::small(slab, slot).part(), Part::Small(slab, slot));
                assert_eq!(again(BlockRef::small(slab, slot)), BlockRef::small(slab, slot));
            }
        }
        let last = BlockId::from_number(u32::MAX);
        assert_eq!(BlockRef::block(last).part(), Part::Block(last));
        let at = |slab: u32, slot| BlockRef::small(SlabId::from_number(slab), slot).place().index();
        for slab in 1..100 {
            assert!(at(slab, 4).abs_diff(at(slab, 5)) >= 64, "slots of {slab}");
            for other in 1..5 {
                assert!(at(slab, 4).abs_diff(at(slab + other, 4)) >= 64, "{slab} and {other} on");
            }
        }
    }
}

/// Entries in chunks. Each chunk has `FIRST` entries more than all before it together.
#[derive(Debug)]
pub(super) struct Chunks<T: Entry> {
    chunks: [OnceLock<&'static [T]>; CHUNK_COUNT],
}

/// An entry of a table.
pub(super) trait Entry: Sized + Sync + 'static {
    /// An unused entry.
    fn new() -> Self;

    /// True for an unused entry.
    fn is_clear(&self) -> bool;

    /// The chunks that dropped tables left.
    fn spare() -> &'static Spare<Self>;
}

/// Unowned chunks, by chunk number.
pub(super) type Spare<T> = [SegQueue<&'static [T]>; CHUNK_COUNT];

/// An entry's chunk number and its offset there, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u64);

/// The entries of a group have adjacent indices and are adjacent in one chunk.
pub(super) const GROUP: usize = 1 << 12;
const FIRST: u64 = GROUP as u64;
const OFFSET_BITS: u32 = 32;
/// The powers of two from `FIRST` to the size of the largest chunk.
pub(super) const CHUNK_COUNT: usize = 21;

impl Place {
    /// Entry `index` has number `index + FIRST`; a chunk contains the numbers of one power of two.
    #[inline(always)]
    pub(super) fn of(index: u64) -> Self {
        // Most are in the first chunk.
        if index < FIRST { Self(index) } else { Self::behind_first(index) }
    }

    fn behind_first(index: u64) -> Self {
        let number = index + FIRST;
        let power = number.ilog2();
        assert!(power <= OFFSET_BITS, "fewer than 2^32 in a chunk: {index}");
        Self(u64::from(power - FIRST.ilog2()) << OFFSET_BITS | number ^ 1 << power)
    }

    pub(super) fn index(self) -> u64 {
        (FIRST << self.chunk()) + self.offset() as u64 - FIRST
    }

    fn chunk(self) -> usize {
        (self.0 >> OFFSET_BITS) as usize % 32
    }

    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    fn offset(self) -> usize {
        self.0 as u32 as usize
    }
}

impl<T: Entry> Default for Chunks<T> {
    fn default() -> Self {
        Self { chunks: [const { OnceLock::new() }; CHUNK_COUNT] }
    }
}

impl<T: Entry> Chunks<T> {
    /// Creates the chunks up to an entry.
    pub(super) fn grow_to(&self, index: u64) {
        let last = Place::of(index).chunk();
        if self.chunks[last].get().is_some() {
            return;
        }
        for (number, chunk) in self.chunks[..=last].iter().enumerate() {
            chunk.get_or_init(|| {
                T::spare()[number]
                    .pop()
                    .unwrap_or_else(|| Box::leak((0..FIRST << number).map(|_| T::new()).collect()))
            });
        }
    }

    /// The entry, if [`Self::grow_to`] has created it.
    #[inline]
    pub(super) fn get(&self, place: Place) -> Option<&'static T> {
        self.chunks.get(place.chunk())?.get()?.get(place.offset())
    }

    /// The group that begins with an entry, if [`Self::grow_to`] has created it.
    #[inline]
    pub(super) fn group(&self, first: Place) -> Option<&'static [T; GROUP]> {
        self.chunks.get(first.chunk())?.get()?.get(first.offset()..)?.first_chunk()
    }

    /// The place of an entry of this table.
    #[inline(always)]
    pub(super) fn place_of(&self, entry: &T) -> Option<Place> {
        // Most are in the first chunk.
        let first = self.chunks[0].get()?;
        let offset = std::ptr::from_ref(entry).addr().wrapping_sub(first.as_ptr().addr());
        let offset = (offset / size_of::<T>()) as u64;
        if offset < FIRST { Some(Place(offset)) } else { self.place_behind_first(entry) }
    }

    #[inline(never)]
    fn place_behind_first(&self, entry: &T) -> Option<Place> {
        // Chunks are created in order.
        let address = std::ptr::from_ref(entry).addr();
        for (number, chunk) in self.chunks.iter().enumerate() {
            let chunk = chunk.get()?;
            let offset = address.wrapping_sub(chunk.as_ptr().addr()) / size_of::<T>();
            if offset < chunk.len() {
                return Some(Place((number as u64) << OFFSET_BITS | offset as u64));
            }
        }
        None
    }

    pub(super) fn is_clear(&self) -> bool {
        self.chunks.iter().filter_map(OnceLock::get).all(|entries| entries.iter().all(T::is_clear))
    }
}

impl<T: Entry> Drop for Chunks<T> {
    fn drop(&mut self) {
        for (chunk, spare) in self.chunks.iter_mut().zip(T::spare()) {
            if let Some(entries) = chunk.take().filter(|entries| entries.iter().all(T::is_clear)) {
                spare.push(entries);
            }
        }
    }
}

#[cfg(test)]
mod table_tests {
    use std::ptr;

    use super::*;
    use crate::base::sync::Ordering;
    use crate::base::sync::unmodelled::AtomicU64;

    static SPARE: Spare<AtomicU64> = [const { SegQueue::new() }; CHUNK_COUNT];

    impl Entry for AtomicU64 {
        fn new() -> Self {
            Self::new(7)
        }

        fn is_clear(&self) -> bool {
            self.load(Ordering::Relaxed) == 7 // of one thread
        }

        fn spare() -> &'static Spare<Self> {
            &SPARE
        }
    }

    #[test]
    fn places_follow_each_other_through_the_chunks() {
        let mut next = (0, 0);
        for index in 0..10 * FIRST {
            let place = Place::of(index);
            assert_eq!((place.chunk(), place.offset() as u64), next, "{index}");
            assert_eq!(place.index(), index);
            next.1 += 1;
            if next.1 == FIRST << next.0 {
                next = (next.0 + 1, 0);
            }
        }
        let last = (2 << OFFSET_BITS) - FIRST - 1;
        assert_eq!(Place::of(last).index(), last);
        assert_eq!(Place::of(last).chunk(), CHUNK_COUNT - 1);
    }

    #[test]
    fn entries_are_there_once_made_and_stay_where_they_are_for_the_next_table() {
        let relaxed = Ordering::Relaxed; // of one thread
        let (chunks, others) = (Chunks::<AtomicU64>::default(), Chunks::default());
        let at = |index| chunks.get(Place::of(index));
        assert!(at(0).is_none());
        chunks.grow_to(5);
        let first = at(5).unwrap();
        assert!(at(FIRST).is_none());
        chunks.grow_to(7 * FIRST - 1);
        for index in 0..7 * FIRST {
            let entry = at(index).unwrap();
            assert_eq!(entry.swap(index, relaxed), 7);
            assert_eq!(chunks.place_of(entry), Some(Place::of(index)));
            assert_eq!(others.place_of(entry), None);
        }
        assert!(at(7 * FIRST).is_none());
        assert!(ptr::eq(first, at(5).unwrap()));
        (0..7 * FIRST).for_each(|index| at(index).unwrap().store(7, relaxed));
        drop(chunks);
        others.grow_to(0);
        assert!(ptr::eq(first, others.get(Place::of(5)).unwrap()));
        // One that is in use when its table goes is no other table's.
        first.store(8, relaxed);
        assert!(!others.is_clear());
        drop(others);
        let next = Chunks::<AtomicU64>::default();
        next.grow_to(0);
        assert_eq!(next.place_of(first), None);
    }
}
