//! Tests of what a profile says of its records.
//!
//! Goal: sums, waits and traces tell of each record what it is, where and when. Method: timelines
//! of records that are made here, and profiles of runtimes over a device of numbers.

use std::collections::BTreeMap;
use std::time::Duration;

use accelrt::internal::{
    Label, LogRecord, NameId, OperationKind, RecordKind, RecordedSource, Taken,
};
use accelrt::size::MIB;
use accelrt::{Config, Device, DeviceKind, Runtime};
use accelrt_testing::null::{CompletionMode, NullBackend, NullConfig};

use super::memory::MemoryBytes;
use super::timeline::Timeline;
use super::{KeyAverages, Profile, ProfileOptions, WaitedBy, chrome_trace, occupancy, waits};

const STREAM: u64 = 3;

/// A record about a task of a stream, with its times.
fn record(kind: RecordKind, operation: OperationKind, ticket: u64, times: [u64; 2]) -> LogRecord {
    let [start, end] = times;
    let device = Some(Device::cpu(0));
    LogRecord { device, stream_id: STREAM, ticket, start, end, ..LogRecord::new(kind, operation) }
}

fn ended(operation: OperationKind, ticket: u64, times: [u64; 2]) -> LogRecord {
    record(RecordKind::Ended, operation, ticket, times)
}

/// A wait of another stream for a ticket of the stream.
fn wait(ticket: u64, times: [u64; 2]) -> LogRecord {
    let mut wait = ended(OperationKind::Wait, 1, times);
    wait.stream_id = STREAM + 1;
    wait.set_source(&RecordedSource { device: Device::cpu(0), stream_id: STREAM, ticket });
    wait
}

fn range(name: &str, thread: u32, times: [u64; 2]) -> LogRecord {
    let [start, end] = times;
    let record = LogRecord::new(RecordKind::Range, OperationKind::Internal);
    LogRecord { label: Label::of(NameId::of(name)), thread, start, end, ..record }
}

fn timeline(records: Vec<LogRecord>) -> Timeline {
    Timeline::new(Taken { records, dropped: 0 }, Vec::new(), BTreeMap::new())
}

