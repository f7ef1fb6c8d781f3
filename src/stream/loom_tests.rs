//! Loom models of a stream: nothing left behind, resumed once, woken in time.
//!
//! The models drive the production queue, turnstile, progress, waiters and gates. A run queue is a
//! number here: how many entries the stream has in it. At the end the model is the worker that
//! serves them.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::error::FailureCause;
use crate::frontier::Progress;
use crate::queue::{Class, Command, Front, Receiver, Sender, channel};
use crate::stream::gate::Gate;
use crate::stream::turnstile::{Next, Parking, Pass, Turnstile};
use crate::stream::waiters::{Waiter, Waiters};
use crate::sync::Sleeper;

/// Explores `test` with up to `preemptions` forced switches of threads.
fn model(preemptions: usize, test: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(test);
}

struct Task;

impl Command<usize> for Task {
    const CLASS: Class = Class::Own;

    fn run(self, ran: &mut usize) {
        *ran += 1;
    }
}

struct Consumer {
    receiver: Receiver<usize>,
    ran: usize,
}

/// A stream reduced to who is responsible for it.
struct Stream {
    sender: Sender<usize>,
    turnstile: Turnstile<Consumer>,
    entries: AtomicUsize,
}

impl Stream {
    fn new() -> Arc<Self> {
        let (sender, receiver) = channel();
        let turnstile = Turnstile::new(Consumer { receiver, ran: 0 });
        Arc::new(Self { sender, turnstile, entries: AtomicUsize::new(0) })
    }

    fn schedule(&self, next: Next) {
        if next == Next::Schedule {
            let before = self.entries.fetch_add(1, Ordering::SeqCst);
            assert_eq!(before, 0, "a stream has one entry in the run queue");
        }
    }

    fn enqueue(&self) {
        self.sender.push(Task);
        self.schedule(self.turnstile.schedule_if_idle());
    }

    /// Runs up to `until` tasks in all; true when a producer was between claim and publication.
    fn drain(consumer: &mut Consumer, until: u64) -> bool {
        while consumer.receiver.consumed() < until {
            match consumer.receiver.front() {
                Front::Ready(entry) => entry.run(&mut consumer.ran),
                Front::Empty => return false,
                Front::Unpublished => return true,
            }
        }
        false
    }

    fn leave(&self, pass: Pass<'_, Consumer>, is_unpublished: bool) {
        if is_unpublished {
            return self.schedule(pass.leave_with_work());
        }
        let consumed = pass.receiver.consumed();
        if pass.leave() && self.sender.pushed() != consumed {
            self.schedule(self.turnstile.schedule_if_idle());
        }
    }

    fn help(&self, until: u64) {
        if let Some(mut pass) = self.turnstile.enter_to_help() {
            let is_unpublished = Self::drain(&mut pass, until);
            self.leave(pass, is_unpublished);
        }
    }

    /// A worker takes the entry, if there is one.
    fn work(&self) -> bool {
        let taken = self
            .entries
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1));
        if taken.is_err() {
            return false;
        }
        if let Some(mut pass) = self.turnstile.enter_from_run_queue() {
            let is_unpublished = Self::drain(&mut pass, u64::MAX);
            self.leave(pass, is_unpublished);
        }
        true
    }

    /// As `enqueue` on a driver kind: past the queue where that is empty.
    fn bring(&self) {
        let Some(mut pass) = self.turnstile.enter_to_help() else { return self.enqueue() };
        let is_taken = pass.receiver.take_place().is_some();
        pass.ran += usize::from(is_taken);
        self.leave(pass, false);
        if !is_taken {
            self.enqueue();
        }
    }

    fn assert_all_ran(&self, count: usize) {
        while self.work() {}
        let pass = self.turnstile.enter_to_help().expect("nobody has the stream any more");
        assert_eq!(pass.ran, count, "tasks were left behind");
        pass.leave();
    }
}

/// Goal: a helper that leaves while somebody enqueues leaves nothing behind.
#[test]
fn loom_a_helper_that_leaves_leaves_no_work_behind() {
    model(3, || {
        let stream = Stream::new();
        stream.enqueue();
        let helper = {
            let stream = Arc::clone(&stream);
            thread::spawn(move || stream.help(1))
        };
        stream.enqueue();
        helper.join().unwrap();
        stream.assert_all_ran(2);
    });
}

/// Goal: a worker that finds the queue empty and leaves, while somebody enqueues, leaves nothing
/// behind: the idle edge of a stream.
#[test]
fn loom_a_worker_that_leaves_leaves_no_work_behind() {
    model(3, || {
        let stream = Stream::new();
        stream.enqueue();
        let worker = {
            let stream = Arc::clone(&stream);
            thread::spawn(move || assert!(stream.work()))
        };
        stream.enqueue();
        worker.join().unwrap();
        stream.assert_all_ran(2);
    });
}

