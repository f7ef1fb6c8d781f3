//! How deferred tasks end otherwise: with errors, dropped, skipped, cancelled, by refusals.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use accelrt::{
    Completion, Config, Device, DriverError, Error, FailureCause, Runtime, RuntimeError,
    StreamError,
};
use accelrt_testing::fault::{Fault, FaultBackend, FaultError, Method};
use accelrt_testing::null::{CompletionMode as Late, NullBackend, NullConfig};

use crate::late::LateBackend;
use crate::plain::Plain;
use crate::support::{
    append_digit, call, counter, digits, failure, launch, null_stream, pointer, runtime,
    streams_of_every_kind,
};

fn finish(completion: Completion) {
    completion.finish(Ok(()));
}

#[test]
fn an_error_from_another_thread_fails_the_stream() {
    for (_runtime, stream) in streams_of_every_kind() {
        let (sender, started) = mpsc::channel::<Completion>();
        let finisher = thread::spawn(move || started.recv().unwrap().finish(Err("no ink".into())));
        stream.enqueue_deferred(move |completion| sender.send(completion).unwrap()).unwrap();
        let event = stream.record_event().unwrap();
        let message = failure(&stream);
        assert!(message.contains("no ink"), "{message}");
        assert!(matches!(event.synchronize(), Err(Error::Stream(StreamError::Failed(_)))));
        finisher.join().unwrap();
        stream.enqueue_deferred(finish).unwrap();
        stream.synchronize().unwrap();
    }
}

#[test]
fn a_completion_that_is_dropped_fails_the_stream_and_says_so() {
    for (_runtime, stream) in streams_of_every_kind() {
        stream.enqueue_deferred(drop).unwrap();
        assert!(failure(&stream).contains("dropped unfinished"));
        let (sender, started) = mpsc::channel::<Completion>();
        let dropper = thread::spawn(move || drop(started.recv().unwrap()));
        stream.enqueue_deferred(move |completion| sender.send(completion).unwrap()).unwrap();
        let Err(Error::Stream(StreamError::Failed(error))) = stream.synchronize() else {
            panic!("it failed")
        };
        assert!(matches!(error.failure(), FailureCause::Unfinished), "{error}");
        dropper.join().unwrap();
    }
}

#[test]
fn a_panic_of_start_fails_the_stream_whatever_became_of_the_completion() {
    for (_runtime, stream) in streams_of_every_kind() {
        stream.enqueue_deferred(|_completion| panic!("at the start")).unwrap();
        let message = failure(&stream);
        assert!(message.contains("panicked: at the start"), "{message}");
        let start = |completion: Completion| {
            completion.finish(Err("finished".into()));
            panic!("after the finish");
        };
        stream.enqueue_deferred(start).unwrap();
        assert!(failure(&stream).contains("after the finish"));
        stream.synchronize().unwrap();
    }
}

#[test]
fn a_panic_of_start_waits_for_a_completion_that_got_away() {
    for (_runtime, stream) in streams_of_every_kind() {
        let (sender, started) = mpsc::channel::<Completion>();
        let start = move |completion| {
            sender.send(completion).unwrap();
            panic!("too late");
        };
        stream.enqueue_deferred(start).unwrap();
        let completion = started.recv().unwrap();
        assert!(!stream.is_done(), "what was handed out may still be at work");
        completion.finish(Ok(()));
        assert!(failure(&stream).contains("too late"));
    }
}

#[test]
fn on_a_failed_stream_start_is_dropped_unrun() {
    for (runtime, stream) in streams_of_every_kind() {
        let held = Arc::new(());
        stream.enqueue_deferred(|completion| completion.finish(Err("first".into()))).unwrap();
        let inside = Arc::clone(&held);
        let start = move |_: Completion| panic!("skipped, with {inside:?}");
        stream.enqueue_deferred(start).unwrap();
        assert!(failure(&stream).contains("first"));
        assert_eq!((Arc::strong_count(&held), runtime.counters().num_skipped_tasks), (1, 1));
    }
}

