//! Loom models of the run queue: no wake is lost when a worker goes to sleep, no work at the close.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread::{self, JoinHandle};

use crate::backend::cpu::run_queue::{Help, NextWork, PushError, RunQueue};
use crate::base::sync::Sleeper;
use crate::base::sync::models::model_without_fences;

struct Device {
    queue: RunQueue<usize>,
    ran: AtomicUsize,
}

impl Device {
    fn new(workers: usize) -> Arc<Self> {
        Arc::new(Self { queue: RunQueue::new(workers), ran: AtomicUsize::new(0) })
    }

    fn run(&self, work: usize) {
        self.ran.fetch_add(work, Ordering::SeqCst);
    }

    /// Submits as the backend does. Returns the worker that the submission started, for the join.
    fn submit(this: &Arc<Self>, work: usize) -> Option<JoinHandle<()>> {
        match this.queue.push(1, work) {
            Ok(help) => Self::provide(this, help),
            Err(PushError::Closed(work)) => {
                this.run(work);
                None
            }
            Err(PushError::Full(_)) => unreachable!("there is room for more"),
        }
    }

    fn provide(this: &Arc<Self>, help: Help) -> Option<JoinHandle<()>> {
        match help {
            Help::None => None,
            Help::RetryStart(_) => unreachable!("every start succeeds"),
            Help::Wake(sleeper) => {
                sleeper.wake();
                None
            }
            Help::Start => {
                let this = Arc::clone(this);
                Some(thread::spawn(move || Self::work(&this)))
            }
        }
    }

    /// A worker's loop, without spinning. The models' limits leave it no worker to start.
    fn work(this: &Arc<Self>) {
        let sleeper = Sleeper::new();
        loop {
            match this.queue.take() {
                NextWork::End => return,
                NextWork::Work(work, _, help) => {
                    assert!(Self::provide(this, help).is_none());
                    this.run(work);
                    this.queue.begin_search();
                }
                NextWork::Nothing => {
                    if this.queue.begin_sleep(&sleeper) {
                        sleeper.sleep();
                    }
                }
            }
        }
    }

    fn close(&self) {
        for sleeper in self.queue.close() {
            sleeper.wake();
        }
    }
}

/// Goal: the worker runs work that arrives while it goes to sleep. The model closes the queue only
/// after the work has run, so loom reports a lost wake as a deadlock.
#[test]
fn loom_no_wake_is_lost_at_the_idle_edge() {
    model_without_fences(Some(3), || {
        let device = Device::new(1);
        let worker = Device::submit(&device, 1).expect("the first work starts the worker");
        assert!(Device::submit(&device, 10).is_none(), "one worker is the limit");
        while device.ran.load(Ordering::SeqCst) != 11 {
            thread::yield_now();
        }
        device.close();
        worker.join().unwrap();
    });
}

/// Goal: work submitted during the shutdown runs once, on a worker or on the submitting thread.
#[test]
fn loom_a_shutdown_loses_no_work() {
    model_without_fences(Some(3), || {
        let device = Device::new(1);
        let worker = Device::submit(&device, 1);
        let closer = {
            let device = Arc::clone(&device);
            thread::spawn(move || device.close())
        };
        let late = Device::submit(&device, 10);
        closer.join().unwrap();
        for worker in worker.into_iter().chain(late) {
            worker.join().unwrap();
        }
        assert_eq!(device.ran.load(Ordering::SeqCst), 11);
    });
}

/// Goal: work that arrives while the only worker lingers wakes no other worker. The worker runs
/// the new work even if it first continues with its current work.
#[test]
fn loom_work_that_arrives_during_a_linger_is_run() {
    model_without_fences(Some(3), || {
        let device = Device::new(2);
        assert!(matches!(device.queue.push(1, 1), Ok(Help::Start)), "this thread is the worker");
        assert!(matches!(device.queue.take(), NextWork::Work(1, ..)));
        let producer = {
            let device = Arc::clone(&device);
            thread::spawn(move || Device::submit(&device, 10))
        };
        device.queue.begin_search();
        let started = Device::provide(&device, device.queue.stop_searching());
        while device.ran.load(Ordering::SeqCst) != 10 {
            thread::yield_now();
        }
        device.close();
        for worker in producer.join().unwrap().into_iter().chain(started) {
            worker.join().unwrap();
        }
    });
}

/// Goal: a wake that races with the end of a timed sleep loses no work and does not end the next
/// sleep. The timed sleep ends at once: models have no clock.
#[test]
fn loom_the_end_of_a_timed_sleep_races_with_a_wake() {
    model_without_fences(Some(3), || {
        let device = Device::new(1);
        let worker = {
            assert!(matches!(device.queue.push(1, 1), Ok(Help::Start)), "this is the first");
            let device = Arc::clone(&device);
            thread::spawn(move || {
                assert!(matches!(device.queue.take(), NextWork::Work(1, ..)));
                device.run(1);
                device.queue.begin_search();
                let sleeper = Sleeper::new();
                if device.queue.begin_sleep(&sleeper) && !device.queue.end_sleep(&sleeper) {
                    sleeper.sleep();
                }
                Device::work(&device);
            })
        };
        assert!(Device::submit(&device, 10).is_none(), "one worker is the limit");
        while device.ran.load(Ordering::SeqCst) != 11 {
            thread::yield_now();
        }
        device.close();
        worker.join().unwrap();
    });
}
