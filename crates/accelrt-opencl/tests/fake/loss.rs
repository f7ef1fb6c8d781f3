//! Loss: a device that goes away at any moment is lost for good, and nothing waits for it.

use std::sync::mpsc;

use accelrt::size::MIB;
use accelrt::{DriverError, Error, Event, EventError, Runtime};

use crate::fake::Fake;
use crate::support::{assert_nothing_left, config, finishes, is_loss, over, runtime, xpu};

/// Uses a device in every way; whatever fails must say that the device is lost.
fn use_everything(runtime: &Runtime, index: usize) -> Vec<Error> {
    let mut errors = Vec::new();
    let mut note = |outcome: Result<(), Error>| errors.extend(outcome.err());
    let streams = [(); 2].map(|()| runtime.stream(xpu(index)));
    let buffer = runtime.empty(1000, xpu(index));
    if let ([Ok(first), Ok(second)], Ok(buffer)) = (&streams, &buffer) {
        let [start, end] = [(); 2].map(|()| Event::timed());
        note(first.record(&start));
        note(buffer.fill(1, first).map(drop));
        note(buffer.copy_from_slice(&[2; 1000], first));
        note(first.record(&end));
        note(second.wait_event(&end));
        let copy = buffer.copy_to_host(vec![0; 1000], second);
        let _ = (start.is_done(), first.is_done());
        match copy.and_then(accelrt::HostTransfer::wait) {
            Ok(bytes) => assert_eq!(bytes, vec![2; 1000], "a copy that succeeded"),
            Err(error) => note(Err(error)),
        }
        note(start.synchronize());
        note(end.synchronize());
        note(start.elapsed_ms(&end).map(drop));
        note(second.synchronize());
    }
    for stream in streams {
        note(stream.map(drop));
    }
    note(buffer.map(drop));
    note(runtime.synchronize(xpu(index)));
    errors
}

#[test]
fn a_device_that_is_lost_at_any_command_fails_for_good_and_hangs_nobody() {
    // Goal: wherever a loss is met, its cause is told, nothing waits and nothing is left. Method:
    // the device is lost at each command of a program in turn.
    finishes(|| {
        let fake = Fake::new("");
        assert!(use_everything(&runtime(&fake), 0).is_empty(), "nothing is lost yet");
        let commands = fake.live("calls:clEnqueueMemcpyINTEL")
            + fake.live("calls:clEnqueueMemFillINTEL")
            + fake.live("calls:clEnqueueMarkerWithWaitList")
            + fake.live("calls:clEnqueueBarrierWithWaitList");
        assert!(commands >= 6, "{commands}");
        for nth in 0..commands {
            lose_at(nth);
        }
    });
}

fn lose_at(nth: u64) {
    let fake = Fake::new(&format!("lose=after:{nth}"));
    let runtime = runtime(&fake);
    // How many commands there are depends on what the host sees in time: the last may not be met.
    let errors = use_everything(&runtime, 0);
    for error in &errors {
        let follows =
            matches!(error, Error::Event(EventError::NotComplete | EventError::NotRecorded));
        assert!(is_loss(error) || follows, "lost at command {nth}: {error}");
    }
    if !errors.is_empty() {
        for _ in 0..3 {
            assert!(is_loss(&runtime.synchronize(xpu(0)).unwrap_err()), "command {nth}: for good");
            // More than any cache has: what is cached needs no device.
            assert!(is_loss(&runtime.empty(64 * MIB, xpu(0)).unwrap_err()));
            assert!(is_loss(&runtime.stream(xpu(0)).unwrap_err()));
        }
    }
    runtime.shutdown();
    drop(runtime);
    assert_nothing_left(&fake);
}

#[test]
fn who_waits_for_a_device_that_is_lost_meanwhile_is_told() {
    over("hold=1", |fake, runtime| {
        let stream = runtime.stream(xpu(0)).unwrap();
        let buffer = runtime.empty(64, xpu(0)).unwrap();
        buffer.fill(1, &stream).unwrap();
        let event = stream.record_event().unwrap();
        let (about, hears) = mpsc::channel();
        std::thread::scope(|scope| {
            let stream_waits = scope.spawn({
                let about = about.clone();
                let stream = &stream;
                move || {
                    about.send(()).unwrap();
                    stream.synchronize()
                }
            });
            let event_waits = scope.spawn({
                let event = &event;
                move || {
                    about.send(()).unwrap();
                    event.synchronize()
                }
            });
            for _ in 0..2 {
                hears.recv().unwrap();
            }
            fake.set("lose=now");
            assert!(is_loss(&stream_waits.join().unwrap().unwrap_err()));
            assert!(is_loss(&event_waits.join().unwrap().unwrap_err()));
        });
        assert!(is_loss(&runtime.synchronize(xpu(0)).unwrap_err()));
    });
}

#[test]
fn the_other_device_goes_on_and_a_stream_that_waits_for_the_lost_one_fails() {
    over("devices=2,hold=1", |fake, runtime| {
        let lost = runtime.stream(xpu(0)).unwrap();
        let good = runtime.stream(xpu(1)).unwrap();
        let buffer = runtime.empty(64, xpu(0)).unwrap();
        buffer.fill(1, &lost).unwrap();
        good.wait_stream(&lost).unwrap();
        fake.set("lose=now,hold=0");
        // Only the event of the command that waited says so, and the queue does not stop behind it.
        let told = good.synchronize().unwrap_err();
        assert!(matches!(told, Error::Driver(DriverError::Refused { code: -14, .. })), "{told}");
        assert!(told.to_string().contains("a wait for another stream"), "{told}");
        good.synchronize().unwrap();
        assert!(is_loss(&lost.synchronize().unwrap_err()));
        let errors = use_everything(&runtime, 1);
        assert!(errors.is_empty(), "the other device: {errors:?}");
        assert!(is_loss(&lost.synchronize().unwrap_err()), "for good");
        drop(buffer);
    });
}

#[test]
fn a_new_runtime_finds_out_by_itself_that_the_device_is_lost() {
    over("", |fake, _| {
        let first = runtime(fake);
        let stream = first.stream(xpu(0)).unwrap();
        stream.synchronize().unwrap();
        fake.set("lose=now");
        let fresh = Runtime::new(config(fake)).unwrap();
        assert!(is_loss(&fresh.stream(xpu(0)).unwrap_err()));
        assert!(is_loss(&stream.synchronize().unwrap_err()));
    });
}

#[test]
fn codes_of_a_loss_are_told_from_other_refusals() {
    // Goal: -5 is a shortage on a device that is there, and a loss on one that is not.
    over("fail=clFinish:1:-5", |fake, runtime| {
        let stream = runtime.stream(xpu(0)).unwrap();
        let buffer = runtime.empty(64, xpu(0)).unwrap();
        buffer.fill(1, &stream).unwrap();
        if let Err(error) = stream.synchronize() {
            assert!(!is_loss(&error), "{error}");
        }
        stream.synchronize().unwrap();
        fake.set("lost_code=-2,lost_status=-2,lose=now");
        assert!(is_loss(&stream.synchronize().unwrap_err()));
    });
}
