//! Deferred tasks are started in order and gone on with when they are finished, wherever that is.
//!
//! Every test runs on the cpu kind and on a driver-like kind, whose device is done at once or late.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use accelrt::{Completion, Device, Error, Event, Stream, StreamError};

use crate::plain::Plain;
use crate::support::{append_digit, counter, digits, runtime, streams_of_every_kind};

/// Enqueues a deferred task that hands its completion to the test.
fn defer(stream: &Stream) -> mpsc::Receiver<Completion> {
    let (sender, receiver) = mpsc::channel();
    stream.enqueue_deferred(move |completion| sender.send(completion).unwrap()).unwrap();
    receiver
}

/// Enqueues a deferred task that notes a digit and is finished at once.
fn note(stream: &Stream, order: &Arc<Plain>, digit: u32) {
    let order = order.clone();
    let start = move |completion: Completion| {
        append_digit(&order, digit);
        completion.finish(Ok(()));
    };
    stream.enqueue_deferred(start).unwrap();
}

#[test]
fn a_task_behind_a_deferred_one_waits_until_another_thread_finished_it() {
    for (_runtime, stream) in streams_of_every_kind() {
        let order = counter();
        note(&stream, &order, 1);
        let started = defer(&stream);
        note(&stream, &order, 3);
        let finisher = {
            let order = order.clone();
            thread::spawn(move || {
                let completion = started.recv().unwrap();
                append_digit(&order, 2);
                completion.finish(Ok(()));
            })
        };
        stream.synchronize().unwrap();
        finisher.join().unwrap();
        assert_eq!(digits(&order), 123);
    }
}

#[test]
fn a_started_task_is_not_done_before_it_is_finished() {
    for (_runtime, stream) in streams_of_every_kind() {
        let started = defer(&stream);
        let event = stream.record_event().unwrap();
        let completion = started.recv().unwrap();
        assert!(!stream.is_done() && !event.is_done());
        completion.finish(Ok(()));
        event.synchronize().unwrap();
        stream.synchronize().unwrap();
        assert!(stream.is_done() && event.is_done());
    }
}

#[test]
fn a_deferred_task_finished_inside_start_needs_no_other_thread() {
    for (_runtime, stream) in streams_of_every_kind() {
        let order = counter();
        (1..=5).for_each(|digit| note(&stream, &order, digit));
        stream.synchronize().unwrap();
        assert_eq!(digits(&order), 12_345);
    }
}

#[test]
fn tickets_of_deferred_tasks_count_with_the_others() {
    for (_runtime, stream) in streams_of_every_kind() {
        let finish = |completion: Completion| completion.finish(Ok(()));
        let tickets = [0, 0].map(|_| stream.enqueue_deferred(finish).unwrap());
        assert_eq!(tickets[1], tickets[0] + 1);
        stream.synchronize().unwrap();
    }
}

#[test]
fn closures_and_deferred_tasks_of_one_stream_keep_their_order() {
    let runtime = runtime();
    let (stream, order) = (runtime.stream(Device::cpu(0)).unwrap(), counter());
    for digit in 1..=8_u32 {
        if digit % 2 == 0 {
            note(&stream, &order, digit);
        } else {
            let order = order.clone();
            stream.enqueue(move || append_digit(&order, digit)).unwrap();
        }
    }
    stream.synchronize().unwrap();
    assert_eq!(digits(&order), 12_345_678);
}

#[test]
fn a_stream_that_waits_for_an_event_behind_a_deferred_task_goes_on_after_it() {
    for (runtime, first) in streams_of_every_kind() {
        let second = runtime.stream(first.device()).unwrap();
        let (order, event) = (counter(), Event::new());
        let started = defer(&first);
        first.record(&event).unwrap();
        second.wait_event(&event).unwrap();
        note(&second, &order, 2);
        let completion = started.recv().unwrap();
        append_digit(&order, 1);
        completion.finish(Ok(()));
        second.synchronize().unwrap();
        assert_eq!(digits(&order), 12);
    }
}

