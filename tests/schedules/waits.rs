//! Whatever waits goes on: threads, polls, tasks, futures, and threads that wait side by side.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use accelrt::{Config, Device, Error, Event, RuntimeError};
use accelrt_testing::{Schedule, Strategy};

use crate::support::World;
use crate::watchdog::finishes_within;

/// Only a hang lasts as long.
const HANG: Duration = Duration::from_secs(30);

#[test]
fn nothing_runs_until_a_thread_waits_and_a_poll_runs_one_task() {
    let world = World::new(Schedule::new(5), 1);
    (0..10).for_each(|number| world.enqueue(0, number.to_string()));
    assert_eq!(world.told().len(), 0);
    assert!(!world.streams[0].is_done());
    assert_eq!(world.told().len(), 1);
    let event = world.streams[0].record_event().unwrap();
    assert!(!event.is_done() && world.told().len() == 2);
    assert!(format!("{event:?}").contains("is_done: false") && world.told().len() == 2);
    while !event.is_done() {}
    assert_eq!(world.told(), (0..10).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!(world.runtime.counters().num_worker_wakes, 0);
}

#[test]
fn a_stream_that_waited_goes_before_or_behind_what_follows_the_record() {
    for strategy in [Strategy::Random, Strategy::Starve, Strategy::Pct { depth: 2, steps: 10 }] {
        let orders = (0..64).map(|seed| {
            let world = World::new(Schedule::new(seed).strategy(strategy), 2);
            world.enqueue(0, "first");
            let event = world.streams[0].record_event().unwrap();
            world.streams[1].wait_event(&event).unwrap();
            world.enqueue(0, "next");
            world.enqueue(1, "waited");
            world.finish();
            world.told().join(" ")
        });
        let orders: BTreeSet<String> = orders.collect();
        let both = ["first next waited".to_owned(), "first waited next".to_owned()];
        assert_eq!(orders, both.into(), "{strategy:?}");
    }
}

#[test]
fn every_form_of_wait_ends() {
    let world = World::new(Schedule::new(5), 3);
    let count = |least: usize| assert!(world.told().len() >= least, "{:?}", world.told());
    let event = Event::new();
    world.enqueue(0, "a");
    world.streams[0].record(&event).unwrap();
    event.synchronize().unwrap();
    count(1);
    world.enqueue(1, "b");
    world.streams[1].synchronize_timeout(Duration::from_secs(60)).unwrap();
    count(2);
    world.enqueue(2, "c");
    world.runtime.synchronize(Device::cpu(0)).unwrap();
    count(3);
    let buffer = world.runtime.zeros(100, Device::cpu(0)).unwrap();
    buffer.fill(9, &world.streams[2]).unwrap();
    assert_eq!(buffer.read_to_vec().unwrap(), [9; 100]);
    world.enqueue(0, "d");
    world.streams[0].synchronize_unless(&mut || false).unwrap();
    count(4);
    world.streams[1].scope(|scope| scope.enqueue(|| ()).unwrap()).unwrap();
}

#[test]
fn a_wait_with_a_limit_ends_when_nothing_can_run() {
    let world = World::new(Schedule::new(5), 1);
    let (keep, kept) = channel();
    world.streams[0].enqueue_deferred(move |completion| keep.send(completion).unwrap()).unwrap();
    world.enqueue(0, "behind");
    let ended = world.streams[0].synchronize_timeout(Duration::from_millis(20)).unwrap_err();
    assert!(matches!(ended, Error::Runtime(RuntimeError::TimedOut { .. })), "{ended}");
    let completion = kept.recv().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| completion.finish(Ok(()))); // as another library's thread does
        world.streams[0].synchronize().unwrap();
    });
    assert_eq!(world.told(), ["behind"]);
}

#[test]
fn a_task_that_waits_for_another_stream_runs_it_at_any_depth() {
    let world = World::new(Schedule::new(5), 6);
    for stream in 0..5 {
        let (next, ended) = (world.streams[stream + 1].clone(), Arc::new(AtomicUsize::new(0)));
        world.streams[stream]
            .enqueue(move || {
                next.synchronize().unwrap();
                ended.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
    }
    world.enqueue(5, "deepest");
    world.streams[0].synchronize().unwrap();
    assert_eq!(world.told(), ["deepest"]);
}

#[test]
fn a_stream_at_its_limit_is_run_by_the_thread_that_enqueues() {
    let config = Config::builder().stream_task_limit(64).build().unwrap();
    let world = World::with_config(Schedule::new(5), 1, config);
    (0..1_000).for_each(|number| world.enqueue(0, number.to_string()));
    assert!(world.told().len() > 800);
    world.finish();
    assert_eq!(world.told().len(), 1_000);
}

#[test]
fn threads_that_wait_side_by_side_each_get_their_work_in_order() {
    let world = World::new(Schedule::new(5).strategy(Strategy::Starve), 4);
    thread::scope(|scope| {
        for stream in 0..4 {
            let world = &world;
            scope.spawn(move || {
                for round in 0..50 {
                    world.enqueue(stream, format!("{stream}.{round}"));
                    world.streams[stream].synchronize().unwrap();
                }
            });
        }
    });
    let told = world.told();
    for stream in 0..4 {
        let own: Vec<&String> =
            told.iter().filter(|it| it.starts_with(&format!("{stream}."))).collect();
        assert_eq!(
            own,
            (0..50)
                .map(|round| format!("{stream}.{round}"))
                .collect::<Vec<_>>()
                .iter()
                .collect::<Vec<_>>()
        );
    }
}

#[test]
fn a_task_that_blocks_for_another_threads_wait_hangs_no_one() {
    finishes_within(HANG, || {
        let world = World::new(Schedule::new(5), 2);
        let ((open, opened), (enter, entered)) = (channel::<()>(), channel());
        let task = move || {
            enter.send(()).unwrap();
            opened.recv().unwrap();
        };
        world.streams[0].enqueue(task).unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| world.streams[0].synchronize());
            entered.recv().unwrap(); // on the thread that waits
            scope.spawn(|| {
                world.enqueue(1, "beside");
                world.streams[1].synchronize().unwrap();
                open.send(()).unwrap();
            });
            waits.join().unwrap().unwrap();
        });
        assert_eq!(world.told(), ["beside"]);
    });
}

