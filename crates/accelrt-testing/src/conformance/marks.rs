//! Marks: when they are done, in which order, across streams, with callbacks and with time.

use std::sync::mpsc;
use std::thread;

use accelrt::backend::contract::{Mark, StreamHandle};

use crate::conformance::support::{
    HostMemory, Subject, all_sent, ask_until, callback, destroy_streams, devices, on_stream,
    release_marks, stream_on,
};
use crate::trusted::Trusted;

/// Untimed marks, one behind the other, with a task before each.
fn marks_on<const COUNT: usize>(subject: &Subject, stream: StreamHandle) -> [Mark; COUNT] {
    let backend = subject.backend();
    [(); COUNT]
        .map(|()| on_stream(&backend, stream, |inside, stream| inside.mark(stream, false).unwrap()))
}

fn is_done(backend: &Trusted, mark: Mark) -> bool {
    backend.mark_done(mark).unwrap()
}

pub(crate) fn a_mark_becomes_done_by_being_asked(subject: &Subject) {
    let backend = subject.backend();
    let stream = stream_on(&backend, 0);
    let marks = marks_on::<3>(subject, stream);
    for mark in marks {
        ask_until(|| is_done(&backend, mark));
        assert!(is_done(&backend, mark), "what is done stays done");
    }
    release_marks(&backend, marks);
    backend.stream_destroy(stream).unwrap();
}

pub(crate) fn a_mark_that_was_waited_for_remains_done(subject: &Subject) {
    let backend = subject.backend();
    let stream = stream_on(&backend, 0);
    let [mark] = marks_on(subject, stream);
    for _ in 0..3 {
        backend.wait_mark(mark).unwrap();
        assert!(is_done(&backend, mark));
        on_stream(&backend, stream, |_, _| ());
    }
    backend.mark_release(mark).unwrap();
    backend.stream_destroy(stream).unwrap();
}

pub(crate) fn marks_of_one_stream_complete_in_order(subject: &Subject) {
    // Goal: a later mark is never done before an earlier one. Method: each is asked until done, the
    // last first; everything before a done one must be done at the first question.
    let backend = subject.backend();
    let stream = stream_on(&backend, 0);
    for last in [0, 3, 7] {
        let marks = marks_on::<8>(subject, stream);
        ask_until(|| is_done(&backend, marks[last]));
        assert!(marks[..last].iter().all(|mark| is_done(&backend, *mark)));
        release_marks(&backend, marks);
    }
    backend.stream_destroy(stream).unwrap();
}

pub(crate) fn a_wait_for_a_later_mark_completes_the_earlier_ones(subject: &Subject) {
    let backend = subject.backend();
    let stream = stream_on(&backend, 0);
    let marks = marks_on::<8>(subject, stream);
    backend.wait_mark(marks[5]).unwrap();
    assert!(marks[..=5].iter().all(|mark| is_done(&backend, *mark)));
    release_marks(&backend, marks);
    backend.stream_destroy(stream).unwrap();
}

pub(crate) fn a_mark_behind_a_wait_is_never_done_before_what_it_waits_for(subject: &Subject) {
    // Goal: law 4 across streams. Method: only the waiting stream's mark is asked for; at the first
    // yes the other one must be done at once. Then the same by waiting.
    let backend = subject.backend();
    let [first, second] = [0; 2].map(|device| stream_on(&backend, device));
    for is_asked in [true, false] {
        let [before] = marks_on(subject, first);
        backend.stream_wait(second, before).unwrap();
        let [behind] = marks_on(subject, second);
        if is_asked {
            ask_until(|| is_done(&backend, behind));
        } else {
            backend.wait_mark(behind).unwrap();
        }
        assert!(is_done(&backend, before), "asked: {is_asked}");
        release_marks(&backend, [before, behind]);
    }
    destroy_streams(&backend, [first, second]);
}

