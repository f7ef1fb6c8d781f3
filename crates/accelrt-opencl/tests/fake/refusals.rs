//! Refusals: a driver that refuses any call once is told as it is, and the next use works.

use std::cell::RefCell;

use accelrt::{DriverError, Error, Event, EventError, FailureCause, Runtime, StreamError};

use crate::fake::Fake;
use crate::support::{assert_nothing_left, finishes, over, runtime, xpu};

/// A code that no rule of ours knows.
const CODE: i64 = -9999;

/// Every function that a program calls, except those that give something back.
const FUNCTIONS: [&str; 14] = [
    "clCreateContext",
    "clCreateCommandQueueWithProperties",
    "clFlush",
    "clFinish",
    "clEnqueueMarkerWithWaitList",
    "clEnqueueBarrierWithWaitList",
    "clWaitForEvents",
    "clGetEventInfo",
    "clGetEventProfilingInfo",
    "clSetEventCallback",
    "clDeviceMemAllocINTEL",
    "clHostMemAllocINTEL",
    "clEnqueueMemcpyINTEL",
    "clEnqueueMemFillINTEL",
];

/// The device is busy for a while with each command: waits are its own, and callbacks come later.
const BUSY: &str = "command_us=300";

/// A program that goes on whatever becomes of its calls; what they failed with.
fn program(runtime: &Runtime) -> Vec<Error> {
    let errors = RefCell::new(Vec::new());
    let note = |error: Error| errors.borrow_mut().push(error);
    let stream = || runtime.stream(xpu(0)).map_err(note).ok();
    let streams: Vec<_> = (0..2).filter_map(|_| stream()).collect();
    let pinned = runtime.empty_pinned(64).map_err(note).ok();
    let buffer = runtime.empty(64, xpu(0)).map_err(note).ok();
    let [start, end] = [(); 2].map(|()| Event::timed());
    for (number, stream) in streams.iter().enumerate() {
        if let Some(buffer) = &buffer {
            let _ = buffer.fill(1, stream).map_err(note);
            let _ = pinned.as_ref().map(|pinned| pinned.copy_from(buffer, stream).map_err(note));
        }
        let next = &streams[(number + 1) % streams.len()];
        let _ = next.wait_stream(stream).map_err(note);
        let deferred = stream.enqueue_deferred(|completion| completion.finish(Ok(())));
        let _ = deferred.map_err(note);
    }
    for stream in &streams {
        let _ = stream.record(&start).map_err(note);
        let mut bytes = [1; 64];
        let copied = buffer.as_ref().map(|buffer| buffer.copy_to_slice(&mut bytes, stream));
        match copied.transpose() {
            Ok(_) => assert_eq!(bytes, [1; 64], "a copy that succeeded"),
            Err(error) => note(error),
        }
        let _ = stream.record(&end).map_err(note);
        let _ = (start.is_done(), stream.is_done());
        let _ = end.synchronize().map_err(note);
        let _ = start.elapsed_ms(&end).map_err(note);
    }
    drop((buffer, pinned));
    for stream in streams {
        let _ = stream.synchronize().map_err(note);
    }
    let _ = runtime.synchronize(xpu(0)).map_err(note);
    errors.into_inner()
}

fn is_planned(error: &Error) -> bool {
    let is_cause = |cause: &FailureCause| {
        matches!(
            cause,
            FailureCause::Backend(Error::Driver(DriverError::Refused { code: CODE, .. }))
        )
    };
    match error {
        Error::Driver(DriverError::Refused { code, .. }) => *code == CODE,
        Error::Stream(StreamError::Failed(error)) => is_cause(error.root().failure()),
        Error::Stream(StreamError::SeveralFailed { errors, .. }) => {
            errors.iter().all(|error| is_cause(error.root().failure()))
        }
        Error::Event(EventError::NotComplete | EventError::NotRecorded) => true,
        _ => false,
    }
}

#[test]
fn every_call_that_is_refused_once_is_told_and_the_next_program_succeeds() {
    // Goal: no single refusal hangs, crashes, leaks or spoils what comes later. Method: each call
    // of each function of a healthy run is refused in turn; then the program runs once more.
    finishes(|| {
        let healthy = Fake::new(BUSY);
        assert!(program(&runtime(&healthy)).is_empty());
        let is_unused = |function: &&str| healthy.live(&format!("calls:{function}")) == 0;
        let unused: Vec<_> = FUNCTIONS.into_iter().filter(is_unused).collect();
        assert!(unused.is_empty(), "the program does not call {unused:?}");
        for function in FUNCTIONS {
            for nth in 1..=healthy.live(&format!("calls:{function}")).min(12) {
                refuse(function, nth);
            }
        }
    });
}

fn refuse(function: &str, nth: u64) {
    let fake = Fake::new(&format!("{BUSY},fail={function}:{nth}:{CODE}"));
    let runtime = runtime(&fake);
    for error in program(&runtime) {
        assert!(is_planned(&error), "{function}, call {nth}: {error}");
    }
    fake.set("heal=1");
    let later = program(&runtime);
    assert!(later.is_empty(), "after {function}, call {nth}: {later:?}");
    runtime.allocator(xpu(0)).unwrap().empty_cache();
    let info = runtime.memory_info(xpu(0)).unwrap();
    assert_eq!(info.free_bytes, info.total_bytes, "after {function}, call {nth}");
    assert!(runtime.shutdown().is_clean());
    drop(runtime);
    assert_nothing_left(&fake);
}

#[test]
fn queries_are_answered_while_the_driver_refuses_every_question() {
    over("hold=1", |fake, runtime| {
        let stream = runtime.stream(xpu(0)).unwrap();
        let buffer = runtime.empty(64, xpu(0)).unwrap();
        buffer.fill(1, &stream).unwrap();
        let event = stream.record_event().unwrap();
        for function in ["clGetEventInfo", "clGetDeviceInfo", "clGetMemAllocInfoINTEL"] {
            fake.set(&format!("fail={function}:1+:-5"));
        }
        for _ in 0..3 {
            // Neither answer is known; what counts is that there is one.
            let _ = (stream.is_done(), event.is_done());
            runtime.memory_info(xpu(0)).unwrap();
            runtime.properties(xpu(0)).unwrap();
        }
        fake.set("heal=1,hold=0");
        let _ = stream.synchronize();
        stream.synchronize().unwrap();
    });
}
