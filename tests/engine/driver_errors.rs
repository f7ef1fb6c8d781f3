//! A driver that refuses: each refusal is an error of whom it concerns, and none is a hang.

use std::time::Duration;

use accelrt::{
    Buffer, Config, Device, DriverError, Error, Event, FailureCause, Runtime, Stream, StreamError,
    StreamFailure,
};
use accelrt_testing::fault::{Fault, FaultError, Method};
use accelrt_testing::null::{CompletionMode, ResourceCounts};

use crate::driver_kind::Driver;
use crate::support::{finishes, stream_error};

fn plan(driver: &Driver, method: Method, error: FaultError) {
    driver.calls.plan(Fault::nth(method, 1, error));
}

fn is_driver_error(error: &StreamFailure) -> bool {
    matches!(
        error.root().failure(),
        FailureCause::Backend(Error::Driver(DriverError::Refused { .. }))
    )
}

#[test]
fn a_mark_that_is_refused_fails_the_stream_and_the_event_and_the_call_does_not_raise() {
    finishes(|| {
        for completion in [CompletionMode::AtOnce, CompletionMode::WhenAsked { polls: 2 }] {
            let driver = Driver::new(completion);
            let [failed, waiting] = [driver.stream(), driver.stream()];
            plan(&driver, Method::Mark, FaultError::Driver);
            let event = failed.record_event().unwrap();
            assert!(event.is_done(), "complete and failed");
            assert!(is_driver_error(&stream_error(event.synchronize())));
            waiting.wait_event(&event).unwrap();
            let inherited = stream_error(waiting.synchronize());
            assert!(matches!(inherited.failure(), FailureCause::Inherited));
            assert!(is_driver_error(&inherited));
            assert!(is_driver_error(&stream_error(failed.synchronize())));
            failed.synchronize().unwrap();
            failed.record(&event).unwrap();
            event.synchronize().unwrap();
        }
    });
}

#[test]
fn a_timed_mark_that_is_refused_makes_elapsed_time_raise() {
    let driver = Driver::new(CompletionMode::AtOnce);
    let stream = driver.stream();
    let (good, bad) = (Event::timed(), Event::timed());
    stream.record(&good).unwrap();
    plan(&driver, Method::Mark, FaultError::Driver);
    stream.record(&bad).unwrap();
    stream_error(good.elapsed_ms(&bad).map(drop));
    stream_error(bad.elapsed_ms(&good).map(drop));
}

#[test]
fn a_wait_that_the_device_refuses_fails_the_waiting_stream_alone() {
    finishes(|| {
        let driver = Driver::slow(10);
        let [source, waiting] = [driver.stream(), driver.stream()];
        plan(&driver, Method::StreamWait, FaultError::Driver);
        waiting.wait_stream(&source).unwrap();
        let error = stream_error(waiting.synchronize());
        assert!(is_driver_error(&error));
        assert_eq!(error.operation(), Some("wait"));
        source.synchronize().unwrap();
    });
}

#[test]
fn the_host_waits_in_place_of_a_device_that_refuses_to() {
    // Goal: the promised order holds although the device does not keep it. Method: this device is
    // done when it is waited for, and never before; the call that was refused has waited for it.
    finishes(|| {
        let driver = Driver::slow(u32::MAX);
        let [source, waiting] = [driver.stream(), driver.stream()];
        let event = source.record_event().unwrap();
        assert!(!event.is_done());
        plan(&driver, Method::StreamWait, FaultError::Driver);
        waiting.wait_event(&event).unwrap();
        assert!(event.is_done());
        assert!(is_driver_error(&stream_error(waiting.synchronize())));
    });
}

#[test]
fn a_record_that_the_device_refuses_is_complete_behind_what_was_recorded_before() {
    // Goal: records of a stream complete in order, failed ones too. Method: this device is done
    // when it is waited for, and never before.
    finishes(|| {
        let driver = Driver::slow(u32::MAX);
        let stream = driver.stream();
        let before = stream.record_event().unwrap();
        assert!(!before.is_done());
        plan(&driver, Method::Mark, FaultError::Driver);
        let refused = stream.record_event().unwrap();
        assert!(refused.is_done() && before.is_done());
    });
}

