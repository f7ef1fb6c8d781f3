//! A table that grows, and whose entries stay where they are: threads read it while it does.
#![expect(unsafe_code, reason = "entries are found through one pointer, in a handful of steps")]

use std::marker::PhantomData;
use std::{hint, ptr};

use crate::sync::Ordering;
use crate::sync::unmodelled::{AtomicPtr, AtomicUsize};

/// Entries in chunks, each as large as all before it together and `FIRST` more.
#[derive(Debug)]
pub(super) struct Chunks<T> {
    chunks: [Chunk<T>; CHUNK_COUNT],
    owns: PhantomData<Box<[T]>>,
}

/// No entries, or `FIRST << number` of them.
#[derive(Debug)]
struct Chunk<T> {
    first: AtomicPtr<T>,
    count: AtomicUsize,
}

/// Where an entry is, in the lower bits of a word: the number of its chunk, the offset in it. The
/// other bits are whose the word is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u64);

const FIRST: u64 = 1 << 12;
const OFFSET_BITS: u32 = 32;
const CHUNK_COUNT: usize = 64;

impl Place {
    /// With this no table has it: offsets take 32 bits, and no chunk has more.
    pub(super) const BEYOND: u64 = (CHUNK_COUNT as u64 / 2) << OFFSET_BITS;

    /// Entry `index` is number `index + FIRST`; a chunk has the numbers of one power of two.
    pub(super) fn of(index: u64) -> Self {
        let number = index + FIRST;
        let power = number.ilog2();
        assert!(power <= OFFSET_BITS, "fewer than 2^32 in a chunk: {index}");
        Self(u64::from(power - FIRST.ilog2()) << OFFSET_BITS | number ^ 1 << power)
    }

    pub(super) fn index(self) -> u64 {
        (FIRST << self.chunk()) + self.offset() as u64 - FIRST
    }

    pub(super) const fn to_bits(self) -> u64 {
        self.0
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(super) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    fn chunk(self) -> usize {
        (self.0 >> OFFSET_BITS) as usize % CHUNK_COUNT
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    fn offset(self) -> usize {
        self.0 as u32 as usize
    }
}

impl<T> Default for Chunks<T> {
    fn default() -> Self {
        let none = || Chunk { first: AtomicPtr::default(), count: AtomicUsize::new(0) };
        Self { chunks: std::array::from_fn(|_| none()), owns: PhantomData }
    }
}

impl<T> Chunks<T> {
    /// Makes sure that there is an entry. One thread at a time calls it.
    pub(super) fn grow_to(&self, index: u64, mut make: impl FnMut() -> T) {
        let last = Place::of(index).chunk();
        // Relaxed: as below. Chunks are made in their order.
        if self.chunks[last].count.load(Ordering::Relaxed) > 0 {
            return;
        }
        for (number, chunk) in self.chunks[..=last].iter().enumerate() {
            // Relaxed: whoever called it before is ordered before this.
            if chunk.count.load(Ordering::Relaxed) > 0 {
                continue;
            }
            let entries: Box<[T]> = (0..FIRST << number).map(|_| make()).collect();
            let count = entries.len();
            // Relaxed: `count` publishes it.
            chunk.first.store(Box::into_raw(entries).cast(), Ordering::Relaxed);
            // Release: pairs with `get`, for which the entries are there then.
            chunk.count.store(count, Ordering::Release);
        }
    }

    /// An entry, if [`Self::grow_to`] made it.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(super) fn get(&self, place: Place) -> Option<&T> {
        let chunk = &self.chunks[place.chunk()];
        // Acquire: pairs with `grow_to`.
        if place.offset() >= chunk.count.load(Ordering::Acquire) {
            return None;
        }
        // Relaxed: written before `count` was.
        let first = chunk.first.load(Ordering::Relaxed);
        // SAFETY: a chunk that counts entries has them: `grow_to` writes `first` before `count`.
        unsafe { hint::assert_unchecked(!first.is_null()) };
        // SAFETY: the offset is below the count of entries that begin there; see above.
        let entry = unsafe { first.add(place.offset()) };
        // SAFETY: the entry was made with its chunk, which stays until `self` is dropped; nobody
        // has it to write, as all get shared references.
        Some(unsafe { &*entry })
    }
}

impl<T> Drop for Chunks<T> {
    fn drop(&mut self) {
        for Chunk { first, count } in &mut self.chunks {
            if *count.get_mut() == 0 {
                continue;
            }
            let entries = ptr::slice_from_raw_parts_mut(*first.get_mut(), *count.get_mut());
            // SAFETY: `grow_to` made a box of as many entries into this pointer, and nothing has it
            // any more: what `get` gave is borrowed from `self`.
            drop(unsafe { Box::from_raw(entries) });
        }
    }
}

// SAFETY: it owns its entries and gives shared references to them, as a slice would.
unsafe impl<T: Send + Sync> Sync for Chunks<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Chunks<T> {}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(Place::of(last).to_bits() & Place::BEYOND, 0);
    }

    #[test]
    fn entries_are_there_once_made_and_stay_where_they_are() {
        let chunks = Chunks::default();
        let at = |index| chunks.get(Place::of(index));
        assert_eq!(at(0), None::<&Box<u64>>);
        let mut made = 0..;
        chunks.grow_to(5, || Box::new(made.next().unwrap()));
        let first = at(5).unwrap();
        assert_eq!(at(FIRST), None);
        chunks.grow_to(7 * FIRST - 1, || Box::new(made.next().unwrap()));
        for index in 0..7 * FIRST {
            assert_eq!(at(index).map(|entry| **entry), Some(index));
            assert_eq!(chunks.get(Place(Place::of(index).to_bits() | Place::BEYOND)), None);
        }
        assert_eq!(at(7 * FIRST), None);
        assert!(ptr::eq(first, at(5).unwrap()));
    }
}
