//! What one thread keeps of the pieces that it freed, to have them again without a lock.
//!
//! A cache belongs to one thread, and others may reach into it: to empty it, or to add up what it
//! counts. The thread enters and leaves around each use with two stores; another one claims the
//! cache, waits until the thread is outside, and keeps it outside meanwhile.
//!
//! | | thread enters | other claims |
//! |---|---|---|
//! | publishes | `is_inside` | `is_claimed` |
//! | fence | `asymmetric::light` | `asymmetric::heavy` |
//! | looks at | `is_claimed`: stays out | `is_inside`: waits |

use crate::allocator::native::cell::{Cell, Counted};
use crate::allocator::native::piece::Piece;
use crate::asymmetric;
use crate::size::to_usize;
use crate::sync::{AtomicBool, AtomicU64 as Place, Ordering, spin_hint};

/// Sizes that are kept at a time, of all streams: more share places by their hashes.
const BIN_COUNT: usize = 128;
/// Pieces of one size.
const BIN_DEPTH: usize = 12;
const WORD_BITS: usize = 64;

/// The cache of one thread for one allocator.
///
/// Everything but the two flags is relaxed: it is read and written by whoever is inside or has
/// claimed it, and the flags order those.
#[derive(Debug)]
pub(super) struct ThreadCache {
    is_inside: AtomicBool,
    is_claimed: AtomicBool,
    pub(super) cell: Cell,
    bins: Box<[Bin]>,
    /// Bins that have something.
    occupied: [Place; BIN_COUNT / WORD_BITS],
    cached_bytes: Place,
    cached_count: Place,
}

/// Pieces of one size for one stream, the last that was freed on top.
#[derive(Debug, Default)]
struct Bin {
    stream: Place,
    bytes: Place,
    count: Place,
    entries: [Entry; BIN_DEPTH],
}

#[derive(Debug, Default)]
struct Entry {
    piece: Place,
    address: Place,
    busy_until: Place,
}

/// A piece that nobody has but a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cached {
    pub(super) piece: Piece,
    pub(super) address: u64,
    /// The task of its heap's stream after which nothing from its earlier life uses it.
    pub(super) busy_until: u64,
}

/// What it is kept by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) stream: u64,
    pub(super) bytes: usize,
}

#[inline]
fn get(place: &Place) -> u64 {
    // Relaxed: see `ThreadCache`.
    place.load(Ordering::Relaxed)
}

#[inline]
fn set(place: &Place, value: u64) {
    // Relaxed: see `ThreadCache`.
    place.store(value, Ordering::Relaxed);
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "as above")]
fn bin_of(key: Key) -> usize {
    // The odd number next to 2^64 over the golden ratio spreads neighbours; sizes are multiples of
    // 512, and streams are numbered.
    let mixed = ((key.bytes as u64 >> 9) ^ (key.stream << 20)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    to_usize(mixed >> (u64::BITS - BIN_COUNT.ilog2()))
}

impl ThreadCache {
    pub(super) fn new() -> Self {
        Self {
            is_inside: AtomicBool::new(false),
            is_claimed: AtomicBool::new(false),
            cell: Cell::default(),
            bins: (0..BIN_COUNT).map(|_| Bin::default()).collect(),
            occupied: std::array::from_fn(|_| Place::new(0)),
            cached_bytes: Place::new(0),
            cached_count: Place::new(0),
        }
    }

    /// The thread goes inside; `None` while another one has claimed the cache.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(super) fn enter(&self) -> Option<Inside<'_>> {
        // Relaxed: the fence orders it before the look; partner: `claim`.
        self.is_inside.store(true, Ordering::Relaxed);
        asymmetric::light();
        // Acquire: pairs with the end of a claim; what it did here is visible.
        if self.is_claimed.load(Ordering::Acquire) {
            drop(Inside(self));
            return None;
        }
        Some(Inside(self))
    }

    /// Keeps the thread out, waiting until it is. One thread at a time may claim.
    pub(super) fn claim(&self) -> Claimed<'_> {
        // Relaxed: the fence orders it before the look; partner: `enter`.
        self.is_claimed.store(true, Ordering::Relaxed);
        asymmetric::heavy();
        // Acquire: pairs with the thread's leaving; what it did here is visible.
        while self.is_inside.load(Ordering::Acquire) {
            spin_hint();
        }
        Claimed(self)
    }

    /// Everything that is kept, which is not any more.
    fn drain(&self, out: &mut Vec<Cached>) {
        for word in 0..self.occupied.len() {
            while get(&self.occupied[word]) != 0 {
                let bit = get(&self.occupied[word]).trailing_zeros() as usize;
                self.drain_bin(word * WORD_BITS + bit, out);
            }
        }
    }

    fn drain_bin(&self, number: usize, out: &mut Vec<Cached>) {
        let bin = &self.bins[number];
        let count = get(&bin.count);
        out.extend(bin.entries[..to_usize(count)].iter().map(Entry::get));
        set(&bin.count, 0);
        self.lost(number, count, get(&bin.bytes), true);
    }

    /// Counts pieces of a bin that are gone.
    #[inline]
    fn lost(&self, number: usize, count: u64, bytes: u64, is_empty: bool) {
        set(&self.cached_count, get(&self.cached_count) - count);
        set(&self.cached_bytes, get(&self.cached_bytes) - count * bytes);
        if is_empty {
            let word = &self.occupied[number / WORD_BITS];
            set(word, get(word) & !(1 << (number % WORD_BITS)));
        }
    }
}