pub(crate) fn waits_are_transitive_across_streams_and_devices(subject: &Subject) {
    // Goal: order goes through streams that no call asks. Method: a chain of 12 over all devices;
    // only the last mark is waited for.
    let backend = subject.backend();
    let count = devices(&backend).end;
    let streams: Vec<StreamHandle> =
        (0..12).map(|place| stream_on(&backend, place % count)).collect();
    let mut marks: Vec<Mark> = Vec::new();
    for stream in &streams {
        if let Some(before) = marks.last() {
            backend.stream_wait(*stream, *before).unwrap();
        }
        marks.extend(marks_on::<1>(subject, *stream));
    }
    backend.wait_mark(marks[11]).unwrap();
    assert!(marks.iter().all(|mark| is_done(&backend, *mark)));
    release_marks(&backend, marks);
    destroy_streams(&backend, streams);
}

pub(crate) fn a_stream_may_wait_for_a_mark_of_itself(subject: &Subject) {
    let backend = subject.backend();
    let stream = stream_on(&backend, 0);
    let [mark] = marks_on(subject, stream);
    backend.stream_wait(stream, mark).unwrap();
    backend.stream_synchronize(stream).unwrap();
    assert!(is_done(&backend, mark));
    backend.mark_release(mark).unwrap();
    backend.stream_destroy(stream).unwrap();
}

pub(crate) fn a_wait_outlives_the_mark_it_was_made_with(subject: &Subject) {
    // Goal: a mark may be given back right behind the wait. Method: a second mark of the same place
    // tells whether the wait still orders.
    let backend = subject.backend();
    let [first, second] = [0; 2].map(|device| stream_on(&backend, device));
    let [witness, waited_for] = marks_on(subject, first);
    backend.stream_wait(second, waited_for).unwrap();
    backend.mark_release(waited_for).unwrap();
    let [behind] = marks_on(subject, second);
    ask_until(|| is_done(&backend, behind));
    assert!(is_done(&backend, witness));
    release_marks(&backend, [witness, behind]);
    destroy_streams(&backend, [first, second]);
}

pub(crate) fn a_callback_comes_exactly_once(subject: &Subject) {
    // Goal: never zero times, never twice, before or after completion. Method: the channel ends
    // when the last callback is gone; what came until then is counted.
    let backend = subject.backend();
    let stream = stream_on(&backend, 0);
    let marks = marks_on::<4>(subject, stream);
    let (sender, receiver) = mpsc::channel();
    backend.wait_mark(marks[0]).unwrap();
    for (number, mark) in marks.into_iter().enumerate() {
        backend.when_done(mark, callback(&sender, number)).unwrap();
    }
    backend.when_done(marks[3], callback(&sender, 4)).unwrap();
    let mut numbers = all_sent(sender, receiver);
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2, 3, 4]);
    assert!(marks.iter().all(|mark| is_done(&backend, *mark)));
    release_marks(&backend, marks);
    backend.stream_destroy(stream).unwrap();
}

pub(crate) fn callbacks_come_once_each_when_registered_from_many_threads(subject: &Subject) {
    let backend = subject.backend();
    let stream = stream_on(&backend, 0);
    let marks = marks_on::<3>(subject, stream);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for first in [0, 100, 200, 300] {
            let (backend, sender) = (&backend, sender.clone());
            scope.spawn(move || {
                for (mark, number) in marks.into_iter().cycle().zip(first..first + 100) {
                    backend.when_done(mark, callback(&sender, number)).unwrap();
                }
            });
        }
    });
    let mut numbers = all_sent(sender, receiver);
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..400));
    release_marks(&backend, marks);
    backend.stream_destroy(stream).unwrap();
}

pub(crate) fn a_callback_may_wait_for_its_stream_and_give_it_back(subject: &Subject) {
    // Goal: a callback that drops the last handle of a stream neither hangs nor fails. Method: more
    // of them than a driver has threads, each behind a fill; the engine drops a stream so.
    const BYTES: usize = 1 << 20;
    let (sender, receiver) = mpsc::channel();
    let memory = [(); 16].map(|()| HostMemory::new(subject, BYTES));
    for (number, memory) in memory.iter().enumerate() {
        let (backend, address) = (subject.backend(), memory.address);
        let stream = stream_on(&backend, 0);
        let fill = move |inside: &Trusted, stream| inside.fill(stream, address, 1, BYTES).unwrap();
        on_stream(&backend, stream, fill);
        let [mark] = marks_on(subject, stream);
        let (end, tell) = (subject.backend(), callback(&sender, number));
        let last = move || {
            end.stream_synchronize(stream).unwrap();
            end.mark_release(mark).unwrap();
            end.stream_destroy(stream).unwrap();
            tell();
        };
        backend.when_done(mark, Box::new(last)).unwrap();
    }
    let mut numbers = all_sent(sender, receiver);
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..16));
    drop(memory);
}

