//! Refusals: a driver that refuses any call once is told as it is, and the next use works.

use accelrt::{Error, Event, FailureCause, Runtime};

use crate::fake::Fake;
use crate::support::{finishes, over, runtime, xpu};

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

/// A program that goes on whatever becomes of its calls; what they failed with.
fn program(runtime: &Runtime) -> Vec<Error> {
    let mut errors = Vec::new();
    let mut note = |outcome: Result<(), Error>| errors.extend(outcome.err());
    let streams: Vec<_> =
        (0..2).filter_map(|_| runtime.dedicated_stream(xpu(0), 0).map_err(|e| note(Err(e))).ok()).collect();
    let pinned = runtime.empty_pinned(64).map_err(|error| note(Err(error))).ok();
    let buffer = runtime.empty(64, xpu(0)).map_err(|error| note(Err(error))).ok();
    let [start, end] = [(); 2].map(|()| Event::timed());
    for stream in &streams {
        note(stream.record(&start));
        if let Some(buffer) = &buffer {
            note(buffer.fill(1, stream).map(drop));
            if let Some(pinned) = &pinned {
                note(pinned.copy_from(buffer, stream).map(drop));
            }
            let mut bytes = [0; 64];
            match buffer.copy_to_slice(&mut bytes, stream) {
                Ok(()) => assert_eq!(bytes, [1; 64], "a copy that succeeded"),
                Err(error) => note(Err(error)),
            }
        }
        note(stream.record(&end));
        note(end.synchronize());
        let _ = (start.query(), stream.query());
        note(start.elapsed_ms(&end).map(drop));
    }
    if let [first, second] = &streams[..] {
        note(first.wait_stream(second));
        note(second.wait_event(&end));
    }
    for stream in &streams {
        let finish = stream.enqueue_deferred(|completion| completion.finish(Ok(())));
        note(finish.map(drop));
    }
    drop((buffer, pinned));
    for stream in streams {
        note(stream.synchronize());
    }
    note(runtime.synchronize(xpu(0)));
    errors
}

fn is_planned(error: &Error) -> bool {
    let is_cause = |cause: &FailureCause| {
        matches!(cause, FailureCause::Backend(Error::Driver { code: CODE, .. }))
    };
    match error {
        Error::Driver { code, .. } => *code == CODE,
        Error::Stream(error) => is_cause(error.root().failure()),
        Error::Streams { errors } => errors.iter().all(|error| is_cause(error.root().failure())),
        Error::EventNotComplete | Error::EventNotRecorded => true,
        _ => false,
    }
}

#[test]
fn every_call_that_is_refused_once_is_told_and_the_next_program_succeeds() {
    // Goal: no single refusal hangs, crashes, leaks or spoils what comes later. Method: each call of
    // each function of a healthy run is refused in turn; then the program runs once more.
    finishes(|| {
        let healthy = Fake::new("");
        assert!(program(&runtime(&healthy)).is_empty());
        let mut unused = Vec::new();
        for function in FUNCTIONS {
            let calls = healthy.calls(function);
            if calls == 0 {
                unused.push(function);
            }
            for nth in 1..=calls.min(12) {
                refuse(function, nth);
            }
        }
        assert!(unused.len() <= 3, "the program does not call {unused:?}");
    });
}

fn refuse(function: &str, nth: u64) {
    let fake = Fake::new(&format!("fail={function}:{nth}:{CODE}"));
    let runtime = runtime(&fake);
    for error in program(&runtime) {
        assert!(is_planned(&error), "{function}, call {nth}: {error}");
    }
    fake.set("heal=1");
    let later = program(&runtime);
    assert!(later.is_empty(), "after {function}, call {nth}: {later:?}");
    let info = runtime.memory_info(xpu(0)).unwrap();
    assert_eq!(info.free_bytes, info.total_bytes, "after {function}, call {nth}");
    assert!(runtime.shutdown().is_clean());
    drop(runtime);
    fake.assert_nothing_left();
}

#[test]
fn queries_are_answered_while_the_driver_refuses_every_question() {
    over("hold=1", |fake, runtime| {
        let stream = runtime.dedicated_stream(xpu(0), 0).unwrap();
        let buffer = runtime.empty(64, xpu(0)).unwrap();
        buffer.fill(1, &stream).unwrap();
        let event = stream.record_event().unwrap();
        fake.set("fail=clGetEventInfo:1+:-5,fail=clGetDeviceInfo:1+:-5,fail=clGetMemAllocInfoINTEL:1+:-5");
        for _ in 0..3 {
            // Neither answer is known; what counts is that there is one.
            let _ = (stream.query(), event.query());
            runtime.memory_info(xpu(0)).unwrap();
            runtime.properties(xpu(0)).unwrap();
        }
        fake.set("heal=1,hold=0");
        let _ = stream.synchronize();
        stream.synchronize().unwrap();
    });
}
