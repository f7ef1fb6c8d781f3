//! Tests of the task reports.
//!
//! Goal: a report has the operation and the details of its task. Method: a subscription records the
//! reports about tasks of several operations.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::backend::contract::{Address, Backend};
use crate::base::device::{Device, DeviceKind};
use crate::engine::stream::lifecycle::TaskReport;
use crate::engine::stream::task::{MemoryAccess, OperationKind};
use crate::null::{NullBackend, NullConfig};
use crate::{Buffer, Config, Event, Runtime};

static REPORTED: Mutex<Vec<TaskReport>> = Mutex::new(Vec::new());

fn record_report(report: &TaskReport) {
    REPORTED.lock().unwrap().push(report.clone());
}

fn address(buffer: &Buffer) -> Address {
    Address(buffer.address().unwrap())
}

#[test]
fn a_report_has_the_operation_the_memory_and_the_source_of_its_task() {
    let runtime = Runtime::new(Config::default()).unwrap();
    let device = Device::cpu(0);
    let [first, second] = [(); 2].map(|()| runtime.stream(device).unwrap());
    let (from, to) = (runtime.empty(64, device).unwrap(), runtime.empty(64, device).unwrap());
    let [source, target] = [from.slice(..32).unwrap(), to.slice(16..48).unwrap()];
    let (event, (gate, opened)) = (Event::new(), channel::<()>());
    let watch = runtime.watch_tasks(record_report);
    from.fill(7, &first).unwrap();
    target.copy_from(&source, &first).unwrap();
    first.enqueue(move || assert!(opened.recv().is_err())).unwrap();
    first.record(&event).unwrap();
    second.wait_event(&event).unwrap();
    drop(gate);
    first.synchronize().unwrap();
    second.synchronize().unwrap();
    drop(watch);

    let reported = std::mem::take(&mut *REPORTED.lock().unwrap());
    let of =
        |operation| reported.iter().find(|report| report.record.operation == operation).unwrap();
    let fill = &of(OperationKind::Fill).details;
    assert_eq!(
        (fill.bytes, &fill.accesses[..]),
        (64, &[MemoryAccess::write(address(&from), 64)][..])
    );
    let copy = &of(OperationKind::Copy).details;
    let [read, written] =
        [MemoryAccess::read(address(&from), 32), MemoryAccess::write(address(&target), 32)];
    assert_eq!((copy.bytes, &copy.accesses[..]), (32, &[read, written][..]));
    assert!(of(OperationKind::Call).details.accesses.is_empty());
    assert!(of(OperationKind::Record).details.source.is_none());
    let awaited = of(OperationKind::Wait).details.source.as_ref().expect("a wait has a source");
    assert_eq!((awaited.stream_id, awaited.ticket), (first.id(), 4));
    assert_eq!(reported.len(), 5, "tasks of the runtime itself are not reported: {reported:?}");
}

static TIMES: Mutex<Vec<Duration>> = Mutex::new(Vec::new());

#[test]
fn the_times_of_the_tasks_of_a_stream_do_not_overlap() {
    // Goal: a task's time begins when the previous task is done. Method: the sum of the tasks'
    // times is at most the time from the first enqueue to the synchronise.
    const TASKS: usize = 3;
    let runtime = Runtime::new(Config::default()).unwrap();
    let stream = runtime.stream(Device::cpu(0)).unwrap();
    let watch = runtime.watch_tasks(|report| TIMES.lock().unwrap().push(report.time));
    let start = Instant::now();
    for _ in 0..TASKS {
        let work = || {
            let since = Instant::now();
            while since.elapsed() < Duration::from_millis(10) {}
        };
        stream.enqueue(work).unwrap();
    }
    stream.synchronize().unwrap();
    let all = start.elapsed();
    drop(watch);
    let times = std::mem::take(&mut *TIMES.lock().unwrap());
    assert_eq!(times.len(), TASKS);
    assert!(times.iter().sum::<Duration>() <= all, "{times:?} in {all:?}");
}

static DEVICE_TIMES: Mutex<Vec<(OperationKind, Duration)>> = Mutex::new(Vec::new());

#[test]
fn the_time_of_a_task_on_a_driver_is_the_devices() {
    // Goal: a task is timed by marks around it. Method: each submission advances this device's
    // clock by one microsecond; the task and the mark behind the task take two microseconds.
    let null: Arc<dyn Backend> = NullBackend::new(NullConfig::default());
    let runtime = Runtime::with_backends(Config::default(), [null]).unwrap();
    let device = Device::new(DeviceKind::NULL, 0).unwrap();
    let (stream, buffer) = (runtime.stream(device).unwrap(), runtime.empty(64, device).unwrap());
    let watch = runtime.watch_tasks(|report| {
        DEVICE_TIMES.lock().unwrap().push((report.record.operation, report.time));
    });
    buffer.fill(7, &stream).unwrap();
    stream.synchronize().unwrap();
    drop(watch);
    let told = std::mem::take(&mut *DEVICE_TIMES.lock().unwrap());
    assert_eq!(told, [(OperationKind::Fill, Duration::from_micros(2))]);
}