#[test]
fn a_shutdown_cancels_what_was_started_and_a_late_finish_does_nothing() {
    for (runtime, stream) in streams_of_every_kind() {
        let (order, (sender, started)) = (counter(), mpsc::channel::<Completion>());
        for _ in 0..2 {
            let sender = sender.clone();
            stream.enqueue_deferred(move |completion| sender.send(completion).unwrap()).unwrap();
        }
        drop(sender);
        let noted = Arc::clone(&order);
        stream.enqueue_deferred(move |_| append_digit(&noted, 1)).unwrap();
        let completion = started.recv().unwrap();
        let report = runtime.shutdown();
        assert_eq!((report.num_cancelled_tasks, report.num_busy_threads), (3, 0));
        assert!(started.recv().is_err(), "the second was dropped unrun");
        completion.finish(Err("nobody listens".into()));
        assert_eq!(digits(&order), 0);
        assert!(stream.is_done());
    }
}

#[test]
fn a_shutdown_reports_native_calls_that_did_not_run() {
    // Method: the call stands behind an event that stands behind a task that nobody finishes.
    extern "C" fn count(counter: &Plain) {
        counter.set(counter.get() + 1);
    }
    let runtime = runtime();
    let [first, second] = [0, 0].map(|_| runtime.stream(Device::cpu(0)).unwrap());
    let (calls, (sender, started)) = (counter(), mpsc::channel::<Completion>());
    first.enqueue_deferred(move |completion| sender.send(completion).unwrap()).unwrap();
    second.wait_event(&first.record_event().unwrap()).unwrap();
    launch(&second, call(count as _, &[pointer(&calls)])).unwrap();
    let completion = started.recv().unwrap();
    assert_eq!(runtime.shutdown().num_cancelled_tasks, 2);
    drop(completion);
    assert_eq!(digits(&calls), 0);
}

#[test]
fn a_completion_may_outlive_its_runtime() {
    for (runtime, stream) in streams_of_every_kind() {
        let (sender, started) = mpsc::channel::<Completion>();
        stream.enqueue_deferred(move |completion| sender.send(completion).unwrap()).unwrap();
        let completion = started.recv().unwrap();
        runtime.shutdown();
        drop((runtime, stream));
        drop(completion);
    }
}

#[test]
fn a_shutdown_that_races_with_finishers_leaves_no_task_behind() {
    for _ in 0..50 {
        for (runtime, stream) in streams_of_every_kind() {
            let (sender, started) = mpsc::channel::<Completion>();
            let finisher = thread::spawn(move || started.into_iter().for_each(finish));
            for _ in 0..20 {
                let sender = sender.clone();
                let start = move |completion| sender.send(completion).unwrap();
                stream.enqueue_deferred(start).unwrap();
            }
            drop(sender);
            runtime.shutdown();
            finisher.join().unwrap();
            assert!(stream.is_done());
        }
    }
}

#[test]
fn a_stream_whose_handles_are_gone_is_kept_by_its_completion() {
    for (runtime, stream) in streams_of_every_kind() {
        let (sender, started) = mpsc::channel::<Completion>();
        let dedicated = runtime.stream(stream.device()).unwrap();
        dedicated.enqueue_deferred(move |completion| sender.send(completion).unwrap()).unwrap();
        let event = dedicated.record_event().unwrap();
        drop(dedicated);
        started.recv().unwrap().finish(Ok(()));
        event.synchronize().unwrap();
    }
}

