//! Streams: in order, 32 a pool, ids that are never reused, the default one, how long one lives.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use accelrt::{Device, DriverError, Error, RuntimeError, Stream, StreamError};

use crate::gate::Gate;
use crate::support::{
    CPU, CountDrop, Journal, devices, enqueue_notice, finishes, stream, streams,
    wait_without_helping, workers,
};

#[test]
fn tasks_of_one_stream_run_in_the_order_of_each_producer() {
    // Goal: in order, over all ways to be executed. Method: four producers; each one's numbers must
    // rise, and the whole must be complete.
    let runtime = workers(2);
    let (stream, journal) = (stream(&runtime), Journal::new());
    std::thread::scope(|scope| {
        for producer in 0..4 {
            let (stream, journal) = (&stream, &journal);
            scope.spawn(move || {
                (0..500).for_each(|number| journal.enqueue(stream, (producer, number)));
                stream.synchronize().unwrap();
            });
        }
    });
    let entries = journal.read();
    for producer in 0..4 {
        let own: Vec<i32> =
            entries.iter().filter(|entry| entry.0 == producer).map(|entry| entry.1).collect();
        assert_eq!(own, (0..500).collect::<Vec<_>>());
    }
}

#[test]
fn a_pool_has_32_streams_and_request_33_gets_the_first_again() {
    let runtime = devices(2, 1);
    for priority in [-1, 0, 1] {
        let handed: Vec<Stream> =
            (0..33).map(|_| runtime.pooled_stream_with_priority(CPU, priority).unwrap()).collect();
        assert_eq!(handed[32], handed[0]);
        let ids: BTreeSet<u64> = handed.iter().map(Stream::id).collect();
        assert_eq!(ids.len(), 32);
        assert!(handed.iter().all(|stream| stream.priority() == priority));
        assert!(handed.iter().all(|stream| !stream.is_dedicated() && stream.id() != 0));
    }
    // Another device has pools of its own.
    assert_eq!(runtime.pooled_stream(Device::cpu(1)).unwrap().device(), Device::cpu(1));
}

#[test]
fn a_request_without_a_priority_is_served_from_the_pool_of_priority_0() {
    let runtime = workers(1);
    let first = runtime.pooled_stream(CPU).unwrap();
    let others: Vec<Stream> = (0..31).map(|_| runtime.pooled_stream(CPU).unwrap()).collect();
    assert_eq!(runtime.pooled_stream_with_priority(CPU, 0).unwrap(), first);
    assert!(!others.contains(&first));
}

#[test]
fn a_stream_without_further_words_is_the_callers_alone_and_so_is_its_error() {
    let runtime = workers(1);
    let streams: Vec<Stream> = (0..33).map(|_| runtime.stream(CPU).unwrap()).collect();
    assert!(streams.iter().all(|stream| stream.is_dedicated() && stream.priority() == 0));
    assert_eq!(streams.iter().collect::<HashSet<_>>().len(), 33);
    streams[0].enqueue(|| Err::<(), _>("of the first")).unwrap();
    streams[32].synchronize().unwrap();
    streams[0].synchronize().unwrap_err();
    let urgent = runtime.stream_with_priority(CPU, -1).unwrap();
    assert!(urgent.is_dedicated() && urgent.priority() == -1);
}

#[test]
fn the_33rd_caller_of_the_pool_consumes_the_error_of_the_first() {
    let runtime = workers(1);
    let streams: Vec<Stream> = (0..33).map(|_| runtime.pooled_stream(CPU).unwrap()).collect();
    streams[0].enqueue(|| Err::<(), _>("of the first")).unwrap();
    streams[32].synchronize().unwrap_err();
    streams[0].synchronize().unwrap();
}

#[test]
fn priorities_out_of_range_are_clamped() {
    let runtime = workers(1);
    let range = runtime.priority_range(CPU).unwrap();
    assert_eq!((range.least, range.greatest), (1, -1));
    assert_eq!(stream(&runtime).priority_range(), range);
    for (priority, nearest) in [(-2, -1), (2, 1), (i32::MIN, -1), (i32::MAX, 1), (-1, -1), (0, 0)] {
        let dedicated = runtime.stream_with_priority(CPU, priority).unwrap();
        let pooled = runtime.pooled_stream_with_priority(CPU, priority).unwrap();
        assert_eq!([dedicated.priority(), pooled.priority()], [nearest; 2], "{priority}");
    }
    // One pool serves a priority and those that are clamped to it.
    let taken = |priority| runtime.pooled_stream_with_priority(CPU, priority).unwrap().id();
    let ids: Vec<_> = (0..40).map(|number| taken(1 + number % 7)).collect();
    assert_eq!(ids[..8], ids[32..]);
}

