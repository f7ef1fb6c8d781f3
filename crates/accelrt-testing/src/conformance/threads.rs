//! Threads: any method from any thread, each thread's order kept, and no deadlock.

use std::sync::{OnceLock, mpsc};
use std::thread;

use accelrt::backend::contract::StreamHandle;

use crate::conformance::support::{
    Actor, Meeting, Subject, all_sent, ask_until, callback, destroy_streams, devices, on_stream,
    release_marks, stream_on,
};
use crate::trusted::Trusted;

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
