//! Profiles against a model that looks at each moment.
//!
//! Goal: counts and times of keys, streams, devices and ranges are those of the records. Method:
//! random records with short times, of which many are equal, and sums over every unit of time.

use std::collections::{BTreeMap, BTreeSet};

use accelrt::Device;
use accelrt::internal::{
    Label, LogRecord, NameId, OperationKind, RecordKind, RecordedSource, Taken,
};
use proptest::prelude::*;

use super::timeline::Timeline;
use super::{KeyAverages, occupancy};

const STREAMS: u64 = 2;
const THREADS: u32 = 2;
const NS: f64 = 1e-6;

/// A task after the one before of its stream: the gap, the duration, the operation, the kind, and
/// the call that enqueued it.
type Task = (u64, u64, usize, usize, Option<(u32, u64)>);

fn tasks() -> impl Strategy<Value = Vec<Vec<Task>>> {
    let call = proptest::option::of((0..THREADS, 0..30_u64));
    let task = (0..4_u64, 0..6_u64, 0..4_usize, 0..5_usize, call);
    proptest::collection::vec(proptest::collection::vec(task, 0..8), 4)
}

/// Thread, begin, duration and name.
fn ranges() -> impl Strategy<Value = Vec<(u32, u64, u64, usize)>> {
    proptest::collection::vec((0..THREADS, 0..20_u64, 0..15_u64, 0..3_usize), 0..10)
}

const OPERATIONS: [OperationKind; 4] =
    [OperationKind::Fill, OperationKind::Copy, OperationKind::Record, OperationKind::Wait];

const KINDS: [RecordKind; 5] = [
    RecordKind::Ended,
    RecordKind::EndedByHelper,
    RecordKind::Failed,
    RecordKind::Skipped,
    RecordKind::Ended,
];

fn place(index: usize) -> (Device, u64) {
    (Device::cpu(u8::from(index > 1)), index as u64 % STREAMS)
}

fn records_of(tasks: &[Vec<Task>]) -> Vec<LogRecord> {
    let mut records = Vec::new();
    for (index, tasks) in tasks.iter().enumerate() {
        let (device, stream_id) = place(index);
        let mut time = 0;
        for (number, (gap, duration, operation, kind, call)) in tasks.iter().enumerate() {
            let (start, ticket) = (time + gap, number as u64 + 1);
            time = start + duration;
            let operation = OPERATIONS[*operation];
            let record = LogRecord {
                device: Some(device),
                stream_id,
                ticket,
                ..LogRecord::new(KINDS[*kind], operation)
            };
            let mut ended = LogRecord { start, end: time, bytes: ticket, ..record };
            if operation == OperationKind::Wait {
                let (device, stream_id) = place(3 - index);
                ended.set_source(&RecordedSource { device, stream_id, ticket: 1 });
            }
            records.push(ended);
            if let Some((thread, start)) = *call {
                let enqueued = LogRecord { kind: RecordKind::Enqueued, thread, ..record };
                records.push(LogRecord { start, end: start, ..enqueued });
            }
        }
    }
    records
}

fn ran(records: &[LogRecord]) -> impl Iterator<Item = &LogRecord> {
    let other = [RecordKind::Skipped, RecordKind::Enqueued, RecordKind::Range];
    records.iter().filter(move |it| !other.contains(&it.kind))
}

/// The moments from which `one` is on until the next.
fn units(one: &LogRecord) -> impl Iterator<Item = u64> + use<> {
    one.start..one.end
}

fn is_close(one: f64, other: f64) -> bool {
    (one - other).abs() < 1e-12
}

