//! Loom models of the engine: no task is left behind, a stream is resumed once, waiters are woken.
//!
//! The models use the engine's own streams. Threads of a model act as the device's workers, and
//! each model ends by running the entries left in the run queue. The cell that tasks write is not
//! atomic, so loom also reports two concurrent consumers, and a read that is not ordered after a
//! task.
#![expect(unsafe_code, reason = "what tasks write has no order of its own")]

use std::sync::Arc;
use std::task::Waker;

use loom::thread::{self, JoinHandle};

use crate::backend::contract::Backend;
use crate::base::device::Device;
use crate::base::error::{FailureCause, StreamFailure};
use crate::base::sync::models::{EVERY, model, model_without_fences};
use crate::base::sync::unmodelled::AtomicBool;
use crate::base::sync::{LockRank, Mutex, Sleeper, UnsafeCell};
use crate::engine::event::Event;
use crate::engine::stream::Stream;
use crate::engine::stream::commands::{Call, WaitFor};
use crate::engine::stream::consumer_lock::{ConsumerLock, Next, Parking};
use crate::engine::stream::core::{StreamCore, TaskContext};
use crate::engine::stream::deferred::Completion;
use crate::engine::stream::enqueue::{Always, Checked};
use crate::engine::stream::failures::Failures;
use crate::engine::stream::internal::Marker;
use crate::engine::stream::interrupt::Interrupt;
use crate::engine::stream::latch::{Latch, Outcome};
use crate::engine::stream::loom_device::{self, HostDevice};
use crate::engine::stream::task::OperationKind;
use crate::engine::stream::task_future::TaskFuture;
use crate::null::{NullBackend, NullConfig};
use crate::queue::{Class, Command};

/// Counts the executed tasks of one stream in a cell that is not atomic.
#[derive(Clone)]
struct Ran(Arc<UnsafeCell<usize>>);

// SAFETY: a stream runs one task at a time. If it runs two, loom's cell fails the model.
unsafe impl Send for Ran {}
// SAFETY: a stream runs one task at a time. If it runs two, loom's cell fails the model.
unsafe impl Sync for Ran {}

impl Ran {
    fn new() -> Self {
        Self(Arc::new(UnsafeCell::new(0)))
    }

    fn add(&self) {
        // SAFETY: a stream runs one task at a time. If it runs two, loom's cell fails the model.
        self.0.with_mut(|count| unsafe { *count += 1 });
    }

    fn count(&self) -> usize {
        // SAFETY: the caller reads after the tasks. If it does not, loom's cell fails the model.
        self.0.with(|count| unsafe { *count })
    }
}

struct Task(Ran);

impl Command<TaskContext> for Task {
    const CLASS: Class = Class::Internal;
    const OPERATION: OperationKind = OperationKind::Internal;

    fn run(self, _context: &mut TaskContext) {
        self.0.add();
    }
}

/// A task that a waiting thread leaves to a worker.
struct Long(Ran);

impl Command<TaskContext> for Long {
    const CLASS: Class = Class::Ffi;
    const OPERATION: OperationKind = OperationKind::Internal;

    fn run(self, _context: &mut TaskContext) {
        self.0.add();
    }
}

/// A stream, its device, and the count of its executed tasks.
#[derive(Clone)]
struct World {
    device: Arc<HostDevice>,
    core: Arc<StreamCore>,
    ran: Ran,
}

impl World {
    fn new() -> Self {
        let device = HostDevice::new();
        let core = device.stream(1);
        Self { device, core, ran: Ran::new() }
    }

    fn enqueue(&self) {
        self.core.enqueue(Task(self.ran.clone()), Checked).unwrap();
    }

    /// Starts a thread of the model that calls `act` with the stream.
    fn spawn<R: 'static>(&self, act: impl FnOnce(&Self) -> R + 'static) -> JoinHandle<R> {
        let world = self.clone();
        thread::spawn(move || act(&world))
    }

    fn assert_all_ran(&self, count: usize) {
        while self.device.work() {}
        assert!(self.core.consumer_lock.parking().is_none(), "the stream is resumed");
        let guard =
            self.core.consumer_lock.enter_to_help().expect("no thread has the stream any more");
        assert_eq!(self.ran.count(), count, "tasks were left behind");
        assert!(guard.leave());
    }
}