#[test]
fn a_stream_may_finish_the_task_of_another_one() {
    // Goal: resuming works from a task. Method: the tasks of `second` finish those of `first`, and
    // are themselves finished so that a chain would grow one stack if finishing executed anything.
    for (runtime, first) in streams_of_every_kind() {
        let second = runtime.stream(first.device()).unwrap();
        for _ in 0..1_000 {
            let started = defer(&first);
            let start = move |own: Completion| {
                let other = started.recv().unwrap();
                other.finish(Ok(()));
                own.finish(Ok(()));
            };
            first.record_event().unwrap();
            second.enqueue_deferred(start).unwrap();
        }
        second.synchronize().unwrap();
        first.synchronize().unwrap();
    }
}

#[test]
fn inside_start_a_wait_for_the_own_stream_is_refused() {
    for (_runtime, stream) in streams_of_every_kind() {
        let (inside, (sender, refused)) = (stream.clone(), mpsc::channel());
        let start = move |completion: Completion| {
            sender.send(inside.synchronize()).unwrap();
            completion.finish(Ok(()));
        };
        stream.enqueue_deferred(start).unwrap();
        stream.synchronize().unwrap();
        assert!(matches!(
            refused.recv(),
            Ok(Err(Error::Stream(StreamError::WaitInsideTask { .. })))
        ));
    }
}

#[test]
fn start_may_be_of_any_size() {
    for (_runtime, stream) in streams_of_every_kind() {
        let (order, large) = (counter(), [1_u32; 100]);
        let noted = order.clone();
        let start = move |completion: Completion| {
            append_digit(&noted, large.iter().sum::<u32>() / 100);
            completion.finish(Ok(()));
        };
        stream.enqueue_deferred(start).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(digits(&order), 1);
    }
}

#[test]
fn thousands_of_streams_wait_for_one_finisher_at_once() {
    // Goal: no thread is held by a task that was started. Method: all are started before the first
    // is finished; then the last first, each behind a closing task.
    const STREAMS: usize = 4_000;
    for (runtime, one) in streams_of_every_kind() {
        let make = |_| runtime.stream(one.device()).unwrap();
        let streams: Vec<Stream> = (0..STREAMS).map(make).collect();
        let (ran, (sender, started)) = (Arc::new(AtomicUsize::new(0)), mpsc::channel());
        for stream in &streams {
            let sender = sender.clone();
            stream.enqueue_deferred(move |completion| sender.send(completion).unwrap()).unwrap();
            let ran = Arc::clone(&ran);
            let count = move |completion: Completion| {
                ran.fetch_add(1, Ordering::Relaxed); // of several workers
                completion.finish(Ok(()));
            };
            stream.enqueue_deferred(count).unwrap();
        }
        let completions: Vec<Completion> = started.iter().take(STREAMS).collect();
        assert_eq!(ran.load(Ordering::Relaxed), 0);
        completions.into_iter().rev().for_each(|completion| completion.finish(Ok(())));
        for stream in &streams {
            stream.synchronize().unwrap();
        }
        assert_eq!(ran.load(Ordering::Relaxed), STREAMS);
    }
}

#[test]
fn finishers_that_race_with_parking_lose_nothing() {
    // Method: the finisher is already waiting when the task starts, so that it finishes while the
    // stream parks, many times.
    const TASKS: u64 = 20_000;
    for (_runtime, stream) in streams_of_every_kind() {
        let (sender, started) = mpsc::channel::<Completion>();
        let finisher = thread::spawn(move || {
            started.into_iter().map(|completion| completion.finish(Ok(()))).count() as u64
        });
        for _ in 0..TASKS {
            let sender = sender.clone();
            stream.enqueue_deferred(move |completion| sender.send(completion).unwrap()).unwrap();
        }
        drop(sender);
        stream.synchronize().unwrap();
        assert_eq!(finisher.join().unwrap(), TASKS);
    }
}
