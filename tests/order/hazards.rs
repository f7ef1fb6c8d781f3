//! Tests of bugs that a review found: each failed or hung until its bug was mended.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use accelrt::backend::contract::Backend;
use accelrt::{
    Config, Device, DeviceKind, Error, Runtime, RuntimeError, Stream, StreamError, TaskError,
};
use accelrt_testing::null::{NullBackend, NullConfig};

use crate::gate::Gate;
use crate::hang::Watchdog;
use crate::scheduled::scheduled;

fn runtime(workers: usize, exit_timeout: Duration) -> Runtime {
    let config = Config::builder().exit_timeout(exit_timeout).cpu_threads(workers);
    scheduled(Runtime::new(config.build().unwrap()).unwrap())
}

fn patient(workers: usize) -> Runtime {
    runtime(workers, Duration::from_secs(10))
}

fn dedicated(runtime: &Runtime) -> Stream {
    runtime.stream(Device::cpu(0)).unwrap()
}

/// Runs one test of this file in a process of its own, which may abort; true when it passed.
fn passes_alone(test: &str) -> bool {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "--test-threads=1", test]).env("ACCELRT_TEST_CHILD", "1");
    child.output().unwrap().status.success()
}

fn is_child() -> bool {
    std::env::var_os("ACCELRT_TEST_CHILD").is_some()
}

#[test]
fn a_scope_outlives_the_tasks_that_its_tasks_enqueue() {
    let _watchdog = Watchdog::new("nested tasks of a scope");
    let runtime = patient(2);
    let stream = dedicated(&runtime);
    let ((ready, is_ready), (end, gate)) = (mpsc::channel::<()>(), mpsc::channel::<()>());
    let is_over = AtomicBool::new(false);
    // The second task ends only when the scope waits for it; the third is what it enqueued.
    thread::scope(|threads| {
        threads.spawn(move || {
            is_ready.recv().unwrap();
            // The scope sleeps by now, or will: nothing depends on which.
            (0..1000).for_each(|_| thread::yield_now());
            drop(end);
        });
        let is_over = &is_over;
        let scoped = stream.scope(|scope| {
            let third = move || {
                (0..1000).for_each(|_| thread::yield_now());
                is_over.store(true, Ordering::SeqCst);
            };
            let second = move || {
                ready.send(()).unwrap();
                let _ = gate.recv();
                scope.enqueue(third).unwrap();
            };
            scope.enqueue(move || scope.enqueue(second).unwrap()).unwrap();
        });
        scoped.unwrap();
        let was_over = is_over.load(Ordering::SeqCst);
        drop(stream.synchronize());
        assert!(was_over, "the scope ended before a task that borrows from it");
    });
}

#[test]
fn a_worker_that_is_no_longer_needed_leaves_no_work_behind() {
    let watchdog = Watchdog::new("a surplus worker");
    for round in 0..200 {
        watchdog.step(format!("a surplus worker, round {round}"));
        let runtime = patient(2);
        let [waiting, awaited, probe, late] = [(); 4].map(|()| dedicated(&runtime));
        let gate = Gate::shut(&awaited);
        let event = awaited.record_event().unwrap();
        let (over, is_over) = mpsc::channel();
        let task = move || {
            event.synchronize().unwrap(); // a spare worker may start from here
            let (told, is_told) = mpsc::channel();
            late.enqueue(move || told.send(()).unwrap()).unwrap();
            is_told.recv().unwrap(); // one of two workers is here: the other takes it
            over.send(()).unwrap();
        };
        waiting.enqueue(task).unwrap();
        // Both workers are taken: who runs this is the spare, which then sleeps.
        let (told, is_told) = mpsc::channel();
        probe.enqueue(move || told.send(()).unwrap()).unwrap();
        is_told.recv().unwrap();
        (0..round * 100).for_each(|_| thread::yield_now());
        gate.open();
        is_over.recv().unwrap();
    }
}

