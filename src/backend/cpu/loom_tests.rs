//! Loom models of the run queue: a worker's sleep loses no wake, and a close loses no work.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread::{self, JoinHandle};

use crate::backend::cpu::run_queue::{NextWork, PushError, RunQueue, WorkerRequest};
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

    /// Submits as the backend does. Returns the worker that this started, if any, for the join.
    fn submit(this: &Arc<Self>, work: usize) -> Option<JoinHandle<()>> {
        match this.queue.push(1, work) {
            Ok(request) => Self::fulfil(this, request),
            Err(PushError::Closed(work)) => {
                this.run(work);
                None
            }
            Err(PushError::Full(_)) => unreachable!("there is room for more"),
        }
    }

    fn fulfil(this: &Arc<Self>, request: WorkerRequest) -> Option<JoinHandle<()>> {
        match request {
            WorkerRequest::None => None,
            WorkerRequest::RetryStart(_) => unreachable!("every start succeeds"),
            WorkerRequest::Wake(sleeper) => {
                sleeper.wake();
                None
            }
            WorkerRequest::Start => {
                let this = Arc::clone(this);
                Some(thread::spawn(move || Self::work(&this)))
            }
        }
    }

    /// A worker's loop, without spinning. In these models, it never has to start another worker.
    fn work(this: &Arc<Self>) {
        let sleeper = Sleeper::new();
        loop {
            match this.queue.take() {
                NextWork::End => return,
                NextWork::Work(work, _, request) => {
                    assert!(Self::fulfil(this, request).is_none());
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

/// Goal: work that arrives while the only worker lingers runs although that worker never takes it.
/// If the submission requests no second worker, the end of the linger must.
#[test]
fn loom_work_that_arrives_during_a_linger_is_run() {
    model_without_fences(Some(3), || {
        let device = Device::new(2);
        assert!(
            matches!(device.queue.push(1, 1), Ok(WorkerRequest::Start)),
            "this thread is the worker"
        );
        assert!(matches!(device.queue.take(), NextWork::Work(1, ..)));
        let producer = {
            let device = Arc::clone(&device);
            thread::spawn(move || Device::submit(&device, 10))
        };
        device.queue.begin_search();
        let started = Device::fulfil(&device, device.queue.stop_searching());
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
/// sleep. Models have no clock, so the timed sleep ends at once.
#[test]
fn loom_the_end_of_a_timed_sleep_races_with_a_wake() {
    model_without_fences(Some(3), || {
        let device = Device::new(1);
        let worker = {
            assert!(
                matches!(device.queue.push(1, 1), Ok(WorkerRequest::Start)),
                "this is the first"
            );
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
