//! What is in one thread's cache: pieces by size and stream, and what the thread counted.

use crate::allocator::caching::Allocated;
use crate::allocator::native::cell::{Cell, Counted};
use crate::allocator::native::live::Live;
use crate::allocator::snapshot::PoolClass;

/// Sizes that are kept at a time, of all streams: more share places by their hashes.
#[cfg(not(loom))]
const BIN_COUNT: usize = 128;
/// Pieces of one size.
#[cfg(not(loom))]
const BIN_DEPTH: usize = 32;
#[cfg(loom)]
const BIN_COUNT: usize = 8;
#[cfg(loom)]
const BIN_DEPTH: usize = 2;
/// Pieces of one size that are taken from their heap at once: these bytes of them, but not fewer
/// than the one number nor more than the other.
const STOCK_BYTES: usize = 8 << 10;
const LEAST_STOCK: usize = BIN_DEPTH.div_ceil(6);
const MOST_STOCK: usize = BIN_DEPTH / 2;
/// Counts of bins that are looked at as one word.
const COUNTS_AT_ONCE: usize = size_of::<u64>();

/// Pieces that nobody has but a cache, and what was counted.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) cell: Cell,
    cached_bytes: u64,
    counts: Counts,
    bins: Box<Bins>,
}

/// What the pieces of one bin are: of one size, for one stream.
#[derive(Clone, Copy, Debug)]
struct Head {
    key: Key,
    class: PoolClass,
}

/// How many pieces are in each bin.
#[derive(Debug)]
struct Counts([u8; BIN_COUNT]);

/// Pieces of one size for one stream each, the last that was freed on top.
#[derive(Debug)]
#[repr(align(128))]
struct Bins {
    heads: [Head; BIN_COUNT],
    pieces: [[Allocated; BIN_DEPTH]; BIN_COUNT],
}

impl Default for Counts {
    fn default() -> Self {
        Self([0; BIN_COUNT])
    }
}

impl Default for Bins {
    #[expect(clippy::large_stack_arrays, reason = "made where its box is")]
    fn default() -> Self {
        let head = Head { key: Key { stream: 0, bytes: 0 }, class: PoolClass::Small };
        let pieces = [[Allocated::default(); BIN_DEPTH]; BIN_COUNT];
        Self { heads: [head; BIN_COUNT], pieces }
    }
}

/// What a piece is kept by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) stream: u64,
    pub(super) bytes: usize,
}

impl Key {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    fn bin(self) -> usize {
        // The odd number next to 2^64 over the golden ratio spreads neighbours, and streams are
        // numbered.
        let spread = (self.bytes as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let number = (spread >> (u64::BITS - BIN_COUNT.ilog2())) ^ self.stream;
        #[expect(clippy::cast_possible_truncation, reason = "below the count of bins")]
        let number = (number % BIN_COUNT as u64) as usize;
        number
    }
}

impl Kept {
    /// A piece that was kept, which is in use from now on.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(super) fn take(
        &mut self,
        key: Key,
        requested_bytes: usize,
        live: &Live,
    ) -> Option<&Allocated> {
        let number = key.bin();
        let Head { key: kept, class } = self.bins.heads[number];
        if kept != key {
            return None;
        }
        // Without any it is beyond the bin.
        let left = self.counts.0[number].wrapping_sub(1);
        let top = self.bins.pieces[number].get(left as usize)?;
        live.begin(top.kept_piece(), key.bytes, requested_bytes)?;
        self.counts.0[number] = left;
        self.cached_bytes -= key.bytes as u64;
        self.cell.begin(Counted { class, bytes: key.bytes, requested_bytes });
        Some(top)
    }

