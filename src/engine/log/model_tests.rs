//! The log against a model of its subscriptions.
//!
//! Goal: each subscription gets exactly the records that it requests, or counts them. Method:
//! random sequences of records with equal times, bursts around a chunk's end, also while another
//! thread collects, threads that begin and end, and subscriptions that begin, end and are read.

use std::collections::HashMap;
use std::sync::Arc;

use proptest::prelude::*;

use crate::engine::log::collector::{Keeps, Log, Subscription, Taken, ThreadLog, Wants};
use crate::engine::log::context::NameId;
use crate::engine::log::record::{LogRecord, MemoryAction, OperationKind, RecordKind};
use crate::engine::log::ring::CHUNK_RECORDS;

const SETS: [Wants; 4] = [Wants::TASKS, Wants::WAITS, Wants::RANGES, Wants::MEMORY];
const THREADS: usize = 3;
const RUNTIMES: u64 = 2;

#[derive(Clone, Debug)]
enum Step {
    /// Records of a thread, all alike but for their numbers; `true` while another one collects.
    Write(usize, usize, u64, u64, bool),
    /// The time goes on.
    Tick,
    EndThread(usize),
    Subscribe(usize, Option<u64>, usize, bool),
    Take(usize),
    EndSubscription(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let counts = prop_oneof![8 => 1..6_u64, 1 => CHUNK_RECORDS - 2..CHUNK_RECORDS + 2];
    let chunk = usize::try_from(CHUNK_RECORDS).expect("a few records");
    let limits = prop_oneof![3 => 1..6_usize, 1 => Just(chunk), 2 => Just(usize::MAX)];
    let runtime = proptest::option::of(1..=RUNTIMES);
    let step = prop_oneof![
        6 => (0..THREADS, 0..7_usize, 1..=RUNTIMES, counts, any::<bool>())
            .prop_map(|(thread, kind, runtime, count, is_during)| {
                Step::Write(thread, kind, runtime, count, is_during)
            }),
        2 => Just(Step::Tick),
        1 => (0..THREADS).prop_map(Step::EndThread),
        2 => (1..16_usize, runtime, limits, any::<bool>())
            .prop_map(|(sets, runtime, limit, newest)| {
                Step::Subscribe(sets, runtime, limit, newest)
            }),
        3 => (0..4_usize).prop_map(Step::Take),
        1 => (0..4_usize).prop_map(Step::EndSubscription),
    ];
    proptest::collection::vec(step, 1..60)
}

fn kind(number: usize) -> RecordKind {
    [
        RecordKind::Enqueued,
        RecordKind::Ended,
        RecordKind::Spun,
        RecordKind::Slept,
        RecordKind::Range,
        RecordKind::Memory(MemoryAction::Freed),
        RecordKind::Memory(MemoryAction::Hit),
    ][number]
}

/// The number of a set in [`SETS`].
fn set_of(kind: RecordKind) -> usize {
    match kind {
        RecordKind::Spun | RecordKind::Slept => 1,
        RecordKind::Range => 2,
        RecordKind::Memory(_) => 3,
        _ => 0,
    }
}

struct Known {
    subscription: Subscription,
    sets: usize,
    runtime: Option<u64>,
    limit: usize,
    keeps: Keeps,
    /// All that was requested since the last call of `take`.
    records: Vec<LogRecord>,
}

impl Known {
    fn note(&mut self, record: &LogRecord) {
        let is_of_runtime = match record.kind {
            RecordKind::Thread | RecordKind::Range => true,
            _ => self.runtime.is_none_or(|runtime| runtime == u64::from(record.runtime)),
        };
        if self.sets >> set_of(record.kind) & 1 == 1 && is_of_runtime {
            self.records.push(*record);
        }
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        let Taken { records, dropped } = self.subscription.take_ticks();
        let expected = std::mem::take(&mut self.records);
        let key = |it: &LogRecord| (it.thread, it.kind, it.ticket, it.start, it.runtime);
        match self.keeps {
            Keeps::Oldest => {
                let is_thread = |it: &&LogRecord| it.kind == RecordKind::Thread;
                let num_threads = expected.iter().filter(is_thread).count();
                prop_assert_eq!(records.iter().filter(is_thread).count(), num_threads);
                let kept = num_threads + (expected.len() - num_threads).min(self.limit);
                prop_assert_eq!((records.len(), dropped), (kept, (expected.len() - kept) as u64));
                let mut by_thread: HashMap<u32, Vec<_>> = HashMap::new();
                for record in &expected {
                    by_thread.entry(record.thread).or_default().push(key(record));
                }
                for (thread, all) in by_thread {
                    let of_thread = records.iter().filter(|it| it.thread == thread).map(key);
                    let of_thread: Vec<_> = of_thread.collect();
                    prop_assert!(all.starts_with(&of_thread), "{:?} of {:?}", of_thread, all);
                }
            }
            Keeps::Newest => {
                let beyond = expected.len().saturating_sub(self.limit);
                prop_assert_eq!(records.len(), expected.len() - beyond);
                prop_assert!(records.is_sorted_by_key(LogRecord::written_at));
                // Of records of one time any may be kept.
                let times =
                    |records: &[LogRecord]| records.iter().map(LogRecord::written_at).collect();
                let (found, newest): (Vec<u64>, Vec<u64>) =
                    (times(&records), times(&expected[beyond..]));
                prop_assert_eq!(found, newest);
                let events = |records: &[LogRecord]| -> u64 {
                    let events = |it: &LogRecord| match it.kind {
                        RecordKind::Memory(MemoryAction::Freed) => 2,
                        _ => 1,
                    };
                    records.iter().map(events).sum()
                };
                prop_assert_eq!(events(&records) + dropped, events(&expected));
                let mut left: Vec<_> = expected.iter().map(key).collect();
                for record in &records {
                    let place = left.iter().position(|known| *known == key(record));
                    prop_assert!(place.is_some(), "{:?} was written once", record);
                    left.swap_remove(place.expect("just seen"));
                }
            }
        }
        Ok(())
    }
}

struct Model {
    log: Arc<Log>,
    /// Each with its number.
    threads: [Option<(ThreadLog, u32)>; THREADS],
    num_threads: u32,
    known: Vec<Known>,
    time: u64,
    ticket: u64,
}

impl Model {
    fn about(number: u32) -> LogRecord {
        let record = LogRecord::new(RecordKind::Thread, OperationKind::Internal);
        LogRecord { thread: number, ..record }
    }

