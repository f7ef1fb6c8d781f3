//! Tests of the records that streams write to the log.
//!
//! Goal: each task and wait is told with its place, its times and what it orders. Method: a
//! subscription to one runtime's records, around tasks whose order gates decide.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::channel;

use crate::backend::contract::Backend;
use crate::base::device::{Device, DeviceKind};
use crate::base::error::{Error, RuntimeError};
use crate::engine::log::collector::{Keeps, Wants};
use crate::engine::log::process::{ProcessSubscription, subscribe};
use crate::engine::log::record::{LogRecord, OperationKind, RecordKind};
use crate::engine::stream::enqueue::Always;
use crate::engine::stream::internal::EmptyTask;
use crate::engine::stream::interrupt::Interrupt;
use crate::engine::stream::lifecycle::TaskWatch;
use crate::fault::{Fault, FaultBackend, FaultError, Method};
use crate::null::{CompletionMode, NullBackend, NullConfig};
use crate::{Config, Event, Runtime, Stream};

/// Everything about tasks and waits of one runtime.
struct Told {
    _watch: TaskWatch,
    subscription: ProcessSubscription,
    records: Vec<LogRecord>,
}

impl Told {
    fn of(runtime: &Runtime) -> Self {
        let wants = Wants::TASKS.and(Wants::WAITS);
        let subscription = subscribe(wants, Some(runtime.id()), usize::MAX, Keeps::Oldest);
        Self { _watch: runtime.log_tasks(), subscription, records: Vec::new() }
    }

    /// The records so far about one stream, of one kind.
    fn about(&mut self, stream: &Stream, kind: RecordKind) -> Vec<LogRecord> {
        self.records.extend(self.subscription.take().records);
        let is_it = |record: &&LogRecord| {
            record.kind == kind
                && record.device == Some(stream.device())
                && record.stream_id == stream.id()
        };
        self.records.iter().filter(is_it).copied().collect()
    }
}

fn cpu_runtime(threads: usize) -> Runtime {
    Runtime::new(Config::builder().cpu_threads(threads).build().unwrap()).unwrap()
}

#[test]
fn a_task_is_enqueued_and_ends_in_this_order_of_times_and_waits_name_their_source() {
    let runtime = cpu_runtime(2);
    let [first, second] = [(); 2].map(|()| runtime.stream(Device::cpu(0)).unwrap());
    let mut told = Told::of(&runtime);
    let (event, (gate, opened)) = (Event::new(), channel::<()>());
    first.enqueue(move || assert!(opened.recv().is_err())).unwrap();
    first.record(&event).unwrap();
    second.wait_event(&event).unwrap();
    drop(gate);
    first.synchronize().unwrap();
    second.synchronize().unwrap();
    let ended = |told: &mut Told, stream| {
        let mut ended = told.about(stream, RecordKind::Ended);
        ended.extend(told.about(stream, RecordKind::EndedByHelper));
        ended.sort_by_key(|record| record.ticket);
        ended
    };
    let [call, record] = ended(&mut told, &first)[..] else { panic!("{:?}", told.records) };
    assert_eq!((call.operation, call.ticket), (OperationKind::Call, 1));
    assert_eq!((record.operation, record.ticket), (OperationKind::Record, 2));
    assert!(call.name().text().contains("log_tests"), "{}", call.name().text());
    let [wait] = ended(&mut told, &second)[..] else { panic!("{:?}", told.records) };
    let source = wait.source().unwrap();
    assert_eq!((source.device, source.stream_id), (first.device(), first.id()));
    assert_eq!((wait.operation, source.ticket), (OperationKind::Wait, record.ticket));
    let enqueued = told.about(&first, RecordKind::Enqueued);
    let tickets: Vec<_> = enqueued.iter().map(|record| record.ticket).collect();
    assert_eq!(tickets, [1, 2], "a synchronise is a task of the runtime itself");
    for (enqueued, ended) in enqueued.iter().zip([call, record]) {
        let [enqueued, start, end] = [enqueued.start, ended.start, ended.end].map(u64::cast_signed);
        assert!(enqueued >= 0 && enqueued <= end && start <= end, "{enqueued} {start} {end}");
    }
    assert!(record.start >= call.end, "one stream's tasks do not overlap");
}

#[test]
fn a_failed_task_and_the_skipped_ones_behind_it_are_told() {
    let runtime = cpu_runtime(1);
    let stream = runtime.stream(Device::cpu(0)).unwrap();
    let mut told = Told::of(&runtime);
    stream.enqueue(|| Err::<(), _>("no such file")).unwrap();
    stream.enqueue(|| ()).unwrap();
    stream.synchronize().unwrap_err();
    stream.enqueue(|| ()).unwrap();
    stream.synchronize().unwrap();
    let tickets = |told: &mut Told, kind| {
        told.about(&stream, kind).iter().map(|record| record.ticket).collect::<BTreeSet<_>>()
    };
    assert_eq!(tickets(&mut told, RecordKind::Failed), BTreeSet::from([1]));
    assert_eq!(tickets(&mut told, RecordKind::Skipped), BTreeSet::from([2]));
}

