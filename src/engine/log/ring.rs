//! The records of one thread: one writer, one reader, no lock. A list of chunks that grows.
//!
//! The writer fills a chunk, then links another one. The reader passes a chunk once the writer has
//! linked the next, and leaves it as the *spare* chunk, which the writer takes before it allocates.
//! So a ring whose reader keeps up alternates between two chunks, and one whose reader is delayed
//! grows and loses nothing. A log bounds the chunks of all its rings by a [`ChunkBudget`]; a ring
//! that may not grow refuses records.
//!
//! The writer looks at the reader's position only at the end of a chunk. So most records cost
//! their 64 bytes and one store, and no cache line of the reader's. The reader gets records in
//! slices, as they stand in the chunks.
#![expect(unsafe_code, reason = "writer and reader own their parts of the chunks")]

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr;
use std::slice;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::base::size::to_usize;
use crate::base::sync::unmodelled::AtomicU64 as Count;
use crate::base::sync::{AtomicPtr, AtomicU64, LifetimeTracker, Ordering, UnsafeCell};
use crate::engine::log::record::LogRecord;

/// The records of a chunk. 128 KiB: at 15 ns a record, it lasts 30 us.
pub(super) const CHUNK_RECORDS: u64 = SLOTS as u64;

const SLOTS: usize = if cfg!(loom) { 2 } else { 2048 };

/// The chunks of a ring that do not count against the budget: the one that is written, the one
/// that is read, and the spare one.
const FREE_CHUNKS: u64 = 3;

/// A record's place, which is one cache line.
#[repr(align(64))]
struct Slot(UnsafeCell<MaybeUninit<LogRecord>>);

struct Chunk {
    slots: Box<[Slot; SLOTS]>,
    /// Null until the writer has filled this chunk and needs the next.
    next: AtomicPtr<Chunk>,
    lifetime: LifetimeTracker,
}

impl Chunk {
    fn allocate() -> *mut Self {
        let slots = (0..SLOTS).map(|_| Slot(UnsafeCell::new(MaybeUninit::uninit())));
        let slots = slots.collect::<Box<[_]>>().try_into().ok().expect("as many as a chunk has");
        let next = AtomicPtr::new(ptr::null_mut());
        Box::into_raw(Box::new(Self { slots, next, lifetime: LifetimeTracker::new() }))
    }

    /// # Safety
    /// The chunk is from `allocate`, and nothing uses it any more.
    unsafe fn free(chunk: *mut Self) {
        // SAFETY: as the caller guarantees.
        let chunk = unsafe { Box::from_raw(chunk) };
        chunk.lifetime.note_end();
    }
}

/// Bounds the chunks that all rings of a log have beyond their first ones.
#[derive(Debug, Default)]
pub(super) struct ChunkBudget {
    /// Counts, which order nothing: no model covers them.
    linked: Count,
    limit: Count,
}

impl ChunkBudget {
    /// Allows as many chunks as hold `records` unread records.
    pub(super) fn set_records(&self, records: u64) {
        // Relaxed, here and below: counts, which order nothing.
        self.limit.store(records.div_ceil(CHUNK_RECORDS), Ordering::Relaxed);
    }