/// Goal: a helper that leaves while another thread enqueues leaves no task behind.
#[test]
fn loom_a_helper_that_leaves_leaves_no_work_behind() {
    model(Some(3), || {
        let world = World::new();
        world.enqueue();
        let helper = world.spawn(|world| world.core.help(1, &mut Interrupt::default()).unwrap());
        world.enqueue();
        helper.join().unwrap();
        world.assert_all_ran(2);
    });
}

/// Goal: a worker that finds the queue empty and leaves, while another thread enqueues, leaves no
/// task behind.
#[test]
fn loom_a_worker_that_leaves_leaves_no_work_behind() {
    model(Some(3), || {
        let world = World::new();
        world.enqueue();
        let worker = world.spawn(|world| assert!(world.device.work()));
        world.enqueue();
        worker.join().unwrap();
        world.assert_all_ran(2);
    });
}

/// Goal: a task is not left behind when the run queue drops the stream's entry while the task is
/// enqueued. The entry is not needed, because a waiting thread has executed the stream.
#[test]
fn loom_a_stream_that_a_run_queue_drops_leaves_no_work_behind() {
    model(Some(3), || {
        let world = World::new();
        world.enqueue();
        assert!(world.core.help(1, &mut Interrupt::default()).unwrap(), "its entry is still there");
        let submitter = world.spawn(|world| world.device.drop_unneeded());
        world.enqueue();
        submitter.join().unwrap();
        world.assert_all_ran(2);
    });
}

/// Goal: concurrent helper, worker and producer run every task once and leave none behind.
#[test]
fn loom_helper_worker_and_producer_share_one_stream() {
    model(Some(2), || {
        let world = World::new();
        world.enqueue();
        let worker = world.spawn(|world| world.device.work());
        let helper = world.spawn(|world| world.core.help(1, &mut Interrupt::default()).unwrap());
        world.enqueue();
        worker.join().unwrap();
        helper.join().unwrap();
        world.assert_all_ran(2);
    });
}

/// Goal: a task that a helper leaves, while a worker takes the stream's entry, still runs once.
#[test]
fn loom_a_helper_that_gives_up_leaves_its_work_to_a_worker() {
    model(Some(3), || {
        let world = World::new();
        world.core.enqueue(Long(world.ran.clone()), Checked).unwrap();
        let worker = world.spawn(|world| world.device.work());
        world.core.help(1, &mut Interrupt::default()).unwrap();
        worker.join().unwrap();
        world.assert_all_ran(1);
    });
}

/// Checks that each task runs once. One thread runs a task past the empty queue of a driver's
/// stream, and another thread calls `other`. One slot is left in the queue's segment.
fn run_directly_beside(other: fn(&Arc<StreamCore>, Ran)) {
    model(Some(3), move || {
        let null: Arc<dyn Backend> = NullBackend::new(NullConfig::default());
        let (core, ran) = (loom_device::stream(&null, 1), Ran::new());
        core.enqueue(Task(ran.clone()), Always);
        let beside = {
            let (core, ran) = (Arc::clone(&core), ran.clone());
            thread::spawn(move || other(&core, ran))
        };
        core.enqueue(Task(ran.clone()), Checked).unwrap();
        beside.join().unwrap();
        let guard = core.consumer_lock.enter_to_help().expect("no thread has the stream any more");
        assert_eq!(ran.count(), 3, "tasks were left behind");
        assert!(guard.leave());
    });
}

/// Goal: two threads push tasks past the queue concurrently; each task runs once, on either thread.
#[test]
fn loom_tasks_that_go_past_the_queue_are_run_once() {
    run_directly_beside(|core, ran| {
        core.enqueue(Task(ran), Checked).unwrap();
    });
}

/// Goal: a task that another thread enqueues is not left behind by a task that runs past the queue.
#[test]
fn loom_a_task_that_goes_past_the_queue_leaves_no_work_behind() {
    run_directly_beside(|core, ran| {
        core.enqueue(Task(ran), Always);
    });
}

