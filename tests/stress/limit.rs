//! The soft limit: producers that are faster than the workers are held back, so memory is bounded.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use accelrt::{Config, Runtime, Stream};

use crate::{CPU, finishes, setting};

/// Tasks queued in one stream above which its producer is held back.
const LIMIT: u64 = 10_000;

const STREAMS: usize = 8;

/// What a task carries: too large for the queue's slot, so that each queued task has memory.
const PAYLOAD_BYTES: usize = 256;

/// What one queued task takes at most: its slot, its payload, and what an allocator adds.
const TASK_BYTES: u64 = 64 + PAYLOAD_BYTES as u64 + 64;

/// A producer looks at the limit once a segment, so it may be ahead of it by as much.
const SLACK_TASKS: u64 = 256;

/// Everything else: threads, their stacks, segments that are kept for the next use.
const OTHER_BYTES: u64 = 32 << 20;

/// How long a task takes: longer than what a waiting producer would help with.
const TASK: Duration = Duration::from_micros(30);

/// When producers stop.
#[derive(Clone, Copy)]
enum Until {
    Tasks(u64),
    Time(Duration),
}

/// Resident memory of this process.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("a process has figures");
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap();
    pages * 4096
}

/// One producer: enqueues until it is told to stop; how many, and how far it was ahead at most.
fn produce(stream: &Stream, stop: &AtomicBool, most: u64) -> (u64, u64) {
    let ran = Arc::new(AtomicU64::new(0));
    let (mut enqueued, mut ahead) = (0, 0);
    // Relaxed, here and below: a flag and counts.
    while enqueued < most && !stop.load(Ordering::Relaxed) {
        let (count, payload) = (Arc::clone(&ran), [1_u8; PAYLOAD_BYTES]);
        let task = move || {
            let started = Instant::now();
            while started.elapsed() < TASK {
                std::hint::spin_loop();
            }
            count.fetch_add(u64::from(payload[0]), Ordering::Relaxed);
        };
        stream.enqueue(task).unwrap();
        enqueued += 1;
        ahead = ahead.max(enqueued - ran.load(Ordering::Relaxed));
    }
    stream.synchronize().unwrap();
    assert_eq!(ran.load(Ordering::Relaxed), enqueued, "every task ran");
    (enqueued, ahead)
}

/// Producers of a stream each, far faster than two workers; how much the memory grew at most.
fn run(limit: u64, until: Until) -> (u64, u64, u64) {
    let config = Config::builder().stream_task_limit(limit).cpu_threads(2).build().unwrap();
    let runtime = Runtime::new(config).unwrap();
    let before = resident_bytes();
    let (stop, results) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let mut peak = before;
    let most = match until {
        Until::Tasks(tasks) => tasks,
        Until::Time(_) => u64::MAX,
    };
    std::thread::scope(|scope| {
        for _ in 0..STREAMS {
            scope.spawn(|| {
                let stream = runtime.stream(CPU).unwrap();
                let result = produce(&stream, &stop, most);
                results.lock().unwrap().push(result);
            });
        }
        let started = Instant::now();
        let is_over = || match until {
            Until::Tasks(_) => results.lock().unwrap().len() == STREAMS,
            Until::Time(time) => started.elapsed() >= time,
        };
        while !is_over() {
            peak = peak.max(resident_bytes());
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
    });
    let results = results.into_inner().unwrap();
    let enqueued = results.iter().map(|(enqueued, _)| enqueued).sum();
    let ahead = results.iter().map(|(_, ahead)| *ahead).max().unwrap();
    (enqueued, ahead, peak.saturating_sub(before))
}

#[test]
fn producers_faster_than_the_workers_are_never_ahead_by_more_than_the_limit() {
    finishes(|| {
        let limit = 500;
        let (enqueued, ahead, _) = run(limit, Until::Tasks(8 * limit));
        assert_eq!(enqueued, 8 * limit * STREAMS as u64);
        assert!(ahead <= limit + SLACK_TASKS, "{ahead} tasks were queued");
        assert!(ahead >= limit, "only {ahead} tasks were queued: the producers were not faster");
    });
}

#[test]
#[ignore = "lasts a minute, alone: make stress"]
#[expect(clippy::print_stdout, reason = "what it came to, for who runs it")]
fn producers_faster_than_the_workers_for_a_minute_stay_inside_the_memory_of_the_limit() {
    let seconds = setting("ACCELRT_TEST_STRESS_SECONDS", 60);
    let (enqueued, ahead, grown) = run(LIMIT, Until::Time(Duration::from_secs(seconds)));
    let bound = STREAMS as u64 * (LIMIT + SLACK_TASKS) * TASK_BYTES + OTHER_BYTES;
    println!(
        "{enqueued} tasks in {seconds} s, at most {ahead} queued in a stream, memory grew by {} \
         of at most {} MiB",
        grown >> 20,
        bound >> 20
    );
    assert!(ahead <= LIMIT + SLACK_TASKS, "{ahead} tasks were queued");
    assert!(ahead >= LIMIT, "only {ahead} tasks were queued: the producers were not faster");
    assert!(grown <= bound, "memory grew by {grown} bytes, more than {bound}");
}
