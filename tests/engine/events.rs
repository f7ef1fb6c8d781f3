//! Events: lazy, versioned, with time stamps where the stream passes the record.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use accelrt::{
    Config, Device, DeviceKind, Error, Event, EventError, Runtime, RuntimeError, StreamError,
};
use accelrt_testing::null::{NullBackend, NullConfig};

use crate::gate::Gate;
use crate::support::{
    CPU, Journal, devices, enqueue_notice, finishes, stream, wait_by_query, wait_without_helping,
    workers,
};

#[test]
fn an_event_that_was_never_recorded_is_done_for_everybody() {
    let runtime = workers(1);
    let (event, stream) = (Event::new(), stream(&runtime));
    assert!(event.is_done());
    event.synchronize().unwrap();
    stream.wait_event(&event).unwrap();
    stream.synchronize().unwrap();
    assert!(stream.is_ordered_after(&event));
    assert_eq!((event.version(), event.device()), (0, None));
}

#[test]
fn handles_of_one_event_are_equal_and_other_events_are_not() {
    let (event, other) = (Event::new(), Event::new());
    assert_eq!(event.clone(), event);
    assert_ne!(other, event);
    let events = HashSet::from([event.clone(), other, event.clone()]);
    assert_eq!(events.len(), 2);
    let runtime = workers(1);
    stream(&runtime).record(&event).unwrap();
    assert!(events.contains(&event), "a record changes nothing");
}

#[test]
fn a_wait_binds_to_the_record_that_is_latest_at_that_moment() {
    // Goal: a later record does not move a wait. Method: the later record stands behind a gate that
    // stays shut while the waiting stream goes on.
    finishes(|| {
        let runtime = workers(3);
        let [first, second, waiting] = [(); 3].map(|()| stream(&runtime));
        let event = Event::new();
        let first_gate = Gate::shut(&first);
        first.record(&event).unwrap();
        waiting.wait_event(&event).unwrap();
        let second_gate = Gate::shut(&second);
        second.record(&event).unwrap();
        let behind_first = enqueue_notice(&waiting);
        first_gate.open();
        behind_first.recv().unwrap();
        assert!(!event.is_done(), "the later record is pending");
        waiting.wait_event(&event).unwrap(); // binds to the later one
        let behind_second = enqueue_notice(&waiting);
        assert!(behind_second.try_recv().is_err());
        second_gate.open();
        behind_second.recv().unwrap();
        assert!(event.is_done());
    });
}

#[test]
fn a_wait_is_over_before_what_stands_behind_its_record() {
    // Goal: a wait binds to the record, not to all that its stream has queued. Method: behind the
    // record a gate stays shut while the waiting stream goes on.
    finishes(|| {
        let runtime = workers(2);
        let [source, waiting] = [stream(&runtime), stream(&runtime)];
        let before = Gate::shut(&source);
        let event = source.record_event().unwrap();
        let behind = Gate::enqueue(&source);
        waiting.wait_event(&event).unwrap();
        let notice = enqueue_notice(&waiting);
        before.open();
        notice.recv().unwrap();
        behind.open();
    });
}

#[test]
fn a_thread_waits_for_the_record_that_was_latest_when_it_began() {
    finishes(|| {
        let runtime = workers(2);
        let [first, second] = [stream(&runtime), stream(&runtime)];
        let event = Event::new();
        let first_gate = Gate::shut(&first);
        first.record(&event).unwrap();
        let (asleep, is_asleep) = std::sync::mpsc::channel();
        let waited = event.clone();
        let thread = std::thread::spawn(move || {
            // Asked while asleep in the wait: from then on the wait has begun.
            waited.synchronize_unless(&mut || asleep.send(()).is_err())
        });
        is_asleep.recv().unwrap();
        let _second_gate = Gate::shut(&second);
        second.record(&event).unwrap();
        first_gate.open();
        thread.join().unwrap().unwrap();
        assert!(!event.is_done());
    });
}

