//! Limits: how much one stream may have queued, who is held back, who never is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use accelrt::backend::contract::Backend;
use accelrt::{Config, ConfigError, Error, Runtime, RuntimeError, Stream};
use accelrt_testing::null::{NullBackend, NullConfig};

use crate::driver_kind::Driver;
use crate::gate::Gate;
use crate::scheduled::scheduled;
use crate::support::{
    CPU, enqueue_notice, enqueue_question, finishes, stream, wait_without_helping,
};
use crate::thread_id::ThreadId;

const LIMIT: u64 = 64;

fn limited() -> Runtime {
    let config = Config::builder().stream_task_limit(LIMIT).cpu_threads(1).build().unwrap();
    scheduled(Runtime::new(config).unwrap())
}

/// A thread that enqueues many more tasks than the limit, counting them; and its number.
fn flood(
    stream: &Stream,
    enqueue: impl Fn(&Stream) -> Result<(), Error> + Send + 'static,
) -> (std::thread::JoinHandle<Result<(), Error>>, ThreadId, Arc<AtomicU64>) {
    let enqueued = Arc::new(AtomicU64::new(0));
    let (tell, told) = std::sync::mpsc::channel();
    let (stream, count) = (stream.clone(), Arc::clone(&enqueued));
    let thread = std::thread::spawn(move || {
        tell.send(ThreadId::current()).unwrap();
        for _ in 0..1_000 {
            enqueue(&stream)?;
            count.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    });
    (thread, told.recv().unwrap(), enqueued)
}

/// The producer stops near the limit (it looks once in 64 tasks) and sleeps.
fn assert_is_held_back<T>(
    thread: &std::thread::JoinHandle<T>,
    producer: ThreadId,
    enqueued: &AtomicU64,
) {
    while enqueued.load(Ordering::SeqCst) < LIMIT / 2 {
        std::thread::yield_now();
    }
    producer.wait_until_asleep();
    let ahead = enqueued.load(Ordering::SeqCst);
    assert!(!thread.is_finished() && ahead <= LIMIT + 64, "{ahead} tasks are queued");
}

#[test]
fn a_producer_that_is_ahead_of_the_limit_is_held_back_until_the_stream_catches_up() {
    // Goal: queued work is bounded. Method: the stream is inside a gate.
    finishes(|| {
        let runtime = limited();
        let stream = stream(&runtime);
        let gate = Gate::shut(&stream);
        let (thread, producer, enqueued) = flood(&stream, |stream| stream.enqueue(|| ()));
        assert_is_held_back(&thread, producer, &enqueued);
        gate.open();
        thread.join().unwrap().unwrap();
        assert_eq!(enqueued.load(Ordering::SeqCst), 1_000);
    });
}

#[test]
fn a_producer_is_held_back_where_the_head_of_a_drivers_stream_waits() {
    // Goal: what a driver's stream has queued is bounded too. Method: a deferred task is under way
    // at its head, so records cannot go past the queue.
    finishes(|| {
        let config = Config::builder().stream_task_limit(LIMIT).build().unwrap();
        let null = NullBackend::new(NullConfig::default());
        let runtime = Runtime::with_backends(config, [null as Arc<dyn Backend>]).unwrap();
        let stream = runtime.stream(Driver::device()).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        stream.enqueue_deferred(move |completion| tell.send(completion).unwrap()).unwrap();
        let head = told.recv().unwrap();
        let (thread, producer, enqueued) = flood(&stream, |stream| stream.record_event().map(drop));
        assert_is_held_back(&thread, producer, &enqueued);
        head.finish(Ok(()));
        thread.join().unwrap().unwrap();
        assert_eq!(enqueued.load(Ordering::SeqCst), 1_000);
    });
}

#[test]
fn a_producer_ahead_of_the_limit_helps_when_it_can() {
    // Goal: held back by working. Method: the only worker is inside a gate elsewhere, so what runs
    // is run by this thread; one task past the limit's next look is enough.
    finishes(|| {
        let runtime = limited();
        let _gate = Gate::shut(&stream(&runtime));
        let stream = stream(&runtime);
        let first = enqueue_question(&stream, ThreadId::current);
        let mut enqueued = 1;
        while runtime.counters().num_helped_tasks == 0 {
            stream.enqueue(|| ()).unwrap();
            enqueued += 1;
            assert!(enqueued <= 2 * LIMIT + 64);
        }
        assert!(enqueued > LIMIT, "not before the limit");
        assert_eq!(first.recv().unwrap(), ThreadId::current());
    });
}

#[test]
fn tasks_are_never_held_back() {
    // Goal: a task that fills its own stream would wait for itself. Method: far more than the
    // limit, on its own stream and on one that is inside a gate behind it.
    finishes(|| {
        let runtime = limited();
        let [own, other] = [stream(&runtime), stream(&runtime)];
        let (inside, beside) = (own.clone(), other.clone());
        let task = move || {
            for _ in 0..10 * LIMIT {
                inside.enqueue(|| ()).unwrap();
                beside.enqueue(|| ()).unwrap();
            }
        };
        enqueue_question(&own, task).recv().unwrap();
        own.synchronize().unwrap();
        other.synchronize().unwrap();
    });
}

#[test]
fn a_producer_that_is_held_back_is_let_go_by_a_shutdown() {
    finishes(|| {
        let config = Config::builder()
            .stream_task_limit(LIMIT)
            .exit_timeout(std::time::Duration::ZERO)
            .build()
            .unwrap();
        let runtime = scheduled(Runtime::new(config).unwrap());
        let stream = stream(&runtime);
        let _gate = Gate::shut(&stream);
        let (thread, _, enqueued) = flood(&stream, |stream| stream.enqueue(|| ()));
        while enqueued.load(Ordering::SeqCst) < LIMIT / 2 {
            std::thread::yield_now();
        }
        runtime.shutdown();
        assert!(matches!(thread.join().unwrap(), Err(Error::Runtime(RuntimeError::ShutDown))));
    });
}

#[test]
fn a_limit_below_the_smallest_is_refused() {
    let refused = Config::builder().stream_task_limit(63).build().unwrap_err();
    assert!(matches!(refused, Error::Config(ConfigError::InvalidSetting { .. })), "{refused}");
}

#[test]
fn a_hundred_thousand_tasks_are_queued_and_run_by_default() {
    finishes(|| {
        let runtime = scheduled(Runtime::new(Config::default()).unwrap());
        let stream = runtime.stream(CPU).unwrap();
        let gate = Gate::shut(&stream);
        let ran = Arc::new(AtomicU64::new(0));
        for _ in 0..100_000 {
            let ran = Arc::clone(&ran);
            stream
                .enqueue(move || {
                    ran.fetch_add(1, Ordering::Relaxed);
                })
                .unwrap();
        }
        let last = enqueue_notice(&stream);
        gate.open();
        last.recv().unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), 100_000);
        wait_without_helping(&stream);
    });
}