#[test]
fn a_thread_that_waits_tells_whether_it_helped_or_slept() {
    let runtime = cpu_runtime(1);
    let [held, helped] = [(); 2].map(|()| runtime.stream(Device::cpu(0)).unwrap());
    let mut told = Told::of(&runtime);
    let ((enter, entered), (open, opened)) = (channel(), channel::<()>());
    held.enqueue(move || {
        enter.send(()).unwrap();
        opened.recv().unwrap();
    })
    .unwrap();
    entered.recv().unwrap(); // the only worker is inside of the task
    helped.enqueue(|| ()).unwrap();
    helped.synchronize().unwrap();
    assert_eq!(told.about(&helped, RecordKind::EndedByHelper).len(), 1);
    // Another thread opens the gate as soon as this thread waits.
    let waited = held.core();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while waited.waiters.count() == 0 {
                std::thread::yield_now();
            }
            open.send(()).unwrap();
        });
        held.synchronize().unwrap();
    });
    let [wait] = told.about(&held, RecordKind::Slept)[..] else { panic!("{:?}", told.records) };
    assert!(wait.ticket > 1 && wait.start < wait.end);
    let thread = told.about(&helped, RecordKind::EndedByHelper)[0].thread;
    assert_eq!(wait.thread, thread, "this thread");
}

#[test]
fn interrupted_wait_at_task_limit_is_told() {
    let config = Config::builder().cpu_threads(1).stream_task_limit(64).build().unwrap();
    let runtime = Runtime::new(config).unwrap();
    let stream = runtime.stream(Device::cpu(0)).unwrap();
    let mut told = Told::of(&runtime);
    let ((enter, entered), (open, opened)) = (channel(), channel::<()>());
    let task = move || {
        enter.send(()).unwrap();
        opened.recv().unwrap_or_default();
    };
    stream.enqueue(task).unwrap();
    entered.recv().unwrap(); // a worker executes the task: this thread does not help
    for _ in 0..64 {
        stream.core().enqueue(EmptyTask, Always);
    }
    let waited = stream.core().wait_below_limit(&mut Interrupt::by(&mut || true));
    assert!(matches!(waited, Err(Error::Runtime(RuntimeError::Interrupted))), "{waited:?}");
    assert_eq!(told.about(&stream, RecordKind::Slept).len(), 1);
    drop(open);
}

fn null_runtime(completion: CompletionMode) -> (Arc<NullBackend>, Runtime, Stream) {
    let backend = NullBackend::new(NullConfig { completion, ..NullConfig::default() });
    let shared = Arc::clone(&backend) as Arc<dyn Backend>;
    let runtime = Runtime::with_backends(Config::default(), [shared]).unwrap();
    let stream = runtime.stream(Device::new(DeviceKind::NULL, 0).unwrap()).unwrap();
    (backend, runtime, stream)
}

#[test]
fn a_drivers_task_is_told_when_it_is_done_with_the_devices_times_and_no_wait() {
    // Goal: the log waits for no device. Method: the device does its work only when it was asked
    // more often than readers of other tests ask; each submission advances its clock by one
    // microsecond, so a fill between two marks takes two.
    let (_, runtime, stream) = null_runtime(CompletionMode::WhenAsked { polls: 1 << 20 });
    let buffer = runtime.empty(64, stream.device()).unwrap();
    let mut told = Told::of(&runtime);
    buffer.fill(7, &stream).unwrap();
    assert_eq!(told.about(&stream, RecordKind::Enqueued).len(), 1);
    assert!(told.about(&stream, RecordKind::EndedOnDevice).is_empty(), "it is not done");
    buffer.fill(8, &stream).unwrap();
    stream.synchronize().unwrap();
    let [first, second] = told.about(&stream, RecordKind::EndedOnDevice)[..] else {
        panic!("{:?}", told.records)
    };
    assert_eq!([first.start, first.end], [0, 2000]);
    assert!(second.start >= 2000 && second.end == second.start + 2000, "{second:?}");
    assert_eq!((second.operation, second.bytes), (OperationKind::Fill, 64));
    assert_eq!(second.address, buffer.address().unwrap());
}

#[test]
fn the_end_of_a_runtimes_last_subscription_releases_the_marks_of_unfinished_tasks() {
    let (backend, runtime, stream) = null_runtime(CompletionMode::WhenAsked { polls: 1 << 30 });
    let buffer = runtime.empty(64, stream.device()).unwrap();
    let before = backend.resource_counts().marks;
    let told = Told::of(&runtime);
    buffer.fill(7, &stream).unwrap();
    assert_eq!(backend.resource_counts().marks, before + 2, "one before and one behind the task");
    drop(told);
    assert_eq!(backend.resource_counts().marks, before);
    stream.synchronize().unwrap();
}

