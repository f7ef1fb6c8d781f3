//! Events as futures: what wakes an awaiter, what it is told, and what a poll does not do.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use accelrt::{Config, DriverError, Error, Event, EventFuture, Result, Runtime, RuntimeError};
use accelrt_testing::fault::{Fault, FaultError, Method};
use futures::executor::{LocalPool, block_on};
use futures::future::join_all;
use futures::task::LocalSpawnExt;

use crate::driver_kind::{Driver, with_each_completion};
use crate::gate::Gate;
use crate::scheduled::scheduled;
use crate::support::{
    Journal, enqueue_failure, enqueue_notice, finishes, stream, stream_error, streams,
    wait_by_query, workers,
};
use crate::thread_id::ThreadId;

/// Counts the wakes, and tells of each.
struct Counter {
    wakes: AtomicUsize,
    tell: mpsc::Sender<ThreadId>,
}

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
        let _ = self.tell.send(ThreadId::current()); // a test may listen no more
    }
}

/// A waker, its count and who was told of its wakes.
fn counter() -> (Waker, Arc<Counter>, mpsc::Receiver<ThreadId>) {
    let (tell, told) = channel();
    let counter = Arc::new(Counter { wakes: AtomicUsize::new(0), tell });
    (Waker::from(Arc::clone(&counter)), counter, told)
}

fn poll(future: &mut EventFuture, waker: &Waker) -> Poll<Result<()>> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

#[test]
fn an_awaited_event_is_done_when_its_record_is() {
    finishes(|| {
        let runtime = workers(1);
        let (stream, journal) = (stream(&runtime), Journal::new());
        for number in ["first", "second", "third"] {
            journal.enqueue(&stream, number);
            let event = stream.record_event().unwrap();
            block_on(event.into_future()).unwrap();
            assert_eq!(journal.read().last(), Some(&number));
        }
        block_on(Event::new().into_future()).unwrap(); // never recorded
    });
}

