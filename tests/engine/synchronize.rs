//! Synchronise: what it waits for, where it is refused, what an interrupt leaves.

use std::sync::Arc;
use std::sync::mpsc::channel;

use accelrt::{Device, Error, Runtime, RuntimeError, StreamError};

use crate::gate::Gate;
use crate::plain::Plain;
use crate::support::{
    CPU, Journal, devices, enqueue_failure, enqueue_notice, enqueue_question, finishes, stream,
    stream_error, streams, wait_by_query, wait_without_helping, workers,
};

#[test]
fn a_synchronise_waits_for_what_was_enqueued_before_and_not_for_more() {
    // Goal: both halves. Method: the thread is asleep in its synchronise when a second gate is
    // enqueued behind it; it must return while that one is shut.
    finishes(|| {
        let runtime = workers(1);
        let stream = stream(&runtime);
        let first = Gate::shut(&stream);
        let written = Arc::new(Plain::default());
        let cell = Arc::clone(&written);
        stream.enqueue(move || cell.set(1)).unwrap();
        let (asleep, is_asleep) = channel();
        let waited = stream.clone();
        let thread =
            std::thread::spawn(move || waited.synchronize_unless(&mut || asleep.send(()).is_err()));
        is_asleep.recv().unwrap();
        let _second = Gate::enqueue(&stream);
        first.open();
        thread.join().unwrap().unwrap();
        assert_eq!(written.get(), 1);
        assert!(!stream.is_done());
    });
}

#[test]
fn a_device_synchronise_waits_for_every_stream_of_that_device_and_no_other() {
    finishes(|| {
        let runtime = devices(2, 2);
        let _elsewhere = Gate::shut(&runtime.stream(Device::cpu(1)).unwrap());
        let journal = Journal::new();
        let all = [
            runtime.default_stream(CPU).unwrap(),
            runtime.stream(CPU).unwrap(),
            runtime.pooled_stream_with_priority(CPU, 1).unwrap(),
            stream(&runtime),
        ];
        let gate = Gate::shut(&all[3]);
        for stream in &all {
            journal.enqueue(stream, stream.id());
        }
        wait_without_helping(&all[0]);
        gate.open();
        runtime.synchronize(CPU).unwrap();
        assert_eq!(journal.read().len(), 4);
        assert!(all.iter().all(accelrt::Stream::is_done));
    });
}

#[test]
fn inside_a_task_waiting_for_its_own_stream_is_an_error_in_every_form() {
    finishes(|| {
        let runtime = workers(1);
        let own = stream(&runtime);
        let (inside, device) = (own.clone(), runtime.clone());
        let refusals = move || {
            [
                inside.synchronize(),
                inside.record_event().unwrap().synchronize(),
                device.synchronize(CPU),
                inside.scope(|_| ()),
            ]
        };
        for refused in enqueue_question(&own, refusals).recv().unwrap() {
            assert!(
                matches!(refused, Err(Error::Stream(StreamError::WaitInsideTask { .. }))),
                "{refused:?}"
            );
        }
        own.synchronize().unwrap();
    });
}

#[test]
fn a_task_below_another_on_the_same_thread_may_wait_for_neither() {
    // Goal: the wait would never end there either. Method: a task of `outer` waits for `inner`,
    // which runs on the same thread because the only worker is taken, and waits for `outer`.
    finishes(|| {
        let runtime = workers(1);
        let [outer, inner] = [stream(&runtime), stream(&runtime)];
        let (outer_again, inner_again) = (outer.clone(), inner.clone());
        let task = move || {
            let below = outer_again.clone();
            let answer = enqueue_question(&inner_again, move || below.synchronize());
            inner_again.synchronize().unwrap();
            answer.recv().unwrap()
        };
        let refused = enqueue_question(&outer, task).recv().unwrap();
        let Err(Error::Stream(StreamError::WaitInsideTask { stream_id, .. })) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(stream_id, outer.id());
    });
}

/// Interrupts a synchronise of `stream`, which is inside a gate, while it sleeps.
fn interrupt(stream: &accelrt::Stream) {
    assert!(matches!(
        stream.synchronize_unless(&mut || true),
        Err(Error::Runtime(RuntimeError::Interrupted))
    ));
}

#[test]
fn an_interrupted_synchronise_leaves_the_work_going_on() {
    finishes(|| {
        let runtime = workers(1);
        let stream = stream(&runtime);
        let gate = Gate::shut(&stream);
        let notice = enqueue_notice(&stream);
        interrupt(&stream);
        assert!(!stream.is_done());
        gate.open();
        notice.recv().unwrap();
        stream.synchronize().unwrap();
    });
}

#[test]
fn a_waiting_thread_is_asked_for_interrupts_again_and_again() {
    // Goal: a main thread stays interruptible, at least every 50 ms. Method: the fourth question is
    // answered with yes.
    finishes(|| {
        let runtime = workers(1);
        let stream = stream(&runtime);
        let _gate = Gate::shut(&stream);
        let mut questions = 0;
        let mut ask = || {
            questions += 1;
            questions == 4
        };
        let began = std::time::Instant::now();
        assert!(matches!(
            stream.synchronize_unless(&mut ask),
            Err(Error::Runtime(RuntimeError::Interrupted))
        ));
        assert_eq!(questions, 4);
        // A lower bound only: it slept between the questions.
        assert!(began.elapsed() >= std::time::Duration::from_millis(100));
    });
}