#[test]
fn a_task_whose_times_the_driver_refuses_has_those_of_its_submission() {
    // Times of the device without one, 0, would move all other tasks of the device. Until the
    // synchronise the device does nothing, so that no reader of another test has the times before.
    let completion = CompletionMode::WhenAsked { polls: 1 << 20 };
    let null = NullBackend::new(NullConfig { completion, ..NullConfig::default() });
    let driver = FaultBackend::new(null);
    let shared = Arc::clone(&driver) as Arc<dyn Backend>;
    let runtime = Runtime::with_backends(Config::default(), [shared]).unwrap();
    let stream = runtime.stream(Device::new(DeviceKind::NULL, 0).unwrap()).unwrap();
    let buffer = runtime.empty(64, stream.device()).unwrap();
    for method in [Method::ElapsedNs, Method::MarkDone] {
        let mut told = Told::of(&runtime);
        buffer.fill(7, &stream).unwrap();
        stream.synchronize().unwrap();
        driver.plan(Fault::always(method, FaultError::Driver));
        let [refused] = told.about(&stream, RecordKind::Ended)[..] else {
            panic!("{method:?}: {:?}", told.records)
        };
        let enqueued = told.about(&stream, RecordKind::Enqueued)[0];
        assert!(0 < refused.start && refused.start <= refused.end, "{method:?}: {refused:?}");
        assert!(enqueued.start <= refused.end, "{method:?}: {refused:?}");
        assert!(told.about(&stream, RecordKind::EndedOnDevice).is_empty(), "{method:?}");
        driver.clear();
    }
}

#[test]
fn what_a_driver_had_done_before_a_subscription_is_told_to_the_earlier_one_alone() {
    let (_, runtime, stream) = null_runtime(CompletionMode::AtOnce);
    let buffer = runtime.empty(64, stream.device()).unwrap();
    let mut earlier = Told::of(&runtime);
    buffer.fill(7, &stream).unwrap();
    stream.synchronize().unwrap();
    let mut later = Told::of(&runtime);
    assert!(later.about(&stream, RecordKind::EndedOnDevice).is_empty());
    assert_eq!(earlier.about(&stream, RecordKind::EndedOnDevice).len(), 1);
}

#[test]
fn the_marks_of_tasks_that_nobody_reads_do_not_pile_up() {
    let (backend, runtime, stream) = null_runtime(CompletionMode::AtOnce);
    let buffer = runtime.empty(64, stream.device()).unwrap();
    let mut told = Told::of(&runtime);
    let before = backend.resource_counts().marks;
    for _ in 0..1000 {
        buffer.fill(7, &stream).unwrap();
    }
    let marks = backend.resource_counts().marks - before;
    assert!(marks <= 2 * 256 + 2, "{marks}: two for each task since the last look");
    assert_eq!(told.about(&stream, RecordKind::EndedOnDevice).len(), 1000);
}

#[test]
fn the_times_of_each_device_count_from_a_task_of_its_own() {
    // The devices of the null kind refuse the time between marks of two of them.
    let config = NullConfig { device_count: 2, ..NullConfig::default() };
    let backends = [NullBackend::new(config) as Arc<dyn Backend>];
    let runtime = Runtime::with_backends(Config::default(), backends).unwrap();
    let mut told = Told::of(&runtime);
    for index in [0, 1] {
        let stream = runtime.stream(Device::new(DeviceKind::NULL, index).unwrap()).unwrap();
        runtime.empty(64, stream.device()).unwrap().fill(7, &stream).unwrap();
        stream.synchronize().unwrap();
        let ended = told.about(&stream, RecordKind::EndedOnDevice);
        assert_eq!((ended.len(), ended[0].start), (1, 0), "device {index}");
    }
}

/// A device that completes at once, behind a driver whose answers a test chooses.
fn faulty_runtime() -> (Arc<FaultBackend>, Runtime, Stream) {
    let backend = FaultBackend::new(NullBackend::new(NullConfig::default()));
    let shared = Arc::clone(&backend) as Arc<dyn Backend>;
    let runtime = Runtime::with_backends(Config::default(), [shared]).unwrap();
    let stream = runtime.stream(Device::new(DeviceKind::NULL, 0).unwrap()).unwrap();
    (backend, runtime, stream)
}

#[test]
fn a_reader_gets_what_a_device_did_while_another_one_asks_the_driver() {
    // Method: the second reader looks while the first one is inside of its question.
    let (backend, runtime, stream) = faulty_runtime();
    let buffer = runtime.empty(64, stream.device()).unwrap();
    let [mut first, mut second] = [(); 2].map(|()| Told::of(&runtime));
    buffer.fill(7, &stream).unwrap();
    stream.synchronize().unwrap();
    let (sender, receiver) = channel();
    let of_second = stream.clone();
    backend.plan_callback(Method::MarkDone, 1, move || {
        sender.send(second.about(&of_second, RecordKind::EndedOnDevice).len()).unwrap();
    });
    assert_eq!(first.about(&stream, RecordKind::EndedOnDevice).len(), 1);
    backend.clear();
    // Without a callback another test of this process has asked before.
    assert_eq!(receiver.recv().unwrap_or(1), 1);
}