#[test]
fn start_waits_for_a_device_that_is_late() {
    // Goal: a mark is placed, and the stream parks until the driver calls back. Method: a backend
    // whose callbacks the test calls.
    let null = NullConfig { completion: Late::WhenAsked { polls: u32::MAX }, ..Default::default() };
    let late = LateBackend::new(NullBackend::new(null));
    let runtime = Runtime::with_backends(Config::default(), [late.clone() as _]).unwrap();
    let (stream, order) = (null_stream(&runtime), counter());
    let (noted, (sender, started)) = (Arc::clone(&order), mpsc::channel());
    let start = move |completion| {
        append_digit(&noted, 2);
        sender.send(completion).unwrap();
    };
    stream.enqueue_deferred(start).unwrap();
    assert_eq!((late.waiting(), digits(&order)), (1, 0), "the stream parked before the start");
    append_digit(&order, 1);
    late.reach_all();
    started.recv().unwrap().finish(Ok(()));
    stream.synchronize().unwrap();
    assert_eq!(digits(&order), 12);
}

#[test]
fn a_task_is_started_whenever_the_device_comes_there() {
    // Goal: none is lost when the callback comes while the stream parks. Method: another thread
    // calls back as soon as it is asked to, at every place of that in so many tries.
    const TASKS: usize = 30_000;
    let null = NullConfig { completion: Late::WhenAsked { polls: u32::MAX }, ..Default::default() };
    let late = LateBackend::new(NullBackend::new(null));
    let runtime = Runtime::with_backends(Config::default(), [late.clone() as _]).unwrap();
    let (stream, started) = (null_stream(&runtime), counter());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                late.reach_all();
            }
        });
        for _ in 0..TASKS {
            let counted = Arc::clone(&started);
            let start = move |completion| {
                counted.set(counted.get() + 1);
                finish(completion);
            };
            stream.enqueue_deferred(start).unwrap();
            stream.synchronize().unwrap();
        }
        is_over.store(true, Ordering::SeqCst);
    });
    assert_eq!(digits(&started), TASKS);
}

#[test]
fn a_shutdown_drops_what_waits_for_a_late_device() {
    let null = NullConfig { completion: Late::WhenAsked { polls: u32::MAX }, ..Default::default() };
    let late = LateBackend::new(NullBackend::new(null));
    let runtime = Runtime::with_backends(Config::default(), [late.clone() as _]).unwrap();
    let (stream, held) = (null_stream(&runtime), Arc::new(()));
    let inside = Arc::clone(&held);
    stream.enqueue_deferred(move |_| panic!("cancelled, with {inside:?}")).unwrap();
    assert_eq!(runtime.shutdown().num_cancelled_tasks, 1);
    late.reach_all();
    assert_eq!((Arc::strong_count(&held), late.waiting()), (1, 0));
}

#[test]
fn a_driver_that_refuses_to_tell_fails_the_stream() {
    for method in [Method::Mark, Method::MarkDone, Method::WhenDone] {
        let completion = Late::WhenAsked { polls: 1 };
        let null = NullBackend::new(NullConfig { completion, ..NullConfig::default() });
        let faulty = FaultBackend::new(null.clone());
        let runtime = Runtime::with_backends(Config::default(), [faulty.clone() as _]).unwrap();
        let stream = null_stream(&runtime);
        faulty.plan(Fault::nth(method, 1, FaultError::Driver));
        let held = Arc::new(());
        let inside = Arc::clone(&held);
        stream.enqueue_deferred(move |_| panic!("not started, with {inside:?}")).unwrap();
        let Err(Error::Stream(StreamError::Failed(error))) = stream.synchronize() else {
            panic!("{method:?}")
        };
        assert!(
            matches!(
                error.failure(),
                FailureCause::Backend(Error::Driver(DriverError::Refused { .. }))
            ),
            "{error}"
        );
        assert_eq!(Arc::strong_count(&held), 1);
        stream.enqueue_deferred(finish).unwrap();
        stream.synchronize().unwrap();
        drop((stream, runtime));
        assert_eq!(null.resource_counts().marks, 0, "{method:?} leaves no mark");
    }
}

#[test]
fn a_runtime_that_was_shut_down_takes_no_deferred_tasks() {
    for (runtime, stream) in streams_of_every_kind() {
        runtime.shutdown();
        let refusal = stream.enqueue_deferred(finish).unwrap_err();
        assert!(matches!(refusal, Error::Runtime(RuntimeError::ShutDown)), "{refusal}");
    }
}
