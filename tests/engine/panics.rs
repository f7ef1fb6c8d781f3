//! A backend that panics: the task's stream fails, is retired, and no thread waits for ever.
//!
//! Method: each call that a task makes of its backend panics once, where the enqueuing thread runs
//! the task, where a worker does, and where a thread that waits does. A hang fails by name.
#![expect(unsafe_code, reason = "launches a kernel")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use accelrt::backend::cpu::CpuBackend;
use accelrt::{Buffer, Completion, Config, Event, FailureCause, ProgramSource, Runtime, Stream};
use accelrt_testing::fault::{Fault, FaultBackend, FaultError, Method};
use accelrt_testing::null::ResourceCounts;

use crate::driver_kind::Driver;
use crate::gate::Gate;
use crate::scheduled::scheduled;
use crate::support::{
    CPU, enqueue_failure, finishes, stream, stream_error, wait_by_query, workers,
};

/// What tasks use.
struct Things {
    stream: Stream,
    other: Stream,
    buffers: [Buffer; 2],
}

/// Enqueues tasks of which the last one makes the call, and the others do not.
type Enqueue = fn(&Runtime, &Things);

const COPY: (Method, Enqueue) = (Method::Copy, |_, it| {
    it.buffers[0].copy_from(&it.buffers[1], &it.stream).unwrap();
});
const FILL: (Method, Enqueue) = (Method::Fill, |_, it| {
    it.buffers[0].fill(1, &it.stream).unwrap();
});
const TIMED_RECORD: (Method, Enqueue) = (Method::Mark, |_, it| {
    it.stream.record(&Event::timed()).unwrap();
});
const RECORD: (Method, Enqueue) = (Method::Mark, |_, it| {
    it.stream.record(&Event::new()).unwrap();
});
/// The call is made when the wait is asked whether it is ready.
const WAIT: (Method, Enqueue) = (Method::StreamWait, |_, it| {
    it.stream.wait_event(&it.other.record_event().unwrap()).unwrap();
});
/// The call is made when the last record is retired: marks that pile up are asked for.
const RECORDS: (Method, Enqueue) = (Method::MarkDone, |_, it| {
    for _ in 0..64 {
        it.stream.record(&Event::new()).unwrap();
    }
});
const LAUNCH: (Method, Enqueue) = (Method::KernelsLaunch, |runtime, it| {
    let text = "kernel void clear(global float* values) { values[get_global_id(0)] = 0; }";
    let program = runtime.compile(it.stream.device(), ProgramSource::Text(text), "").unwrap();
    let (kernel, buffer) = (program.kernel("clear").unwrap(), &it.buffers[0]);
    // SAFETY: 16 floats are what the buffer has.
    unsafe { it.stream.launch_kernel(&kernel, &[buffer.into()], &[16], None) }.unwrap();
});
const OF_DRIVERS: [(Method, Enqueue); 7] =
    [COPY, FILL, TIMED_RECORD, RECORD, WAIT, RECORDS, LAUNCH];

impl Things {
    fn new(runtime: &Runtime, [stream, other]: [Stream; 2]) -> Self {
        let buffers = [(); 2].map(|()| runtime.zeros(64, stream.device()).unwrap());
        runtime.synchronize(stream.device()).unwrap();
        Self { stream, other, buffers }
    }

    /// Has the last of the tasks panic, and sees every way to wait for the stream end.
    fn meet(
        &self,
        runtime: &Runtime,
        faults: &FaultBackend,
        (method, enqueue): (Method, Enqueue),
        let_go: impl FnOnce(),
    ) {
        faults.plan(Fault::nth(method, 1, FaultError::Panic));
        enqueue(runtime, self);
        let behind = Event::new();
        self.stream.record(&behind).unwrap();
        let sleeping = {
            let behind = behind.clone();
            thread::spawn(move || behind.synchronize())
        };
        let_go();
        stream_error(sleeping.join().unwrap());
        assert_eq!(faults.failures(method), 1, "{method}");
        wait_by_query(&behind); // not before: it makes calls as well
        let error = stream_error(self.stream.synchronize());
        let FailureCause::Panicked(text) = error.failure() else { panic!("{error}") };
        assert_eq!(*text, format!("a planned fault of {method}"));
        self.stream.synchronize().unwrap(); // the error was told, and the stream goes on
        enqueue(runtime, self);
        self.stream.synchronize().unwrap();
    }
}