/// A task is brought past an empty queue while another thread does something with the stream; each
/// task runs once. One place is left before a seam.
fn bring_beside(other: fn(&Arc<Stream>)) {
    model(3, move || {
        let stream = Stream::new();
        stream.enqueue();
        assert!(stream.work());
        let beside = {
            let stream = Arc::clone(&stream);
            thread::spawn(move || other(&stream))
        };
        stream.bring();
        beside.join().unwrap();
        stream.assert_all_ran(3);
    });
}

/// Goal: of two threads that bring tasks past the queue at once, each has its task run once, by
/// itself or by the other.
#[test]
fn loom_tasks_that_go_past_the_queue_are_run_once() {
    bring_beside(|stream| stream.bring());
}

/// Goal: a task that goes past the queue leaves nothing behind that somebody enqueues meanwhile.
#[test]
fn loom_a_task_that_goes_past_the_queue_leaves_no_work_behind() {
    bring_beside(|stream| stream.enqueue());
}

/// Goal: helper, worker and producer at once run every task once and leave nothing behind.
#[test]
fn loom_helper_worker_and_producer_share_one_stream() {
    model(2, || {
        let stream = Stream::new();
        stream.enqueue();
        let worker = {
            let stream = Arc::clone(&stream);
            thread::spawn(move || stream.work())
        };
        let helper = {
            let stream = Arc::clone(&stream);
            thread::spawn(move || stream.help(u64::MAX))
        };
        stream.enqueue();
        worker.join().unwrap();
        helper.join().unwrap();
        stream.assert_all_ran(2);
    });
}

/// Goal: a helper that gives up with work left, while a worker takes the stream's entry, leaves the
/// work to one of the two.
#[test]
fn loom_a_helper_that_gives_up_leaves_its_work_to_a_worker() {
    model(3, || {
        let stream = Stream::new();
        stream.enqueue();
        let worker = {
            let stream = Arc::clone(&stream);
            thread::spawn(move || stream.work())
        };
        if let Some(pass) = stream.turnstile.enter_to_help() {
            stream.schedule(pass.leave_with_work());
        }
        worker.join().unwrap();
        stream.assert_all_ran(1);
    });
}

/// Parks `stream` until `source` has retired the marker 1, as the engine does it.
fn park(stream: &Arc<Stream>, source: &Source) {
    let pass = stream.turnstile.enter_to_help().expect("the model's streams begin idle");
    let parking = pass.park();
    let waiter = Waiter::Stream(std::sync::Arc::new(Arc::clone(stream)), parking);
    if source.waiters.register(1, waiter, &source.progress).is_err() {
        stream.schedule(stream.turnstile.unpark(parking));
    }
}

/// The counter of another stream and who waits for it.
struct Source {
    progress: std::sync::Arc<Progress>,
    waiters: Waiters<Arc<Stream>>,
}

impl Source {
    fn new() -> Arc<Self> {
        Arc::new(Self { progress: Progress::new(1, true), waiters: Waiters::new() })
    }

    /// The consumer retires the marker 1.
    fn settle(&self) {
        self.progress.settle(1);
        for waiter in self.waiters.served(1).into_iter().flatten() {
            match waiter {
                Waiter::Stream(stream, parking) => {
                    stream.schedule(stream.turnstile.unpark(parking))
                }
                Waiter::Thread(sleeper) => sleeper.wake(),
            }
        }
    }
}

/// Goal: a stream that parks while its event completes is resumed exactly once, also when somebody
/// enqueues meanwhile.
#[test]
fn loom_a_parked_stream_is_resumed_once() {
    model(3, || {
        let (stream, source) = (Stream::new(), Source::new());
        let completer = {
            let source = Arc::clone(&source);
            thread::spawn(move || source.settle())
        };
        let producer = {
            let stream = Arc::clone(&stream);
            thread::spawn(move || {
                stream.sender.push(Task);
                // Idle before the parking: the entry is the helper's to leave alone.
                stream.schedule(stream.turnstile.schedule_if_idle());
            })
        };
        park(&stream, &source);
        completer.join().unwrap();
        producer.join().unwrap();
        assert!(stream.turnstile.parking().is_none(), "the stream is resumed");
        stream.assert_all_ran(1);
    });
}

/// Goal: a resumption that is late, after a cancellation resumed the stream, does nothing.
#[test]
fn loom_of_two_resumptions_of_one_parking_one_counts() {
    model(3, || {
        let stream = Stream::new();
        let parking = stream.turnstile.enter_to_help().expect("idle").park();
        let resume = |stream: &Arc<Stream>, parking: Parking| {
            let stream = Arc::clone(stream);
            thread::spawn(move || stream.schedule(stream.turnstile.unpark(parking)))
        };
        let (first, second) = (resume(&stream, parking), resume(&stream, parking));
        first.join().unwrap();
        second.join().unwrap();
        assert_eq!(stream.entries.load(Ordering::SeqCst), 1);
        stream.assert_all_ran(0);
    });
}