/// Checks that a thread which sees a task retired also sees the task's write.
fn check_write_is_visible(push: fn(&World)) {
    model_without_fences(EVERY, move || {
        let world = World::new();
        push(&world);
        let worker = world.spawn(|world| world.device.work());
        if world.core.progress.done() >= 1 {
            assert_eq!(world.ran.count(), 1);
        }
        worker.join().unwrap();
    });
}

/// Goal: a task's write is visible when the task is retired. loom reports an unordered read.
#[test]
fn loom_a_retired_tasks_write_is_visible() {
    check_write_is_visible(World::enqueue);
}

/// A marker that writes the cell.
struct MarkedTask(Ran);

impl Command<TaskContext> for MarkedTask {
    const CLASS: Class = Class::Internal;
    const OPERATION: OperationKind = OperationKind::Internal;

    fn run(self, context: &mut TaskContext) {
        self.0.add();
        context.is_marker = true;
    }
}

/// Goal: a marker's write is visible when the marker is retired.
#[test]
fn loom_a_retired_markers_write_is_visible() {
    check_write_is_visible(|world| {
        world.core.enqueue(MarkedTask(world.ran.clone()), Checked).unwrap();
    });
}

/// Goal: a thread that finds a stream over sees the writes of its tasks, so another stream may
/// reuse the memory. Method: the thread that runs the task drops the last reference to the stream.
#[test]
fn loom_an_ended_stream_is_seen_after_its_tasks() {
    model_without_fences(EVERY, || {
        let world = World::new();
        world.enqueue();
        let (progress, ran) = (Arc::clone(&world.core.progress), world.ran.clone());
        let last = thread::spawn(move || {
            assert!(world.device.work());
            drop(world);
        });
        if progress.is_over() {
            assert_eq!(ran.count(), 1);
        }
        last.join().unwrap();
        assert!(progress.is_over());
    });
}

/// Goal: a stream that parks while the awaited task is retired is resumed exactly once, also when
/// another thread enqueues at the same time.
#[test]
fn loom_a_parked_stream_is_resumed_once() {
    model(Some(2), || {
        let world = World::new();
        let source = world.device.stream(2);
        source.enqueue(Marker, Always);
        world.core.enqueue(WaitFor::new(&source, 1), Checked).unwrap();
        let completer = {
            let source = Arc::clone(&source);
            thread::spawn(move || source.help(1, &mut Interrupt::default()).unwrap())
        };
        let producer = world.spawn(World::enqueue);
        world.core.help(1, &mut Interrupt::default()).unwrap();
        completer.join().unwrap();
        producer.join().unwrap();
        world.assert_all_ran(1);
    });
}

/// Goal: a thread that goes to sleep while the marker is retired wakes up. loom reports a sleep
/// without end as a deadlock.
#[test]
fn loom_a_sleeping_thread_is_woken_by_the_marker() {
    model(Some(3), || {
        let world = World::new();
        world.core.enqueue(MarkedTask(world.ran.clone()), Checked).unwrap();
        let worker = world.spawn(|world| world.device.work());
        world.core.wait_retired(1, &mut Interrupt::default()).unwrap();
        assert_eq!(world.ran.count(), 1);
        worker.join().unwrap();
    });
}

/// Goal: an executor's task whose marker is retired during a poll is woken, and with a later waker
/// by that one. loom reports a sleep without end as a deadlock. Method: the first poll has another
/// waker than the last one.
#[test]
fn loom_an_awaiting_task_is_woken_by_the_marker() {
    model(Some(3), || {
        let world = World::new();
        world.core.enqueue(MarkedTask(world.ran.clone()), Checked).unwrap();
        let worker = world.spawn(|world| world.device.work());
        let mut future = TaskFuture::new(&world.core, 1);
        if future.poll(Waker::noop()).is_pending() {
            let sleeper = Sleeper::new();
            while future.poll(&Waker::from(Arc::clone(&sleeper))).is_pending() {
                sleeper.sleep();
            }
        }
        assert_eq!(world.ran.count(), 1);
        drop(future);
        worker.join().unwrap();
    });
}

