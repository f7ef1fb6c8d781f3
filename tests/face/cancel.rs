//! `Stream::cancel`: what has not begun does not run, and everything that relies on it is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use accelrt::{
    Completion, Config, Device, DeviceKind, Error, Event, FailureCause, Result, Runtime,
    RuntimeError, Stream, StreamError, StreamFailure,
};
use accelrt_testing::null::{NullBackend, NullConfig};

use crate::gate::Gate;
use crate::support::{CPU, finishes, streams, workers};

/// The failure of a stream or task that was cancelled.
#[track_caller]
fn cancelled<T: std::fmt::Debug>(outcome: Result<T>) -> Arc<StreamFailure> {
    match outcome {
        Err(Error::Stream(StreamError::Failed(failure))) => {
            assert!(matches!(failure.root().failure(), FailureCause::StreamCancelled), "{failure}");
            failure
        }
        other => panic!("not cancelled: {other:?}"),
    }
}

/// Counts the tasks that ran; each holds a handle, so the strong count tells which still exist.
#[derive(Clone, Default)]
struct Ran(Arc<AtomicUsize>);

impl Ran {
    fn enqueue(&self, stream: &Stream) {
        let own = self.clone();
        stream.enqueue(move || own.0.fetch_add(1, Ordering::SeqCst)).unwrap();
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    fn held(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}

#[test]
fn what_has_begun_ends_what_is_queued_is_dropped_unrun_and_the_synchronise_says_how_much() {
    finishes(|| {
        let runtime = workers(1);
        let [stream] = streams(&runtime);
        let (before, behind) = (Ran::default(), Ran::default());
        before.enqueue(&stream);
        let gate = Gate::shut(&stream);
        (0..200).for_each(|_| behind.enqueue(&stream));
        let last = stream.record_event().unwrap();
        stream.cancel().unwrap();
        assert!(!stream.is_done(), "a cancel waits for nothing");
        gate.open();
        let failure = cancelled(stream.synchronize());
        assert_eq!((before.count(), behind.count(), behind.held()), (1, 0, 0));
        assert_eq!((failure.skipped_count(), failure.ticket()), (200, 3));
        assert_eq!(
            failure.to_string(),
            format!("Stream {} on cpu:0 failed: it was cancelled", stream.id())
        );
        assert_eq!(runtime.counters().num_skipped_tasks, 200);
        assert!(last.is_done());
        cancelled(last.synchronize());
        behind.enqueue(&stream);
        stream.synchronize().unwrap();
        assert_eq!(behind.count(), 1, "the stream goes on");
    });
}

#[test]
fn until_the_synchronise_later_tasks_are_skipped_as_behind_any_failure() {
    finishes(|| {
        let runtime = workers(1);
        let [stream] = streams(&runtime);
        let (gate, behind) = (Gate::shut(&stream), Ran::default());
        behind.enqueue(&stream);
        stream.cancel().unwrap();
        behind.enqueue(&stream);
        gate.open();
        assert_eq!(cancelled(stream.synchronize()).skipped_count(), 2);
        assert_eq!(behind.count(), 0);
    });
}

#[test]
fn a_stream_without_queued_tasks_is_not_changed_by_a_cancel() {
    finishes(|| {
        let runtime = workers(1);
        let [stream] = streams(&runtime);
        let ran = Ran::default();
        stream.cancel().unwrap();
        ran.enqueue(&stream);
        stream.synchronize().unwrap();
        // A record and a task that has begun are nothing to cancel either.
        let gate = Gate::shut(&stream);
        let event = stream.record_event().unwrap();
        stream.cancel().unwrap();
        ran.enqueue(&stream);
        gate.open();
        stream.synchronize().unwrap();
        event.synchronize().unwrap();
        assert_eq!(ran.count(), 2);
    });
}

#[test]
fn a_parked_stream_keeps_its_wait_and_retires_what_is_behind_it_when_that_is_over() {
    finishes(|| {
        let runtime = workers(2);
        let [source, parked, next] = streams(&runtime);
        let (gate, behind) = (Gate::shut(&source), Ran::default());
        parked.wait_stream(&source).unwrap();
        behind.enqueue(&parked);
        let event = parked.record_event().unwrap();
        next.wait_event(&event).unwrap();
        behind.enqueue(&next);
        parked.cancel().unwrap();
        assert!(parked.synchronize_timeout(std::time::Duration::from_millis(1)).is_err());
        assert!(!event.is_done(), "what waits for the event is still behind the source");
        gate.open();
        cancelled(event.synchronize());
        cancelled(parked.synchronize());
        assert!(cancelled(next.synchronize()).inherited_from().is_some());
        source.synchronize().unwrap();
        assert_eq!((behind.count(), behind.held()), (0, 0));
    });
}

#[test]
fn copies_and_host_accesses_are_told_and_dropped_buffers_are_freed() {
    finishes(|| {
        let runtime = workers(1);
        let [stream] = streams(&runtime);
        let taken = || runtime.allocator(CPU).unwrap().statistics().requested_bytes.all.current;
        let (buffer, dropped) = (runtime.zeros(64, CPU).unwrap(), runtime.zeros(64, CPU).unwrap());
        runtime.synchronize(CPU).unwrap();
        let gate = Gate::shut(&stream);
        let filled = buffer.fill(1, &stream).unwrap();
        let read = buffer.copy_to_host(vec![7; 64], &stream).unwrap();
        dropped.fill(1, &stream).unwrap();
        drop(dropped);
        stream.cancel().unwrap();
        gate.open();
        cancelled(filled.wait());
        cancelled(read.wait());
        cancelled(buffer.read_to_vec());
        cancelled(stream.synchronize());
        assert_eq!(buffer.read_to_vec().unwrap(), [0; 64]);
        drop(buffer);
        assert_eq!(taken(), 0);
    });
}

#[test]
fn a_deferred_task_that_was_started_ends_with_its_outcome_and_the_next_is_never_started() {
    for is_on_host in [true, false] {
        finishes(move || {
            let null = NullBackend::new(NullConfig::default());
            let runtime = Runtime::with_backends(Config::default(), [null as _]).unwrap();
            let null = Device::new(DeviceKind::NULL, 0).unwrap();
            let stream = runtime.stream(if is_on_host { CPU } else { null }).unwrap();
            let (sender, started) = mpsc::channel::<Completion>();
            let start = |sender: mpsc::Sender<Completion>| move |it| sender.send(it).unwrap();
            stream.enqueue_deferred(start(sender.clone())).unwrap();
            let first = started.recv().unwrap();
            stream.enqueue_deferred(start(sender)).unwrap();
            stream.cancel().unwrap();
            first.finish(Ok(()));
            assert_eq!(cancelled(stream.synchronize()).skipped_count(), 1);
            assert!(started.recv().is_err(), "the second was dropped");
        });
    }
}

#[test]
fn a_drivers_queued_fills_are_cancelled_and_its_submitted_ones_are_not() {
    finishes(|| {
        let null = NullBackend::new(NullConfig::default());
        let runtime = Runtime::with_backends(Config::default(), [null as _]).unwrap();
        let device = Device::new(DeviceKind::NULL, 0).unwrap();
        let [stream, source] = [(); 2].map(|()| runtime.stream(device).unwrap());
        let buffer = runtime.empty(64, device).unwrap();
        let submitted = buffer.fill(1, &stream).unwrap();
        let (sender, started) = mpsc::channel::<Completion>();
        source.enqueue_deferred(move |it| sender.send(it).unwrap()).unwrap();
        let completion = started.recv().unwrap();
        stream.wait_stream(&source).unwrap();
        let queued = buffer.fill(2, &stream).unwrap();
        stream.cancel().unwrap();
        completion.finish(Ok(()));
        cancelled(queued.wait());
        submitted.wait().unwrap();
        assert_eq!(cancelled(stream.synchronize()).skipped_count(), 1);
    });
}

#[test]
fn a_task_cancels_its_own_stream_and_ends() {
    finishes(|| {
        let runtime = workers(1);
        let [stream] = streams(&runtime);
        let (gate, behind) = (Gate::shut(&stream), Ran::default());
        let (own, ended) = (stream.clone(), Event::new());
        stream.enqueue(move || own.cancel()).unwrap();
        behind.enqueue(&stream);
        stream.record(&ended).unwrap();
        gate.open();
        cancelled(stream.synchronize());
        assert_eq!(behind.count(), 0);
    });
}

#[test]
fn an_earlier_failure_stays_the_streams_error() {
    finishes(|| {
        let runtime = workers(1);
        let [stream] = streams(&runtime);
        let (gate, behind) = (Gate::shut(&stream), Ran::default());
        stream.enqueue(|| Err::<(), _>("the first error")).unwrap();
        behind.enqueue(&stream);
        gate.open();
        while !stream.is_done() {
            std::thread::yield_now();
        }
        let gate = Gate::enqueue(&stream); // skipped
        stream.cancel().unwrap();
        let error = stream.synchronize().unwrap_err();
        assert!(error.to_string().contains("the first error"), "{error}");
        gate.open();
        stream.synchronize().unwrap();
    });
}

#[test]
fn a_scope_whose_stream_is_cancelled_ends_its_borrows_and_fails() {
    finishes(|| {
        let runtime = workers(1);
        let [stream] = streams(&runtime);
        let mut is_written = false;
        let gate = Gate::shut(&stream);
        let outcome = stream.scope(|scope| {
            scope.enqueue(|| is_written = true)?;
            stream.cancel()?;
            gate.open();
            Ok::<_, Error>(())
        });
        cancelled(outcome.map(Result::unwrap));
        assert!(!is_written);
    });
}

#[test]
fn a_cancel_that_no_synchronise_has_raised_is_no_loss_at_the_shutdown_and_behind_it_is_refused() {
    finishes(|| {
        let runtime = workers(1);
        let [stream] = streams(&runtime);
        let gate = Gate::shut(&stream);
        Ran::default().enqueue(&stream);
        stream.cancel().unwrap();
        gate.open();
        let report = runtime.shutdown();
        assert!(report.is_clean(), "{report}");
        let refused = stream.cancel().unwrap_err();
        assert!(matches!(refused, Error::Runtime(RuntimeError::ShutDown)), "{refused}");
    });
}

#[test]
fn receipt_of_a_cancellation_ends_nothing() {
    finishes(|| {
        let runtime = workers(1);
        let [stream] = streams(&runtime);
        let buffer = runtime.empty(8, CPU).unwrap();
        let gate = Gate::shut(&stream);
        let fill = buffer.fill(1, &stream).unwrap();
        stream.cancel().unwrap();
        gate.open();
        for _ in 0..2 {
            cancelled(fill.wait());
            cancelled(buffer.wait_for_host());
            cancelled(buffer.fill(2, &stream).unwrap().wait());
        }
        cancelled(stream.synchronize());
        buffer.fill(3, &stream).unwrap().wait().unwrap();
        assert_eq!(buffer.read_to_vec().unwrap(), [3; 8]);
    });
}
