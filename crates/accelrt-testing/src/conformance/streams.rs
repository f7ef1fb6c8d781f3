//! Streams: where work runs and in which order, when they are idle, and what they are natively.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, mpsc};
use std::thread;

use accelrt::backend::contract::StreamHandle;
use accelrt::{DriverError, Error};

use crate::conformance::support::{
    Actor, Subject, all_sent, ask_until, destroy_streams, devices, on_stream, once, resume_once,
    settle, stream_on, submit_once,
};
use crate::trusted::Trusted;

pub(crate) fn streams_of_a_driver_have_distinct_handles(subject: &Subject) {
    // Goal: what is submitted to one stream is not in another. Method: many at once everywhere.
    // A kind that runs on the host may give one handle for all: its streams are the engine's alone.
    let backend = subject.backend();
    let mut streams = Vec::new();
    for device in devices(&backend) {
        for _ in 0..40 {
            let stream = stream_on(&backend, device);
            assert!(backend.runs_on_host() || !streams.contains(&stream), "{stream:?} twice");
            streams.push(stream);
        }
    }
    destroy_streams(&backend, streams);
}

pub(crate) fn a_stream_can_have_any_priority_of_its_range(subject: &Subject) {
    // Goal: no level is for show. Method: a stream of every level executes a task.
    let backend = subject.backend();
    for device in devices(&backend) {
        let range = backend.priority_range(device);
        for priority in range.greatest..=range.least {
            let stream = backend.stream_create(device, priority).unwrap();
            assert_eq!(on_stream(&backend, stream, move |_, _| priority), priority);
            backend.stream_destroy(stream).unwrap();
        }
    }
}

pub(crate) fn a_fresh_stream_is_idle(subject: &Subject) {
    let backend = subject.backend();
    let stream = stream_on(&backend, 0);
    assert!(backend.stream_query(stream).unwrap());
    backend.stream_synchronize(stream).unwrap();
    backend.stream_destroy(stream).unwrap();
}

pub(crate) fn submitted_work_runs_where_the_kind_says(subject: &Subject) {
    // Goal: a kind that runs on the host never executes on the enqueuing thread, a driver kind
    // always. Method: tasks say which thread they were on.
    let backend = subject.backend();
    for device in devices(&backend) {
        let stream = stream_on(&backend, device);
        let thread = on_stream(&backend, stream, |_, _| thread::current().id());
        assert_eq!(thread != thread::current().id(), backend.runs_on_host());
        backend.stream_destroy(stream).unwrap();
    }
}

pub(crate) fn submitted_work_runs_in_order_on_a_kind_that_uses_the_calling_thread(
    subject: &Subject,
) {
    // Goal: such a kind has executed a work when `submit` returns. Method: separate works, each
    // looked for right behind its submission. A kind with workers may execute separate works of one
    // stream side by side: the engine never has two.
    let backend = subject.backend();
    if backend.runs_on_host() {
        return;
    }
    let stream = stream_on(&backend, 0);
    for number in 0..100 {
        assert_eq!(submit_once(&backend, stream, move || number).try_recv(), Ok(number));
    }
    backend.stream_destroy(stream).unwrap();
}

pub(crate) fn tasks_of_one_stream_run_in_order(subject: &Subject) {
    // Goal: law 4 for a stream's work, however it is batched and resumed. Method: three streams
    // fed in turns, numbered tasks.
    let backend = subject.backend();
    let streams = [0; 3].map(|device| stream_on(&backend, device));
    let channels = streams.map(|_| mpsc::channel());
    let actors = streams.map(|stream| Actor::new(&backend, stream));
    for number in 0..1_000 {
        for (actor, (sender, _)) in actors.iter().zip(&channels) {
            let sender = sender.clone();
            actor.enqueue(move || sender.send(number).unwrap());
        }
    }
    for (sender, receiver) in channels {
        assert!(all_sent(sender, receiver).into_iter().eq(0..1_000));
    }
    drop(actors);
    destroy_streams(&backend, streams);
}

