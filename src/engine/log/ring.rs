//! The ring of one thread's records: one writer, one reader, no lock (Lamport's queue).
//!
//! The writer looks at the reader's position only at each half of the ring. So most records cost
//! their 64 bytes and one store, and no cache line of the reader's. The reader gets records in
//! slices, as they stand in the ring. A full ring drops new records and counts them.
#![expect(unsafe_code, reason = "writer and reader own their parts of the ring")]

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::slice;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::base::size::to_usize;
use crate::base::sync::{AtomicU64, Ordering, UnsafeCell};
use crate::engine::log::record::LogRecord;

/// The records of a ring. 256 KiB a thread: at 15 ns a record, half of it lasts 30 us.
pub(super) const CAPACITY: u64 = SLOTS as u64;

const SLOTS: usize = if cfg!(loom) { 2 } else { 4096 };

const HALF: u64 = CAPACITY / 2;

/// A record's place, which is one cache line.
#[repr(align(64))]
struct Slot(UnsafeCell<MaybeUninit<LogRecord>>);

struct Ring {
    slots: Box<[Slot; SLOTS]>,
    /// The number of records ever written. Only the writer stores it.
    written: CachePadded<AtomicU64>,
    /// The number of records ever read. Only the reader stores it.
    read: CachePadded<AtomicU64>,
    /// The number of records ever dropped. Only the writer stores it.
    dropped: AtomicU64,
}

// SAFETY: only the writer uses the slots from `written` to `read + CAPACITY`, and only the reader
// those from `read` to `written`. Each publishes its position with a release store.
unsafe impl Sync for Ring {}
// SAFETY: records are plain values.
unsafe impl Send for Ring {}

/// The writing side of a ring, for one thread.
pub(crate) struct RingWriter {
    ring: Arc<Ring>,
    /// As `Ring::written`.
    written: Cell<u64>,
    /// The number up to which records may be written without a look at the reader's position.
    limit: Cell<u64>,
}

/// The reading side of a ring.
pub(super) struct RingReader {
    ring: Arc<Ring>,
    /// As `Ring::read`.
    read: u64,
    /// The number of dropped records that was returned.
    dropped: u64,
}

/// Makes a ring.
pub(super) fn ring() -> (RingWriter, RingReader) {
    let slots = (0..CAPACITY).map(|_| Slot(UnsafeCell::new(MaybeUninit::uninit())));
    let slots = slots.collect::<Box<[_]>>().try_into().ok().expect("as many as the ring has");
    let [written, read] = [(); 2].map(|()| CachePadded::new(AtomicU64::new(0)));
    let ring = Arc::new(Ring { slots, written, read, dropped: AtomicU64::new(0) });
    let writer =
        RingWriter { ring: Arc::clone(&ring), written: Cell::new(0), limit: Cell::new(HALF) };
    (writer, RingReader { ring, read: 0, dropped: 0 })
}

impl Ring {
    #[inline]
    fn slot(&self, number: u64) -> &UnsafeCell<MaybeUninit<LogRecord>> {
        &self.slots[(number % CAPACITY) as usize].0
    }
}

impl RingWriter {
    /// Writes a record of a thread, or drops and counts it when the ring is full. Calls `collect`
    /// first when half of the ring was written since the last look; it may read the ring.
    #[inline(always)]
    pub(super) fn write(&self, record: &LogRecord, thread: u32, collect: impl FnOnce()) {
        let written = self.written.get();
        if written == self.limit.get() && !self.extend(collect) {
            return;
        }
        self.ring.slot(written).with_mut(|slot| {
            // SAFETY: `written` is below `limit`, which is at most `read + CAPACITY`: the reader is
            // behind this slot's previous record. Only this thread writes, as `Cell` makes sure.
            let slot = unsafe { &mut *slot };
            slot.write(*record).thread = thread; // the only copy
        });
        self.written.set(written + 1);
        // Release: publishes the record; pairs with the load in `drain`.
        self.ring.written.store(written + 1, Ordering::Release);
    }

