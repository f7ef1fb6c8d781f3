//! Situations that random programs do not reach: first use, very many streams, full queues.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;

use accelrt::{Config, Device, Error, Event, Runtime, RuntimeError, Stream, StreamError};

use crate::gate::Gate;
use crate::hang::Watchdog;
use crate::plain::Plain;
use crate::scheduled::scheduled;

fn runtime(cpu_devices: usize, workers: usize) -> Runtime {
    let config = Config::builder().cpu_devices(cpu_devices).cpu_threads(workers);
    scheduled(Runtime::new(config.build().unwrap()).unwrap())
}

fn dedicated(runtime: &Runtime, device: u8) -> Stream {
    runtime.stream(Device::cpu(device)).unwrap()
}

/// Goal: the first use is safe from any number of threads. Method: eight threads meet at a barrier
/// and ask a fresh runtime for its first streams; over and over.
#[test]
fn the_first_streams_may_be_asked_for_by_eight_threads_at_once() {
    const THREADS: usize = 8;
    let watchdog = Watchdog::new("first use");
    for round in 0..100 {
        watchdog.step(format!("first use, round {round}"));
        let (runtime, barrier) = (runtime(2, 2), Barrier::new(THREADS));
        let tasks = Arc::new(AtomicUsize::new(0));
        let first_use = || {
            barrier.wait();
            let device = Device::cpu(1);
            let default = runtime.default_stream(device).unwrap();
            let pooled = runtime.pooled_stream_with_priority(device, -1).unwrap();
            let dedicated = dedicated(&runtime, 1);
            for stream in [&default, &pooled, &dedicated] {
                let tasks = Arc::clone(&tasks);
                let count = move || {
                    tasks.fetch_add(1, Ordering::Relaxed);
                };
                stream.enqueue(count).unwrap();
            }
            runtime.synchronize(device).unwrap();
            (default, [pooled, dedicated])
        };
        let made: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(first_use)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(tasks.load(Ordering::Relaxed), 3 * THREADS);
        assert!(made.iter().all(|one| one.0 == made[0].0), "there is one default stream");
        let mut ids: Vec<u64> = made.iter().flat_map(|one| one.1.iter().map(Stream::id)).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 2 * THREADS, "no stream is given to two threads");
    }
}

/// Goal: a dropped stream finishes its work, in order. Method: four threads make streams, fill
/// them, tie each to the one before by an event, and drop all handles at once.
#[test]
fn streams_dropped_under_load_finish_their_work_in_order() {
    const STREAMS: usize = 250;
    const TASKS: usize = 8;
    let watchdog = Watchdog::new("streams made and dropped under load");
    let runtime = runtime(2, 2);
    let (next, disorder) = (Mutex::new(Vec::new()), Arc::new(AtomicBool::new(false)));
    thread::scope(|scope| {
        for device in [0_u8, 1, 0, 1] {
            let (runtime, next, disorder) = (&runtime, &next, &disorder);
            let watchdog = &watchdog;
            scope.spawn(move || {
                let count = Arc::new(Plain::default());
                let mut before: Option<Event> = None;
                for number in 0..STREAMS {
                    watchdog.step(format!("device {device}, stream {number}"));
                    let stream = dedicated(runtime, device);
                    if let Some(before) = &before {
                        stream.wait_event(before).unwrap();
                    }
                    for task in 0..TASKS {
                        let (count, disorder) = (Arc::clone(&count), Arc::clone(disorder));
                        let wanted = number * TASKS + task;
                        let run = move || {
                            disorder.fetch_or(count.get() != wanted, Ordering::Relaxed);
                            count.set(wanted + 1);
                        };
                        stream.enqueue(run).unwrap();
                    }
                    before = Some(stream.record_event().unwrap());
                }
                next.lock().unwrap().push((count, before));
            });
        }
    });
    for (count, last) in next.into_inner().unwrap() {
        last.unwrap().synchronize().unwrap();
        assert_eq!(count.get(), STREAMS * TASKS);
    }
    assert!(!disorder.load(Ordering::Relaxed), "each task ran behind the one before");
    assert_eq!(runtime.shutdown().num_cancelled_tasks, 0);
}