pub(crate) fn every_work_runs_exactly_once(subject: &Subject) {
    // Goal: law 5. Method: separate works by both doors, counted; a second run would panic.
    let backend = subject.backend();
    let stream = stream_on(&backend, 0);
    let runs = Arc::new(AtomicUsize::new(0));
    let (sender, receiver) = mpsc::channel();
    for number in 0..400 {
        let (runs, sender) = (Arc::clone(&runs), sender.clone());
        let work = once(move || {
            // Relaxed: the channel orders the count before the look at it.
            runs.fetch_add(1, Ordering::Relaxed);
            sender.send(number).unwrap();
        });
        if number % 2 == 0 {
            backend.submit(stream, work);
        } else {
            backend.resume(stream, work);
        }
    }
    let mut numbers = all_sent(sender, receiver);
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..400));
    // Relaxed: see above.
    assert_eq!(runs.load(Ordering::Relaxed), 400);
    backend.stream_destroy(stream).unwrap();
}

pub(crate) fn resumed_work_never_runs_on_the_callers_stack(subject: &Subject) {
    let backend = subject.backend();
    for device in devices(&backend) {
        let stream = stream_on(&backend, device);
        for _ in 0..10 {
            let thread = resume_once(&backend, stream, || thread::current().id());
            assert_ne!(thread.recv().unwrap(), thread::current().id());
        }
        backend.stream_destroy(stream).unwrap();
    }
}

thread_local! {
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

pub(crate) fn work_that_resumes_another_does_not_execute_it(subject: &Subject) {
    // Goal: a completer that is itself inside a task keeps its stack. Method: a chain of works,
    // each of which resumes the next and looks for another one below it on its thread's stack.
    fn link(backend: &Trusted, stream: StreamHandle, left: usize, answer: Sender<bool>) {
        let is_nested = IS_INSIDE.replace(true);
        answer.send(is_nested).unwrap();
        if left > 0 {
            let inside = backend.clone();
            backend.resume(stream, once(move || link(&inside, stream, left - 1, answer)));
        }
        IS_INSIDE.set(is_nested);
    }
    let backend = subject.backend();
    let stream = stream_on(&backend, 0);
    let (sender, receiver) = mpsc::channel();
    let (inside, answer) = (backend.clone(), sender.clone());
    backend.resume(stream, once(move || link(&inside, stream, 50, answer)));
    assert_eq!(all_sent(sender, receiver), [false; 51]);
    backend.stream_destroy(stream).unwrap();
}

pub(crate) fn a_stream_is_idle_after_a_synchronise(subject: &Subject) {
    let backend = subject.backend();
    let stream = stream_on(&backend, 0);
    for _ in 0..3 {
        on_stream(&backend, stream, |_, _| ());
        backend.stream_synchronize(stream).unwrap();
        assert!(backend.stream_query(stream).unwrap());
    }
    backend.stream_destroy(stream).unwrap();
}

pub(crate) fn a_stream_becomes_idle_by_being_asked(subject: &Subject) {
    let backend = subject.backend();
    let stream = stream_on(&backend, 0);
    on_stream(&backend, stream, |_, _| ());
    ask_until(|| backend.stream_query(stream).unwrap());
    assert!(backend.stream_query(stream).unwrap(), "what is done stays done");
    backend.stream_destroy(stream).unwrap();
}

pub(crate) fn a_stream_can_be_given_back_right_behind_its_submissions(subject: &Subject) {
    // Goal: the device finishes alone what was submitted. Method: a mark outlives its stream.
    let backend = subject.backend();
    let stream = stream_on(&backend, 0);
    on_stream(&backend, stream, |_, _| ());
    let mark = backend.mark(stream, false).unwrap();
    backend.stream_destroy(stream).unwrap();
    backend.wait_mark(mark).unwrap();
    assert!(backend.mark_done(mark).unwrap());
    backend.mark_release(mark).unwrap();
}

pub(crate) fn native_handles_come_back_as_the_same_stream_or_are_unsupported(subject: &Subject) {
    // Goal: a wrapped stream is used like one of ours and gives its owner's nothing away. Method:
    // a stream is wrapped by its own native handle, used and unwrapped; the owner's still works.
    let backend = subject.backend();
    let device = devices(&backend).end - 1;
    let stream = stream_on(&backend, device);
    match backend.stream_native(stream).and_then(|native| backend.stream_wrap(device, native)) {
        Err(error) => {
            assert!(matches!(error, Error::Driver(DriverError::Unsupported { .. })), "{error}");
        }
        Ok(wrapped) => {
            assert_eq!(
                backend.stream_native(wrapped).unwrap(),
                backend.stream_native(stream).unwrap()
            );
            settle(&backend, wrapped);
            backend.stream_destroy(wrapped).unwrap();
        }
    }
    settle(&backend, stream);
    backend.stream_destroy(stream).unwrap();
}