#[test]
fn each_record_is_a_new_version_that_is_pending_until_it_is_passed() {
    finishes(|| {
        let runtime = workers(1);
        let (stream, event) = (stream(&runtime), Event::new());
        for version in 1..=3 {
            let gate = Gate::shut(&stream);
            stream.record(&event).unwrap();
            assert_eq!(event.version(), version);
            assert!(!event.is_done());
            gate.open();
            event.synchronize().unwrap();
            assert!(event.is_done());
        }
    });
}

#[test]
fn a_query_becomes_true_without_any_thread_waiting() {
    finishes(|| {
        let runtime = workers(1);
        let event = stream(&runtime).record_event().unwrap();
        wait_by_query(&event);
    });
}

#[test]
fn an_event_may_be_dropped_while_streams_wait_for_it() {
    finishes(|| {
        let runtime = workers(2);
        let [source, waiting] = [stream(&runtime), stream(&runtime)];
        let journal = Journal::new();
        let gate = Gate::shut(&source);
        journal.enqueue(&source, "before");
        waiting.wait_event(&source.record_event().unwrap()).unwrap();
        journal.enqueue(&waiting, "after");
        drop(source);
        gate.open();
        waiting.synchronize().unwrap();
        assert_eq!(journal.read(), ["before", "after"]);
    });
}

#[test]
fn an_event_outlives_its_stream_and_its_runtime() {
    finishes(|| {
        let runtime = workers(1);
        let (start, end) = (Event::timed(), Event::timed());
        let stream = stream(&runtime);
        stream.record(&start).unwrap();
        stream.record(&end).unwrap();
        drop((stream, runtime));
        assert!(start.is_done() && end.is_done());
        end.synchronize().unwrap();
        assert!(start.elapsed_ms(&end).unwrap() >= 0.0);
    });
}

#[test]
fn an_event_stays_on_the_device_of_its_first_record() {
    let runtime = devices(2, 1);
    let event = Event::new();
    stream(&runtime).record(&event).unwrap();
    assert_eq!(event.device(), Some(CPU));
    let refused = runtime.stream(Device::cpu(1)).unwrap().record(&event).unwrap_err();
    let expected = "Event device index 0 does not match recording stream's device index 1.";
    assert_eq!(refused.to_string(), expected);
    assert_eq!(event.version(), 1, "a refused record changes nothing");
    // Waiting works across devices.
    runtime.stream(Device::cpu(1)).unwrap().wait_event(&event).unwrap();
}

#[test]
fn events_and_streams_of_two_kinds_do_not_mix() {
    let null = NullBackend::new(NullConfig::default());
    let runtime = Runtime::with_backends(Config::default(), [null as _]).unwrap();
    let own = stream(&runtime);
    let foreign = runtime.stream("null:0".parse().unwrap()).unwrap();
    let event = Event::for_kind(DeviceKind::NULL, true);
    assert_eq!(
        own.record(&event).unwrap_err().to_string(),
        "Event device type null does not match recording stream's device type cpu."
    );
    foreign.record(&event).unwrap();
    assert_eq!(
        own.wait_event(&event).unwrap_err().to_string(),
        "Event device type null does not match blocking stream's device type cpu."
    );
    let mine = Event::for_kind(DeviceKind::CPU, false);
    assert_eq!(
        mine.elapsed_ms(&event).unwrap_err().to_string(),
        "Event device type cpu does not match other's device type null.",
        "before it is asked whether they have timing"
    );
}