#[test]
fn a_long_chain_of_parked_streams_is_cancelled_without_recursion() {
    if !is_child() {
        let name = "hazards::a_long_chain_of_parked_streams_is_cancelled_without_recursion";
        assert!(passes_alone(name));
        return;
    }
    let runtime = runtime(2, Duration::ZERO);
    let first = dedicated(&runtime);
    let _closed = Gate::shut(&first);
    let (mut before, mut streams) = (first.record_event().unwrap(), Vec::new());
    for _ in 0..4_000 {
        let stream = dedicated(&runtime);
        stream.wait_event(&before).unwrap();
        before = stream.record_event().unwrap();
        streams.push(stream);
    }
    // The one worker left has parked them all when it comes to this.
    let (told, is_told) = mpsc::channel();
    dedicated(&runtime).enqueue(move || told.send(()).unwrap()).unwrap();
    is_told.recv().unwrap();
    runtime.shutdown();
    assert!(before.is_done());
}

/// What panics when it is dropped.
#[derive(Debug)]
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(thread::panicking(), "a bomb");
    }
}

#[test]
fn a_skipped_task_may_panic_when_it_is_dropped() {
    let _watchdog = Watchdog::new("a panic in the drop of a skipped task");
    let runtime = patient(1);
    let (stream, other) = (dedicated(&runtime), dedicated(&runtime));
    let gate = Gate::shut(&stream);
    stream.enqueue(|| Err::<(), _>("meant to fail")).unwrap();
    let bomb = Bomb;
    stream.enqueue(move || drop(bomb)).unwrap();
    gate.open();
    assert!(matches!(stream.synchronize(), Err(Error::Stream(StreamError::Failed(_)))));
    let (told, is_told) = mpsc::channel();
    other.enqueue(move || told.send(()).unwrap()).unwrap();
    is_told.recv().unwrap();
}

#[test]
fn a_task_may_panic_with_what_panics_when_it_is_dropped() {
    let _watchdog = Watchdog::new("a panic in the drop of a panic");
    let runtime = patient(1);
    let stream = dedicated(&runtime);
    let is_armed = AtomicBool::new(true);
    let task = move || {
        if is_armed.load(Ordering::Relaxed) {
            std::panic::panic_any(Bomb);
        }
    };
    stream.enqueue(task).unwrap();
    let (told, is_told) = mpsc::channel();
    dedicated(&runtime).enqueue(move || told.send(()).unwrap()).unwrap();
    is_told.recv().unwrap();
    assert!(matches!(stream.synchronize(), Err(Error::Stream(StreamError::Failed(_)))));
}

/// An error that uses its stream when it is dropped.
#[derive(Debug)]
struct Curious(Stream);

impl std::fmt::Display for Curious {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("curious")
    }
}

impl std::error::Error for Curious {}

impl Drop for Curious {
    fn drop(&mut self) {
        let event = self.0.record_event();
        drop(event.and_then(|event| self.0.wait_event(&event)));
    }
}

#[test]
fn an_error_of_a_task_may_use_its_stream_when_it_is_dropped() {
    let _watchdog = Watchdog::new("an error that uses its stream");
    let runtime = patient(1);
    let stream = dedicated(&runtime);
    let own = stream.clone();
    stream.enqueue(move || Err::<(), TaskError>(Box::new(Curious(own)))).unwrap();
    drop(stream.synchronize());
    stream.enqueue(|| Err::<(), _>("the next one")).unwrap();
    assert!(matches!(stream.synchronize(), Err(Error::Stream(StreamError::Failed(_)))));
}

#[test]
fn a_shutdown_finishes_work_that_two_streams_hand_to_each_other() {
    let watchdog = Watchdog::new("a shutdown of two streams");
    for round in 0..300 {
        watchdog.step(format!("a shutdown of two streams, round {round}"));
        let runtime = runtime(2, Duration::from_secs(50));
        let (one, two) = (dedicated(&runtime), dedicated(&runtime));
        for _ in 0..300 {
            for (next, before) in [(&one, &two), (&two, &one)] {
                next.wait_stream(before).unwrap();
                next.enqueue(|| ()).unwrap();
            }
        }
        assert_eq!(runtime.shutdown().num_cancelled_tasks, 0, "in round {round}");
    }
}

