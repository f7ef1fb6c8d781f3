//! Parked streams: any number of them waits for one event, and no thread does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use crate::{CPU, finishes, setting, workers};

const STREAMS: u64 = 100_000;

const WORKERS: usize = 4;

/// Threads of this process whose names say that they are workers.
fn worker_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("a process has threads");
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    let names = tasks.filter_map(|task| name(task.ok()?).ok());
    names.filter(|name| name.starts_with("accelrt-cpu")).count()
}

#[test]
fn a_hundred_thousand_streams_park_on_one_event_and_need_no_thread() {
    // Goal: a wait costs a continuation. Method: one deferred task holds the event; every stream
    // waits for it, and none has run when it is let go; the last of them ends the test.
    finishes(|| {
        let count = setting("ACCELRT_TEST_STRESS_STREAMS", STREAMS);
        let runtime = workers(WORKERS);
        let source = runtime.stream(CPU).unwrap();
        let (tell, told) = mpsc::channel();
        source.enqueue_deferred(move |completion| tell.send(completion).unwrap()).unwrap();
        let event = source.record_event().unwrap();
        let ran = Arc::new(AtomicU64::new(0));
        let streams: Vec<_> = (0..count)
            .map(|_| {
                let stream = runtime.stream(CPU).unwrap();
                stream.wait_event(&event).unwrap();
                let ran = Arc::clone(&ran);
                // Relaxed, here and below: a count, read behind the synchronise.
                let count = move || _ = ran.fetch_add(1, Ordering::Relaxed);
                stream.enqueue(count).unwrap();
                stream
            })
            .collect();
        assert!(!event.is_done());
        assert_eq!(ran.load(Ordering::Relaxed), 0, "nothing runs before its event");
        // Other tests of this process have workers too, but not a thousandth of a stream each.
        assert!(worker_threads() < 200, "{} workers", worker_threads());
        told.recv().unwrap().finish(Ok(()));
        for stream in &streams {
            stream.synchronize().unwrap();
        }
        assert_eq!(ran.load(Ordering::Relaxed), count);
        drop(streams);
        assert!(runtime.shutdown().is_clean());
    });
}
