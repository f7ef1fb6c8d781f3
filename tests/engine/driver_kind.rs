//! A driver kind under the same engine: marks tell what is done, the device waits for itself.

use std::sync::Arc;

use accelrt::backend::contract::Backend;
use accelrt::{
    Config, Device, DeviceKind, DriverError, Error, Event, Runtime, Stream, StreamError,
};
use accelrt_testing::fault::{Fault, FaultBackend, FaultError, Method};
use accelrt_testing::null::{CompletionMode, NullBackend, NullConfig, ResourceCounts};

use crate::support::{CPU, enqueue_question, finishes, stream_error};

/// The engine over numbers instead of a device, with every call counted.
pub(crate) struct Driver {
    pub(crate) runtime: Runtime,
    pub(crate) calls: Arc<FaultBackend>,
    pub(crate) null: Arc<NullBackend>,
}

pub(crate) const NULL: DeviceKind = DeviceKind::NULL;

impl Driver {
    pub(crate) fn new(completion: CompletionMode) -> Self {
        let null =
            NullBackend::new(NullConfig { completion, device_count: 2, ..NullConfig::default() });
        let calls = FaultBackend::new(Arc::clone(&null) as Arc<dyn Backend>);
        let backend = Arc::clone(&calls) as Arc<dyn Backend>;
        let runtime = Runtime::with_backends(Config::default(), [backend]).unwrap();
        Self { runtime, calls, null }
    }

    /// A device that is done when it is asked, after so many questions.
    pub(crate) fn slow(polls: u32) -> Self {
        Self::new(CompletionMode::WhenAsked { polls })
    }

    pub(crate) fn device() -> Device {
        Device::new(NULL, 0).unwrap()
    }

    pub(crate) fn stream(&self) -> Stream {
        self.runtime.stream(Self::device()).unwrap()
    }
}

/// Runs a test with each way in which a device may complete.
pub(crate) fn with_each_completion(test: impl Fn(Driver) + Send + 'static) {
    finishes(move || {
        for completion in [
            CompletionMode::AtOnce,
            CompletionMode::WhenAsked { polls: 0 },
            CompletionMode::WhenAsked { polls: 3 },
            CompletionMode::WhenAsked { polls: u32::MAX },
        ] {
            test(Driver::new(completion));
        }
    });
}

#[test]
fn a_driver_kind_refuses_functions_of_the_host_as_tasks() {
    with_each_completion(|driver| {
        let refused = driver.stream().enqueue(|| ()).unwrap_err();
        assert!(
            matches!(refused, Error::Driver(DriverError::Unsupported { kind: NULL, .. })),
            "{refused}"
        );
    });
}

#[test]
fn a_driver_kind_has_native_handles_and_its_own_priorities() {
    let driver = Driver::new(CompletionMode::AtOnce);
    let range = driver.runtime.priority_range(Driver::device()).unwrap();
    let stream = driver.stream();
    assert_eq!(stream.priority_range(), range);
    stream.native_handle().unwrap();
    let beyond = driver.runtime.stream_with_priority(Driver::device(), range.least + 1);
    assert_eq!(beyond.unwrap().priority(), range.least);
}

#[test]
fn the_enqueuing_thread_submits_directly() {
    // Goal: no detour while nothing is parked. Method: the driver's calls are there when the
    // enqueuing call returns.
    let driver = Driver::slow(1_000);
    let [one, other] = [driver.stream(), driver.stream()];
    let event = one.record_event().unwrap();
    assert_eq!(driver.calls.calls(Method::Mark), 1);
    other.wait_event(&event).unwrap();
    assert_eq!(driver.calls.calls(Method::StreamWait), 1);
    assert_eq!(driver.calls.calls(Method::WhenDone), 0);
}