/// The lines of a trace with these parts.
fn lines(timeline: &Timeline, parts: &[&str]) -> Vec<String> {
    let mut text = Vec::new();
    chrome_trace::write(timeline, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let has_all = |line: &&str| parts.iter().all(|part| line.contains(part));
    text.lines().filter(has_all).map(str::to_owned).collect()
}

#[test]
fn memory_of_a_device_without_tasks_stands_under_its_name() {
    let task = ended(OperationKind::Fill, 1, [0, 1]);
    let bytes = |allocated| MemoryBytes { allocated, reserved: 100 };
    let memory = BTreeMap::from([(Device::cpu(0), bytes(10)), (Device::cpu(1), bytes(11))]);
    let timeline = Timeline::new(Taken { records: vec![task], dropped: 0 }, Vec::new(), memory);
    for (process, device) in [(2, Device::cpu(0)), (3, Device::cpu(1))] {
        let place = format!("\"pid\":{process},");
        let named = lines(&timeline, &[&place, "process_name", &format!("\"{device}\"")]);
        assert_eq!(named.len(), 1, "{device}");
        let bytes = format!("\"allocated bytes\":{},", 8 + process);
        assert_eq!(lines(&timeline, &[&place, "\"ph\":\"C\"", &bytes]).len(), 1, "{device}");
    }
}

#[test]
fn a_trace_tells_which_task_failed_and_counts_no_bytes_for_a_wait() {
    let filled = LogRecord { bytes: 64, ..ended(OperationKind::Fill, 1, [0, 1]) };
    let failed = record(RecordKind::Failed, OperationKind::Call, 2, [1, 2]);
    let timeline = timeline(vec![filled, failed, wait(2, [0, 5])]);
    assert_eq!(lines(&timeline, &["\"bytes\":64"]).len(), 1);
    assert_eq!(lines(&timeline, &["\"bytes\":"]).len(), 1, "of the fill alone");
    let failed = lines(&timeline, &["\"failed\":true"]);
    assert_eq!(failed.len(), 1);
    assert!(failed[0].contains("\"name\":\"call\""), "{failed:?}");
}

#[test]
fn the_longest_waits_come_first_and_say_whether_a_thread_slept() {
    let of_thread = |kind, times| record(kind, OperationKind::Internal, 1, times);
    let timeline = timeline(vec![
        ended(OperationKind::Fill, 1, [0, 10]),
        of_thread(RecordKind::Spun, [0, 20]),
        of_thread(RecordKind::Slept, [20, 80]),
        wait(1, [0, 40]),
    ]);
    let waits = waits::longest(&timeline, 3);
    let waiters: Vec<_> = waits.iter().map(|wait| wait.waiter.clone()).collect();
    let thread = |sleeps| WaitedBy::Thread("thread 0".to_owned(), sleeps);
    let stream = WaitedBy::Stream(Device::cpu(0), STREAM + 1);
    assert_eq!(waiters, [thread(true), stream, thread(false)]);
    assert!(waits.iter().all(|wait| wait.awaited.as_deref() == Some("fill")));
    assert_eq!(waits::longest(&timeline, 1), waits[..1]);
    for (name, start) in [("wait (spins)", "0.000"), ("wait (sleeps)", "0.020")] {
        assert_eq!(lines(&timeline, &[name, &format!("\"ts\":{start},")]).len(), 1, "{name}");
    }
}

#[test]
fn a_stream_is_busy_with_tasks_and_waits_for_other_streams() {
    let mut task = ended(OperationKind::Fill, 2, [5, 8]);
    task.stream_id = STREAM + 1;
    let found = occupancy::streams(&timeline(vec![task, wait(1, [0, 5])]));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].num_tasks, 1);
    let of_it = [found[0].busy_ms, found[0].waited_ms].map(|ms| format!("{ms:.6}"));
    assert_eq!(of_it, ["0.000003", "0.000005"]);
}

#[test]
fn a_wait_before_a_record_is_no_work_that_it_stands_for() {
    let mut before = wait(9, [1, 2]);
    (before.stream_id, before.ticket) = (STREAM, 2);
    let timeline = timeline(vec![
        ended(OperationKind::Copy, 1, [0, 1]),
        before,
        ended(OperationKind::Record, 3, [2, 3]),
    ]);
    let work = timeline.work_at(((Device::cpu(0), STREAM), 3));
    assert_eq!(work.map(|task| task.operation), Some(OperationKind::Copy));
}

#[test]
fn each_device_has_a_clock_of_its_own() {
    let of = |index, kind, times| LogRecord {
        device: Some(Device::cpu(index)),
        ..record(kind, OperationKind::Fill, 1, times)
    };
    let timeline = timeline(vec![
        of(0, RecordKind::Enqueued, [1000, 1001]),
        of(1, RecordKind::Enqueued, [3000, 3001]),
        of(0, RecordKind::EndedOnDevice, [0, 10]),
        of(1, RecordKind::EndedOnDevice, [0, 20]),
    ]);
    let times: Vec<_> = timeline.tasks.iter().map(|task| (task.start, task.end)).collect();
    assert_eq!(times, [(1000, 1010), (3000, 3020)]);
}