impl Entry {
    #[inline]
    fn get(&self) -> Cached {
        Cached {
            piece: Piece::from_bits(get(&self.piece)),
            address: get(&self.address),
            busy_until: get(&self.busy_until),
        }
    }

    #[inline]
    fn set(&self, cached: &Cached) {
        set(&self.piece, cached.piece.to_bits());
        set(&self.address, cached.address);
        set(&self.busy_until, cached.busy_until);
    }
}

/// The right of the thread to use its cache.
#[derive(Debug)]
pub(super) struct Inside<'a>(&'a ThreadCache);

impl Inside<'_> {
    /// A piece that was kept.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(super) fn take(&self, key: Key) -> Option<Cached> {
        let Self(cache) = self;
        let number = bin_of(key);
        let bin = &cache.bins[number];
        let count = get(&bin.count);
        let is_there =
            count > 0 && get(&bin.bytes) == key.bytes as u64 && get(&bin.stream) == key.stream;
        if !is_there {
            return None;
        }
        set(&bin.count, count - 1);
        cache.lost(number, 1, key.bytes as u64, count == 1);
        Some(bin.entries[to_usize(count) - 1].get())
    }

    /// Keeps a piece. What it drives out, for which there is no room, is given to `out`: the last
    /// piece always has room, all others only up to `most_bytes`.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(super) fn put(&self, key: Key, cached: &Cached, most_bytes: u64, out: &mut Vec<Cached>) {
        let Self(cache) = self;
        let number = bin_of(key);
        let bin = &cache.bins[number];
        let is_same = get(&bin.bytes) == key.bytes as u64 && get(&bin.stream) == key.stream;
        let bytes_then = get(&cache.cached_bytes) + key.bytes as u64;
        let is_crowded = bytes_then > most_bytes && get(&cache.cached_count) > 0;
        if !is_same || is_crowded || get(&bin.count) == BIN_DEPTH as u64 {
            self.make_room(number, key, is_crowded, out);
        }
        let count = get(&bin.count);
        bin.entries[to_usize(count)].set(cached);
        set(&bin.count, count + 1);
        set(&cache.cached_count, get(&cache.cached_count) + 1);
        set(&cache.cached_bytes, get(&cache.cached_bytes) + key.bytes as u64);
        let word = &cache.occupied[number / WORD_BITS];
        set(word, get(word) | 1 << (number % WORD_BITS));
    }

    #[cold]
    fn make_room(&self, number: usize, key: Key, is_crowded: bool, out: &mut Vec<Cached>) {
        let Self(cache) = self;
        let bin = &cache.bins[number];
        if is_crowded {
            cache.drain(out);
        }
        let is_same = get(&bin.bytes) == key.bytes as u64 && get(&bin.stream) == key.stream;
        if !is_same && get(&bin.count) > 0 {
            cache.drain_bin(number, out);
        }
        if get(&bin.count) == BIN_DEPTH as u64 {
            // The older half goes: what was freed last is wanted first.
            let half = BIN_DEPTH / 2;
            out.extend(bin.entries[..half].iter().map(Entry::get));
            for index in half..BIN_DEPTH {
                bin.entries[index - half].set(&bin.entries[index].get());
            }
            set(&bin.count, (BIN_DEPTH - half) as u64);
            cache.lost(number, half as u64, key.bytes as u64, false);
        }
        set(&bin.bytes, key.bytes as u64);
        set(&bin.stream, key.stream);
    }

    /// How many more pieces of a size have room.
    pub(super) fn room(&self, key: Key, most_bytes: u64) -> usize {
        let Self(cache) = self;
        let bin = &cache.bins[bin_of(key)];
        let is_same = get(&bin.bytes) == key.bytes as u64 && get(&bin.stream) == key.stream;
        let is_usable = is_same || get(&bin.count) == 0;
        let left_bytes = most_bytes.saturating_sub(get(&cache.cached_bytes));
        let by_bytes = to_usize(left_bytes / key.bytes as u64).min(BIN_DEPTH / 2);
        let by_bin = BIN_DEPTH / 2 - to_usize(get(&bin.count)).min(BIN_DEPTH / 2);
        if is_usable { by_bytes.min(by_bin) } else { 0 }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(super) fn count_begin(&self, counted: Counted) {
        self.0.cell.begin(counted);
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(super) fn count_end(&self, counted: Counted) {
        self.0.cell.end(counted);
    }
}

impl Drop for Inside<'_> {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    fn drop(&mut self) {
        // Release: pairs with a claimer's look.
        self.0.is_inside.store(false, Ordering::Release);
    }
}

/// The right of another thread to a cache.
#[derive(Debug)]
pub(super) struct Claimed<'a>(&'a ThreadCache);

impl Claimed<'_> {
    /// Takes everything out.
    pub(super) fn drain(&self, out: &mut Vec<Cached>) {
        self.0.drain(out);
    }

    pub(super) fn cell(&self) -> &Cell {
        &self.0.cell
    }
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        // Release: pairs with the thread's next look.
        self.0.is_claimed.store(false, Ordering::Release);
    }
}