#[test]
fn threads_that_share_a_drivers_stream_submit_each_task_once_and_in_their_order() {
    // Goal: tasks that go past the queue and those that go through it are one order. Method: each
    // thread records events of its own, and one of all, at full speed; the device's virtual time
    // says in which order they came, and the driver how many.
    const THREADS: usize = 4;
    const ROUNDS: usize = 500;
    finishes(|| {
        let driver = Driver::slow(3);
        let (stream, shared) = (driver.stream(), Event::new());
        std::thread::scope(|scope| {
            let record_many = || {
                let events: Vec<Event> = (0..ROUNDS).map(|_| Event::timed()).collect();
                for event in &events {
                    stream.record(event).unwrap();
                    stream.record(&shared).unwrap();
                }
                events
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(record_many)).collect();
            for thread in threads {
                let events = thread.join().unwrap();
                events.last().unwrap().synchronize().unwrap();
                for pair in events.windows(2) {
                    assert!(pair[0].elapsed_ms(&pair[1]).unwrap() > 0.0);
                }
            }
        });
        shared.synchronize().unwrap();
        let count = (2 * THREADS * ROUNDS) as u64;
        assert_eq!((shared.version(), driver.calls.calls(Method::Mark)), (count / 2, count));
        stream.synchronize().unwrap();
        assert!(stream.is_done());
    });
}

#[test]
fn a_mark_is_placed_only_where_somebody_needs_it() {
    with_each_completion(|driver| {
        let stream = driver.stream();
        stream.wait_event(&Event::new()).unwrap();
        stream.synchronize().unwrap();
        assert!(stream.is_done());
        driver.runtime.synchronize(Driver::device()).unwrap();
        assert_eq!(driver.calls.calls(Method::Mark), 0);
    });
}

#[test]
fn a_query_is_true_when_the_device_says_so() {
    let driver = Driver::slow(3);
    let stream = driver.stream();
    let event = stream.record_event().unwrap();
    let answers = [(); 5].map(|()| event.is_done());
    assert_eq!(answers, [false, false, false, true, true]);
    stream.record(&event).unwrap();
    assert!(!event.is_done(), "a new version");
    assert!(!stream.is_done());
}

#[test]
fn every_wait_returns_when_the_device_has_reached_the_record() {
    with_each_completion(|driver| {
        let stream = driver.stream();
        let event = stream.record_event().unwrap();
        event.synchronize().unwrap();
        assert!(event.is_done());
        stream.record(&event).unwrap();
        stream.synchronize().unwrap();
        assert!(event.is_done() && stream.is_done());
        stream.record(&event).unwrap();
        driver.runtime.synchronize(Driver::device()).unwrap();
        assert!(event.is_done() && stream.is_done());
        stream.record(&event).unwrap();
        event.synchronize_unless(&mut || false).unwrap();
        assert!(event.is_done());
    });
}

#[test]
fn a_stream_waits_on_the_device_and_no_thread_does() {
    // Goal: order without a host wait. Method: finishing the last stream of a chain must have
    // finished the first.
    with_each_completion(|driver| {
        let chain: Vec<Stream> = (0..50).map(|_| driver.stream()).collect();
        let first = chain[0].record_event().unwrap();
        for pair in chain.windows(2) {
            pair[1].wait_stream(&pair[0]).unwrap();
        }
        assert!(chain[49].is_ordered_after(&first));
        let last = chain[49].record_event().unwrap();
        assert_eq!(driver.calls.calls(Method::WaitMark), 0);
        last.synchronize().unwrap();
        let done = driver.calls.calls(Method::WaitMark);
        first.synchronize().unwrap();
        assert!(driver.calls.calls(Method::WaitMark) <= done + 1);
        assert!(first.is_done());
    });
}

#[test]
fn a_wait_for_what_is_done_submits_nothing() {
    with_each_completion(|driver| {
        let [one, other] = [driver.stream(), driver.stream()];
        let event = one.record_event().unwrap();
        event.synchronize().unwrap();
        other.wait_event(&event).unwrap();
        assert_eq!(driver.calls.calls(Method::StreamWait), 0);
    });
}