#[test]
fn a_range_has_the_tasks_that_its_thread_enqueued_before_its_end() {
    let enqueued = |ticket, thread, at| {
        let call = record(RecordKind::Enqueued, OperationKind::Fill, ticket, [at, at + 1]);
        [
            LogRecord { thread, ..call },
            ended(OperationKind::Fill, ticket, [100, 100 + (1 << ticket)]),
        ]
    };
    // Before both, in the outer, in both, in the outer, on another thread, and behind both.
    let calls = [(1, 5), (1, 15), (1, 25), (1, 35), (2, 25), (1, 60)];
    for count in [5, 6] {
        let mut records = vec![range("outer", 1, [10, 50]), range("inner", 1, [20, 30])];
        for (ticket, (thread, at)) in (0..).zip(&calls[..count]) {
            records.extend(enqueued(ticket, *thread, *at));
        }
        let averages = KeyAverages::new(&timeline(records));
        let stream_ms = |key: &str| {
            let row = averages.rows.iter().find(|row| row.key == key).unwrap();
            format!("{:.6}", row.stream_ms)
        };
        // 2 + 4 + 8 ns, and 4.
        assert_eq!(["outer", "inner"].map(stream_ms), ["0.000014", "0.000004"]);
    }
}

fn null_runtime(config: NullConfig) -> (Runtime, Device) {
    let backend = NullBackend::new(config);
    let runtime = Runtime::with_backends(Config::default(), [backend as _]).unwrap();
    (runtime, Device::new(DeviceKind::NULL, 0).unwrap())
}

#[test]
fn the_memory_of_a_profile_ends_at_the_allocators_statistics() {
    for settings in ["policy:native", "policy:torch", "policy:torch,expandable_segments:True"] {
        let (runtime, device) = null_runtime(NullConfig::default());
        runtime.set_allocator_settings(settings).unwrap();
        let early = runtime.empty(30 * MIB, device).unwrap();
        let options = ProfileOptions { has_memory: true, ..ProfileOptions::default() };
        let profile = Profile::with_options(&runtime, &options);
        let kept = [40, 3].map(|mib| runtime.empty(mib * MIB, device).unwrap());
        drop(early);
        let allocator = runtime.allocator(device).unwrap();
        allocator.empty_cache();
        let statistics = allocator.statistics();
        let trace = profile.stop();
        let mut text = Vec::new();
        trace.write_chrome_trace(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let last = text.lines().rfind(|line| line.contains("\"ph\":\"C\"")).unwrap();
        let expected = format!(
            "\"allocated bytes\":{},\"reserved bytes\":{}}}",
            statistics.allocated_bytes.all.current, statistics.reserved_bytes.all.current
        );
        assert!(last.contains(&expected), "{settings}: {last} has not {expected}");
        drop(kept);
    }
}

#[test]
fn a_profile_that_stops_after_the_devices_has_what_they_had_not_done() {
    let completion = CompletionMode::WhenAsked { polls: 20 };
    let (runtime, device) = null_runtime(NullConfig { completion, ..NullConfig::default() });
    let stream = runtime.stream(device).unwrap();
    let buffer = runtime.empty(64, device).unwrap();
    let profile = Profile::start(&runtime);
    buffer.fill(7, &stream).unwrap();
    let averages = profile.stop_after_devices(Duration::from_secs(100)).key_averages();
    assert_eq!(averages.rows.iter().find(|row| row.key == "fill").map(|row| row.count), Some(1));
    stream.synchronize().unwrap();
}

#[test]
fn a_profile_is_empty_where_nothing_happened_and_nothing_was_lost() {
    let of_thread = |kind| LogRecord::new(kind, OperationKind::Internal);
    assert!(timeline(Vec::new()).is_empty());
    assert!(timeline(vec![of_thread(RecordKind::Thread)]).is_empty(), "a name is no event");
    for happened in [
        ended(OperationKind::Fill, 1, [0, 1]),
        range("a range", 1, [0, 1]),
        record(RecordKind::Skipped, OperationKind::Fill, 1, [0, 1]),
        record(RecordKind::Slept, OperationKind::Internal, 1, [0, 1]),
    ] {
        let kind = happened.kind;
        assert!(!timeline(vec![happened]).is_empty(), "{kind:?}");
    }
    let lost = Taken { records: Vec::new(), dropped: 1 };
    assert!(!Timeline::new(lost, Vec::new(), BTreeMap::new()).is_empty());
}
