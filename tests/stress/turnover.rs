//! Turnover: streams are made and dropped while others work, with tasks and waits still queued.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use accelrt::backend::contract::Backend;
use accelrt::backend::cpu::CpuBackend;
use accelrt::{Config, Runtime, Stream};
use accelrt_testing::fault::{FaultBackend, Method};

use crate::{CPU, finishes, setting};

const THREADS: u64 = 8;

/// Streams that each thread makes.
const STREAMS: u64 = 5_000;

const TASKS_PER_STREAM: u64 = 3;

/// Streams made and dropped one after the other; each waits for the one before, whose last handle
/// goes at that moment.
fn turn_over(runtime: &Runtime, streams: u64, ran: &Arc<AtomicU64>) {
    let mut before: Option<Stream> = None;
    for _ in 0..streams {
        let stream = runtime.stream(CPU).unwrap();
        if let Some(before) = before.take() {
            stream.wait_stream(&before).unwrap();
        }
        for _ in 0..TASKS_PER_STREAM {
            let ran = Arc::clone(ran);
            // Relaxed: a count, read after the end.
            let count = move || _ = ran.fetch_add(1, Ordering::Relaxed);
            stream.enqueue(count).unwrap();
        }
        before = Some(stream);
    }
}

#[test]
fn streams_that_are_made_and_dropped_under_load_run_everything_and_are_all_given_back() {
    // Goal: a stream lives as long as its work, and no longer. Method: a fault layer without a
    // fault counts what is made and given back.
    finishes(|| {
        let streams = setting("ACCELRT_TEST_STRESS_TURNOVER", STREAMS);
        let config = Config::builder().cpu_threads(4).build().unwrap();
        let backend = FaultBackend::new(CpuBackend::new(&config).unwrap());
        let counted: Arc<dyn Backend> = Arc::<FaultBackend>::clone(&backend);
        let runtime = Runtime::with_backends(config, [counted]).unwrap();
        let ran = Arc::new(AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| turn_over(&runtime, streams, &ran));
            }
        });
        runtime.synchronize(CPU).unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), THREADS * streams * TASKS_PER_STREAM);
        assert!(runtime.shutdown().is_clean());
        drop(runtime);
        let made = backend.calls(Method::StreamCreate);
        assert_eq!(made, THREADS * streams);
        assert_eq!(backend.calls(Method::StreamDestroy), made, "streams that ended");
    });
}
