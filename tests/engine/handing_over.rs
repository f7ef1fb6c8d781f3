//! A backend that panics when it is handed a stream: what is queued there fails.
//!
//! No thread waits for ever, and the stream goes on.
#![expect(unsafe_code, reason = "a backend of the test's own")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use accelrt::backend::contract::{
    Address, Backend, DeviceProperties, DoneCallback, Leftover, Mark, MemoryInfo, PointerOwner,
    PriorityRange, StreamHandle, Work,
};
use accelrt::backend::cpu::CpuBackend;
use accelrt::{Config, DeviceKind, DriverError, Error, FailureCause, Result, Runtime, Stream};

use crate::gate::Gate;
use crate::scheduled::scheduled;
use crate::support::{CPU, enqueue_notice, finishes, stream_error, wait_by_query};

/// A cpu that panics instead of taking a stream, as often as it is told.
#[derive(Debug)]
struct PanickingBackend {
    inner: Arc<dyn Backend>,
    submits: AtomicU32,
    resumes: AtomicU32,
}

/// One time less; true while there was one.
fn strikes(times: &AtomicU32) -> bool {
    let fewer = |times: u32| times.checked_sub(1);
    times.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer).is_ok()
}

// SAFETY: the inner backend keeps the contract of whatever is handed on; work that is not taken is
// dropped.
unsafe impl Backend for PanickingBackend {
    hand_on_the_usual!();
    hand_on! {
        runs_on_host() -> bool;
    }
    hand_on_unsafe! {
        when_done(mark: Mark, callback: DoneCallback) -> Result<()>;
    }

    unsafe fn submit(&self, stream: StreamHandle, work: Arc<dyn Work>) {
        assert!(!strikes(&self.submits), "a planned panic");
        // SAFETY: as for this method.
        unsafe { self.inner.submit(stream, work) };
    }

    unsafe fn resume(&self, stream: StreamHandle, work: Arc<dyn Work>) {
        assert!(!strikes(&self.resumes), "a planned panic");
        // SAFETY: as for this method.
        unsafe { self.inner.resume(stream, work) };
    }
}

fn machine(workers: usize) -> (Runtime, Arc<PanickingBackend>, [Stream; 2]) {
    let config = Config::builder().cpu_threads(workers).build().unwrap();
    let (submits, resumes) = (AtomicU32::new(0), AtomicU32::new(0));
    let inner = CpuBackend::new(&config).unwrap() as Arc<dyn Backend>;
    let backend = Arc::new(PanickingBackend { inner, submits, resumes });
    let runtime = Runtime::with_backends(config, [Arc::clone(&backend) as Arc<dyn Backend>]);
    let runtime = scheduled(runtime.unwrap());
    let streams = [(); 2].map(|()| runtime.stream(CPU).unwrap());
    (runtime, backend, streams)
}

#[track_caller]
fn assert_is_panic(error: &Error, of: &str) {
    let Error::Driver(DriverError::Refused { call, message, .. }) = error else {
        panic!("{error}")
    };
    assert_eq!((*call, &**message), (of, "a planned panic"));
}

/// The stream has failed with that, and goes on.
fn assert_failed_and_goes_on(stream: &Stream, of: &str) {
    let error = stream_error(stream.synchronize());
    let FailureCause::Backend(cause) = error.failure() else { panic!("{error}") };
    assert_is_panic(cause, of);
    let ran = enqueue_notice(stream);
    stream.synchronize().unwrap();
    ran.recv().unwrap();
}

#[test]
fn a_panic_at_the_task_that_makes_a_stream_runnable_is_an_error_of_that_call() {
    finishes(|| {
        let (_runtime, backend, [stream, _]) = machine(1);
        for _ in 0..3 {
            backend.submits.store(1, Ordering::SeqCst);
            let refused = stream.enqueue(|| Err::<(), _>("it ran")).unwrap_err();
            assert_is_panic(&refused, "submit");
            assert!(stream.is_done() && stream.is_quiet(), "nothing is queued, and nothing failed");
        }
        let ran = enqueue_notice(&stream);
        ran.recv().unwrap();
    });
}

#[test]
fn a_panic_where_a_worker_gives_a_stream_back_fails_what_is_queued() {
    // Method: the only worker has a full batch done while another stream waits for it.
    finishes(|| {
        let (_runtime, backend, [stream, other]) = machine(1);
        let gate = Gate::shut(&stream);
        for _ in 0..1000 {
            stream.enqueue(|| ()).unwrap();
        }
        let last = stream.record_event().unwrap();
        let ran = enqueue_notice(&other);
        backend.submits.store(1, Ordering::SeqCst);
        gate.open();
        ran.recv().unwrap();
        wait_by_query(&last);
        assert_eq!(backend.submits.load(Ordering::SeqCst), 0, "the stream was given back");
        assert_failed_and_goes_on(&stream, "submit");
    });
}

/// A stream is resumed by a panic, if it has parked in time; else it does what it should.
fn is_resumed_by_a_panic() -> bool {
    let (_runtime, backend, [stream, other]) = machine(2);
    let gate = Gate::shut(&stream);
    let before = enqueue_notice(&other);
    other.wait_event(&stream.record_event().unwrap()).unwrap();
    let ran = enqueue_notice(&other);
    let last = other.record_event().unwrap();
    before.recv().unwrap();
    backend.resumes.store(1, Ordering::SeqCst);
    thread::yield_now();
    gate.open();
    wait_by_query(&last);
    stream.synchronize().unwrap();
    let is_resumed = backend.resumes.swap(0, Ordering::SeqCst) == 0;
    if is_resumed {
        assert!(ran.recv().is_err(), "dropped unrun");
        assert_failed_and_goes_on(&other, "resume");
    }
    is_resumed
}

#[test]
fn a_panic_where_a_stream_is_resumed_fails_what_stood_behind_its_wait() {
    finishes(|| assert!((0..50).any(|_| is_resumed_by_a_panic())));
}
