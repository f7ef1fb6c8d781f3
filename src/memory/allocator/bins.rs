//! The contents of one thread cache: pieces by size and stream, and the thread's counts.
#![expect(
    unsafe_code,
    reason = "room for pieces is not written before; marks are written in place"
)]

use std::mem::MaybeUninit;
use std::{hint, ptr};

use crate::memory::allocator::allocated::{Allocated, CachedBlock};
use crate::memory::allocator::live_table::Tag;
use crate::memory::allocator::plan::Sizes;
use crate::memory::allocator::slab::MOST_SMALL_BYTES;
use crate::memory::allocator::snapshot::PoolClass;
use crate::memory::allocator::thread_counters::{BlockSize, ThreadCounters};
/// The bins of a thread cache. Keys with the same hash share a bin in turns.
#[cfg(not(loom))]
const BIN_COUNT: usize = 128;
/// The most pieces of one bin.
#[cfg(not(loom))]
const BIN_DEPTH: usize = 32;
#[cfg(loom)]
const BIN_COUNT: usize = 8;
#[cfg(loom)]
const BIN_DEPTH: usize = 2;
/// What a full bin gives away at once.
pub(super) const HALF_BIN: usize = BIN_DEPTH / 2;
/// The bytes of one stock of small pieces, within the two counts below.
const STOCK_BYTES: usize = 8 << 10;
/// The first stock of a bin.
const FIRST_STOCK: usize = 2;
const LEAST_STOCK: usize = BIN_DEPTH.div_ceil(6);
const MOST_STOCK: usize = HALF_BIN;
/// The first limit of a bin, which doubles each time that the bin is full.
const FIRST_LIMIT: usize = BIN_DEPTH / 4;
/// The largest step of a limit, as a divisor of the thread's bound.
const STEP_PART: u64 = 32;
/// The frees on the slow path before the thread looks for sizes that it does not use. Large enough
/// that the look, at all bins, costs each of them little.
const SWEEP_AFTER: u16 = 256;
/// The most freed pieces that no bin keeps and that wait for the lock.
const MOST_LEAVING: usize = 8;
/// What a free counts for that finds no room.
#[cfg(not(loom))]
const REFUSAL: u16 = SWEEP_AFTER / 6;
#[cfg(loom)]
const REFUSAL: u16 = SWEEP_AFTER;

/// Pieces that a cache alone has, and what was counted.
///
/// Equations: `claimed_bytes` is the sum of `limit` times size over the bins that count; all bins
/// whose limit is above zero, of which pieces were taken that the cell does not know, or whose
/// pieces do not count, are bits of `open`; in each bin `count <= limit <= BIN_DEPTH`.
#[derive(Debug)]
pub(super) struct Bins {
    cell: ThreadCounters,
    /// The tag of the allocator that owns the pieces.
    tag: Tag,
    claimed_bytes: u64,
    open: u128,
    /// The frees on the slow path since the last sweep; those without room count [`REFUSAL`] more.
    since_sweep: u16,
    /// True when some pieces may not count.
    has_uncounted: bool,
    by_hash: Box<[Bin; BIN_COUNT]>,
    /// Pieces that no bin keeps, in the order of their frees: for their heaps, when the thread has
    /// the lock next.
    leaving: Vec<Allocated>,
}

/// What a thread may keep.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    /// The most bytes of the pieces that count, apart from the last one.
    pub(super) most_bytes: u64,
    /// False for a piece that does not count.
    pub(super) is_counted: bool,
}

/// Pieces of one size and stream, the last freed on top.
#[derive(Debug)]
#[repr(C)]
struct Bin {
    key: Key,
    pieces: Use,
    /// `pieces` at the last sweep: the same since then means that nothing was kept or taken.
    swept: Use,
    limit: u8,
    class: PoolClass,
    /// True where the pieces do not count.
    is_uncounted: bool,
    /// A digest of the key that was refused last.
    refused: u32,
    /// The first entry is empty: a read at count 0 finds nothing. Those up to the count are
    /// written; the others take no memory before their first piece.
    entries: [MaybeUninit<CachedBlock>; BIN_DEPTH + 1],
}

