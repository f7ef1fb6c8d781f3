//! Streams and marks: what a backend says of itself, where work runs, and when it is done.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, mpsc};
use std::thread;

use accelrt::backend::contract::{Mark, StreamHandle};
use accelrt::{DriverError, Error};

use crate::conformance::support::{
    Actor, HostMemory, Subject, all_sent, ask_until, callback, destroy_streams, devices, on_stream,
    once, release_marks, resume_once, settle, stream_on, submit_once,
};
use crate::trusted::Trusted;

// Probing: what a backend says of itself and its devices, before anything is used.

pub(crate) fn a_kind_has_devices_that_can_be_counted(subject: &Subject) {
    // Goal: the suite has something to test. Method: the count, twice, and every device by name.
    let backend = subject.backend();
    let count = backend.device_count().unwrap();
    assert!((1..=128).contains(&count), "{count} devices");
    assert_eq!(backend.device_count().unwrap(), count);
    for index in 0..count {
        let device = accelrt::Device::new(backend.kind(), index).unwrap();
        assert_eq!(device.to_string(), format!("{}:{index}", backend.kind()));
    }
}

pub(crate) fn a_device_says_what_it_is(subject: &Subject) {
    // Goal: no property is nonsense that others would divide by. Method: bounds of each.
    let backend = subject.backend();
    for device in devices(&backend) {
        let properties = backend.properties(device).unwrap();
        assert!(!properties.name.trim().is_empty());
        assert!(properties.total_memory_bytes > 0);
        assert!(properties.core_count > 0);
        assert!(properties.page_bytes.is_power_of_two());
        assert!(properties.cache_bytes.iter().all(|bytes| *bytes > 0));
        if let Some(huge) = properties.huge_page_bytes {
            assert!(huge > properties.page_bytes && huge % properties.page_bytes == 0);
        }
    }
}

pub(crate) fn memory_info_agrees_with_the_properties(subject: &Subject) {
    let backend = subject.backend();
    for device in devices(&backend) {
        let info = backend.memory_info(device).unwrap();
        assert_eq!(info.total_bytes, backend.properties(device).unwrap().total_memory_bytes);
        assert!(info.free_bytes <= info.total_bytes, "{info:?}");
    }
}

pub(crate) fn priorities_go_from_the_first_to_the_last_through_zero(subject: &Subject) {
    let backend = subject.backend();
    for device in devices(&backend) {
        let range = backend.priority_range(device);
        assert!(range.greatest <= 0 && 0 <= range.least, "{range:?}");
        assert!(range.contains(range.greatest) && range.contains(range.least));
        assert!(!range.contains(range.greatest - 1) && !range.contains(range.least + 1));
    }
}

pub(crate) fn probing_changes_nothing(subject: &Subject) {
    // Goal: looking is free. Method: everything is asked twice; the answers are the same.
    let backend = subject.backend();
    let look = || {
        let each = devices(&backend).map(|device| {
            let (properties, memory) = (backend.properties(device), backend.memory_info(device));
            (properties.unwrap(), memory.unwrap(), backend.priority_range(device))
        });
        (backend.kind(), backend.runs_on_host(), each.collect::<Vec<_>>())
    };
    assert_eq!(look(), look());
}

// Streams: where work runs and in which order, when they are idle, and what they are natively.

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

// Marks: when they are done, in which order, across streams, with callbacks and with time.

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
