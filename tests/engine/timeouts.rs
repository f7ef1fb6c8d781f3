//! Waits with a limit: when they end, what they leave, and that they execute no task.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use accelrt::backend::contract::Backend;
use accelrt::backend::cpu::CpuBackend;
use accelrt::{Config, Error, Event, Result, Runtime, RuntimeError, Stream, StreamError};
use accelrt_testing::fault::{FaultBackend, Method};
use accelrt_testing::null::{CompletionMode, NullBackend, NullConfig};

use crate::driver_kind::{Driver, with_each_completion};
use crate::gate::Gate;
use crate::late::LateBackend;
use crate::scheduled::scheduled;
use crate::support::{
    CPU, Journal, enqueue_failure, enqueue_notice, enqueue_question, finishes, stream,
    stream_error, wait_by_query, workers,
};
use crate::thread_id::ThreadId;

type Wait = fn(&Runtime, &Stream, &Event, Duration) -> Result<()>;

/// Every wait of the engine that takes a limit.
const WAITS: [(&str, Wait); 3] = [
    ("a stream", |_, stream, _, limit| stream.synchronize_timeout(limit)),
    ("an event", |_, _, event, limit| event.synchronize_timeout(limit)),
    ("a device", |runtime, stream, _, limit| runtime.synchronize_timeout(stream.device(), limit)),
];

/// A limit that gated work exceeds, and one that no work of a test does.
const SHORT: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(60);

fn assert_timed_out(what: &str, outcome: &Result<()>, limit: Duration) {
    let is_right = matches!(outcome, Err(Error::Runtime(RuntimeError::TimedOut { timeout }))
        if *timeout == limit);
    assert!(is_right, "{what}: {outcome:?}");
}

#[test]
fn a_wait_ends_at_its_limit_and_the_work_goes_on() {
    finishes(|| {
        for (what, wait) in WAITS {
            let runtime = workers(1);
            let (stream, journal) = (stream(&runtime), Journal::new());
            let gate = Gate::shut(&stream);
            journal.enqueue(&stream, what);
            let event = stream.record_event().unwrap();
            for limit in [Duration::ZERO, SHORT, SHORT] {
                assert_timed_out(what, &wait(&runtime, &stream, &event, limit), limit);
            }
            gate.open();
            wait(&runtime, &stream, &event, LONG).unwrap();
            assert_eq!(journal.read(), [what]);
        }
    });
}

#[test]
fn work_that_is_done_is_within_any_limit() {
    for (what, wait) in WAITS {
        let runtime = workers(1);
        let stream = stream(&runtime);
        stream.enqueue(|| ()).unwrap();
        let event = stream.record_event().unwrap();
        stream.synchronize().unwrap();
        for limit in [Duration::ZERO, Duration::MAX] {
            let waited = wait(&runtime, &stream, &event, limit);
            waited.unwrap_or_else(|error| panic!("{what}: {error}"));
        }
    }
}

#[test]
fn a_wait_with_a_limit_executes_no_task() {
    // Goal: a task of any length delays no wait beyond its limit. Method: a stream whose tasks were
    // short is one that a waiting thread executes; every task notes its thread.
    finishes(|| {
        for (what, wait) in WAITS {
            let runtime = workers(1);
            let stream = stream(&runtime);
            for _ in 0..200 {
                stream.enqueue(|| ()).unwrap();
                stream.synchronize().unwrap();
            }
            for _ in 0..50 {
                let (tell, told) = channel();
                stream.enqueue(move || tell.send(ThreadId::current()).unwrap()).unwrap();
                let event = stream.record_event().unwrap();
                wait(&runtime, &stream, &event, LONG).unwrap();
                assert_ne!(told.recv().unwrap(), ThreadId::current(), "{what}");
            }
        }
    });
}

#[test]
fn a_wait_at_its_limit_ends_no_error() {
    // Goal: the error of a stream is raised by the wait that sees its work done. Method: a failed
    // stream that waits for a gated one, alone and beside it.
    finishes(|| {
        let runtime = workers(2);
        let [failed, gated] = [(); 2].map(|()| stream(&runtime));
        let gate = Gate::shut(&gated);
        enqueue_failure(&failed, "kept");
        failed.wait_stream(&gated).unwrap();
        assert_timed_out("a stream", &failed.synchronize_timeout(SHORT), SHORT);
        assert_timed_out("a device", &runtime.synchronize_timeout(CPU, SHORT), SHORT);
        gate.open();
        let raised = stream_error(failed.synchronize_timeout(LONG));
        assert!(raised.to_string().contains("kept"), "{raised}");
        failed.synchronize().unwrap();
    });
}

#[test]
fn a_device_wide_wait_at_its_limit_puts_the_errors_of_other_streams_back() {
    finishes(|| {
        let runtime = workers(2);
        let [failed, gated] = [(); 2].map(|()| stream(&runtime));
        let gate = Gate::shut(&gated);
        enqueue_failure(&failed, "put back");
        wait_by_query(&failed.record_event().unwrap());
        assert_timed_out("a device", &runtime.synchronize_timeout(CPU, SHORT), SHORT);
        gate.open();
        assert!(stream_error(failed.synchronize()).to_string().contains("put back"));
        gated.synchronize().unwrap();
    });
}