/// The bin's length in the lowest byte, and the take count above: one addition changes both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Use(u64);

impl Use {
    const ONE_TAKEN: u64 = 1 << u8::BITS;
    /// No bin's.
    const NONE: Self = Self(u64::MAX);

    #[inline(always)]
    fn count(self) -> u8 {
        self.0.to_le_bytes()[0]
    }

    fn taken_count(self) -> u64 {
        self.0 / Self::ONE_TAKEN
    }

    /// The same take count with another length.
    fn with_count(self, count: usize) -> Self {
        Self(self.0 - u64::from(self.count()) + count as u64)
    }

    #[inline(always)]
    fn taken(self) -> Self {
        Self(self.0 + (Self::ONE_TAKEN - 1))
    }

    #[inline(always)]
    fn with_one_more(self) -> Self {
        Self(self.0 + 1)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) stream: u64,
    pub(super) bytes: usize,
}

impl Key {
    #[inline(always)]
    pub(super) fn of(block: &Allocated) -> Self {
        Self { stream: block.stream(), bytes: block.bytes() }
    }

    /// Differs for most keys; never 0.
    #[expect(clippy::cast_possible_truncation, reason = "of a size in units, below 2^32 mostly")]
    fn digest(self) -> u32 {
        ((self.bytes >> 9) as u32 ^ (self.stream as u32).rotate_left(16)) | 1 << 31
    }

    #[inline(always)]
    fn bin(self) -> usize {
        // The odd number next to 2^64 over the golden ratio spreads adjacent sizes; streams are
        // numbered.
        let spread = (self.bytes as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let number = (spread >> (u64::BITS - BIN_COUNT.ilog2())) ^ self.stream;
        #[expect(clippy::cast_possible_truncation, reason = "below the count of bins")]
        let number = (number % BIN_COUNT as u64) as usize;
        number
    }
}

impl Bin {
    /// An empty bin of no key, whose first entry is still to be written.
    #[inline(always)]
    fn new() -> Self {
        Self {
            key: Key { stream: 0, bytes: 0 },
            pieces: Use(0),
            swept: Use(0),
            limit: 0,
            class: PoolClass::default(),
            is_uncounted: false,
            refused: 0,
            entries: [const { MaybeUninit::uninit() }; BIN_DEPTH + 1],
        }
    }

    /// The most bytes of its pieces that count.
    fn claimed_bytes(&self) -> u64 {
        if self.is_uncounted { 0 } else { u64::from(self.limit) * self.key.bytes as u64 }
    }

    /// The last freed piece, if the bin has the key and a piece.
    #[inline(always)]
    fn top(&self, key: Key) -> Option<CachedBlock> {
        let count = self.pieces.count() as usize;
        // SAFETY: the count is at most the limit, which is never above the depth: `Bins::claim`
        // sets it.
        unsafe { hint::assert_unchecked(count <= BIN_DEPTH) };
        // SAFETY: those up to the count are written, by `Bin::new` and `Bin::push`.
        let single = unsafe { self.entries[count].assume_init() };
        (self.key == key && single.handle().is_some()).then_some(single)
    }

    /// Removes the top and marks it as in use.
    #[inline(always)]
    fn pop(&mut self, top: CachedBlock, key: Key, requested_bytes: usize) {
        self.pieces = self.pieces.taken();
        // SAFETY: `Bin::top` has seen that it is a piece's.
        let mark = unsafe { top.handle().mark() };
        mark.begin(key.bytes, requested_bytes);
    }