/// Goal: what was meant for one parking leaves the next alone. Method: one parking is ended twice;
/// the stream parks again before or after the second time, which must not end that one.
#[test]
fn loom_a_resumption_meant_for_an_earlier_parking_does_nothing() {
    model(3, || {
        let stream = Stream::new();
        let first = stream.turnstile.enter_to_help().expect("idle").park();
        assert_eq!(resume(&stream, first), 1);
        let late = {
            let stream = Arc::clone(&stream);
            thread::spawn(move || resume(&stream, first))
        };
        stream.entries.store(0, Ordering::SeqCst);
        let pass = stream.turnstile.enter_from_run_queue().expect("the entry was just taken");
        let second = pass.park();
        assert_eq!(late.join().unwrap(), 0, "it came too late");
        assert_eq!(stream.turnstile.parking(), Some(second));
        assert_eq!(resume(&stream, second), 1);
        stream.assert_all_ran(0);
    });
}

/// Resumes `stream`; how often: once or not at all.
fn resume(stream: &Stream, parking: Parking) -> usize {
    let next = stream.turnstile.unpark(parking);
    stream.schedule(next);
    usize::from(next == Next::Schedule)
}

/// Somebody finishes a deferred task, as a completion does it; how often the stream was resumed.
fn finish(gate: &Gate<Arc<Stream>>, outcome: Result<(), FailureCause>) -> usize {
    gate.open(outcome).map_or(0, |(stream, parking)| resume(&stream, parking))
}

/// Parks `stream` in front of a gate, as the engine does it.
fn park_at(stream: &Arc<Stream>, pass: Pass<'_, Consumer>, gate: &Gate<Arc<Stream>>) {
    let parking = pass.park();
    if !gate.wait(std::sync::Arc::new(Arc::clone(stream)), parking) {
        stream.schedule(stream.turnstile.unpark(parking));
    }
}

/// Goal: a deferred task that is finished while its stream parks, and while somebody enqueues, is
/// gone on with exactly once, and its outcome is there.
#[test]
fn loom_a_task_finished_while_its_stream_parks_goes_on_once() {
    model(3, || {
        let (stream, gate) = (Stream::new(), Gate::new());
        let pass = stream.turnstile.enter_to_help().expect("the model's streams begin idle");
        let finisher = {
            let gate = std::sync::Arc::clone(&gate);
            thread::spawn(move || finish(&gate, Err(FailureCause::Unfinished)))
        };
        let producer = {
            let stream = Arc::clone(&stream);
            thread::spawn(move || stream.enqueue())
        };
        if gate.is_open() {
            stream.schedule(pass.leave_with_work());
        } else {
            park_at(&stream, pass, &gate);
        }
        assert!(finisher.join().unwrap() <= 1);
        producer.join().unwrap();
        assert!(stream.turnstile.parking().is_none(), "the stream is resumed");
        assert!(matches!(gate.take(), Some(Err(FailureCause::Unfinished))));
        stream.assert_all_ran(1);
    });
}

/// Goal: of a shutdown and a finish one resumes the stream, and a finish that comes later than the
/// task was discarded finds nobody.
#[test]
fn loom_a_cancelled_task_and_its_finish_resume_the_stream_once() {
    model(3, || {
        let (stream, gate) = (Stream::new(), Gate::new());
        let pass = stream.turnstile.enter_to_help().expect("the model's streams begin idle");
        park_at(&stream, pass, &gate);
        let finisher = {
            let gate = std::sync::Arc::clone(&gate);
            thread::spawn(move || finish(&gate, Ok(())))
        };
        // The shutdown: resumes what is parked and retires it here, which discards the task.
        let parking = stream.turnstile.parking();
        let by_shutdown = parking.map_or(0, |parking| resume(&stream, parking));
        while stream.work() {}
        gate.abandon();
        let by_finish = finisher.join().unwrap();
        assert_eq!(by_shutdown + by_finish, 1, "resumptions");
        assert!(stream.turnstile.parking().is_none(), "the stream is resumed");
        assert!(gate.open(Ok(())).is_none() && gate.take().is_none());
        stream.assert_all_ran(0);
    });
}

/// Goal: a thread that goes to sleep while the marker is retired wakes up. loom reports a sleep
/// without end as a deadlock.
#[test]
fn loom_a_sleeping_thread_is_woken_by_the_marker() {
    model(3, || {
        let source = Source::new();
        let completer = {
            let source = Arc::clone(&source);
            thread::spawn(move || source.settle())
        };
        let sleeper = Sleeper::new();
        let waiter = Waiter::Thread(std::sync::Arc::clone(&sleeper));
        if source.waiters.register(1, waiter, &source.progress).is_ok() {
            sleeper.sleep();
        }
        assert_eq!(source.progress.retired(), 1);
        completer.join().unwrap();
    });
}
