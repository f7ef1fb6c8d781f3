//! Loom models of the log: no record is lost or torn between a thread's ring and its readers.

use std::sync::Arc;

use loom::thread;

use crate::base::sync::models::{EVERY, model_without_fences};
use crate::engine::log::collector::{Keeps, Log, Subscription, Wants};
use crate::engine::log::names::NameId;
use crate::engine::log::record::{LogRecord, OperationKind, RecordKind};
use crate::engine::log::ring::{CAPACITY, ring};

fn record(ticket: u64) -> LogRecord {
    LogRecord { ticket, ..LogRecord::new(RecordKind::Ended, OperationKind::Call) }
}

/// Goal: a reader sees each record whole and in order, and a writer reuses no slot that is being
/// read. Method: a ring of two records takes four; what the reader misses is counted as dropped.
#[test]
fn loom_a_ring_hands_over_each_record_once_or_counts_it() {
    model_without_fences(EVERY, || {
        let (writer, mut reader) = ring();
        let writing = thread::spawn(move || {
            (1..=CAPACITY + 2).for_each(|ticket| writer.write(&record(ticket), 0, || ()));
        });
        let mut seen = Vec::new();
        let mut read = || {
            reader.drain(|records| seen.extend(records.iter().map(|record| record.ticket)));
        };
        read();
        read();
        writing.join().unwrap();
        read();
        assert!(seen.is_sorted_by(|one, next| one < next), "{seen:?}");
        assert_eq!(seen.len() as u64 + reader.take_dropped(), CAPACITY + 2);
    });
}

fn count(subscription: &Subscription) -> u64 {
    let taken = subscription.take_ticks();
    let ended = taken.records.iter().filter(|record| record.kind == RecordKind::Ended).count();
    ended as u64 + taken.dropped
}

/// Goal: a thread that collects by itself, one that reads its subscription and one that ends read
/// each record once. Method: the writing thread fills its ring twice and ends, while the main
/// thread takes what there is.
#[test]
fn loom_a_thread_that_collects_beside_a_reader_loses_nothing() {
    model_without_fences(Some(3), || {
        let log = Log::new();
        let all = log.subscribe(Wants::TASKS, None, 100, Keeps::Oldest);
        let own = Arc::clone(&log);
        let writing = thread::spawn(move || {
            let thread = own.add_thread(NameId::NONE);
            (1..=CAPACITY + 1).for_each(|ticket| own.write(&thread, &record(ticket)));
            own.remove_thread(&thread);
        });
        let early = count(&all);
        writing.join().unwrap();
        assert_eq!(early + count(&all), CAPACITY + 1);
    });
}