/// Holds a stream until the completion is finished or dropped.
fn hold(stream: &Stream) -> Completion {
    let (tell, told) = mpsc::channel();
    stream.enqueue_deferred(move |completion| drop(tell.send(completion))).unwrap();
    told.recv().unwrap()
}

/// A driver's device that is done after some questions, and one task after the other on it.
fn meet_on_driver(task: (Method, Enqueue), is_queued: bool) {
    let driver = Driver::slow(3);
    let things = Things::new(&driver.runtime, [driver.stream(), driver.stream()]);
    let held = is_queued.then(|| hold(&things.stream));
    let let_go = || {
        if let Some(held) = held {
            held.finish(Ok(()));
        }
    };
    things.meet(&driver.runtime, &driver.calls, task, let_go);
    drop(things);
    assert!(driver.runtime.shutdown().is_clean(), "{}", task.0);
    let Driver { runtime, null, calls } = driver;
    drop((runtime, calls));
    if !is_queued {
        // The thread that resumes streams may hold one a little longer.
        assert_eq!(null.resource_counts(), ResourceCounts::default(), "{}", task.0);
    }
}

#[test]
fn a_driver_that_panics_where_a_task_is_enqueued_fails_its_stream_and_hangs_no_thread() {
    finishes(|| OF_DRIVERS.into_iter().for_each(|task| meet_on_driver(task, false)));
}

#[test]
fn a_driver_that_panics_behind_a_stream_that_waited_fails_it_and_hangs_no_thread() {
    finishes(|| OF_DRIVERS.into_iter().for_each(|task| meet_on_driver(task, true)));
}

/// A cpu device with one worker.
fn on_cpu() -> (Runtime, Arc<FaultBackend>, Things) {
    let config = Config::builder().cpu_threads(1).build().unwrap();
    let faults = FaultBackend::new(CpuBackend::new(&config).unwrap());
    let backend = Arc::<FaultBackend>::clone(&faults) as _;
    let runtime = scheduled(Runtime::with_backends(config, [backend]).unwrap());
    let streams = [(); 2].map(|()| runtime.stream(CPU).unwrap());
    let things = Things::new(&runtime, streams);
    (runtime, faults, things)
}

#[test]
fn a_backend_that_panics_on_a_worker_fails_the_stream_and_the_worker_goes_on() {
    finishes(|| {
        for task in [COPY, FILL, TIMED_RECORD] {
            let (runtime, faults, things) = on_cpu();
            let gate = Gate::shut(&things.stream);
            things.meet(&runtime, &faults, task, || gate.open());
            assert!(runtime.shutdown().is_clean(), "{}", task.0);
        }
    });
}

#[test]
fn a_backend_that_panics_where_a_thread_may_execute_what_it_waits_for_fails_the_stream() {
    finishes(|| {
        for (method, enqueue) in [COPY, FILL, TIMED_RECORD] {
            let (runtime, faults, things) = on_cpu();
            faults.plan(Fault::nth(method, 1, FaultError::Panic));
            enqueue(&runtime, &things);
            let behind = things.stream.record_event().unwrap();
            let error = stream_error(behind.synchronize());
            assert!(matches!(error.failure(), FailureCause::Panicked(_)), "{error}");
            stream_error(things.stream.synchronize());
            enqueue(&runtime, &things);
            things.stream.synchronize().unwrap();
        }
    });
}

#[test]
fn an_event_whose_record_panics_is_complete_and_failed() {
    finishes(|| {
        for new in [Event::new, Event::timed] {
            let (driver, event) = (Driver::slow(3), new());
            let stream = driver.stream();
            driver.calls.plan(Fault::nth(Method::Mark, 1, FaultError::Panic));
            stream.record(&event).unwrap();
            wait_by_query(&event);
            stream_error(event.synchronize());
            stream_error(stream.synchronize());
            stream.record(&event).unwrap();
            wait_by_query(&event);
            event.synchronize().unwrap();
        }
    });
}