/// Goal: a deferred task that is finished while its stream parks, and while another thread
/// enqueues, is resumed exactly once.
#[test]
fn loom_a_finish_during_a_parking_resumes_the_stream_once() {
    model(Some(2), || {
        let world = World::new();
        let finisher = Arc::new(Mutex::new(LockRank::Backend, None));
        let started = Arc::clone(&finisher);
        let start = move |completion: Completion| {
            let finish = thread::spawn(move || completion.finish(Ok(())));
            *started.lock() = Some(finish);
        };
        Stream::from_core(Arc::clone(&world.core)).enqueue_deferred(start).unwrap();
        let producer = world.spawn(World::enqueue);
        world.core.help(1, &mut Interrupt::default()).unwrap();
        producer.join().unwrap();
        while world.device.work() {}
        let finisher = finisher.lock().take().expect("the task was started");
        finisher.join().unwrap();
        world.assert_all_ran(1);
    });
}

/// Goal: the log drops a cleared error when no wait can read it any more. Method: the stream clears
/// the error concurrently with the last release.
#[test]
fn loom_a_cleared_error_is_dropped_by_the_last_release() {
    model(EVERY, || {
        let failures = Arc::new(Failures::new());
        failures.retain_cleared();
        let error = StreamFailure::new(Device::cpu(0), 1, None, FailureCause::Unfinished);
        let asker = {
            let failures = Arc::clone(&failures);
            thread::spawn(move || failures.release_cleared())
        };
        failures.open(1, &error);
        failures.clear(2);
        asker.join().unwrap();
        assert_eq!(Arc::strong_count(&error), 1, "only this model has it");
    });
}

/// Goal: an error that a handle has received does not come back. Method: a synchronise that is
/// given up puts the error back while another thread receives it.
#[test]
fn loom_received_error_is_not_put_back() {
    model(Some(2), || {
        let world = World::new();
        let error = StreamFailure::new(Device::cpu(0), 1, None, FailureCause::Unfinished);
        error.set_ticket(1);
        let cleared = Arc::new((Arc::clone(&error), AtomicBool::new(false)));
        let receiver = world.spawn(move |world| world.core.end_received(&error));
        world.core.put_back(cleared);
        receiver.join().unwrap();
        world.device.work();
        assert!(world.core.failures.current().is_none(), "the error came back");
    });
}

/// Goal: a task runs if its thread enqueued it after the failure was marked as received. Method:
/// one thread receives the failure through a handle; another one queries it or receives it too.
#[test]
fn loom_failure_end_is_queued_before_it_is_visible() {
    for receives in [false, true] {
        model(Some(2), move || {
            let world = World::new();
            world.core.enqueue(Call(|| Err::<(), _>("it fails")), Checked).unwrap();
            world.device.work();
            let error = world.core.failures.current().unwrap();
            let receiver = world.spawn({
                let error = Arc::clone(&error);
                move |world| world.core.end_received(&error)
            });
            if receives {
                world.core.end_received(&error);
            }
            let is_ended = !world.core.failures.has_unraised(0);
            let ran = world.ran.clone();
            let later = Call(move || {
                ran.add();
                Ok::<(), &str>(())
            });
            world.core.enqueue(later, Checked).unwrap();
            receiver.join().unwrap();
            world.device.work();
            assert!(is_ended || !receives);
            assert!(!is_ended || world.ran.count() == 1, "a later task was skipped");
        });
    }
}

/// Goal: the next holder of a pooled stream does not see an earlier failure. Method: the pool
/// issues the stream again while a worker runs the failing task.
#[test]
fn loom_reissue_sets_a_racing_failure_aside() {
    model(Some(3), || {
        let world = World::new();
        world.core.enqueue(Call(|| Err::<(), _>("it fails")), Checked).unwrap();
        let worker = world.spawn(|world| world.device.work());
        world.core.reissue();
        worker.join().unwrap();
        world.device.work();
        assert!(world.core.failures.current().is_none(), "it fails the next holder");
    });
}