/// Goal: producers ahead of their limit are held back, keep their order, and never hang. Method:
/// three of them share a stream that takes 64 tasks; how far they get ahead is counted.
#[test]
fn throttled_producers_keep_their_order_and_stay_near_the_limit() {
    const LIMIT: u64 = 64;
    const PRODUCERS: usize = 3;
    const TASKS: u64 = 4_000;
    let watchdog = Watchdog::new("throttled producers");
    for workers in [1, 2] {
        watchdog.step(format!("throttled producers, {workers} workers"));
        let config =
            Config::builder().stream_task_limit(LIMIT).cpu_threads(workers).build().unwrap();
        let runtime = scheduled(Runtime::new(config).unwrap());
        let stream = dedicated(&runtime, 0);
        let (ran, ahead) = (Arc::new(AtomicU64::new(0)), AtomicU64::new(0));
        let (enqueued, disorder) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
        thread::scope(|scope| {
            for _ in 0..PRODUCERS {
                let (stream, ran, disorder) = (&stream, &ran, &disorder);
                let (enqueued, ahead) = (&enqueued, &ahead);
                scope.spawn(move || {
                    let next = Arc::new(Plain::default());
                    for number in 0..TASKS {
                        let (done, next) = (Arc::clone(ran), Arc::clone(&next));
                        let disorder = Arc::clone(disorder);
                        let run = move || {
                            let is_next = next.get() as u64 == number;
                            next.set(next.get() + 1);
                            disorder.fetch_add(u64::from(!is_next), Ordering::Relaxed);
                            done.fetch_add(1, Ordering::Relaxed);
                        };
                        stream.enqueue(run).unwrap();
                        let before = enqueued.fetch_add(1, Ordering::Relaxed) + 1;
                        let backlog = before.saturating_sub(ran.load(Ordering::Relaxed));
                        ahead.fetch_max(backlog, Ordering::Relaxed);
                    }
                });
            }
        });
        stream.synchronize().unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), TASKS * PRODUCERS as u64);
        assert_eq!(disorder.load(Ordering::Relaxed), 0, "a producer's tasks ran in its order");
        // The limit is looked at once in 64 tasks, and each producer may pass one look of another.
        let most = LIMIT + 64 * (PRODUCERS as u64 + 1);
        let ahead = ahead.load(Ordering::Relaxed);
        assert!(ahead <= most, "{ahead} tasks ahead of a limit of {LIMIT}");
    }
}

/// Goal: nothing is lost or turned around among very many streams that one event resumes. Method:
/// the event is on another device, whose worker a gate holds; one worker parks all of them in turn
/// and resumes them in turn. No thread helps: nobody synchronises.
#[test]
fn twenty_thousand_parked_streams_are_resumed_in_the_order_of_their_waits() {
    const STREAMS: usize = 20_000;
    let _watchdog = Watchdog::new("20,000 parked streams");
    let runtime = runtime(2, 1);
    let source = dedicated(&runtime, 0);
    let gate = Gate::enqueue(&source);
    let event = source.record_event().unwrap();
    let (ran, seen) = mpsc::channel();
    let wait_and_tell = |number: usize| {
        let stream = dedicated(&runtime, 1);
        stream.wait_event(&event).unwrap();
        let ran = ran.clone();
        stream.enqueue(move || ran.send(number).unwrap()).unwrap();
        stream
    };
    let streams: Vec<_> = (0..STREAMS).map(wait_and_tell).collect();
    // The worker takes streams first come, first served: behind this one, all others are parked.
    let (told, is_parked) = mpsc::channel();
    dedicated(&runtime, 1).enqueue(move || told.send(()).unwrap()).unwrap();
    is_parked.recv().unwrap();
    assert!(seen.try_recv().is_err(), "no stream passes an event that is pending");
    assert!(!streams.iter().any(Stream::is_done));
    gate.open();
    assert!(seen.iter().take(STREAMS).eq(0..STREAMS), "resumed out of order");
    runtime.synchronize(Device::cpu(1)).unwrap();
    assert!(streams.iter().all(Stream::is_done));
}

