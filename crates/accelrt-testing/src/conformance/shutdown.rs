//! Shutdown: threads end, later work is dropped, and everything can still be given back.

use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use accelrt::backend::contract::Leftover;

use crate::conformance::support::{
    Subject, devices, far_deadline, on_stream, resume_once, stream_on, submit_once,
};

pub(crate) fn an_unused_backend_stops(subject: &Subject) {
    assert_eq!(subject.backend().shutdown(Instant::now()), Leftover::default());
}

pub(crate) fn a_second_shutdown_finds_nothing(subject: &Subject) {
    let backend = subject.backend();
    let stream = stream_on(&backend, 0);
    on_stream(&backend, stream, |_, _| ());
    resume_once(&backend, stream, || ()).recv().unwrap();
    backend.stream_destroy(stream).unwrap();
    for _ in 0..2 {
        assert_eq!(backend.shutdown(far_deadline()), Leftover::default());
    }
}

pub(crate) fn work_before_a_shutdown_runs_or_is_dropped(subject: &Subject) {
    // Goal: nothing is half there after a shutdown, on no device. Method: works by both doors hold
    // a sender each; after the shutdown every channel has an answer or has ended.
    let backend = subject.backend();
    let mut answers = Vec::new();
    let mut streams = Vec::new();
    for device in devices(&backend) {
        let stream = stream_on(&backend, device);
        for _ in 0..20 {
            answers.push(submit_once(&backend, stream, || ()));
            answers.push(resume_once(&backend, stream, || ()));
        }
        streams.push(stream);
    }
    assert_eq!(backend.shutdown(far_deadline()), Leftover::default());
    for answer in answers {
        assert!(answer.into_iter().count() <= 1);
    }
    crate::conformance::support::destroy_streams(&backend, streams);
}

pub(crate) fn work_after_a_shutdown_is_dropped_or_over_at_once(subject: &Subject) {
    // Goal: a late submission neither hangs nor is kept: it is dropped, or executed at once so that
    // a cancelled stream retires what it has. Method: its channel has ended when `submit` returns.
    let backend = subject.backend();
    let stream = stream_on(&backend, 0);
    on_stream(&backend, stream, |_, _| ());
    assert_eq!(backend.shutdown(far_deadline()), Leftover::default());
    for _ in 0..10 {
        let answer = submit_once(&backend, stream, || ());
        assert_ne!(answer.try_recv(), Err(mpsc::TryRecvError::Empty));
    }
    backend.stream_destroy(stream).unwrap();
}

pub(crate) fn work_resumed_after_a_shutdown_is_not_on_the_callers_stack(subject: &Subject) {
    // Goal: the promise of `resume` has no end: a chain of completers would grow one stack. Method:
    // the work says where it ran, if it was not dropped.
    let backend = subject.backend();
    let stream = stream_on(&backend, 0);
    on_stream(&backend, stream, |_, _| ());
    assert_eq!(backend.shutdown(far_deadline()), Leftover::default());
    for _ in 0..10 {
        let answer = resume_once(&backend, stream, || thread::current().id());
        assert_ne!(answer.recv(), Ok(thread::current().id()));
    }
    backend.stream_destroy(stream).unwrap();
}

pub(crate) fn a_thread_inside_user_code_continues(subject: &Subject) {
    // Goal: a shutdown ends at its deadline and says what it left. Method: a resumed task waits for
    // the test; the deadline has passed already.
    let backend = subject.backend();
    let stream = stream_on(&backend, 0);
    let (started, has_started) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let ended = resume_once(&backend, stream, move || {
        started.send(()).unwrap();
        may_go_on.recv().unwrap();
    });
    has_started.recv().unwrap();
    assert_eq!(backend.shutdown(Instant::now()), Leftover { busy_threads: 1 });
    go_on.send(()).unwrap();
    ended.recv().expect("the task went on to its end");
    backend.stream_destroy(stream).unwrap();
}

pub(crate) fn everything_can_be_given_back_after_a_shutdown(subject: &Subject) {
    // Goal: objects that outlive the runtime do not fail. Method: one of each is given back late.
    let backend = subject.backend();
    let stream = stream_on(&backend, 0);
    let mark = on_stream(&backend, stream, |inside, stream| inside.mark(stream, true).unwrap());
    let (place, host) =
        (backend.allocate(0, 100, 64).unwrap(), backend.allocate_host(100, 1).unwrap());
    let pages = backend.virtual_memory(0).map(|pages| {
        let granule = pages.granularity_bytes();
        let (range, physical) = (pages.reserve(granule).unwrap(), pages.create(granule).unwrap());
        pages.map(range, physical).unwrap();
        (pages, granule, range, physical)
    });
    assert_eq!(backend.clone().shutdown(far_deadline()), Leftover::default());
    backend.mark_release(mark).unwrap();
    backend.release(0, place).unwrap();
    backend.release_host(host).unwrap();
    if let Some((pages, granule, range, physical)) = pages {
        pages.unmap(physical).unwrap();
        pages.release(physical).unwrap();
        pages.unreserve(range, granule).unwrap();
    }
    backend.stream_destroy(stream).unwrap();
}