    /// Adds a piece below the limit.
    #[inline(always)]
    fn push(&mut self, had: Use, single: CachedBlock) {
        let count = had.count() as usize;
        // SAFETY: the caller has seen that the count is below the limit, which is never above
        // the depth: `Bins::claim` sets it.
        unsafe { hint::assert_unchecked(count < BIN_DEPTH) };
        self.entries[count + 1].write(single);
        self.pieces = had.with_one_more();
    }

    /// Removes the oldest pieces, of which it has at least so many.
    fn forget_oldest(&mut self, old_count: usize) {
        let count = self.pieces.count() as usize;
        if old_count < count {
            self.entries[1..].copy_within(old_count..count, 0);
        }
        self.pieces = self.pieces.with_count(count - old_count);
    }

    /// Ends the claim of an empty bin, which is not open any more. Whether its next pieces count is
    /// found when they come.
    fn close(&mut self, cell: &mut ThreadCounters) {
        (self.limit, self.is_uncounted) = (0, false);
        self.tell_taken(cell);
    }

    /// Adds the take count to the cell, and resets it.
    fn tell_taken(&mut self, cell: &mut ThreadCounters) {
        let taken_count = self.pieces.taken_count();
        cell.note_taken(self.class, self.key.bytes, taken_count);
        if taken_count > 0 {
            self.pieces = Use(u64::from(self.pieces.count()));
            self.swept = Use::NONE;
        }
    }
}

impl Bins {
    /// Empty bins.
    pub(super) fn new(tag: Tag) -> Self {
        let mut bins = Box::<[Bin]>::new_uninit_slice(BIN_COUNT);
        for bin in &mut bins {
            bin.write(Bin::new()).entries[0].write(CachedBlock::none());
        }
        // SAFETY: all of them are written.
        let bins = unsafe { bins.assume_init() };
        let by_hash = bins.try_into().unwrap_or_else(|_| unreachable!("it has as many"));
        let (cell, claimed_bytes, open, since_sweep) = (ThreadCounters::default(), 0, 0, 0);
        let (has_uncounted, leaving) = (false, Vec::with_capacity(MOST_LEAVING));
        Self { cell, tag, claimed_bytes, open, since_sweep, has_uncounted, by_hash, leaving }
    }

    /// Takes a piece and marks it as in use.
    #[inline(always)]
    pub(super) fn take(&mut self, key: Key, requested_bytes: usize) -> Option<Allocated> {
        let bin = &mut self.by_hash[key.bin()];
        let top = bin.top(key)?;
        self.cell.begin_taken(BlockSize { class: bin.class, bytes: key.bytes, requested_bytes });
        bin.pop(top, key, requested_bytes);
        // Reads the tag last, so that the handle is complete in its register.
        Some(top.of(top.handle().tagged(self.tag), key.bytes, key.stream))
    }

    /// Keeps a freed piece until its stream's task `ticket`. False, without an effect, for a
    /// foreign piece, a second free, without room, or when counting takes the slow path.
    #[inline(always)]
    pub(super) fn keep(&mut self, block: &Allocated, ticket: u64) -> bool {
        let key = Key::of(block);
        let bin = &mut self.by_hash[key.bin()];
        let had = bin.pieces;
        if bin.key != key || had.count() >= bin.limit || !self.cell.may_end(bin.class) {
            return false;
        }
        let Some((handle, mark)) = block.handle().untagged(self.tag) else { return false };
        let Some(requested_bytes) = mark.end(key.bytes) else { return false };
        self.cell.end_in_force(BlockSize { class: bin.class, bytes: key.bytes, requested_bytes });
        bin.push(had, block.single_until(ticket, handle));
        true
    }