/// Goal: a chain of waits is resumed without recursion. Method: each stream waits for the one
/// before.
#[test]
fn a_long_chain_of_parked_streams_is_resumed_link_by_link() {
    const STREAMS: usize = 2_000;
    let _watchdog = Watchdog::new("a chain of parked streams");
    let runtime = runtime(1, 2);
    let first = dedicated(&runtime, 0);
    let gate = Gate::enqueue(&first);
    let links = Arc::new(Plain::default());
    let (mut before, mut streams) = (first.record_event().unwrap(), Vec::new());
    for number in 0..STREAMS {
        let (stream, links) = (dedicated(&runtime, 0), Arc::clone(&links));
        stream.wait_event(&before).unwrap();
        let link = move || {
            assert_eq!(links.get(), number);
            links.set(number + 1);
        };
        stream.enqueue(link).unwrap();
        before = stream.record_event().unwrap();
        assert!(stream.is_ordered_after(&before));
        streams.push(stream);
    }
    gate.open();
    before.synchronize().unwrap();
    assert_eq!(links.get(), STREAMS);
    assert_eq!(runtime.shutdown().num_cancelled_tasks, 0);
}

/// Goal: tasks may do to their own stream what threads may, short of waiting. Method: a task
/// enqueues past the limit of its stream, and drops the last handle of it.
#[test]
fn a_task_may_overfill_its_own_stream_and_drop_its_last_handle() {
    const TASKS: usize = 1_000;
    let _watchdog = Watchdog::new("a task that overfills its own stream");
    let config = Config::builder().cpu_threads(1).stream_task_limit(64).build().unwrap();
    let runtime = scheduled(Runtime::new(config).unwrap());
    let stream = dedicated(&runtime, 0);
    let (own, (ran, seen)) = (stream.clone(), mpsc::channel());
    let task = move || {
        for number in 0..TASKS {
            let ran = ran.clone();
            own.enqueue(move || ran.send(number).unwrap()).unwrap();
        }
        assert!(matches!(
            own.synchronize(),
            Err(Error::Stream(StreamError::WaitInsideTask { .. }))
        ));
        drop(own);
    };
    stream.enqueue(task).unwrap();
    drop(stream);
    assert!(seen.iter().eq(0..TASKS));
    assert_eq!(runtime.shutdown().num_cancelled_tasks, 0);
}

/// Goal: enqueueing that races with a shutdown runs or reports every task. Method: two threads
/// enqueue until they are refused; every task was run, or cancelled and dropped.
#[test]
fn tasks_that_race_with_a_shutdown_are_run_or_cancelled() {
    struct Counted(Arc<AtomicU64>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let watchdog = Watchdog::new("enqueueing against a shutdown");
    for round in 0..100 {
        watchdog.step(format!("enqueueing against a shutdown, round {round}"));
        let runtime = runtime(1, 2);
        let streams = [dedicated(&runtime, 0), dedicated(&runtime, 0)];
        let (ran, dropped) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let produce = |own: &Stream, other: &Stream| {
            let mut taken = 0;
            loop {
                let (ran, counted) = (Arc::clone(&ran), Counted(Arc::clone(&dropped)));
                let task = move || {
                    ran.fetch_add(1, Ordering::SeqCst);
                    drop(counted);
                };
                match own.enqueue(task) {
                    Ok(()) => taken += 1,
                    Err(Error::Runtime(RuntimeError::ShutDown)) => return taken,
                    Err(other) => panic!("{other}"),
                }
                drop(own.wait_stream(other));
            }
        };
        let taken: u64 = thread::scope(|scope| {
            let one = scope.spawn(|| produce(&streams[0], &streams[1]));
            let two = scope.spawn(|| produce(&streams[1], &streams[0]));
            while ran.load(Ordering::SeqCst) < 100 {
                thread::yield_now();
            }
            runtime.shutdown();
            one.join().unwrap() + two.join().unwrap()
        });
        for stream in &streams {
            while !stream.is_done() {
                thread::yield_now();
            }
        }
        let cancelled = runtime.counters().num_cancelled_tasks;
        assert_eq!(ran.load(Ordering::SeqCst) + cancelled, taken, "run or reported");
        // The two refused tasks were dropped by their producers.
        assert_eq!(dropped.load(Ordering::SeqCst), taken + 2, "dropped once each");
    }
}