    /// Moves the limit. False when the ring is full: the record is counted as dropped.
    #[cold]
    #[inline(never)]
    fn extend(&self, collect: impl FnOnce()) -> bool {
        let written = self.written.get();
        if written - self.read() >= HALF {
            collect();
        }
        let end = self.read() + CAPACITY;
        if end == written {
            // Relaxed, and two steps: only this thread writes the number, which orders nothing.
            let dropped = self.ring.dropped.load(Ordering::Relaxed);
            self.ring.dropped.store(dropped + 1, Ordering::Relaxed);
            return false;
        }
        self.limit.set(end.min(written + HALF));
        true
    }

    fn read(&self) -> u64 {
        // Acquire: pairs with the store in `drain`, so the reader has copied the records before.
        self.ring.read.load(Ordering::Acquire)
    }
}

impl RingReader {
    /// Reads the records written since the last call, in their order and as many at once as lie
    /// side by side.
    pub(super) fn drain(&mut self, mut each: impl FnMut(&[LogRecord])) {
        // Acquire: pairs with the store in `write`, which publishes the records.
        let written = self.ring.written.load(Ordering::Acquire);
        let mut number = self.read;
        while number < written {
            let index = (number % CAPACITY) as usize;
            let side_by_side = if cfg!(loom) { 1 } else { SLOTS - index };
            let count = side_by_side.min(to_usize(written - number));
            let slots = &self.ring.slots[index..][..count];
            self.ring.slot(number).with(|slot| {
                // A model's cell has more than the record.
                let first = if cfg!(loom) { slot.cast() } else { slots.as_ptr().cast() };
                // SAFETY: the writer has initialised and published these records, and writes to
                // their slots again only behind the store to `read` below. Only this reader reads,
                // by its exclusive borrow. Outside of models a slot has the record's layout.
                each(unsafe { slice::from_raw_parts(first, count) });
            });
            number += count as u64;
        }
        self.read = written;
        // Release: the copies come before; pairs with the load in `RingWriter::read`.
        self.ring.read.store(written, Ordering::Release);
    }

    /// The number of records that were dropped since the last call.
    pub(super) fn take_dropped(&mut self) -> u64 {
        // Relaxed: the number orders nothing.
        let dropped = self.ring.dropped.load(Ordering::Relaxed);
        dropped - std::mem::replace(&mut self.dropped, dropped)
    }

    /// True when the ring is the writer's.
    pub(super) fn is_of(&self, writer: &RingWriter) -> bool {
        Arc::ptr_eq(&self.ring, &writer.ring)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
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

    #[test]
    fn a_full_ring_drops_counts_and_goes_on_behind_a_drain() {
        let (writer, mut reader) = ring();
        for ticket in 0..CAPACITY + 3 {
            writer.write(&record(ticket), 0, || ());
        }
        assert_eq!(tickets(&mut reader), (0..CAPACITY).collect::<Vec<_>>());
        assert_eq!((reader.take_dropped(), reader.take_dropped()), (3, 0));
        writer.write(&record(7), 0, || ());
        assert_eq!((tickets(&mut reader), reader.take_dropped()), (vec![7], 0));
    }

    #[test]
    fn a_drain_goes_on_at_the_first_slot_behind_the_last_one() {
        let (writer, mut reader) = ring();
        for from in [0, 10] {
            let until = if from == 0 { 10 } else { 10 + CAPACITY };
            (from..until).for_each(|ticket| writer.write(&record(ticket), 0, || ()));
            assert_eq!(tickets(&mut reader), (from..until).collect::<Vec<_>>());
        }
        assert_eq!(reader.take_dropped(), 0);
    }

    #[test]
    fn a_writer_asks_for_a_drain_at_each_half_and_then_drops_nothing() {
        let (writer, mut reader) = ring();
        let (mut asked, mut seen) = (0, 0);
        for ticket in 0..10 * CAPACITY {
            writer.write(&record(ticket), 0, || {
                asked += 1;
                reader.drain(|records| {
                    for record in records {
                        assert_eq!(record.ticket, seen);
                        seen += 1;
                    }
                });
            });
        }
        assert_eq!((asked, reader.take_dropped()), (19, 0));
    }
}