#[test]
fn order_is_known_before_the_device_is_done() {
    finishes(|| {
        let driver = Driver::slow(u32::MAX);
        let [one, other, third] = [driver.stream(), driver.stream(), driver.stream()];
        let event = one.record_event().unwrap();
        assert!(one.is_ordered_after(&event) && !other.is_ordered_after(&event));
        other.wait_event(&event).unwrap();
        third.wait_stream(&other).unwrap();
        assert!(other.is_ordered_after(&event) && third.is_ordered_after(&event));
        one.record(&event).unwrap();
        assert!(!third.is_ordered_after(&event), "a later record");
    });
}

#[test]
fn a_wait_binds_to_the_record_that_is_latest_at_that_moment() {
    // Goal: versions, on a device. Method: the waiting stream is finished; the later record of the
    // event, on a third stream, must not be.
    finishes(|| {
        let driver = Driver::slow(u32::MAX);
        let [first, second, waiting] = [driver.stream(), driver.stream(), driver.stream()];
        let event = first.record_event().unwrap();
        waiting.wait_event(&event).unwrap();
        second.record(&event).unwrap();
        waiting.synchronize().unwrap();
        assert!(!event.is_done());
        event.synchronize().unwrap();
        assert!(event.is_done());
    });
}

#[test]
fn elapsed_time_is_the_devices() {
    with_each_completion(|driver| {
        let stream = driver.stream();
        let (start, end) = (Event::timed(), Event::timed());
        stream.record(&start).unwrap();
        assert!(stream.record_event().is_ok());
        stream.record(&end).unwrap();
        stream.synchronize().unwrap();
        // One microsecond of virtual time a submission: at least the records are some.
        let elapsed = start.elapsed_ms(&end).unwrap();
        assert!(elapsed >= 0.002, "{elapsed}");
        assert!((end.elapsed_ms(&start).unwrap() + elapsed).abs() < 1e-9);
    });
}

#[test]
fn elapsed_time_between_two_devices_of_a_driver_is_an_error_and_not_a_panic() {
    // Goal: misuse is caught above the backend, whose contract is about marks of one device.
    finishes(|| {
        let driver = Driver::new(CompletionMode::AtOnce);
        let elsewhere = driver.runtime.stream(Device::new(NULL, 1).unwrap()).unwrap();
        let (here, there) = (Event::timed(), Event::timed());
        driver.stream().record(&here).unwrap();
        elsewhere.record(&there).unwrap();
        here.elapsed_ms(&there).unwrap_err();
    });
}

#[test]
fn streams_of_two_devices_wait_for_each_other() {
    with_each_completion(|driver| {
        let here = driver.stream();
        let there = driver.runtime.stream(Device::new(NULL, 1).unwrap()).unwrap();
        let event = here.record_event().unwrap();
        there.wait_event(&event).unwrap();
        there.synchronize().unwrap();
        assert!(event.is_done() && there.is_ordered_after(&event));
    });
}

#[test]
fn an_event_of_a_failure_that_was_raised_fails_who_waits_for_it_later() {
    with_each_completion(|driver| {
        let [failed, later] = [driver.stream(), driver.stream()];
        failed.enqueue_deferred(|completion| completion.finish(Err("broken".into()))).unwrap();
        let event = failed.record_event().unwrap();
        // The queue has passed the synchronise, and nobody knows how far the device is.
        let refusal = Fault::nth(Method::StreamSynchronize, 1, FaultError::Driver);
        driver.calls.plan(refusal);
        let refused = failed.synchronize();
        assert!(matches!(refused, Err(Error::Driver(DriverError::Refused { .. }))), "{refused:?}");
        later.wait_event(&event).unwrap();
        stream_error(later.synchronize());
        stream_error(failed.synchronize());
        failed.record(&event).unwrap();
        later.wait_event(&event).unwrap();
        later.synchronize().unwrap();
    });
}

#[test]
fn a_driver_kind_and_the_cpu_are_used_side_by_side() {
    with_each_completion(|driver| {
        let cpu = driver.runtime.stream(Device::cpu(0)).unwrap();
        let journal = crate::support::Journal::new();
        let event = driver.stream().record_event().unwrap();
        let waited = event.clone();
        // The host's task waits for the device.
        journal.enqueue(&cpu, "before");
        cpu.enqueue(move || waited.synchronize()).unwrap();
        journal.enqueue(&cpu, "after");
        cpu.synchronize().unwrap();
        assert_eq!(journal.read(), ["before", "after"]);
        assert!(event.is_done());
    });
}