#[test]
fn a_driver_that_panics_when_it_is_to_tell_another_kind_is_asked_again() {
    finishes(|| {
        let driver = Driver::slow(50);
        driver.calls.plan(Fault::nth(Method::WhenDone, 1, FaultError::Panic));
        let cpu = driver.runtime.stream(CPU).unwrap();
        let on_host = driver.runtime.empty(64, CPU).unwrap();
        let there = driver.runtime.empty(64, Driver::device()).unwrap();
        there.copy_from(&on_host, &driver.stream()).unwrap();
        let filled = on_host.fill(1, &cpu).unwrap();
        cpu.synchronize().unwrap();
        assert!(filled.is_done());
        assert_eq!(driver.calls.failures(Method::WhenDone), 1);
    });
}

#[test]
fn a_copy_of_borrowed_memory_ends_before_its_caller_goes_on_whatever_panics() {
    // Goal: as the end of a `std::thread::scope`. Method: the wait for the copy fails, or panics,
    // and so does the next one, after which the device still works.
    finishes(|| {
        for first in [FaultError::Driver, FaultError::Panic] {
            let driver = Driver::slow(u32::MAX);
            let stream = driver.stream();
            let buffer = driver.runtime.empty(64, Driver::device()).unwrap();
            let copied = driver.calls.calls(Method::StreamSynchronize);
            driver.calls.plan(Fault::nth(Method::WaitMark, 1, first));
            driver.calls.plan(Fault::nth(Method::StreamSynchronize, 1, FaultError::Panic));
            let mut bytes = [0; 64];
            let copy = AssertUnwindSafe(|| buffer.copy_to_slice(&mut bytes, &stream));
            let outcome = catch_unwind(copy);
            assert_eq!(outcome.is_err(), first == FaultError::Panic, "{outcome:?}");
            assert!(!matches!(outcome, Ok(Ok(()))), "the wait was refused");
            let waits = driver.calls.calls(Method::StreamSynchronize) - copied;
            assert_eq!(waits, 2, "the device was waited for, behind the panic");
        }
    });
}

/// Enqueues a copy that fails.
fn fail(driver: &Driver, stream: &Stream) {
    let buffers = [(); 2].map(|()| driver.runtime.empty(64, Driver::device()).unwrap());
    driver.calls.plan(Fault::nth(Method::Copy, 1, FaultError::Driver));
    buffers[0].copy_from(&buffers[1], stream).unwrap();
    driver.calls.clear();
}

#[test]
fn an_error_that_a_synchronise_has_ended_when_it_panics_is_raised_by_the_next_one() {
    finishes(|| {
        let driver = Driver::slow(3);
        let streams = [driver.stream(), driver.stream()];
        let of_device = || driver.runtime.synchronize(Driver::device());
        // Of the streams of the device one after the other panics.
        for call in 1..=2 {
            for wait in [&of_device as &dyn Fn() -> _, &|| streams[0].synchronize()] {
                for stream in &streams {
                    fail(&driver, stream);
                }
                driver.calls.plan(Fault::nth(Method::StreamSynchronize, call, FaultError::Panic));
                let outcome = catch_unwind(AssertUnwindSafe(wait));
                driver.calls.clear();
                let is_ended = outcome.is_ok(); // a single stream is waited for once
                assert!(call > 1 || !is_ended);
                let raised = [0, 1].map(|which: usize| streams[which].synchronize().is_err());
                assert_eq!(raised, [!is_ended, true]);
            }
        }
    });
}

#[test]
fn a_panic_in_a_wait_for_a_device_loses_no_error_of_a_dropped_stream() {
    // Goal: an error that the wait took stays with the device. Method: two streams are busy on
    // workers, so the wait blocks, and its check for an interrupt panics.
    finishes(|| {
        let runtime = workers(2);
        let failed = stream(&runtime);
        let id = failed.id();
        enqueue_failure(&failed, "broken");
        drop(failed);
        while runtime.stream_by_id(CPU, id).is_ok() {
            thread::yield_now();
        }
        let busy = [stream(&runtime), stream(&runtime)];
        let gates = busy.each_ref().map(Gate::shut);
        let wait = || runtime.synchronize_unless(CPU, &mut || panic!("instead of an answer"));
        catch_unwind(AssertUnwindSafe(wait)).unwrap_err();
        gates.into_iter().for_each(Gate::open);
        assert!(stream_error(runtime.synchronize(CPU)).to_string().contains("broken"));
        runtime.synchronize(CPU).unwrap();
    });
}