#[test]
fn a_record_that_the_device_refuses_is_the_operation_that_failed() {
    finishes(|| {
        let driver = Driver::new(CompletionMode::AtOnce);
        let stream = driver.stream();
        for _ in 0..2 {
            stream.record_event().unwrap(); // behind it the next one goes past the empty queue
            plan(&driver, Method::Mark, FaultError::Driver);
            stream.record_event().unwrap();
            assert_eq!(stream_error(stream.synchronize()).operation(), Some("record"));
        }
    });
}

#[test]
fn a_driver_that_cannot_tell_is_not_done_and_is_asked_again() {
    finishes(|| {
        let driver = Driver::new(CompletionMode::WhenAsked { polls: 0 });
        let stream = driver.stream();
        let event = stream.record_event().unwrap();
        plan(&driver, Method::MarkDone, FaultError::Driver);
        assert!(!event.is_done());
        assert!(event.is_done());
        plan(&driver, Method::StreamQuery, FaultError::Driver);
        assert!(!stream.is_done());
        assert!(stream.is_done());
    });
}

#[test]
fn a_host_wait_that_is_refused_raises_and_the_next_one_waits() {
    finishes(|| {
        let driver = Driver::slow(100);
        let stream = driver.stream();
        let event = stream.record_event().unwrap();
        plan(&driver, Method::WaitMark, FaultError::Driver);
        assert!(matches!(event.synchronize(), Err(Error::Driver(DriverError::Refused { .. }))));
        event.synchronize().unwrap();
        plan(&driver, Method::StreamSynchronize, FaultError::Driver);
        assert!(matches!(stream.synchronize(), Err(Error::Driver(DriverError::Refused { .. }))));
        stream.synchronize().unwrap();
    });
}

#[test]
fn a_refused_synchronise_does_not_lose_the_streams_error() {
    // Goal: an error ends when it is raised. Method: the stream has failed, and its synchronise is
    // refused by the driver; one of two calls must raise the failure.
    finishes(|| {
        let driver = Driver::slow(1);
        let stream = driver.stream();
        plan(&driver, Method::Mark, FaultError::Driver);
        drop(stream.record_event().unwrap());
        plan(&driver, Method::StreamSynchronize, FaultError::Driver);
        let results = [stream.synchronize(), stream.synchronize()];
        let raised = results
            .iter()
            .filter(|result| matches!(result, Err(Error::Stream(StreamError::Failed(_)))));
        assert_eq!(raised.count(), 1, "{results:?}");
    });
}

#[test]
fn one_streams_refusal_in_a_device_synchronise_does_not_lose_anothers_error() {
    finishes(|| {
        let driver = Driver::slow(1);
        let [failed, fine] = [driver.stream(), driver.stream()];
        plan(&driver, Method::Mark, FaultError::Driver);
        drop(failed.record_event().unwrap());
        drop(fine.record_event().unwrap());
        // The second stream's synchronise is refused, after the first one's error was taken.
        driver.calls.plan(Fault::nth(Method::StreamSynchronize, 2, FaultError::Driver));
        let results = [(); 2].map(|()| driver.runtime.synchronize(Driver::device()));
        let raised = results.iter().filter(|result| {
            matches!(
                result,
                Err(Error::Stream(StreamError::Failed(_) | StreamError::SeveralFailed { .. }))
            )
        });
        assert_eq!(raised.count(), 1, "{results:?}");
    });
}