#[test]
fn everything_is_given_back() {
    // Goal: streams and marks do not leak. Method: the driver's own books after the runtime's end.
    with_each_completion(|driver| {
        let Driver { runtime, null, .. } = driver;
        for _ in 0..10 {
            let device = Driver::device();
            let [one, other] = [runtime.stream(device), runtime.stream(device)].map(Result::unwrap);
            let event = one.record_event().unwrap();
            other.wait_event(&event).unwrap();
            one.record(&event).unwrap();
            other.record(&Event::timed()).unwrap();
        }
        assert!(runtime.shutdown().is_clean());
        drop(runtime);
        drop(driver.calls);
        assert_eq!(null.resource_counts(), ResourceCounts::default());
    });
}

#[test]
fn a_drivers_task_may_not_wait_for_itself_however_deep_it_stands_in_other_tasks() {
    // Goal: the wait would never end. Method: the only worker helps a second stream inside of a
    // task, and submits to the driver inside of that one's: the start of a deferred task there is
    // the third stream that this thread is inside of.
    finishes(|| {
        let null = NullBackend::new(NullConfig::default());
        let config = Config::builder().cpu_threads(1).build().unwrap();
        let runtime = Runtime::with_backends(config, [null as Arc<dyn Backend>]).unwrap();
        let device = runtime.stream(Driver::device()).unwrap();
        let [outer, inner] = [(); 2].map(|()| runtime.stream(CPU).unwrap());
        let (id, inner_again) = (device.id(), inner.clone());
        let below = move || {
            let (tell, told) = std::sync::mpsc::channel();
            let own = device.clone();
            let start = move |completion: accelrt::Completion| {
                tell.send([own.synchronize(), own.record_event().unwrap().synchronize()]).unwrap();
                completion.finish(Ok(()));
            };
            device.enqueue_deferred(start).unwrap();
            told.recv().unwrap()
        };
        let task = move || {
            let answer = enqueue_question(&inner_again, below);
            inner_again.synchronize().unwrap();
            answer.recv().unwrap()
        };
        for refused in enqueue_question(&outer, task).recv().unwrap() {
            let Err(Error::Stream(StreamError::WaitInsideTask { stream_id, .. })) = refused else {
                panic!("{refused:?}")
            };
            assert_eq!(stream_id, id);
        }
    });
}

#[test]
fn a_drivers_stream_is_resumed_while_the_start_of_a_task_on_another_one_waits_for_it() {
    // Goal: what waits on the thread that carries resumed streams holds up no other one. Method:
    // two streams wait for the cpu; the first one is resumed, and its task waits for the second.
    finishes(|| {
        let driver = Driver::slow(3);
        let [first, second] = [driver.stream(), driver.stream()];
        let held = [&first, &second].map(|stream| {
            let cpu = driver.runtime.stream(CPU).unwrap();
            let (tell, told) = std::sync::mpsc::channel();
            cpu.enqueue_deferred(move |completion| drop(tell.send(completion))).unwrap();
            let on_host = driver.runtime.empty(64, CPU).unwrap();
            let there = driver.runtime.empty(64, Driver::device()).unwrap();
            on_host.fill(1, &cpu).unwrap();
            there.copy_from(&on_host, stream).unwrap();
            told.recv().unwrap()
        });
        let ((tell, told), second_again) = (std::sync::mpsc::channel(), second.clone());
        let start = move |completion: accelrt::Completion| {
            tell.send(()).unwrap();
            second_again.synchronize().unwrap();
            completion.finish(Ok(()));
        };
        first.enqueue_deferred(start).unwrap();
        let [of_first, of_second] = held;
        of_first.finish(Ok(()));
        told.recv().unwrap();
        of_second.finish(Ok(()));
        first.synchronize().unwrap();
    });
}