    /// Takes a freed piece that no bin keeps because its size came only once so far, as
    /// [`Self::make_room`] would find, until [`Self::end_leaving`]. False, without an effect, for
    /// all other pieces, and when too many wait.
    #[inline(always)]
    pub(super) fn leave(&mut self, block: &Allocated, ticket: u64) -> bool {
        let key = Key::of(block);
        let bin = &mut self.by_hash[key.bin()];
        let (is_new, class) =
            (bin.key != key && bin.refused != key.digest(), Sizes::class(key.bytes));
        if !is_new
            || key.bytes <= MOST_SMALL_BYTES
            || self.since_sweep + 1 >= SWEEP_AFTER
            || self.leaving.len() == MOST_LEAVING
            || !self.cell.may_end(class)
        {
            return false;
        }
        let Some((handle, mark)) = block.handle().untagged(self.tag) else { return false };
        let Some(requested_bytes) = mark.end(key.bytes) else { return false };
        bin.refused = key.digest();
        self.since_sweep += 1;
        self.cell.end_passes(BlockSize { class, bytes: key.bytes, requested_bytes });
        let single = block.single_until(ticket, handle);
        self.leaving.push(single.of(handle.tagged(self.tag), key.bytes, key.stream));
        true
    }

    /// Removes the pieces that wait for the lock, which the caller has. False when there are none.
    #[inline(always)]
    pub(super) fn end_leaving(&mut self, out: impl FnMut(&Allocated)) -> bool {
        if self.leaving.is_empty() {
            return false;
        }
        self.leaving.iter().for_each(out);
        self.leaving.clear();
        true
    }

    /// Keeps a piece that is no longer, or was never, in use. False without room.
    pub(super) fn stock(&mut self, block: &Allocated, ticket: u64) -> bool {
        let key = Key::of(block);
        let bin = &mut self.by_hash[key.bin()];
        if bin.key != key || bin.pieces.count() >= bin.limit {
            return false;
        }
        let Some((handle, _)) = block.handle().untagged(self.tag) else { return false };
        bin.push(bin.pieces, block.single_until(ticket, handle));
        true
    }

    /// Adds fresh pieces, as many as [`Self::make_room_for_stock`] made room for.
    pub(super) fn put_stock(
        &mut self,
        key: Key,
        put_all: impl FnOnce(&mut dyn FnMut(CachedBlock)),
    ) {
        let bin = &mut self.by_hash[key.bin()];
        put_all(&mut |single| {
            assert!(bin.key == key && bin.pieces.count() < bin.limit, "there is room for it");
            bin.push(bin.pieces, single);
        });
    }

    /// Makes room for a piece within a bound, unless its size came only once so far. Sizes that are
    /// not used make room for others, but not at once: a thread with more sizes than it may keep
    /// would have none of them when it needs it. False when it is known that there is none.
    #[inline(always)]
    pub(super) fn make_room(
        &mut self,
        key: Key,
        class: PoolClass,
        bound: Bound,
        out: &mut impl FnMut(Allocated),
    ) -> bool {
        let (number, most_bytes) = (key.bin(), bound.most_bytes);
        self.since_sweep += 1;
        if self.since_sweep >= SWEEP_AFTER {
            self.sweep(most_bytes, out);
        }
        if self.by_hash[number].key != key {
            let is_small = key.bytes <= MOST_SMALL_BYTES; // of slabs: such sizes are few
            let before = std::mem::replace(&mut self.by_hash[number].refused, key.digest());
            if !is_small && before != key.digest() {
                return false;
            }
            if self.by_hash[number].pieces.count() > 0 {
                self.drain_bin(number, BIN_DEPTH, out);
            }
            self.dedicate(key, class);
        }
        let Bin { pieces, limit, .. } = self.by_hash[number];
        if pieces.count() < limit {
            return true;
        }
        if limit as usize == BIN_DEPTH {
            // Evicts the older half: the last freed pieces are requested first.
            self.drain_bin(number, HALF_BIN, out);
            return true;
        }
        // A claim without a piece withholds bytes from other sizes, so large pieces are claimed one
        // at a time.
        let part = at_most(most_bytes / STEP_PART, key.bytes, BIN_DEPTH);
        let step = (limit as usize).max(FIRST_LIMIT).min(part.max(1));
        if self.claim(number, limit as usize + step, bound) > 0 {
            return true;
        }
        self.since_sweep += REFUSAL;
        if self.since_sweep < SWEEP_AFTER {
            return false;
        }
        self.sweep(most_bytes, out);
        self.claim(number, self.by_hash[number].limit as usize + step, bound) > 0
    }