#[expect(clippy::cast_precision_loss, reason = "small")]
fn ms(ns: usize) -> f64 {
    ns as f64 * NS
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn sums_of_tasks_are_those_of_each_moment(tasks in tasks(), dropped in 0..3_u64) {
        let records = records_of(&tasks);
        let taken = Taken { records: records.clone(), dropped };
        let timeline = Timeline::new(taken, Vec::new(), BTreeMap::new());
        let count = |kind| records.iter().filter(|it| it.kind == kind).count() as u64;
        prop_assert_eq!(timeline.num_skipped, count(RecordKind::Skipped));
        let averages = KeyAverages::new(&timeline);
        prop_assert_eq!(averages.num_dropped_records, dropped);
        let mut num_rows = 0;
        for operation in &OPERATIONS[..3] {
            let of_key: Vec<_> = ran(&records).filter(|it| it.operation == *operation).collect();
            let row = averages.rows.iter().find(|it| Some(&*it.key) == operation.name());
            prop_assert_eq!(row.is_some(), !of_key.is_empty());
            let Some(row) = row else { continue };
            num_rows += 1;
            let ns = of_key.iter().map(|it| units(it).count()).sum();
            prop_assert_eq!(row.count, of_key.len() as u64);
            prop_assert_eq!(row.bytes, of_key.iter().map(|it| it.bytes).sum::<u64>());
            for part in [row.self_ms, row.total_ms, row.stream_ms] {
                prop_assert!(is_close(part, ms(ns)), "{:?}", row);
            }
        }
        prop_assert_eq!(averages.rows.len(), num_rows);
        let table = averages.table(None, -1);
        let says_loss = table.lines().last().is_some_and(|it| it.starts_with("Not complete: "));
        prop_assert_eq!(says_loss, dropped > 0);
        let is_wait = |it: &LogRecord| it.operation == OperationKind::Wait;
        let streams = occupancy::streams(&timeline);
        let with_tasks: BTreeSet<_> = ran(&records).map(|it| (it.device, it.stream_id)).collect();
        prop_assert_eq!(streams.len(), with_tasks.len());
        for stream in streams {
            let key = (Some(stream.device), stream.stream_id);
            let of_stream = || ran(&records).filter(|it| (it.device, it.stream_id) == key);
            let sum = |waits| {
                ms(of_stream().filter(|it| is_wait(it) == waits).map(|it| units(it).count()).sum())
            };
            let num_tasks = of_stream().filter(|it| !is_wait(it)).count() as u64;
            prop_assert_eq!(stream.num_tasks, num_tasks);
            prop_assert!(is_close(stream.busy_ms, sum(false)), "{:?}", stream);
            prop_assert!(is_close(stream.waited_ms, sum(true)), "{:?}", stream);
        }
        for device in occupancy::devices(&timeline) {
            let mut busy: BTreeMap<u64, usize> = BTreeMap::new();
            let of_device = ran(&records).filter(|it| it.device == Some(device.device));
            for moment in of_device.filter(|it| !is_wait(it)).flat_map(units) {
                *busy.entry(moment).or_default() += 1;
            }
            let overlap = busy.values().filter(|count| **count > 1).count();
            prop_assert!(is_close(device.busy_ms, ms(busy.len())), "{:?}", device);
            prop_assert!(is_close(device.stream_ms, ms(busy.values().sum())), "{:?}", device);
            let percent = ms(overlap) / ms(busy.len()) * 100.0;
            prop_assert!((device.overlap_percent - percent).abs() < 1e-9, "{:?}", device);
        }
    }

    #[test]
    fn ranges_have_the_moments_of_their_thread(ranges in ranges(), tasks in tasks()) {
        let names = ["one", "two", "three"];
        let mut records = records_of(&tasks);
        let range = |(thread, start, duration, name): &(u32, u64, u64, usize)| LogRecord {
            thread: *thread,
            start: *start,
            end: start + duration,
            label: Label::of(NameId::of(names[*name])),
            ..LogRecord::new(RecordKind::Range, OperationKind::Internal)
        };
        let ranges: Vec<_> = ranges.iter().map(range).collect();
        records.extend(&ranges);
        let taken = Taken { records: records.clone(), dropped: 0 };
        let timeline = Timeline::new(taken, Vec::new(), BTreeMap::new());
        let averages = KeyAverages::new(&timeline);
        for name in names.map(NameId::of) {
            let of_name = || ranges.iter().filter(|it| it.name() == name);
            let row = averages.rows.iter().find(|it| it.is_range && *it.key == *name.text());
            prop_assert_eq!(row.is_some(), of_name().count() > 0);
            let Some(row) = row else { continue };
            let total = of_name().map(|it| units(it).count()).sum();
            prop_assert_eq!(row.count, of_name().count() as u64);
            prop_assert!(is_close(row.total_ms, ms(total)), "{:?}", row);
            // Each moment of a thread is of the range that has begun last; of those that have begun
            // together, of the shortest; of equal ones, of any.
            let (mut least, mut most) = (0, 0);
            for thread in 0..THREADS {
                for moment in 0..50 {
                    let is_on = |it: &&LogRecord| it.thread == thread && it.start <= moment;
                    let on = ranges.iter().filter(is_on).filter(|it| moment < it.end);
                    let on: Vec<_> = on.collect();
                    let order = |it: &LogRecord| (it.start, std::cmp::Reverse(it.end));
                    let Some(last) = on.iter().map(|it| order(it)).max() else { continue };
                    let owners = || on.iter().filter(|it| order(it) == last);
                    most += usize::from(owners().any(|it| it.name() == name));
                    least += usize::from(owners().all(|it| it.name() == name));
                }
            }
            prop_assert!(row.self_ms >= ms(least) - 1e-12, "{:?}: {}", row, least);
            prop_assert!(row.self_ms <= ms(most) + 1e-12, "{:?}: {}", row, most);
            // A task whose call begins with the end of a range may be in it, or not.
            let (mut least, mut most) = (0, 0);
            for task in timeline.tasks.iter().filter(|task| !task.is_wait()) {
                let Some(call) = task.enqueued else { continue };
                let ns = usize::try_from(task.end - task.start).expect("forwards");
                let start = call.start.cast_unsigned();
                for range in of_name().filter(|it| it.thread == call.thread && it.start <= start) {
                    most += if start <= range.end { ns } else { 0 };
                    least += if start < range.end { ns } else { 0 };
                }
            }
            prop_assert!(row.stream_ms >= ms(least) - 1e-12, "{:?}: {}", row, least);
            prop_assert!(row.stream_ms <= ms(most) + 1e-12, "{:?}: {}", row, most);
        }
    }
}