#[test]
fn an_interrupted_synchronise_ends_no_error() {
    // Goal: an error ends when it is raised. Method: the wait is given up before the failure;
    // nobody waits when it happens, so it must still be there.
    finishes(|| {
        let runtime = workers(1);
        let (stream, journal) = (stream(&runtime), Journal::new());
        let gate = Gate::shut(&stream);
        enqueue_failure(&stream, "broken");
        interrupt(&stream);
        gate.open();
        wait_by_query(&stream.record_event().unwrap());
        journal.enqueue(&stream, "behind");
        let error = stream_error(stream.synchronize());
        assert!(error.to_string().contains("broken"));
        assert!(journal.read().is_empty());
    });
}

#[test]
fn an_interrupted_device_synchronise_loses_no_error() {
    // Goal: as above, over several streams. Method: one stream has failed, another is held; the
    // device's wait is given up.
    finishes(|| {
        let runtime = workers(2);
        let [failed, held] = [stream(&runtime), stream(&runtime)];
        enqueue_failure(&failed, "broken");
        wait_by_query(&failed.record_event().unwrap());
        let gate = Gate::shut(&held);
        let given_up = runtime.synchronize_unless(CPU, &mut || true);
        assert!(matches!(given_up, Err(Error::Runtime(RuntimeError::Interrupted))));
        gate.open();
        let error = stream_error(runtime.synchronize(CPU));
        assert_eq!(error.stream_id(), failed.id());
    });
}

#[test]
fn an_interrupted_device_synchronise_loses_no_error_of_a_stream_that_is_gone() {
    // Goal: what nobody saw is kept for the next one. Method: as above; the stream that has failed
    // is dropped, and cannot be found any more, before the wait is given up.
    finishes(|| {
        let runtime = workers(2);
        let [failed, held] = [stream(&runtime), stream(&runtime)];
        enqueue_failure(&failed, "broken");
        wait_by_query(&failed.record_event().unwrap());
        let failed_id = failed.id();
        drop(failed);
        while runtime.stream_by_id(CPU, failed_id).is_ok() {
            std::thread::yield_now(); // a worker is about to leave it
        }
        let gate = Gate::shut(&held);
        let given_up = runtime.synchronize_unless(CPU, &mut || true);
        assert!(matches!(given_up, Err(Error::Runtime(RuntimeError::Interrupted))));
        gate.open();
        let error = stream_error(runtime.synchronize(CPU));
        assert_eq!(error.stream_id(), failed_id);
        runtime.synchronize(CPU).unwrap();
    });
}

#[test]
fn of_two_threads_in_a_synchronise_both_are_told_when_the_first_executes_the_stream() {
    // Goal: an error is raised to everybody who waits then. Method: the only worker is elsewhere,
    // so the first thread executes the task that fails; the second one sleeps when it does.
    finishes(|| {
        let runtime = workers(1);
        let [elsewhere, failed] = [stream(&runtime), stream(&runtime)];
        let worker = Gate::shut(&elsewhere);
        let ((enter, entered), (open, opened)) = (channel(), channel::<()>());
        let task = move || {
            enter.send(()).unwrap();
            opened.recv().unwrap_or_default();
            Err::<(), _>("broken")
        };
        failed.enqueue(task).unwrap();
        let (asleep, is_asleep) = channel();
        let [executed, waited] = [failed.clone(), failed.clone()];
        let first = std::thread::spawn(move || executed.synchronize());
        entered.recv().unwrap();
        let second =
            std::thread::spawn(move || waited.synchronize_unless(&mut || asleep.send(()).is_err()));
        is_asleep.recv().unwrap();
        drop(open);
        let raised = stream_error(first.join().unwrap());
        worker.open(); // for what the second one has enqueued
        assert!(Arc::ptr_eq(&raised, &stream_error(second.join().unwrap())));
        failed.synchronize().unwrap();
    });
}

#[test]
fn a_synchronise_after_the_interrupted_one_gets_the_error() {
    // Goal: the thread that gave up takes nothing from the one that stays.
    finishes(|| {
        let runtime = workers(1);
        let stream = stream(&runtime);
        let gate = Gate::shut(&stream);
        enqueue_failure(&stream, "broken");
        interrupt(&stream);
        let (asleep, is_asleep) = channel();
        let waited = stream.clone();
        let thread =
            std::thread::spawn(move || waited.synchronize_unless(&mut || asleep.send(()).is_err()));
        is_asleep.recv().unwrap();
        gate.open();
        stream_error(thread.join().unwrap());
        stream.synchronize().unwrap();
    });
}

#[test]
fn two_device_synchronises_at_once_both_return() {
    finishes(|| {
        let runtime: Runtime = workers(2);
        let all = streams(&runtime, 8);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        for stream in &all {
                            stream.enqueue(|| ()).unwrap();
                        }
                        runtime.synchronize(CPU).unwrap();
                    }
                });
            }
        });
        assert!(all.iter().all(accelrt::Stream::is_done));
    });
}