    fn try_take(&self) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        let more = |linked: u64| (linked < limit).then_some(linked + 1);
        self.linked.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn give_back(&self, count: u64) {
        self.linked.fetch_sub(count, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(super) fn linked(&self) -> u64 {
        self.linked.load(Ordering::Relaxed)
    }
}

struct Ring {
    /// The number of records ever written. Only the writer stores it.
    written: CachePadded<AtomicU64>,
    /// The number of records ever read. Only the reader stores it.
    read: CachePadded<AtomicU64>,
    /// A chunk that the reader has passed, for the writer; null for none.
    spare: AtomicPtr<Chunk>,
    /// The reader's chunk. Only the reader uses it, and the drop.
    oldest: AtomicPtr<Chunk>,
    /// The number of chunks, the spare one too. It orders nothing.
    num_chunks: Count,
    budget: Arc<ChunkBudget>,
}

/// The writing side of a ring, for one thread.
pub(crate) struct RingWriter {
    ring: Arc<Ring>,
    /// The chunk that is written.
    chunk: Cell<*mut Chunk>,
    /// Its slots, which are found in one load.
    slots: Cell<*const Slot>,
    /// As `Ring::written`.
    written: Cell<u64>,
    /// The value of `written` at which the current chunk is full.
    limit: Cell<u64>,
}

/// The reading side of a ring.
pub(super) struct RingReader {
    ring: Arc<Ring>,
    /// As `Ring::oldest`.
    chunk: *mut Chunk,
    /// The number of this chunk's records that were read.
    passed: usize,
    /// As `Ring::read`.
    read: u64,
}

// SAFETY: the writer's pointers are to the chunk that it writes, which the reader frees only behind
// a store of the writer that links the next one.
unsafe impl Send for RingWriter {}
// SAFETY: the reader's pointer is to a chunk of its ring, which lives as long.
unsafe impl Send for RingReader {}

/// Makes a ring, whose chunks beyond the first ones come out of the budget.
pub(super) fn ring(budget: &Arc<ChunkBudget>) -> (RingWriter, RingReader) {
    let chunk = Chunk::allocate();
    let [written, read] = [(); 2].map(|()| CachePadded::new(AtomicU64::new(0)));
    let ring = Arc::new(Ring {
        written,
        read,
        spare: AtomicPtr::new(ptr::null_mut()),
        oldest: AtomicPtr::new(chunk),
        num_chunks: Count::new(1),
        budget: Arc::clone(budget),
    });
    let writer = RingWriter {
        ring: Arc::clone(&ring),
        chunk: Cell::new(chunk),
        slots: Cell::new(slots_of(chunk)),
        written: Cell::new(0),
        limit: Cell::new(CHUNK_RECORDS),
    };
    (writer, RingReader { ring, chunk, passed: 0, read: 0 })
}

fn slots_of(chunk: *mut Chunk) -> *const Slot {
    // SAFETY: both callers have just got the chunk for the writer.
    let chunk = unsafe { &*chunk };
    chunk.lifetime.note_use();
    chunk.slots.as_ptr()
}

impl Ring {
    /// The spare chunk, else a new one; `None` at the limit.
    fn next_chunk(&self) -> Option<*mut Chunk> {
        // Acquire: pairs with the swap in `pass_chunk`, so the reader has read the chunk.
        let spare = self.spare.swap(ptr::null_mut(), Ordering::Acquire);
        if !spare.is_null() {
            return Some(spare);
        }
        self.count_chunk().then(Chunk::allocate)
    }

    /// Counts one chunk more, unless the ring may not grow. Retried when the reader frees a chunk
    /// meanwhile, so that the budget has exactly the chunks beyond the first ones.
    fn count_chunk(&self) -> bool {
        loop {
            let count = self.num_chunks.load(Ordering::Relaxed);
            let is_budgeted = count >= FREE_CHUNKS;
            if is_budgeted && !self.budget.try_take() {
                return false;
            }
            let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
            if self.num_chunks.compare_exchange(count, count + 1, success, failure).is_ok() {
                return true;
            }
            if is_budgeted {
                self.budget.give_back(1);
            }
        }
    }

    /// Frees a chunk that nothing uses.
    fn free(&self, chunk: *mut Chunk) {
        // SAFETY: the reader has passed the chunk, and has taken it back from `spare`.
        unsafe { Chunk::free(chunk) };
        if self.num_chunks.fetch_sub(1, Ordering::Relaxed) > FREE_CHUNKS {
            self.budget.give_back(1);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // Relaxed: reader and writer were dropped, as the count of their references says.
        let mut chunk = self.oldest.load(Ordering::Relaxed);
        while !chunk.is_null() {
            // SAFETY: the chunks from the reader's on are linked, and are freed only here.
            let next = unsafe { &*chunk }.next.load(Ordering::Relaxed);
            self.free(chunk);
            chunk = next;
        }
        let spare = self.spare.load(Ordering::Relaxed);
        if !spare.is_null() {
            self.free(spare);
        }
        debug_assert_eq!(self.num_chunks.load(Ordering::Relaxed), 0, "each chunk is freed once");
    }
}

impl RingWriter {
    /// Writes a record of a thread; false when the ring is full and may not grow. When the chunk is
    /// full and a whole chunk is unread, calls `collect` first, which may read the ring.
    #[inline(always)]
    #[must_use]
    pub(super) fn write(&self, record: &LogRecord, thread: u32, collect: impl FnOnce()) -> bool {
        let written = self.written.get();
        if written == self.limit.get() && !self.extend(collect) {
            return false;
        }
        // SAFETY: the index is below the number of the chunk's slots.
        let slot = unsafe { self.slots.get().add((written % CHUNK_RECORDS) as usize) };
        // SAFETY: the chunk is this thread's until it has linked the next one.
        let slot = unsafe { &*slot };
        slot.0.with_mut(|slot| {
            // SAFETY: `written` is below `limit`, and the reader reads only slots below `written`.
            // Only this thread writes, as `Cell` makes sure.
            let slot = unsafe { &mut *slot };
            slot.write(*record).thread = thread; // the only copy
        });
        self.written.set(written + 1);
        // Release: publishes the record; pairs with the load in `drain`.
        self.ring.written.store(written + 1, Ordering::Release);
        true
    }

    /// Links the next chunk. False when the ring may not grow.
    #[cold]
    #[inline(never)]
    fn extend(&self, collect: impl FnOnce()) -> bool {
        let written = self.written.get();
        // Relaxed: a stale value causes at most an unnecessary `collect`.
        if written - self.ring.read.load(Ordering::Relaxed) >= CHUNK_RECORDS {
            collect();
        }
        let Some(next) = self.ring.next_chunk() else { return false };
        // SAFETY: the reader passes this chunk only once a record of the next one is published.
        let full = unsafe { &*self.chunk.get() };
        full.lifetime.note_use();
        full.next.store(next, Ordering::Relaxed); // published with the next record
        self.chunk.set(next);
        self.slots.set(slots_of(next));
        self.limit.set(written + CHUNK_RECORDS);
        true
    }
}

impl RingReader {
    /// Reads the records written since the last call, in their order and as many at once as lie
    /// side by side.
    pub(super) fn drain(&mut self, mut each: impl FnMut(&[LogRecord])) {
        // Acquire: pairs with the store in `write`, which publishes the records and the links.
        let written = self.ring.written.load(Ordering::Acquire);
        while self.read < written {
            if self.passed == SLOTS {
                self.pass_chunk();
            }
            let side_by_side = if cfg!(loom) { 1 } else { SLOTS - self.passed };
            let count = side_by_side.min(to_usize(written - self.read));
            // SAFETY: the chunk is linked, and only this reader frees it.
            let chunk = unsafe { &*self.chunk };
            chunk.lifetime.note_use();
            let slots = &chunk.slots[self.passed..][..count];
            slots[0].0.with(|slot| {
                // A model's cell has more than the record.
                let first = if cfg!(loom) { slot.cast() } else { slots.as_ptr().cast() };
                // SAFETY: the writer has initialised and published these records, and gets the
                // chunk again only from `pass_chunk`. Only this reader reads, by its exclusive
                // borrow. Outside of models a slot has the record's layout.
                each(unsafe { slice::from_raw_parts(first, count) });
            });
            self.passed += count;
            self.read += count as u64;
        }
        // Relaxed: a hint for `extend`; `spare` hands chunks back.
        self.ring.read.store(self.read, Ordering::Relaxed);
    }

    /// Moves to the next chunk, which contains a published record.
    fn pass_chunk(&mut self) {
        // SAFETY: the chunk is linked, and only this reader frees it.
        let chunk = unsafe { &*self.chunk };
        // Relaxed: the load of `written` has seen a record of the next chunk, and so the link.
        let next = chunk.next.load(Ordering::Relaxed);
        chunk.next.store(ptr::null_mut(), Ordering::Relaxed); // published with the swap
        let passed = std::mem::replace(&mut self.chunk, next);
        self.passed = 0;
        self.ring.oldest.store(next, Ordering::Relaxed); // read by the drop, after all other uses
        // Release: the copies come before; pairs with the swap in `next_chunk`. An earlier spare
        // chunk was left by this reader, and the writer has not taken it.
        let earlier = self.ring.spare.swap(passed, Ordering::Release);
        if !earlier.is_null() {
            self.ring.free(earlier);
        }
    }

    /// True when the ring is the writer's.
    pub(super) fn is_of(&self, writer: &RingWriter) -> bool {
        Arc::ptr_eq(&self.ring, &writer.ring)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::engine::log::record::{OperationKind, RecordKind};

    fn record(ticket: u64) -> LogRecord {
        LogRecord { ticket, ..LogRecord::new(RecordKind::Range, OperationKind::Internal) }
    }

    fn tickets(reader: &mut RingReader) -> Vec<u64> {
        let mut tickets = Vec::new();
        reader.drain(|records| tickets.extend(records.iter().map(|record| record.ticket)));
        tickets
    }

    /// Numbers around multiples of a chunk, and small ones.
    fn counts() -> impl Strategy<Value = u64> {
        let around = (0..6_u64, -1..=1_i64)
            .prop_map(|(chunks, by)| (chunks * CHUNK_RECORDS).saturating_add_signed(by));
        prop_oneof![around, 1..200_u64]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Goal: records are read once and in order, a ring refuses only at its limit, and the
        /// budget has exactly the chunks beyond the first ones. Method: bursts of two rings with
        /// one budget, each read or not.
        #[test]
        fn bursts_are_read_whole_up_to_the_budget(
            bursts in proptest::collection::vec((0..2_usize, counts(), any::<bool>()), 1..12),
            budget_records in counts(),
        ) {
            let budget = Arc::new(ChunkBudget::default());
            budget.set_records(budget_records);
            let mut rings = [ring(&budget), ring(&budget)];
            let mut unread = [Vec::new(), Vec::new()];
            let mut ticket = 0;
            for (index, count, is_read) in bursts {
                for _ in 0..count {
                    ticket += 1;
                    let unread_of_all = unread[0].len() + unread[1].len();
                    if rings[index].0.write(&record(ticket), 0, || ()) {
                        unread[index].push(ticket);
                    } else {
                        prop_assert!(unread_of_all as u64 >= budget_records);
                    }
                }
                if is_read {
                    let read = tickets(&mut rings[index].1);
                    prop_assert_eq!(&read, &std::mem::take(&mut unread[index]));
                }
                let beyond = |ring: &Arc<Ring>| {
                    ring.num_chunks.load(Ordering::Relaxed).saturating_sub(FREE_CHUNKS)
                };
                let linked = rings.iter().map(|(writer, _)| beyond(&writer.ring)).sum::<u64>();
                prop_assert_eq!(budget.linked(), linked);
                prop_assert!(linked <= budget_records.div_ceil(CHUNK_RECORDS));
            }
            drop(rings);
            prop_assert_eq!(budget.linked(), 0);
        }
    }

    #[test]
    fn a_ring_that_is_read_keeps_two_chunks() {
        let budget = Arc::new(ChunkBudget::default());
        let (writer, mut reader) = ring(&budget);
        let (mut num_calls, mut num_read) = (0, 0);
        for ticket in 0..10 * CHUNK_RECORDS {
            let is_written = writer.write(&record(ticket), 0, || {
                num_calls += 1;
                num_read += tickets(&mut reader).len();
            });
            assert!(is_written);
        }
        assert_eq!((num_calls, num_read as u64), (9, 9 * CHUNK_RECORDS));
        assert_eq!(writer.ring.num_chunks.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn reading_a_grown_ring_frees_its_chunks() {
        let budget = Arc::new(ChunkBudget::default());
        budget.set_records(u64::MAX);
        let (writer, mut reader) = ring(&budget);
        let all: Vec<_> = (0..9 * CHUNK_RECORDS).collect();
        assert!(all.iter().all(|ticket| writer.write(&record(*ticket), 0, || ())));
        assert_eq!(budget.linked(), 9 - FREE_CHUNKS);
        assert_eq!(tickets(&mut reader), all);
        assert_eq!(budget.linked(), 0);
        assert_eq!(writer.ring.num_chunks.load(Ordering::Relaxed), 2);
    }
}