    /// The place for a piece in the bin of its key, if there is one: the last piece always has
    /// room, all others only up to `most_bytes`. What is put there is kept.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(super) fn place_for(&mut self, key: Key, most_bytes: u64) -> Option<Place<'_>> {
        let number = key.bin();
        let Head { key: kept, class } = self.bins.heads[number];
        let bytes_then = self.cached_bytes + key.bytes as u64;
        if kept != key || bytes_then > most_bytes && self.cached_bytes > 0 {
            return None;
        }
        let count = &mut self.counts.0[number];
        let entry = self.bins.pieces[number].get_mut(*count as usize)?;
        let (cell, cached_bytes) = (&mut self.cell, &mut self.cached_bytes);
        Some(Place { entry, count, cached_bytes, bytes_then, class, cell })
    }

    /// Has the bin of a key keep pieces of it, unless it has others.
    pub(super) fn dedicate(&mut self, key: Key, class: PoolClass) {
        let number = key.bin();
        if self.counts.0[number] == 0 {
            self.bins.heads[number] = Head { key, class };
        }
    }

    /// Takes out what is in a piece's way, whose place is there then.
    pub(super) fn make_room(
        &mut self,
        key: Key,
        class: PoolClass,
        most_bytes: u64,
        out: &mut impl FnMut(&Allocated),
    ) {
        if self.cached_bytes + key.bytes as u64 > most_bytes {
            self.drain(out);
        }
        let number = key.bin();
        let count = self.counts.0[number] as usize;
        if self.bins.heads[number].key != key {
            self.drain_bin(number, count, out);
        } else if count == BIN_DEPTH {
            // The older half goes: what was freed last is wanted first.
            self.drain_bin(number, BIN_DEPTH.div_ceil(2), out);
        }
        self.dedicate(key, class);
    }

    /// Takes everything out.
    pub(super) fn drain(&mut self, out: &mut impl FnMut(&Allocated)) {
        let groups = self.counts.0.as_chunks::<COUNTS_AT_ONCE>().0.len();
        for group in 0..groups {
            let counts = self.counts.0.as_chunks::<COUNTS_AT_ONCE>().0[group];
            // Nearly all bins are empty: those that are not are found as bits of a word.
            let mut left = u64::from_le_bytes(counts);
            while left != 0 {
                let bit = left.trailing_zeros();
                let place = (bit / u8::BITS) as usize;
                self.drain_bin(group * COUNTS_AT_ONCE + place, counts[place] as usize, out);
                left &= !(u64::from(u8::MAX) << (bit / u8::BITS * u8::BITS));
            }
        }
    }

    /// Takes the oldest pieces of a bin out.
    fn drain_bin(&mut self, number: usize, old_count: usize, out: &mut impl FnMut(&Allocated)) {
        if old_count == 0 {
            return;
        }
        let (count, bin) = (&mut self.counts.0[number], &mut self.bins.pieces[number]);
        let mut bytes = 0;
        for block in &bin[..old_count] {
            bytes += block.bytes() as u64;
            out(block);
        }
        if old_count < *count as usize {
            bin.copy_within(old_count..*count as usize, 0);
        }
        *count -= u8::try_from(old_count).expect("at most all");
        self.cached_bytes -= bytes;
    }

    /// How many more pieces of a size are to be had at once, without filling more than half of a
    /// bin: the smaller they are, the more.
    pub(super) fn room(&mut self, key: Key, most_bytes: u64) -> usize {
        if self.place_for(key, most_bytes).is_none() {
            return 0;
        }
        let left_bytes = most_bytes.saturating_sub(self.cached_bytes);
        let by_bytes = usize::try_from(left_bytes).map_or(usize::MAX, |left| left / key.bytes);
        let batch = (STOCK_BYTES / key.bytes).clamp(LEAST_STOCK, MOST_STOCK);
        by_bytes.min(batch.saturating_sub(self.counts.0[key.bin()] as usize))
    }
}

/// Where the next piece of a key goes.
#[derive(Debug)]
pub(super) struct Place<'a> {
    entry: &'a mut Allocated,
    count: &'a mut u8,
    cached_bytes: &'a mut u64,
    bytes_then: u64,
    class: PoolClass,
    cell: &'a mut Cell,
}

impl<'a> Place<'a> {
    /// Keeps a piece of that key that was never in use.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(super) fn stock(self, block: &Allocated) -> &'a mut Allocated {
        *self.entry = *block;
        *self.count += 1;
        *self.cached_bytes = self.bytes_then;
        self.entry
    }

    /// Keeps a piece of that key whose use is over, behind a task of its stream.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    pub(super) fn put(self, block: &Allocated, ticket: u64, requested_bytes: usize) {
        self.cell.end(Counted { class: self.class, bytes: block.bytes(), requested_bytes });
        // Copied as a whole: a word each could not be read in larger parts so soon.
        self.stock(block).use_until(ticket);
    }
}