#[test]
fn an_interrupted_synchronise_leaves_the_error_to_the_next_one() {
    let _watchdog = Watchdog::new("an interrupted synchronise");
    let runtime = patient(1);
    let stream = dedicated(&runtime);
    let gate = Gate::shut(&stream);
    stream.enqueue(|| Err::<(), _>("meant to fail")).unwrap();
    let interrupted = stream.synchronize_unless(&mut || true);
    assert!(matches!(interrupted, Err(Error::Runtime(RuntimeError::Interrupted))));
    gate.open();
    while !stream.is_done() {
        thread::yield_now();
    }
    assert!(
        matches!(stream.synchronize(), Err(Error::Stream(StreamError::Failed(_)))),
        "nobody saw the error"
    );
}

#[test]
fn an_event_behind_cancelled_tasks_is_failed() {
    let _watchdog = Watchdog::new("an event behind cancelled tasks");
    let runtime = runtime(1, Duration::ZERO);
    let (gated, stream) = (dedicated(&runtime), dedicated(&runtime));
    let _closed = Gate::shut(&gated);
    stream.wait_stream(&gated).unwrap();
    let (ran, has_run) = mpsc::channel();
    stream.enqueue(move || ran.send(()).unwrap()).unwrap();
    let event = stream.record_event().unwrap();
    runtime.shutdown();
    assert!(has_run.recv().is_err(), "the task was cancelled");
    assert!(event.synchronize().is_err(), "its event says that it is done");
}

#[test]
fn a_helped_task_may_enqueue_on_a_driver_kind() {
    let _watchdog = Watchdog::new("a helped task that records on a driver's stream");
    let null: Arc<dyn Backend> = NullBackend::new(NullConfig::default());
    let config = Config::builder().cpu_threads(1).build().unwrap();
    let runtime = Runtime::with_backends(config, [null]).unwrap();
    let driver = runtime.stream(Device::new(DeviceKind::NULL, 0).unwrap()).unwrap();
    let (outer, inner) = (dedicated(&runtime), dedicated(&runtime));
    let (told, is_told) = mpsc::channel();
    let task = move || {
        let recording = move || drop(driver.record_event().unwrap());
        inner.enqueue(recording).unwrap();
        inner.synchronize().unwrap();
        told.send(()).unwrap();
    };
    outer.enqueue(task).unwrap();
    is_told.recv().unwrap();
}

#[test]
fn a_device_synchronise_raises_errors_of_streams_that_are_gone() {
    let runtime = patient(1);
    let stream = dedicated(&runtime);
    stream.enqueue(|| Err::<(), _>("meant to fail")).unwrap();
    while !stream.is_done() {
        thread::yield_now();
    }
    drop(stream);
    // Only behind this the worker has certainly let go of the stream.
    let (told, is_told) = mpsc::channel();
    dedicated(&runtime).enqueue(move || told.send(()).unwrap()).unwrap();
    is_told.recv().unwrap();
    assert!(matches!(
        runtime.synchronize(Device::cpu(0)),
        Err(Error::Stream(StreamError::Failed(_)))
    ));
}

#[test]
fn a_task_may_drop_the_last_handle_of_its_runtime() {
    let _watchdog = Watchdog::new("a runtime that ends inside a task");
    let runtime = runtime(2, Duration::from_secs(3_000));
    let stream = dedicated(&runtime);
    let (told, is_told) = mpsc::channel();
    let task = move || {
        drop(runtime);
        told.send(()).unwrap();
    };
    stream.enqueue(task).unwrap();
    is_told.recv().unwrap();
}

#[test]
fn a_thread_may_end_with_a_stream_of_its_own_current() {
    if !is_child() {
        assert!(passes_alone("hazards::a_thread_may_end_with_a_stream_of_its_own_current"));
        return;
    }
    let runtime = patient(1);
    let thread = thread::spawn(move || {
        runtime.current_device().unwrap(); // the current state is older than the ranks
        runtime.set_stream(&dedicated(&runtime)).unwrap();
        runtime
    });
    drop(thread.join().unwrap());
}

#[test]
fn a_process_that_used_the_global_runtime_exits() {
    if !is_child() {
        assert!(passes_alone("hazards::a_process_that_used_the_global_runtime_exits"));
        return;
    }
    let stream = Runtime::global().unwrap().stream(Device::cpu(0)).unwrap();
    stream.enqueue(|| ()).unwrap();
    stream.synchronize().unwrap();
    // The C library ends this thread's locals, then calls the handlers, as at the end of `main`.
    #[expect(clippy::disallowed_methods, reason = "the exit is what is tested")]
    std::process::exit(0);
}
