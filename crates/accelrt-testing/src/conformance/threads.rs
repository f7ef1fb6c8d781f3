//! Threads and the shutdown: any method from any thread, and the end of a backend.

use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::Instant;

use accelrt::backend::contract::{Leftover, StreamHandle};

use crate::conformance::support::{
    Actor, Meeting, Subject, all_sent, ask_until, callback, destroy_streams, devices, far_deadline,
    on_stream, release_marks, resume_once, stream_on, submit_once,
};
use crate::trusted::Trusted;

// Threads: any method from any thread, each thread's order kept, and no deadlock.

const THREADS: usize = 4;

/// Calls a function in several threads at once, with the number of each.
fn at_once(function: impl Fn(usize) + Sync) {
    let barrier = Meeting::of(THREADS);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (barrier, function) = (&barrier, &function);
            scope.spawn(move || {
                barrier.wait();
                function(number);
            });
        }
    });
}

pub(crate) fn tasks_from_many_threads_keep_each_threads_order(subject: &Subject) {
    // Goal: order of submission is order of enqueueing, for each thread. Method: four threads feed
    // one stream; the tasks of each arrive in its order, all of them once.
    let backend = subject.backend();
    let stream = stream_on(&backend, 0);
    let actor = Actor::new(&backend, stream);
    let (sender, receiver) = mpsc::channel();
    at_once(|thread| {
        for number in 0..500 {
            let sender = sender.clone();
            actor.enqueue(move || sender.send((thread, number)).unwrap());
        }
    });
    let arrived = all_sent(sender, receiver);
    assert_eq!(arrived.len(), THREADS * 500);
    for thread in 0..THREADS {
        let own = arrived.iter().filter(|(from, _)| *from == thread).map(|(_, number)| *number);
        assert!(own.eq(0..500), "the tasks of thread {thread}");
    }
    drop(actor);
    backend.stream_destroy(stream).unwrap();
}

/// One life of everything a thread can make, on streams of its own.
fn one_life(backend: &Trusted, device: usize) {
    let stream = stream_on(backend, device);
    let place = backend.allocate(device, 5_000, 256).unwrap();
    let host = backend.allocate_host(5_000, 1).unwrap();
    assert_eq!(backend.pointer_owner(place).unwrap().unwrap().device_index, device);
    let (start, end) = on_stream(backend, stream, move |inside, stream| {
        let start = inside.mark(stream, true).unwrap();
        inside.fill(stream, place, 3, 5_000).unwrap();
        inside.copy(stream, host, place, 5_000).unwrap();
        (start, inside.mark(stream, true).unwrap())
    });
    let (sender, receiver) = mpsc::channel();
    backend.when_done(end, callback(&sender, 1)).unwrap();
    backend.wait_mark(end).unwrap();
    assert!(backend.elapsed_ns(start, end).unwrap() >= 0);
    assert_eq!(all_sent(sender, receiver), [1]);
    ask_until(|| backend.stream_query(stream).unwrap());
    backend.stream_synchronize(stream).unwrap();
    if let Some(pages) = backend.virtual_memory(device) {
        let granule = pages.granularity_bytes();
        let (range, physical) =
            (pages.reserve(2 * granule).unwrap(), pages.create(granule).unwrap());
        pages.map(range, physical).unwrap();
        pages.relocate(physical, range.offset(granule)).unwrap();
        pages.unmap(physical).unwrap();
        pages.release(physical).unwrap();
        pages.unreserve(range, 2 * granule).unwrap();
    }
    release_marks(backend, [start, end]);
    backend.release_host(host).unwrap();
    backend.release(device, place).unwrap();
    backend.stream_destroy(stream).unwrap();
}

pub(crate) fn every_method_may_be_called_from_any_thread(subject: &Subject) {
    // Goal: no call needs a thread that was prepared. Method: four fresh threads live the whole
    // life at once; then nothing is taken any more, and no counter went back.
    let backend = subject.backend();
    let look = || -> Vec<_> {
        devices(&backend).map(|device| backend.memory_info(device).unwrap()).collect()
    };
    let (before, count) = (look(), devices(&backend).end);
    let counters = backend.counters();
    at_once(|thread| {
        for round in 0..25 {
            one_life(&backend, (thread + round) % count);
        }
    });
    assert_eq!(look(), before);
    assert!(backend.counters().num_worker_wakes >= counters.num_worker_wakes);
    assert!(backend.counters().num_spare_workers >= counters.num_spare_workers);
}

pub(crate) fn a_mark_of_one_thread_is_waited_for_by_others(subject: &Subject) {
    let backend = subject.backend();
    let stream = stream_on(&backend, 0);
    for _ in 0..20 {
        let mark =
            on_stream(&backend, stream, |inside, stream| inside.mark(stream, false).unwrap());
        at_once(|thread| {
            if thread % 2 == 0 {
                backend.wait_mark(mark).unwrap();
            } else {
                ask_until(|| backend.mark_done(mark).unwrap());
            }
            assert!(backend.mark_done(mark).unwrap());
        });
        backend.mark_release(mark).unwrap();
    }
    backend.stream_destroy(stream).unwrap();
}

pub(crate) fn streams_wait_for_each_other_without_deadlock(subject: &Subject) {
    // Goal: waits across streams never wait for each other, from any thread. Method: each thread
    // has a stream and makes it wait for the next thread's latest mark, all around, fifty times.
    let backend = subject.backend();
    let count = devices(&backend).end;
    let streams: Vec<StreamHandle> =
        (0..THREADS).map(|thread| stream_on(&backend, thread % count)).collect();
    let rounds: Vec<Meeting> = (0..50).map(|_| Meeting::of(THREADS)).collect();
    let (sender, receiver) = mpsc::channel();
    let latest = [(); 50 * THREADS].map(|()| OnceLock::new());
    at_once(|thread| {
        for (round, latest) in rounds.iter().zip(latest.chunks(THREADS)) {
            let mark = backend.mark(streams[thread], false).unwrap();
            sender.send(mark).unwrap();
            latest[thread].set(mark).expect("each thread has a place in each round");
            round.wait();
            let next = *latest[(thread + 1) % THREADS].get().expect("placed before");
            backend.stream_wait(streams[thread], next).unwrap();
        }
        backend.stream_synchronize(streams[thread]).unwrap();
    });
    let marks = all_sent(sender, receiver);
    assert!(marks.iter().all(|mark| backend.mark_done(*mark).unwrap()));
    release_marks(&backend, marks);
    destroy_streams(&backend, streams);
}

// Shutdown: threads end, later work is dropped, and everything can still be given back.

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
    destroy_streams(&backend, streams);
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