#[test]
fn a_stream_that_cannot_be_made_is_an_error_of_that_call() {
    let driver = Driver::new(CompletionMode::AtOnce);
    let device = Driver::device();
    for make in [Runtime::default_stream, Runtime::stream, |runtime: &Runtime, device: Device| {
        runtime.stream(device)
    }] {
        plan(&driver, Method::StreamCreate, FaultError::Driver);
        assert!(matches!(
            make(&driver.runtime, device),
            Err(Error::Driver(DriverError::Refused { .. }))
        ));
        make(&driver.runtime, device).unwrap().synchronize().unwrap();
    }
}

/// Memory of the host that a driver's stream reads, and a stream of the host's to write it behind
/// that.
fn read_by(driver: &Driver) -> (Stream, [Buffer; 2]) {
    let cpu = driver.runtime.stream(Device::cpu(0)).unwrap();
    let on_host = driver.runtime.empty(64, Device::cpu(0)).unwrap();
    let there = driver.runtime.empty(64, Driver::device()).unwrap();
    there.copy_from(&on_host, &driver.stream()).unwrap();
    (cpu, [on_host, there])
}

#[test]
fn a_driver_that_refuses_to_tell_another_kind_is_asked_until_it_is_done() {
    finishes(|| {
        let driver = Driver::slow(50);
        driver.calls.plan(Fault::always(Method::WhenDone, FaultError::Driver));
        let (cpu, [on_host, _there]) = read_by(&driver);
        let filled = on_host.fill(1, &cpu).unwrap();
        cpu.synchronize().unwrap();
        assert!(filled.is_done());
    });
}

#[test]
fn a_lost_device_raises_for_good_and_nothing_hangs() {
    finishes(|| {
        for completion in [CompletionMode::AtOnce, CompletionMode::WhenAsked { polls: 3 }] {
            let driver = Driver::new(completion);
            let [stream, waiting] = [driver.stream(), driver.stream()];
            let event = stream.record_event().unwrap();
            lose(&driver);
            waiting.wait_event(&event).unwrap();
            let later = stream.record_event().unwrap();
            assert!(event.is_done() && later.is_done(), "nothing goes on");
            for _ in 0..3 {
                assert_lost(&stream.synchronize());
                assert_lost(&waiting.synchronize());
                assert_lost(&later.synchronize());
                assert_lost(&driver.runtime.synchronize(Driver::device()));
            }
            assert_lost(&driver.runtime.stream(Driver::device()).map(drop));
            let _ = (stream.is_done(), waiting.is_done());
            driver.runtime.shutdown();
        }
    });
}

/// One call reports the loss, and the later calls of the double succeed.
#[test]
fn lost_device_fails_its_stream_for_good() {
    finishes(|| {
        let driver = Driver::new(CompletionMode::AtOnce);
        let pooled = || driver.runtime.pooled_stream(Driver::device()).unwrap();
        let other_device = Device::new(Driver::device().kind(), 1).unwrap();
        let (stream, heir) = (pooled(), driver.runtime.stream(other_device).unwrap());
        driver.calls.plan(Fault::nth(Method::Mark, 1, FaultError::DeviceLost));
        let event = stream.record_event().unwrap();
        heir.wait_event(&event).unwrap();
        for _ in 0..2 {
            assert_lost(&stream.synchronize());
            assert_lost(&driver.runtime.synchronize(Driver::device()));
            let _ = stream.synchronize_timeout(Duration::ZERO);
            assert_lost(&stream.record_event().unwrap().synchronize());
        }
        let again = (0..32).map(|_| pooled()).find(|it| it.id() == stream.id()).unwrap();
        assert_lost(&again.synchronize());
        assert_lost(&heir.synchronize());
        heir.record_event().unwrap().synchronize().unwrap();
        heir.synchronize().unwrap();
    });
}

#[test]
fn a_stream_of_another_kind_that_waits_for_a_lost_device_fails_and_does_not_ask_for_ever() {
    finishes(|| {
        for completion in [CompletionMode::AtOnce, CompletionMode::WhenAsked { polls: 3 }] {
            let driver = Driver::new(completion);
            let (cpu, [on_host, _there]) = read_by(&driver);
            lose(&driver);
            on_host.fill(1, &cpu).unwrap();
            assert_lost(&cpu.synchronize());
            cpu.synchronize().unwrap();
        }
    });
}