/// Enqueues a task that waits for an event inside.
fn enqueue_wait(world: &World, stream: usize, event: Event) {
    let task = move || event.synchronize().map_err(|error| error.to_string());
    world.streams[stream].enqueue(task).unwrap();
}

#[test]
fn a_task_that_waits_runs_nothing_behind_what_it_waits_for() {
    // Goal: what is legal on workers is under a schedule. Method: behind the awaited event stands a
    // task that waits for the stream of the first one, whose frame is below it on the same stack.
    for seed in 0..50 {
        let world = World::new(Schedule::new(seed), 2);
        world.enqueue(1, "awaited");
        enqueue_wait(&world, 0, world.streams[1].record_event().unwrap());
        enqueue_wait(&world, 1, world.streams[0].record_event().unwrap());
        world.finish();
    }
}

#[test]
fn a_task_that_waits_for_a_parked_stream_runs_only_what_that_one_needs() {
    for seed in 0..50 {
        let world = World::new(Schedule::new(seed), 5);
        for stream in 1..4 {
            world.enqueue(stream, "awaited");
        }
        world.streams[2].wait_stream(&world.streams[3]).unwrap();
        world.streams[1].wait_stream(&world.streams[2]).unwrap();
        enqueue_wait(&world, 0, world.streams[1].record_event().unwrap());
        let behind = world.streams[0].record_event().unwrap();
        for stream in 2..5 {
            enqueue_wait(&world, stream, behind.clone());
        }
        world.finish();
    }
}

/// Counts how often it is woken.
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(feature = "async")]
#[test]
fn a_future_runs_one_task_a_poll_and_asks_for_the_next() {
    let world = World::new(Schedule::new(5), 1);
    (0..3).for_each(|number| world.enqueue(0, number.to_string()));
    let event = world.streams[0].record_event().unwrap();
    let mut future = pin!(event.into_future());
    let woken = Arc::new(Woken(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&woken));
    let mut num_polls = 1;
    while future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
        assert!(woken.0.load(Ordering::Relaxed) >= num_polls);
        num_polls += 1;
        assert!(world.told().len() <= num_polls);
    }
    assert_eq!(world.told().len(), 3);
}

#[test]
fn failures_skip_and_are_raised_as_without_a_schedule() {
    let world = World::new(Schedule::new(5), 2);
    world.streams[0].enqueue(|| Err::<(), _>("it fails")).unwrap();
    world.enqueue(0, "skipped");
    world.streams[1].wait_stream(&world.streams[0]).unwrap();
    world.enqueue(1, "behind a failure");
    let failed = world.streams[1].synchronize().unwrap_err().to_string();
    assert!(failed.contains("it fails"), "{failed}");
    assert!(world.streams[0].synchronize().unwrap_err().to_string().contains("it fails"));
    world.enqueue(0, "runs");
    world.finish();
    assert_eq!(world.told(), ["runs"]);
}

/// True when a poll of another thread runs nothing beside a task that has waited inside.
fn is_alone() -> bool {
    let world = World::new(Schedule::new(5), 3);
    let ((enter, entered), (leave, left)) = (channel(), channel());
    let awaited = world.streams[1].clone();
    let task = move || {
        awaited.enqueue(|| ()).unwrap();
        awaited.synchronize().unwrap(); // a step inside of this task's
        enter.send(()).unwrap();
        left.recv().unwrap();
    };
    world.streams[0].enqueue(task).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| world.streams[0].synchronize().unwrap());
        entered.recv().unwrap();
        world.enqueue(2, "beside");
        let is_done = world.streams[2].is_done();
        leave.send(()).unwrap();
        !is_done
    })
}

#[test]
fn a_task_that_has_waited_inside_goes_on_alone() {
    // A machine that stops for longer than other threads are patient makes an attempt void.
    assert!((0..20).any(|_| is_alone()));
}