#[test]
fn elapsed_time_is_refused_in_the_order_of_torchs_checks() {
    finishes(|| {
        let runtime = workers(1);
        let stream = stream(&runtime);
        let (timed, untimed, recorded) = (Event::timed(), Event::new(), Event::timed());
        stream.record(&recorded).unwrap();
        recorded.synchronize().unwrap();
        let refusal = |one: &Event, other: &Event| one.elapsed_ms(other).unwrap_err();
        assert!(matches!(refusal(&timed, &untimed), Error::Event(EventError::WithoutTiming)));
        assert!(matches!(refusal(&recorded, &timed), Error::Event(EventError::NotRecorded)));
        let gate = Gate::shut(&stream);
        stream.record(&timed).unwrap();
        assert!(matches!(refusal(&recorded, &timed), Error::Event(EventError::NotComplete)));
        assert!(matches!(refusal(&timed, &recorded), Error::Event(EventError::NotComplete)));
        gate.open();
        timed.synchronize().unwrap();
        assert!(recorded.elapsed_ms(&timed).unwrap() >= 0.0);
        assert!(timed.is_timed() && !untimed.is_timed());
    });
}

#[test]
fn elapsed_time_is_that_of_the_work_between_the_records() {
    // Goal: float milliseconds, both ways. Method: a task that lasts five by another clock, and a
    // bound from outside; one percent for the difference between the clocks.
    let runtime = workers(1);
    let (stream, start, end) = (stream(&runtime), Event::timed(), Event::timed());
    let began = Instant::now();
    stream.record(&start).unwrap();
    let spin = || {
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(5) {}
    };
    stream.enqueue(spin).unwrap();
    stream.record(&end).unwrap();
    stream.synchronize().unwrap();
    let most = began.elapsed().as_secs_f64() * 1e3;
    let elapsed = start.elapsed_ms(&end).unwrap();
    assert!(elapsed >= 5.0 * 0.99 && elapsed <= most * 1.01, "{elapsed} of {most}");
    assert!((end.elapsed_ms(&start).unwrap() + elapsed).abs() < 1e-6, "negative the other way");
}

#[test]
fn the_time_is_stamped_where_the_stream_passes_the_record_not_where_it_is_enqueued() {
    // Goal: as said. Method: enqueued first, behind a gate, and yet stamped later.
    finishes(|| {
        let runtime = workers(2);
        let [held, free] = [stream(&runtime), stream(&runtime)];
        let (late, early) = (Event::timed(), Event::timed());
        let gate = Gate::shut(&held);
        held.record(&late).unwrap();
        free.record(&early).unwrap();
        early.synchronize().unwrap();
        gate.open();
        late.synchronize().unwrap();
        assert!(early.elapsed_ms(&late).unwrap() > 0.0, "also across streams");
    });
}

#[test]
fn a_task_may_wait_for_a_record_of_its_own_stream_that_it_has_passed_but_not_for_a_later_one() {
    finishes(|| {
        let runtime = workers(1);
        let stream = stream(&runtime);
        let passed = stream.record_event().unwrap();
        wait_without_helping(&stream);
        let (ahead, own) = (Event::new(), stream.clone());
        let (tell, told) = std::sync::mpsc::channel();
        let task = move || {
            own.record(&ahead).unwrap();
            tell.send((passed.synchronize(), ahead.synchronize())).unwrap();
        };
        stream.enqueue(task).unwrap();
        let (of_passed, of_ahead) = told.recv().unwrap();
        of_passed.unwrap();
        assert!(matches!(of_ahead, Err(Error::Stream(StreamError::WaitInsideTask { .. }))));
    });
}

#[test]
fn a_wait_that_is_interrupted_leaves_the_work_going_on() {
    finishes(|| {
        let runtime = workers(1);
        let stream = stream(&runtime);
        let gate = Gate::shut(&stream);
        let notice = enqueue_notice(&stream);
        let event = stream.record_event().unwrap();
        let given_up = event.synchronize_unless(&mut || true);
        assert!(matches!(given_up, Err(Error::Runtime(RuntimeError::Interrupted))));
        assert!(!event.is_done());
        gate.open();
        notice.recv().unwrap();
        event.synchronize_unless(&mut || true).unwrap_or_else(|error| {
            assert!(matches!(error, Error::Runtime(RuntimeError::Interrupted)));
            event.synchronize().unwrap();
        });
    });
}