/// From now on every call that a lost device refuses is refused.
fn lose(driver: &Driver) {
    let counted = [Method::DeviceCount, Method::Properties, Method::MemoryInfo];
    for method in Method::ALL.into_iter().filter(|method| !counted.contains(method)) {
        driver.calls.plan(Fault::always(method, FaultError::DeviceLost));
    }
}

/// Asserts that a call says that the device is lost, at the top or as the cause.
#[track_caller]
fn assert_lost(result: &accelrt::Result<()>) {
    let is_cause = |error: &StreamFailure| {
        matches!(
            error.root().failure(),
            FailureCause::Backend(Error::Driver(DriverError::DeviceLost { .. }))
        )
    };
    let is_lost = match result {
        Err(Error::Driver(DriverError::DeviceLost { .. })) => true,
        Err(Error::Stream(StreamError::Failed(error))) => is_cause(error),
        Err(Error::Stream(StreamError::SeveralFailed { errors, .. })) => {
            errors.iter().all(|error| is_cause(error))
        }
        _ => false,
    };
    assert!(is_lost, "{result:?}");
}

/// One small program over a driver, whose every call may fail.
fn scenario(driver: &Driver) -> accelrt::Result<()> {
    let device = Driver::device();
    let (one, other) = (driver.runtime.stream(device)?, driver.runtime.stream(device)?);
    let (start, end) = (Event::timed(), Event::timed());
    one.record(&start)?;
    other.wait_event(&start)?;
    other.record(&end)?;
    let _ = (end.is_done(), other.is_done());
    let waited = [end.synchronize(), other.synchronize(), driver.runtime.synchronize(device)];
    let elapsed = start.elapsed_ms(&end).map(drop);
    waited.into_iter().chain([elapsed]).collect()
}

#[test]
fn a_failure_at_any_single_call_leaves_nothing_behind_and_the_next_run_succeeds() {
    // Goal: law 6, for streams and marks. Method: the n-th call fails, for every n; the driver's
    // books are empty after the end, and what failed once works again.
    finishes(|| {
        let mut failed = Vec::new();
        for call in 1.. {
            let driver = Driver::slow(1);
            driver.calls.plan(Fault::nth_of_any(call, FaultError::Driver));
            let outcome = scenario(&driver);
            let struck = Method::ALL.into_iter().find(|method| driver.calls.failures(*method) > 0);
            let Some(method) = struck else {
                outcome.unwrap();
                break;
            };
            failed.push(method);
            // One more synchronise: an error that was opened and not raised is raised there.
            let _ = driver.runtime.synchronize(Driver::device());
            scenario(&driver).unwrap();
            driver.runtime.shutdown();
            drop(driver.runtime);
            drop(driver.calls);
            assert_eq!(
                driver.null.resource_counts(),
                ResourceCounts::default(),
                "{method} at call {call}"
            );
        }
        for method in [
            Method::DeviceCount,
            Method::StreamCreate,
            Method::StreamQuery,
            Method::StreamSynchronize,
            Method::Mark,
            Method::MarkDone,
            Method::WaitMark,
            Method::StreamWait,
            Method::ElapsedNs,
            Method::MarkRelease,
        ] {
            assert!(failed.contains(&method), "{method} was never failed");
        }
    });
}

#[test]
fn a_driver_that_cannot_be_counted_is_an_error_of_its_use_and_of_no_other() {
    let driver = Driver::new(CompletionMode::AtOnce);
    driver.calls.plan(Fault::always(Method::DeviceCount, FaultError::Driver));
    assert!(matches!(
        driver.runtime.stream(Driver::device()),
        Err(Error::Driver(DriverError::Refused { .. }))
    ));
    driver.runtime.stream(Device::cpu(0)).unwrap().synchronize().unwrap();
    assert!(Runtime::new(Config::default()).is_ok());
}