#[test]
fn ids_are_never_reused() {
    let runtime = workers(1);
    let ids = (0..500)
        .map(|_| stream(&runtime).id())
        .chain((0..32).map(|_| runtime.pooled_stream(CPU).unwrap().id()));
    let ids: Vec<u64> = ids.collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
    assert!(!ids.contains(&0));
}

#[test]
fn a_stream_is_found_by_its_id_and_an_unknown_id_is_an_error() {
    let runtime = devices(2, 1);
    let (pooled, dedicated) = (runtime.pooled_stream(CPU).unwrap(), stream(&runtime));
    let default = runtime.default_stream(CPU).unwrap();
    for stream in [&pooled, &dedicated, &default] {
        assert_eq!(&runtime.stream_by_id(CPU, stream.id()).unwrap(), stream);
    }
    for (device, stream_id) in [(CPU, 999), (Device::cpu(1), dedicated.id())] {
        let refused = runtime.stream_by_id(device, stream_id).unwrap_err();
        assert!(matches!(refused, Error::Stream(StreamError::NotFound { .. })), "{refused}");
    }
}

#[test]
fn a_dedicated_stream_lives_until_its_last_handle_is_gone_and_its_work_done() {
    // Goal: work goes on without a handle; then the stream is gone. Method: the handle is dropped
    // while the stream is inside a gate with a task behind it.
    finishes(|| {
        let runtime = workers(1);
        let stream = stream(&runtime);
        let (id, gate) = (stream.id(), Gate::shut(&stream));
        let notice = enqueue_notice(&stream);
        drop(stream);
        assert_eq!(runtime.stream_by_id(CPU, id).unwrap().id(), id);
        gate.open();
        notice.recv().unwrap();
        while runtime.stream_by_id(CPU, id).is_ok() {
            std::thread::yield_now();
        }
    });
}

#[test]
fn a_dedicated_stream_stays_while_one_handle_stays() {
    let runtime = workers(1);
    let stream = stream(&runtime);
    drop(stream.clone());
    stream.synchronize().unwrap();
    assert!(stream.is_dedicated());
    assert_eq!(runtime.stream_by_id(CPU, stream.id()).unwrap(), stream);
}

#[test]
fn the_default_stream_is_number_0_one_per_device_and_shared_by_all_threads() {
    let runtime = devices(2, 1);
    let default = runtime.default_stream(CPU).unwrap();
    assert_eq!((default.id(), default.priority()), (0, 0));
    assert_eq!(runtime.current_stream().unwrap(), default);
    assert_ne!(runtime.default_stream(Device::cpu(1)).unwrap(), default);
    let seen_elsewhere = std::thread::scope(|scope| {
        scope.spawn(|| runtime.current_stream().unwrap()).join().unwrap()
    });
    assert_eq!(seen_elsewhere, default);
    assert!((0..64).all(|_| runtime.stream(CPU).unwrap() != default), "outside the pools");
}

#[test]
fn the_default_stream_has_no_implicit_ordering() {
    finishes(|| {
        let runtime = workers(2);
        let (default, other) = (runtime.default_stream(CPU).unwrap(), stream(&runtime));
        let gate = Gate::shut(&default);
        wait_without_helping(&other); // is not behind the default stream
        gate.open();
        let _gate = Gate::shut(&other);
        wait_without_helping(&default); // nor the default stream behind it
    });
}

#[test]
fn handles_are_equal_when_they_name_the_same_stream() {
    let runtime = workers(1);
    let (one, other) = (stream(&runtime), stream(&runtime));
    assert_eq!(one, one.clone());
    assert_ne!(one, other);
    #[expect(clippy::mutable_key_type, reason = "a stream's hash and equality are its identity")]
    let known = HashSet::from([one.clone(), other, one]);
    assert_eq!(known.len(), 2);
}