    /// The older half of a full bin, which is used also when its length is that of the last sweep.
    /// Those that were freed last stay: they are requested first.
    #[inline(always)]
    pub(super) fn older_half(&mut self, key: Key) -> Option<&[CachedBlock; HALF_BIN]> {
        let bin = &mut self.by_hash[key.bin()];
        if bin.key != key || usize::from(bin.pieces.count()) < BIN_DEPTH {
            return None;
        }
        bin.swept = Use::NONE;
        let older = bin.entries[1..].first_chunk::<HALF_BIN>().map(ptr::from_ref);
        // SAFETY: those up to the count are written, and the bin is full.
        older.map(|older| unsafe { &*older.cast() })
    }

    /// Forgets the [`Self::older_half`], which another owner has by now.
    pub(super) fn forget_older_half(&mut self, key: Key) {
        self.by_hash[key.bin()].forget_oldest(HALF_BIN);
    }

    /// Makes room for fresh pieces of a small size, at most half of a bin; more for smaller sizes.
    /// Returns their number.
    pub(super) fn make_room_for_stock(
        &mut self,
        key: Key,
        class: PoolClass,
        most_bytes: u64,
    ) -> usize {
        let number = key.bin();
        self.dedicate(key, class);
        let Bin { key: kept, pieces, limit, .. } = self.by_hash[number];
        let count = pieces.count() as usize;
        let batch = (STOCK_BYTES / key.bytes).clamp(LEAST_STOCK, MOST_STOCK);
        // Twice what it had room for: a cache that is emptied again and again moves few pieces.
        let batch = batch.min((usize::from(limit) * 2).max(FIRST_STOCK));
        if kept != key || count >= batch {
            return 0;
        }
        self.claim(number, batch, Bound { most_bytes, is_counted: true }).min(batch - count)
    }

    /// Assigns an empty bin to a key.
    fn dedicate(&mut self, key: Key, class: PoolClass) {
        let bin = &mut self.by_hash[key.bin()];
        if bin.key != key && bin.pieces.count() == 0 {
            bin.tell_taken(&mut self.cell);
            self.claimed_bytes -= bin.claimed_bytes();
            (bin.key, bin.class, bin.limit, bin.swept) = (key, class, 0, Use::NONE);
        }
    }

    /// Raises a bin's limit towards `limit`, as far as the bound allows; one piece always has room.
    /// Returns the free places.
    fn claim(&mut self, number: usize, limit: usize, bound: Bound) -> usize {
        let bin = &mut self.by_hash[number];
        if bin.is_uncounted == bound.is_counted {
            self.claimed_bytes -= bin.claimed_bytes();
            bin.is_uncounted = !bound.is_counted;
            self.has_uncounted |= bin.is_uncounted;
            self.claimed_bytes += bin.claimed_bytes();
        }
        let bytes = bin.key.bytes;
        let mut more = limit.min(BIN_DEPTH).saturating_sub(bin.limit as usize);
        if bound.is_counted {
            if self.claimed_bytes + (more * bytes) as u64 > bound.most_bytes {
                let left_bytes = bound.most_bytes.saturating_sub(self.claimed_bytes);
                let least = more.min(usize::from(self.claimed_bytes == 0));
                more = at_most(left_bytes, bytes, more).max(least);
            }
            self.claimed_bytes += (more * bytes) as u64;
        }
        bin.limit += u8::try_from(more).expect("at most the depth");
        self.open |= 1 << number;
        (bin.limit - bin.pieces.count()) as usize
    }

