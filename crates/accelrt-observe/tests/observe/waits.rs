//! The lengths of waits in profiles of the cpu kind.

use std::sync::mpsc;

use accelrt::size::MIB;
use accelrt::{Config, Device, Runtime, Stream};

use crate::timed_waits::{Release, SHORTAGE, SORTS, Sort, assert_lengths};

const CPU: Device = Device::cpu(0);
const TASK_LIMIT: usize = 64;

/// Holds a stream by a task that a worker executes.
fn hold(stream: &Stream) -> Release<'static> {
    let ((enter, entered), (open, opened)) = (mpsc::channel(), mpsc::channel::<()>());
    let task = move || {
        enter.send(()).unwrap();
        let _ = opened.recv(); // an error says that the sender was dropped
    };
    stream.enqueue(task).unwrap();
    entered.recv().unwrap(); // from here on no waiting thread executes the task
    Box::new(move || drop(open))
}

/// An enqueue on a stream whose queue is full.
const FULL_QUEUE: Sort =
    ("full queue", |held, _| (0..TASK_LIMIT).try_for_each(|_| held.stream.enqueue(|| ())));

#[test]
fn waits_on_the_cpu_have_their_lengths() {
    let config = Config::builder().cpu_threads(2).cpu_memory_bytes(64 * MIB);
    let config = config.stream_task_limit(TASK_LIMIT as u64).build().unwrap();
    let runtime = Runtime::new(config).unwrap();
    let sorts: Vec<_> = SORTS.into_iter().chain([SHORTAGE, FULL_QUEUE]).collect();
    assert_lengths(&runtime, CPU, &sorts, &hold);
}