#[test]
fn a_query_is_true_only_when_the_last_task_has_returned() {
    // Goal: an empty queue is not enough. Method: the only task is inside a gate, out of the queue.
    finishes(|| {
        let runtime = workers(1);
        let stream = stream(&runtime);
        assert!(stream.is_done(), "nothing was enqueued");
        let gate = Gate::shut(&stream);
        assert!(!stream.is_done());
        gate.open();
        stream.synchronize().unwrap();
        assert!(stream.is_done());
    });
}

#[test]
fn a_stream_waits_for_everything_enqueued_on_another_so_far() {
    finishes(|| {
        let runtime = workers(2);
        let [one, other] = [stream(&runtime), stream(&runtime)];
        let journal = Journal::new();
        let gate = Gate::shut(&one);
        journal.enqueue(&one, "before");
        other.wait_stream(&one).unwrap();
        journal.enqueue(&other, "after");
        gate.open();
        other.synchronize().unwrap();
        assert_eq!(journal.read(), ["before", "after"]);
    });
}

#[test]
fn a_task_may_enqueue_on_its_own_stream_and_on_others() {
    finishes(|| {
        let runtime = workers(1);
        let [one, other] = [stream(&runtime), stream(&runtime)];
        let journal = Journal::new();
        let (own, next, written) = (one.clone(), other.clone(), journal.clone());
        let task = move || {
            written.enqueue(&own, "own");
            next.wait_stream(&own).unwrap();
            written.enqueue(&next, "other");
        };
        one.enqueue(task).unwrap();
        one.synchronize().unwrap();
        other.synchronize().unwrap();
        assert_eq!(journal.read(), ["own", "other"]);
    });
}

#[repr(align(128))]
struct Aligned(usize);

#[test]
fn functions_of_every_size_run_once_and_drop_what_they_hold_once() {
    let runtime = workers(1);
    let stream = stream(&runtime);
    let (sum, drops) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let held = || (Arc::clone(&sum), CountDrop(Arc::clone(&drops)));
    let (sum_of_small, held_by_small) = held();
    let task = move || {
        let _held = &held_by_small;
        sum_of_small.fetch_add(1, Ordering::Relaxed);
    };
    stream.enqueue(task).unwrap();
    let (big, aligned) = ([1_usize; 100], Aligned(1));
    let (sum_of_big, held_by_big) = held();
    let task = move || {
        let _held = &held_by_big;
        sum_of_big.fetch_add(big.iter().sum(), Ordering::Relaxed);
    };
    stream.enqueue(task).unwrap();
    let (sum_of_aligned, held_by_aligned) = held();
    let task = move || {
        let (_held, aligned) = (&held_by_aligned, &aligned);
        assert_eq!(std::ptr::from_ref(aligned).addr() % 128, 0);
        sum_of_aligned.fetch_add(aligned.0, Ordering::Relaxed);
    };
    stream.enqueue(task).unwrap();
    stream.enqueue(|| ()).unwrap();
    stream.synchronize().unwrap();
    assert_eq!((sum.load(Ordering::Relaxed), drops.load(Ordering::Relaxed)), (102, 3));
}

#[test]
fn a_cpu_stream_has_no_native_handle_and_says_so() {
    let refused = stream(&workers(1)).native_handle().unwrap_err();
    assert!(matches!(refused, Error::Driver(DriverError::Unsupported { .. })), "{refused}");
}

#[test]
fn streams_of_two_runtimes_are_refused_as_each_others_order() {
    let [one, other] = [(); 2].map(|()| workers(1));
    let [own, theirs] = [&one, &other].map(stream);
    let event = theirs.record_event().unwrap();
    for refused in [own.wait_event(&event), own.wait_stream(&theirs)] {
        let Err(Error::Runtime(RuntimeError::OtherRuntime { given, own, .. })) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!((given, own), (other.id(), one.id()));
    }
    own.synchronize().unwrap();
    event.synchronize().unwrap();
}

#[test]
fn streams_without_an_order_run_at_the_same_time() {
    // Goal: independent streams are concurrent. Method: two tasks wait for each other's presence.
    finishes(|| {
        let runtime = workers(2);
        let meeting = Arc::new(std::sync::Barrier::new(2));
        let notices = streams(&runtime, 2).into_iter().map(|stream| {
            let meeting = Arc::clone(&meeting);
            stream
                .enqueue(move || {
                    let _ = meeting.wait();
                })
                .unwrap();
            enqueue_notice(&stream)
        });
        for notice in notices.collect::<Vec<_>>() {
            notice.recv().unwrap();
        }
    });
}
