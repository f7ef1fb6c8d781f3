//! Loom models of the log: no record is lost or torn between a thread's ring and its readers.

use std::sync::Arc;

use loom::thread;

use crate::base::sync::models::model_without_fences;
use crate::engine::log::collector::{Keeps, Log, Subscription, Wants};
use crate::engine::log::context::NameId;
use crate::engine::log::record::{LogRecord, OperationKind, RecordKind};
use crate::engine::log::ring::{CHUNK_RECORDS, ChunkBudget, ring};

fn record(ticket: u64) -> LogRecord {
    LogRecord { ticket, ..LogRecord::new(RecordKind::Ended, OperationKind::Call) }
}

/// Goal: a reader sees each record whole and in order, and no chunk is reused or freed while it is
/// read. Method: chunks of two records; the writer needs four of them.
#[test]
fn loom_ring_hands_over_each_record_once() {
    model_without_fences(Some(3), || {
        let budget = Arc::new(ChunkBudget::default());
        budget.set_records(u64::MAX);
        let (writer, mut reader) = ring(&budget);
        let last = 3 * CHUNK_RECORDS + 1;
        let writing = thread::spawn(move || {
            let is_written = |ticket| writer.write(&record(ticket), 0, || ());
            assert!((1..=last).all(is_written));
        });
        let mut seen = Vec::new();
        let mut read = || {
            reader.drain(|records| seen.extend(records.iter().map(|record| record.ticket)));
        };
        read();
        read();
        writing.join().unwrap();
        read();
        assert!(seen.iter().copied().eq(1..=last), "{seen:?}");
        drop(reader);
        assert_eq!(budget.linked(), 0);
    });
}

/// Goal: a ring that may not grow refuses records and loses no other ones. Method: no budget, and
/// one chunk more than the first ones hold.
#[test]
fn loom_full_ring_counts_what_it_refuses() {
    model_without_fences(Some(3), || {
        let (writer, mut reader) = ring(&Arc::default());
        let last = 4 * CHUNK_RECORDS;
        let writing = thread::spawn(move || {
            (1..=last).filter(|ticket| !writer.write(&record(*ticket), 0, || ())).count() as u64
        });
        let mut seen = Vec::new();
        let mut read = || {
            reader.drain(|records| seen.extend(records.iter().map(|record| record.ticket)));
        };
        read();
        let num_refused = writing.join().unwrap();
        read();
        assert!(seen.is_sorted_by(|one, next| one < next), "{seen:?}");
        assert_eq!(seen.len() as u64 + num_refused, last);
    });
}

fn count(subscription: &Subscription) -> u64 {
    let taken = subscription.take_ticks();
    let ended = taken.records.iter().filter(|record| record.kind == RecordKind::Ended).count();
    ended as u64 + taken.dropped
}

/// Goal: a thread that collects by itself, one that reads its subscription and one that ends read
/// each record once. Method: the writing thread needs two chunks and ends, while the main thread
/// takes what there is.
#[test]
fn loom_a_thread_that_collects_beside_a_reader_loses_nothing() {
    model_without_fences(Some(3), || {
        let log = Log::new();
        let all = log.subscribe(Wants::TASKS, None, 100, Keeps::Oldest);
        let own = Arc::clone(&log);
        let writing = thread::spawn(move || {
            let thread = own.add_thread(NameId::NONE);
            (1..=CHUNK_RECORDS + 1).for_each(|ticket| own.write(&thread, &record(ticket)));
            own.remove_thread(&thread);
        });
        let early = count(&all);
        writing.join().unwrap();
        assert_eq!(early + count(&all), CHUNK_RECORDS + 1);
    });
}