    fn write(&mut self, thread: usize, kind: RecordKind, runtime: u64, count: u64, during: bool) {
        let (log, known, num_threads) = (&self.log, &mut self.known, &mut self.num_threads);
        let (writer, number) = self.threads[thread].take().unwrap_or_else(|| {
            let writer = log.add_thread(NameId::NONE);
            *num_threads += 1;
            for subscription in known.iter_mut() {
                subscription.note(&Self::about(*num_threads));
            }
            (writer, *num_threads)
        });
        let first = self.ticket + 1;
        self.ticket += count;
        let runtime = u32::try_from(runtime).expect("one of two");
        let (start, end) = match kind {
            RecordKind::Memory(_) => (self.time, 0),
            _ => (self.time % 3, self.time), // began at any earlier time
        };
        let record = LogRecord { runtime, start, end, ..LogRecord::new(kind, OperationKind::Call) };
        let records: Vec<_> =
            (first..=self.ticket).map(|ticket| LogRecord { ticket, ..record }).collect();
        for record in &records {
            let record = LogRecord { thread: number, ..*record };
            self.known.iter_mut().for_each(|it| it.note(&record));
        }
        let log = Arc::clone(&self.log);
        let write = move || {
            for record in &records {
                log.write(&writer, record);
            }
            writer
        };
        let writer = if during {
            let _collector = self.log.hold();
            std::thread::spawn(write).join().expect("it writes")
        } else {
            write()
        };
        self.threads[thread] = Some((writer, number));
    }

    fn run(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Write(thread, number, runtime, count, during) => {
                self.write(thread, kind(number), runtime, count, during);
            }
            Step::Tick => self.time += 1,
            Step::EndThread(thread) => {
                if let Some((writer, _)) = self.threads[thread].take() {
                    self.log.remove_thread(&writer);
                }
            }
            Step::Subscribe(sets, runtime, limit, newest) if self.known.len() < 4 => {
                // Histories, which keep the newest, request no tasks.
                let keeps = if newest && sets & 1 == 0 { Keeps::Newest } else { Keeps::Oldest };
                let chosen = (0..4).filter(|set| sets >> set & 1 == 1).map(|set| SETS[set]);
                let wants = chosen.reduce(Wants::and).expect("at least one");
                let subscription = self.log.subscribe(wants, runtime, limit, keeps);
                let records = Vec::new();
                let mut known = Known { subscription, sets, runtime, limit, keeps, records };
                for (_, number) in self.threads.iter().flatten() {
                    known.note(&Self::about(*number));
                }
                self.known.push(known);
            }
            Step::Subscribe(..) => {}
            Step::Take(index) => {
                if let Some(known) = self.known.get_mut(index) {
                    known.check()?;
                }
            }
            Step::EndSubscription(index) => {
                if index < self.known.len() {
                    self.known.remove(index);
                }
            }
        }
        for (number, set) in SETS.into_iter().enumerate() {
            let is_wanted = self.known.iter().any(|it| it.sets >> number & 1 == 1);
            prop_assert_eq!(self.log.is_wanted(set), is_wanted);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn subscriptions_get_or_count_each_record(steps in steps()) {
        let (threads, known) = ([None, None, None], Vec::new());
        let mut model =
            Model { log: Log::new(), threads, num_threads: 0, known, time: 1, ticket: 0 };
        for step in &steps {
            model.run(step)?;
        }
        for known in &mut model.known {
            known.check()?;
        }
    }
}