    /// Removes the pieces of sizes that were not used since the last sweep, and lowers the claims
    /// of all others to what they have.
    #[inline(never)]
    fn sweep(&mut self, most_bytes: u64, out: &mut impl FnMut(Allocated)) {
        (self.since_sweep, self.claimed_bytes) = (0, 0);
        for number in self.open_bins() {
            if self.by_hash[number].pieces == self.by_hash[number].swept {
                self.drain_bin(number, BIN_DEPTH, out);
            }
            let bin = &mut self.by_hash[number];
            if bin.pieces.count() == 0 {
                bin.close(&mut self.cell);
                self.open &= !(1 << number); // so that the next sweep need not read it
            }
            (bin.swept, bin.limit) = (bin.pieces, bin.pieces.count());
            self.claimed_bytes += bin.claimed_bytes();
        }
        if self.claimed_bytes > most_bytes {
            self.drain(out); // more threads have a part now
        }
    }

    /// Makes all pieces count.
    #[inline(always)]
    pub(super) fn count_all(&mut self) {
        if self.has_uncounted {
            self.claim_what_is_there();
        }
    }

    /// Lowers each limit to the bin's length. From now on all pieces count.
    pub(super) fn claim_what_is_there(&mut self) {
        (self.claimed_bytes, self.has_uncounted) = (0, false);
        for number in self.open_bins() {
            let bin = &mut self.by_hash[number];
            (bin.limit, bin.is_uncounted) = (bin.pieces.count(), false);
            self.claimed_bytes += bin.claimed_bytes();
        }
    }

    /// The cell, with all take counts added.
    pub(super) fn cell(&mut self) -> &mut ThreadCounters {
        for number in self.open_bins() {
            self.by_hash[number].tell_taken(&mut self.cell);
        }
        &mut self.cell
    }

    /// Counts an allocation that missed the bins.
    pub(super) fn count_begin(&mut self, counted: BlockSize) {
        self.cell.begin(counted);
    }

    /// Counts a free that the bins do not keep.
    pub(super) fn count_end(&mut self, counted: BlockSize) {
        self.cell.end(counted);
    }

    /// The numbers of all bins that may have pieces.
    fn open_bins(&self) -> impl Iterator<Item = usize> + use<> {
        let mut left = self.open;
        std::iter::from_fn(move || {
            let number = (left != 0).then(|| left.trailing_zeros() as usize);
            left &= left.wrapping_sub(1);
            number
        })
    }

    /// Removes all pieces.
    pub(super) fn drain(&mut self, out: &mut impl FnMut(Allocated)) {
        self.leaving.drain(..).for_each(&mut *out);
        for number in self.open_bins() {
            self.drain_bin(number, BIN_DEPTH, out);
            self.by_hash[number].close(&mut self.cell);
        }
        (self.claimed_bytes, self.open, self.since_sweep) = (0, 0, 0);
    }

    /// Removes the oldest `old_count` pieces of a bin.
    fn drain_bin(&mut self, number: usize, old_count: usize, out: &mut impl FnMut(Allocated)) {
        let bin = &mut self.by_hash[number];
        let count = bin.pieces.count() as usize;
        let old_count = old_count.min(count);
        for entry in &bin.entries[1..][..old_count] {
            // SAFETY: those up to the count are written, by `Bin::push`.
            let single = unsafe { entry.assume_init() };
            out(single.of(single.handle().tagged(self.tag), bin.key.bytes, bin.key.stream));
        }
        bin.forget_oldest(old_count);
    }
}

/// The number of pieces of a size that fit into `left_bytes`, at most `wanted`. Mostly 0, then
/// without a division.
fn at_most(left_bytes: u64, bytes: usize, wanted: usize) -> usize {
    let bytes = bytes as u64;
    if left_bytes < bytes {
        return 0;
    }
    usize::try_from(left_bytes / bytes).map_or(wanted, |count| count.min(wanted))
}