/// Goal: a task's write is visible to any thread that finds its event done. Method: two threads
/// query the event, and one may read the result that the other published.
#[test]
fn loom_a_done_event_publishes_its_tasks_writes() {
    model_without_fences(Some(2), || {
        let (world, event) = (World::new(), Event::new());
        world.enqueue();
        Stream::from_core(Arc::clone(&world.core)).record(&event).unwrap();
        let worker = world.spawn(|world| world.device.work());
        let look = |world: &World, event: &Event| {
            if event.is_done() {
                assert_eq!(world.ran.count(), 1);
            }
        };
        let asker = {
            let event = event.clone();
            world.spawn(move |world| look(world, &event))
        };
        look(&world, &event);
        asker.join().unwrap();
        worker.join().unwrap();
    });
}

/// Ends a parking; returns 1 when this call ended it, else 0.
fn resume(core: &Arc<StreamCore>, parking: Parking) -> usize {
    usize::from(core.consumer_lock.unpark(parking) == Next::Schedule)
}

/// Goal: of a shutdown and a finish, exactly one resumes the stream; a finish after the shutdown
/// abandoned the latch has no effect.
#[test]
fn loom_a_cancelled_task_and_its_finish_resume_the_stream_once() {
    model(Some(3), || {
        let (world, latch) = (World::new(), Latch::<StreamCore>::new());
        let guard =
            world.core.consumer_lock.enter_to_help().expect("the model's streams begin idle");
        let parking = guard.park();
        assert!(latch.wait(Arc::clone(&world.core), parking));
        let finish = |latch: &Latch<StreamCore>, outcome: Outcome| {
            latch.open(outcome).map_or(0, |(core, parking)| resume(&core, parking))
        };
        let finisher = {
            let latch = Arc::clone(&latch);
            thread::spawn(move || finish(&latch, Ok(())))
        };
        // Acts as the shutdown: resumes the parked stream, and abandons the latch of its task.
        let parking = world.core.consumer_lock.parking();
        let by_shutdown = parking.map_or(0, |parking| resume(&world.core, parking));
        latch.abandon();
        let by_finish = finisher.join().unwrap();
        assert_eq!(by_shutdown + by_finish, 1, "resumptions");
        assert!(world.core.consumer_lock.parking().is_none(), "the stream is resumed");
        assert!(latch.open(Ok(())).is_none() && latch.take().is_none());
    });
}

fn parked() -> (Arc<ConsumerLock<()>>, Parking) {
    let consumer_lock = Arc::new(ConsumerLock::new(()));
    let parking = consumer_lock.enter_to_help().expect("idle").park();
    (consumer_lock, parking)
}

fn unpark(consumer_lock: &Arc<ConsumerLock<()>>, parking: Parking) -> JoinHandle<Next> {
    let consumer_lock = Arc::clone(consumer_lock);
    thread::spawn(move || consumer_lock.unpark(parking))
}

/// Goal: of two concurrent resumptions of one parking, only one schedules the stream.
#[test]
fn loom_of_two_resumptions_of_one_parking_one_counts() {
    model(Some(3), || {
        let (consumer_lock, parking) = parked();
        let both = [unpark(&consumer_lock, parking), unpark(&consumer_lock, parking)];
        let both = both.map(|thread| thread.join().unwrap());
        assert_eq!(both.iter().filter(|next| **next == Next::Schedule).count(), 1);
    });
}

/// Goal: a resumption of one parking does not end the next. Method: one parking is ended twice; the
/// stream parks again before or after the second attempt, which must not end the new parking.
#[test]
fn loom_a_late_resumption_does_not_end_a_later_parking() {
    model(Some(3), || {
        let (consumer_lock, first) = parked();
        assert_eq!(consumer_lock.unpark(first), Next::Schedule);
        let late = unpark(&consumer_lock, first);
        let guard = consumer_lock.enter_from_run_queue().expect("the entry was just taken");
        let second = guard.park();
        assert_eq!(late.join().unwrap(), Next::Nothing, "it came too late");
        assert_eq!(consumer_lock.parking(), Some(second));
        assert_eq!(consumer_lock.unpark(second), Next::Schedule);
    });
}