#[test]
fn the_thread_that_completes_the_record_wakes_the_awaiter_once() {
    finishes(|| {
        let runtime = workers(1);
        let stream = stream(&runtime);
        let gate = Gate::enqueue(&stream);
        let worker = gate.wait_until_inside();
        let mut future = stream.record_event().unwrap().into_future();
        let (waker, counter, told) = counter();
        for _ in 0..100 {
            assert!(poll(&mut future, &waker).is_pending());
        }
        assert_eq!(counter.wakes.load(Ordering::Relaxed), 0);
        gate.open();
        assert_eq!(told.recv().unwrap(), worker);
        assert!(matches!(poll(&mut future, &waker), Poll::Ready(Ok(()))));
        stream.synchronize().unwrap();
        assert_eq!(counter.wakes.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn the_waker_of_the_latest_poll_is_woken_alone() {
    finishes(|| {
        let runtime = workers(1);
        let stream = stream(&runtime);
        let gate = Gate::shut(&stream);
        let mut future = stream.record_event().unwrap().into_future();
        let ((early, early_counter, _), (late, _, told)) = (counter(), counter());
        for waker in [&early, &late, &early, &late] {
            assert!(poll(&mut future, waker).is_pending());
        }
        gate.open();
        told.recv().unwrap();
        stream.synchronize().unwrap();
        assert_eq!(early_counter.wakes.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_poll_executes_no_task() {
    // Goal: an executor's thread is not held up by a stream. Method: a stream whose tasks were
    // short is one that a waiting thread executes; every task notes its thread.
    finishes(|| {
        let runtime = workers(1);
        let stream = stream(&runtime);
        for _ in 0..200 {
            stream.enqueue(|| ()).unwrap();
            stream.synchronize().unwrap();
        }
        for _ in 0..50 {
            let (tell, told) = channel();
            stream.enqueue(move || tell.send(ThreadId::current()).unwrap()).unwrap();
            block_on(stream.record_event().unwrap().into_future()).unwrap();
            assert_ne!(told.recv().unwrap(), ThreadId::current());
        }
    });
}

#[test]
fn an_awaiter_is_told_of_its_records_failure_and_ends_no_error() {
    finishes(|| {
        let runtime = workers(1);
        let stream = stream(&runtime);
        let gate = Gate::shut(&stream);
        let before = stream.record_event().unwrap().into_future();
        enqueue_failure(&stream, "awaited");
        let behind = stream.record_event().unwrap();
        gate.open();
        block_on(before).unwrap();
        for _ in 0..2 {
            let raised = stream_error(block_on(behind.clone().into_future()));
            assert!(raised.to_string().contains("awaited"), "{raised}");
        }
        stream_error(stream.synchronize());
    });
}

#[test]
fn a_future_is_of_the_latest_record_when_it_was_made() {
    finishes(|| {
        let runtime = workers(1);
        let (stream, event) = (stream(&runtime), Event::new());
        stream.record(&event).unwrap();
        let mut first = event.clone().into_future();
        let gate = Gate::shut(&stream); // its worker has retired the first record
        stream.record(&event).unwrap();
        let mut second = event.into_future();
        let (waker, _, told) = counter();
        assert!(matches!(poll(&mut first, &waker), Poll::Ready(Ok(()))));
        assert!(poll(&mut second, &waker).is_pending());
        gate.open();
        told.recv().unwrap();
        assert!(matches!(poll(&mut second, &waker), Poll::Ready(Ok(()))));
    });
}

#[test]
fn a_thread_awaits_a_thousand_events_at_once() {
    finishes(|| {
        let runtime = workers(2);
        let streams = streams(&runtime, 8);
        let gates: Vec<_> = streams.iter().map(Gate::enqueue).collect();
        let futures: Vec<_> = (0..1000)
            .map(|number| {
                let stream = &streams[number % 8];
                stream.enqueue(|| ()).unwrap();
                stream.record_event().unwrap().into_future()
            })
            .collect();
        for gate in gates {
            gate.open();
        }
        for outcome in block_on(join_all(futures)) {
            outcome.unwrap();
        }
    });
}

#[test]
fn tasks_of_an_executor_take_turns_at_what_they_await() {
    // Goal: a producer and a consumer need no thread of their own. Method: both run on one pool of
    // this thread, and each awaits the other's events.
    finishes(|| {
        let runtime = workers(2);
        let [producing, consuming] = [(); 2].map(|()| stream(&runtime));
        let (journal, mut pool) = (Journal::new(), LocalPool::new());
        let (give, take) = futures::channel::mpsc::unbounded::<Event>();
        let (produced, consumed) = (journal.clone(), journal.clone());
        let to_produce = async move {
            for _ in 0..50 {
                produced.enqueue(&producing, "produced");
                let event = producing.record_event().unwrap();
                give.unbounded_send(event.clone()).unwrap();
                event.await.unwrap();
            }
        };
        let to_consume = async move {
            let mut take = take;
            while let Some(event) = futures::StreamExt::next(&mut take).await {
                consuming.wait_event(&event).unwrap();
                consumed.enqueue(&consuming, "consumed");
                consuming.record_event().unwrap().await.unwrap();
            }
        };
        pool.spawner().spawn_local(to_produce).unwrap();
        pool.spawner().spawn_local(to_consume).unwrap();
        pool.run();
        let mut ahead = 0;
        for entry in journal.read() {
            ahead += if entry == "produced" { 1 } else { -1 };
            assert!(ahead >= 0, "consumed before it was produced");
        }
        assert_eq!((ahead, journal.read().len()), (0, 100));
    });
}

#[test]
fn a_waker_that_panics_holds_nobody_elses_back() {
    struct Explosive;
    impl Wake for Explosive {
        fn wake(self: Arc<Self>) {
            panic!("a waker that panics");
        }
    }
    finishes(|| {
        let runtime = workers(1);
        let stream = stream(&runtime);
        let gate = Gate::shut(&stream);
        let event = stream.record_event().unwrap();
        let mut futures = [(); 2].map(|()| event.clone().into_future());
        assert!(poll(&mut futures[0], &Waker::from(Arc::new(Explosive))).is_pending());
        let (waker, _, told) = counter();
        assert!(poll(&mut futures[1], &waker).is_pending());
        gate.open();
        told.recv().unwrap();
        enqueue_notice(&stream).recv().unwrap();
    });
}

#[test]
fn a_future_may_be_dropped_and_its_work_goes_on() {
    finishes(|| {
        let runtime = workers(1);
        let (stream, journal) = (stream(&runtime), Journal::new());
        let gate = Gate::shut(&stream);
        journal.enqueue(&stream, "done");
        let event = stream.record_event().unwrap();
        let (waker, counter, _told) = counter();
        let mut future = event.clone().into_future();
        assert!(poll(&mut future, &waker).is_pending());
        drop(future);
        gate.open();
        event.synchronize().unwrap();
        assert_eq!((journal.read(), counter.wakes.load(Ordering::Relaxed)), (vec!["done"], 0));
    });
}

#[test]
fn a_future_moves_between_threads() {
    finishes(|| {
        let runtime = workers(1);
        let stream = stream(&runtime);
        let gate = Gate::shut(&stream);
        let mut future = stream.record_event().unwrap().into_future();
        assert!(poll(&mut future, &counter().0).is_pending());
        let awaiting = thread::spawn(|| block_on(future));
        gate.open();
        awaiting.join().unwrap().unwrap();
    });
}

#[test]
fn a_shutdown_ends_what_is_awaited() {
    finishes(|| {
        let config = Config::builder().cpu_threads(1).exit_timeout(Duration::ZERO).build().unwrap();
        let runtime = scheduled(Runtime::new(config).unwrap());
        let [parked, held] = [(); 2].map(|()| stream(&runtime));
        let gate = Gate::shut(&held);
        parked.wait_stream(&held).unwrap();
        let future = parked.record_event().unwrap().into_future();
        let awaiting = thread::spawn(|| block_on(future));
        let ending = {
            let runtime = runtime.clone();
            thread::spawn(move || runtime.shutdown())
        };
        let outcome = awaiting.join().unwrap();
        assert!(matches!(outcome, Err(Error::Runtime(RuntimeError::ShutDown))), "{outcome:?}");
        gate.open();
        ending.join().unwrap();
    });
}

#[test]
fn a_drivers_event_is_awaited_without_a_blocking_call() {
    with_each_completion(|driver| {
        let stream = driver.stream();
        for event in [Event::new(), Event::timed()] {
            stream.record(&event).unwrap();
            block_on(event.clone().into_future()).unwrap();
            assert!(event.is_done());
        }
        let blocking = [Method::WaitMark, Method::StreamSynchronize];
        assert_eq!(blocking.map(|method| driver.calls.calls(method)), [0, 0]);
    });
}

#[test]
fn what_a_driver_does_not_have_yet_is_awaited_in_two_steps() {
    // Goal: no wake is lost between the stream and the device. Method: the record is behind a task
    // that this test ends.
    with_each_completion(|driver| {
        let (stream, (tell, told)) = (driver.stream(), channel());
        stream.enqueue_deferred(move |completion| tell.send(completion).unwrap()).unwrap();
        let event = stream.record_event().unwrap();
        let mut future = event.clone().into_future();
        assert!(poll(&mut future, &counter().0).is_pending());
        let awaiting = thread::spawn(|| block_on(future));
        told.recv().unwrap().finish(Ok(()));
        awaiting.join().unwrap().unwrap();
        assert!(event.is_done());
    });
}

#[test]
fn an_awaiter_is_told_that_a_device_is_lost_or_refuses() {
    finishes(|| {
        for (method, error) in [
            (Method::MarkDone, FaultError::DeviceLost),
            (Method::WhenDone, FaultError::DeviceLost),
            (Method::WhenDone, FaultError::Driver),
        ] {
            let driver = Driver::slow(100);
            let event = driver.stream().record_event().unwrap();
            driver.calls.plan(Fault::always(method, error));
            let outcome = block_on(event.into_future());
            assert!(matches!(outcome, Err(Error::Driver(_))), "{method:?}: {outcome:?}");
            if matches!(error, FaultError::DeviceLost) {
                let is_lost = matches!(outcome, Err(Error::Driver(DriverError::DeviceLost { .. })));
                assert!(is_lost, "{method:?}: {outcome:?}");
            }
        }
    });
}

#[test]
fn a_device_that_is_lost_while_it_is_awaited_raises() {
    // Goal: a lost device calls back too, and its work is not done. Method: the null device calls
    // back at once, so the question behind the callback is the second one.
    finishes(|| {
        let driver = Driver::slow(100);
        let event = driver.stream().record_event().unwrap();
        driver.calls.plan(Fault::nth(Method::MarkDone, 2, FaultError::DeviceLost));
        let outcome = block_on(event.into_future());
        let is_lost = matches!(outcome, Err(Error::Driver(DriverError::DeviceLost { .. })));
        assert!(is_lost, "{outcome:?}");
    });
}

#[test]
fn a_done_record_is_ready_at_the_first_poll() {
    finishes(|| {
        let runtime = workers(1);
        let event = stream(&runtime).record_event().unwrap();
        wait_by_query(&event);
        let (waker, counter, _told) = counter();
        assert!(matches!(poll(&mut event.into_future(), &waker), Poll::Ready(Ok(()))));
        assert_eq!(counter.wakes.load(Ordering::Relaxed), 0);
    });
}