pub(crate) fn a_callback_comes_also_when_the_mark_is_given_back_first(subject: &Subject) {
    let backend = subject.backend();
    let stream = stream_on(&backend, 0);
    let [mark] = marks_on(subject, stream);
    let (sender, receiver) = mpsc::channel();
    backend.when_done(mark, callback(&sender, 7)).unwrap();
    backend.mark_release(mark).unwrap();
    assert_eq!(all_sent(sender, receiver), [7]);
    backend.stream_destroy(stream).unwrap();
}

pub(crate) fn a_mark_can_be_given_back_at_any_time(subject: &Subject) {
    // Goal: never used, asked, waited for, timed, a stream waits for it, its stream is gone: each
    // mark is given back without an error. Method: one of each; the subject counts what is left.
    let backend = subject.backend();
    let [stream, other] = [0; 2].map(|device| stream_on(&backend, device));
    let [unused, asked, waited, waited_on, orphan] = marks_on(subject, stream);
    let timed = backend.mark(stream, true).unwrap();
    backend.mark_release(unused).unwrap();
    backend.mark_done(asked).unwrap();
    backend.mark_release(asked).unwrap();
    backend.wait_mark(waited).unwrap();
    backend.mark_release(waited).unwrap();
    backend.stream_wait(other, waited_on).unwrap();
    release_marks(&backend, [waited_on, timed]);
    backend.stream_destroy(stream).unwrap();
    backend.mark_release(orphan).unwrap();
    backend.stream_synchronize(other).unwrap();
    backend.stream_destroy(other).unwrap();
}

fn timed_mark(subject: &Subject, stream: StreamHandle) -> Mark {
    on_stream(&subject.backend(), stream, |inside, stream| inside.mark(stream, true).unwrap())
}

pub(crate) fn elapsed_time_is_not_negative_and_adds_up(subject: &Subject) {
    // Goal: time on a stream goes forward, and distances are sums of their parts. Method: five
    // timed marks; a driver that counts in float milliseconds may round each distance.
    const ROUNDING_NS: i64 = 1_000;
    let backend = subject.backend();
    for device in devices(&backend) {
        let stream = stream_on(&backend, device);
        let marks = [(); 5].map(|()| timed_mark(subject, stream));
        backend.wait_mark(marks[4]).unwrap();
        let elapsed = |start, end| backend.elapsed_ns(start, end).unwrap();
        let steps: Vec<i64> = marks.windows(2).map(|pair| elapsed(pair[0], pair[1])).collect();
        assert!(steps.iter().all(|step| *step >= 0), "{steps:?}");
        let (sum, whole) = (steps.iter().sum::<i64>(), elapsed(marks[0], marks[4]));
        assert!((sum - whole).abs() <= 5 * ROUNDING_NS, "{steps:?} are {sum}, not {whole}");
        assert_eq!(elapsed(marks[2], marks[2]), 0);
        release_marks(&backend, marks);
        backend.stream_destroy(stream).unwrap();
    }
}

pub(crate) fn elapsed_time_across_a_wait_is_not_negative(subject: &Subject) {
    let backend = subject.backend();
    let [first, second] = [0; 2].map(|device| stream_on(&backend, device));
    for _ in 0..10 {
        let start = timed_mark(subject, first);
        backend.stream_wait(second, start).unwrap();
        let end = timed_mark(subject, second);
        backend.wait_mark(end).unwrap();
        assert!(backend.elapsed_ns(start, end).unwrap() >= 0);
        release_marks(&backend, [start, end]);
    }
    destroy_streams(&backend, [first, second]);
}