#[test]
fn a_limit_holds_at_a_stream_above_its_task_limit() {
    // Goal: a wait with a limit is not one for room in the queue. Method: a task, which is never
    // held back, fills a gated stream; waits begin until their tasks have filled segments too.
    finishes(|| {
        let config = Config::builder().cpu_threads(2).stream_task_limit(64).build().unwrap();
        let runtime = scheduled(Runtime::new(config).unwrap());
        let [full, filling] = [(); 2].map(|()| stream(&runtime));
        let gate = Gate::shut(&full);
        let filled = full.clone();
        let task = move || (0..1000).for_each(|_| filled.enqueue(|| ()).unwrap());
        filling.enqueue(task).unwrap();
        wait_by_query(&filling.record_event().unwrap());
        for _ in 0..500 {
            let limit = Duration::ZERO;
            assert_timed_out("a stream", &full.synchronize_timeout(limit), limit);
        }
        gate.open();
        full.synchronize_timeout(LONG).unwrap();
    });
}

#[test]
fn a_wait_with_a_limit_inside_the_streams_own_task_is_refused_as_any_wait() {
    finishes(|| {
        let runtime = workers(1);
        let (stream, (tell, told)) = (stream(&runtime), channel());
        let own = stream.clone();
        stream.enqueue(move || tell.send(own.synchronize_timeout(LONG)).unwrap()).unwrap();
        let refused = told.recv().unwrap();
        assert!(
            matches!(refused, Err(Error::Stream(StreamError::WaitInsideTask { .. }))),
            "{refused:?}"
        );
        stream.synchronize().unwrap();
    });
}

#[test]
fn a_driver_that_is_done_within_the_limit_ends_the_wait() {
    with_each_completion(|driver| {
        for (what, wait) in WAITS {
            let stream = driver.stream();
            let event = stream.record_event().unwrap();
            let waited = wait(&driver.runtime, &stream, &event, LONG);
            waited.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(event.is_done(), "{what}");
        }
    });
}

#[test]
fn a_wait_with_a_limit_does_not_block_in_the_driver() {
    // Goal: drivers wait without a limit, so no call of theirs may. Method: the driver counts.
    with_each_completion(|driver| {
        for (_, wait) in WAITS {
            let stream = driver.stream();
            let event = stream.record_event().unwrap();
            wait(&driver.runtime, &stream, &event, LONG).unwrap();
        }
        let blocking = [Method::WaitMark, Method::StreamSynchronize];
        assert_eq!(blocking.map(|method| driver.calls.calls(method)), [0, 0]);
    });
}

#[test]
fn a_drivers_stream_that_waits_for_the_host_is_waited_for_up_to_the_limit() {
    with_each_completion(|driver| {
        for (what, wait) in WAITS {
            let (stream, (tell, told)) = (driver.stream(), channel());
            stream.enqueue_deferred(move |completion| tell.send(completion).unwrap()).unwrap();
            let event = stream.record_event().unwrap();
            assert_timed_out(what, &wait(&driver.runtime, &stream, &event, SHORT), SHORT);
            told.recv().unwrap().finish(Ok(()));
            wait(&driver.runtime, &stream, &event, LONG).unwrap();
        }
    });
}

/// A device that is done after many questions, and calls back when the test says so.
fn late() -> Arc<LateBackend> {
    let completion = CompletionMode::WhenAsked { polls: 1000 };
    LateBackend::new(NullBackend::new(NullConfig { completion, ..NullConfig::default() }))
}

#[test]
fn a_wait_with_a_limit_ends_when_the_driver_calls_back() {
    // Goal: the callback wakes the thread, which sleeps up to its limit. Method: the device is done
    // when the thread has asked for a callback, and once more whether it is done.
    finishes(|| {
        for (what, wait) in WAITS {
            let late = late();
            let calls = FaultBackend::new(Arc::clone(&late) as Arc<dyn Backend>);
            let backend = Arc::clone(&calls) as Arc<dyn Backend>;
            let runtime = Runtime::with_backends(Config::default(), [backend]).unwrap();
            let stream = runtime.stream(Driver::device()).unwrap();
            let event = stream.record_event().unwrap();
            thread::scope(|scope| {
                let waiting = scope.spawn(|| wait(&runtime, &stream, &event, LONG));
                while late.waiting() == 0 || calls.calls(Method::MarkDone) < 2 {
                    thread::yield_now();
                }
                wait_by_query(&event);
                while !stream.is_done() {}
                late.reach_all();
                waiting.join().unwrap().unwrap_or_else(|error| panic!("{what}: {error}"));
            });
        }
    });
}

#[test]
fn a_task_that_waits_for_a_driver_within_a_limit_leaves_its_worker_to_others() {
    // Goal: the wait is told to the pool, whose only worker it takes. Method: the device is done,
    // and calls back, in a task of another stream.
    finishes(|| {
        let config = Config::builder().cpu_threads(1).build().unwrap();
        let (late, cpu) = (late(), CpuBackend::new(&config).unwrap());
        let backends: [Arc<dyn Backend>; 2] = [cpu, Arc::clone(&late) as _];
        let runtime = Runtime::with_backends(config, backends).unwrap();
        let driver = runtime.stream(Driver::device()).unwrap();
        let event = driver.record_event().unwrap();
        let task = move || event.synchronize_timeout(LONG);
        let waited = enqueue_question(&stream(&runtime), task);
        let other = stream(&runtime);
        let complete = move || {
            while late.waiting() == 0 {
                thread::yield_now();
            }
            while !driver.is_done() {}
            late.reach_all();
        };
        other.enqueue(complete).unwrap();
        enqueue_notice(&other).recv().unwrap();
        waited.recv().unwrap().unwrap();
    });
}
