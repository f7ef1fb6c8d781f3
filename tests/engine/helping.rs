//! Helping: a waiting thread executes the stream it waits for, while that pays.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use accelrt::{Runtime, Stream};

use crate::gate::Gate;
use crate::support::thread::sleeping_workers;
use crate::support::{
    Answer, CPU, enqueue_failure, enqueue_question, finishes, stream, stream_error, workers,
};
use crate::thread_id::ThreadId;

fn helped(runtime: &Runtime) -> u64 {
    runtime.counters().num_helped_tasks
}

/// Asks which thread executes a stream's next task.
fn enqueue_who(stream: &Stream) -> Answer<ThreadId> {
    enqueue_question(stream, ThreadId::current)
}

#[test]
fn a_waiting_thread_executes_short_tasks_itself_and_each_is_counted() {
    // Goal: an idle round trip needs no worker. Method: the only worker is inside a gate, so only
    // this thread can execute a stream, and one without a history counts as short.
    finishes(|| {
        let runtime = workers(1);
        let _gate = Gate::shut(&stream(&runtime));
        let before = runtime.counters();
        for tasks in 1..=20 {
            let stream = stream(&runtime);
            let answers: Vec<_> = (0..tasks).map(|_| enqueue_who(&stream)).collect();
            stream.synchronize().unwrap();
            assert!(answers.iter().all(|who| who.recv().unwrap() == ThreadId::current()));
        }
        let after = runtime.counters();
        assert_eq!(after.num_helped_tasks - before.num_helped_tasks, (1..=20).sum::<u64>());
        assert_eq!(after.num_worker_wakes, before.num_worker_wakes);
        assert_eq!(after.num_spare_workers, 0);
    });
}

#[test]
fn every_form_of_wait_helps() {
    finishes(|| {
        let runtime = workers(1);
        let _gate = Gate::shut(&stream(&runtime));
        let assert_helps = |wait: &dyn Fn(&Stream)| {
            let stream = stream(&runtime);
            let who = enqueue_who(&stream);
            wait(&stream);
            assert_eq!(who.recv().unwrap(), ThreadId::current());
        };
        assert_helps(&|stream| stream.synchronize().unwrap());
        assert_helps(&|stream| stream.synchronize_unless(&mut || false).unwrap());
        assert_helps(&|stream| stream.record_event().unwrap().synchronize().unwrap());
        assert_helps(&|stream| stream.scope(|_| ()).unwrap());
    });
}

#[test]
fn a_device_synchronise_helps_the_streams_that_are_busy() {
    // Goal: as above, for the streams of a device. Method: the thread must first execute the stream
    // that was made first, because the only worker is inside a gate on the other one.
    finishes(|| {
        let runtime = workers(1);
        let [one, held] = [stream(&runtime), stream(&runtime)];
        let gate = Gate::shut(&held);
        let who = enqueue_who(&one);
        let waiter = runtime.clone();
        let (tell, told) = channel();
        let thread = std::thread::spawn(move || {
            tell.send(ThreadId::current()).unwrap();
            waiter.synchronize(CPU).unwrap();
        });
        assert_eq!(who.recv().unwrap(), told.recv().unwrap());
        gate.open();
        thread.join().unwrap();
    });
}

#[test]
fn a_helper_stops_at_its_ticket() {
    // Goal: up to what it waits for, not further. Method: the only worker is inside a gate; what is
    // behind the event stays for it.
    finishes(|| {
        let runtime = workers(1);
        let gate = Gate::enqueue(&stream(&runtime));
        let worker = gate.wait_until_inside();
        let stream = stream(&runtime);
        let before = enqueue_who(&stream);
        let event = stream.record_event().unwrap();
        let behind = enqueue_who(&stream);
        event.synchronize().unwrap();
        assert_eq!(before.recv().unwrap(), ThreadId::current());
        assert!(behind.try_recv().is_err());
        gate.open();
        assert_eq!(behind.recv().unwrap(), worker);
    });
}

/// Gives a stream the history of a task of two milliseconds, executed by the only worker.
fn make_long(runtime: &Runtime, stream: &Stream) -> ThreadId {
    let long = || {
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(2) {}
        ThreadId::current()
    };
    let worker = enqueue_question(stream, long).recv().unwrap();
    // Asleep, so it has left the stream and the measure is taken.
    worker.wait_until_asleep();
    assert_eq!(runtime.counters().num_helped_tasks, 0);
    worker
}

#[test]
fn a_stream_whose_tasks_have_been_long_is_left_to_the_workers() {
    finishes(|| {
        let runtime = workers(1);
        let stream = stream(&runtime);
        let worker = make_long(&runtime, &stream);
        let who = enqueue_who(&stream);
        stream.synchronize().unwrap();
        assert_eq!(who.recv().unwrap(), worker);
        let who = enqueue_who(&stream);
        stream.record_event().unwrap().synchronize().unwrap();
        assert_eq!(who.recv().unwrap(), worker);
        assert_eq!(helped(&runtime), 0);
    });
}

#[test]
fn a_thread_that_waits_for_a_long_stream_stays_interruptible() {
    finishes(|| {
        let runtime = workers(1);
        let stream = stream(&runtime);
        make_long(&runtime, &stream);
        let _gate = Gate::enqueue(&stream);
        let given_up = stream.synchronize_unless(&mut || true);
        assert!(matches!(
            given_up,
            Err(accelrt::Error::Runtime(accelrt::RuntimeError::Interrupted))
        ));
    });
}

/// Short tasks, half a second of them, of which a test runs some; they end when it does.
struct Many {
    ran: AtomicUsize,
    is_over: AtomicBool,
    began: Instant,
    /// When the last one ended, and the longest time from one end to the next.
    last_ns: AtomicU64,
    longest_ns: AtomicU64,
}

impl Many {
    const COUNT: usize = 50_000;

    fn enqueue(stream: &Stream) -> Arc<Self> {
        let (ran, is_over, began) = (AtomicUsize::new(0), AtomicBool::new(false), Instant::now());
        let (last_ns, longest_ns) = (AtomicU64::new(u64::MAX), AtomicU64::new(0));
        let many = Arc::new(Self { ran, is_over, began, last_ns, longest_ns });
        for _ in 0..Self::COUNT {
            let many = Arc::clone(&many);
            stream.enqueue(move || many.run_one()).unwrap();
        }
        many
    }

    fn run_one(&self) {
        let is_over = self.is_over.load(Ordering::Relaxed);
        spin_for(Duration::from_micros(if is_over { 0 } else { 10 }));
        let now_ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap();
        let took_ns = now_ns.saturating_sub(self.last_ns.swap(now_ns, Ordering::Relaxed));
        self.longest_ns.fetch_max(took_ns, Ordering::Relaxed);
        self.ran.fetch_add(1, Ordering::Relaxed);
    }

    /// True when the thread that ran them lost its processor for so long that one overran.
    fn has_overrun(&self) -> bool {
        self.longest_ns.load(Ordering::Relaxed) >= 40_000_000 // of 50 ms; not all is measured
    }
}

fn spin_for(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {}
}

/// A form of wait, with its check.
type Wait = fn(&Stream, &mut dyn FnMut() -> bool) -> accelrt::Result<()>;

#[test]
fn a_thread_that_executes_tasks_is_interrupted_between_two_of_them() {
    // Goal: Ctrl-C is looked at while a thread helps. Method: more tasks than 50 ms have room for,
    // no worker, and a check that says yes at its first call; the rest of the tasks did not run.
    // A thread that lost its processor, so that a task overran, is asked when it waits: again.
    finishes(|| {
        let waits: [Wait; 2] = [
            |stream, check| stream.synchronize_unless(check),
            |stream, check| stream.record_event().unwrap().synchronize_unless(check),
        ];
        for wait in waits {
            let _ = (0..20).any(|_| !interrupt_a_helping_thread(wait).has_overrun());
        }
    });
}

fn interrupt_a_helping_thread(wait: Wait) -> Arc<Many> {
    let runtime = workers(1);
    let _gate = Gate::shut(&stream(&runtime));
    let stream = short_stream(&runtime);
    let helped_before = helped(&runtime);
    let many = Many::enqueue(&stream);
    let mut calls = 0;
    let outcome = wait(&stream, &mut || {
        calls += 1;
        true
    });
    many.is_over.store(true, Ordering::Relaxed);
    assert!(
        matches!(outcome, Err(accelrt::Error::Runtime(accelrt::RuntimeError::Interrupted))),
        "{outcome:?}"
    );
    let (ran, helped) = (many.ran.load(Ordering::Relaxed), helped(&runtime) - helped_before);
    assert_eq!((calls, ran as u64), (1, helped), "asked once, by the thread that helped");
    assert!(ran > 0 && ran < Many::COUNT, "{ran} tasks ran before the check");
    many
}

#[test]
fn a_check_that_says_no_lets_the_thread_go_on_helping() {
    // Method: the first call ends the tasks' work and lets the worker go: a thread that lost its
    // processor for so long that a task overran leaves it the rest.
    finishes(|| {
        let runtime = workers(1);
        let mut gate = Some(Gate::shut(&stream(&runtime)));
        let stream = short_stream(&runtime);
        let many = Many::enqueue(&stream);
        let over = Arc::clone(&many);
        let mut calls = 0;
        let mut check = || {
            calls += 1;
            over.is_over.store(true, Ordering::Relaxed);
            drop(gate.take());
            false
        };
        stream.synchronize_unless(&mut check).unwrap();
        assert_eq!(many.ran.load(Ordering::Relaxed), Many::COUNT);
        assert!(calls > 0);
    });
}

/// How long a task takes that overruns: longer than a thread helps between two looks.
const OVERRUN: Duration = Duration::from_millis(60);

/// A stream with a short history, of which the next batches are not measured. No worker is free.
fn short_stream(runtime: &Runtime) -> Stream {
    loop {
        let stream = stream(runtime);
        stream.enqueue(|| ()).unwrap();
        stream.synchronize().unwrap();
        stream.enqueue(|| ()).unwrap();
        // Given up where this thread lost its processor during the measured batch.
        if stream.synchronize_unless(&mut || true).is_ok() {
            return stream;
        }
    }
}

#[test]
fn a_thread_leaves_a_stream_to_the_workers_when_a_task_has_overrun() {
    // Goal: no second long task on a thread that should hear signals. Method: the only worker is
    // inside a gate until this thread is asleep; then it alone can run what stands behind.
    finishes(|| {
        let runtime = workers(1);
        let gate = Gate::enqueue(&stream(&runtime));
        let worker = gate.wait_until_inside();
        let stream = short_stream(&runtime);
        let overruns = enqueue_question(&stream, || {
            spin_for(OVERRUN);
            ThreadId::current()
        });
        let behind = enqueue_who(&stream);
        let waiter = ThreadId::current();
        let opener = std::thread::spawn(move || {
            assert_eq!(overruns.recv().unwrap(), waiter);
            waiter.wait_until_asleep();
            gate.open();
        });
        stream.synchronize().unwrap();
        assert_eq!(behind.recv().unwrap(), worker);
        opener.join().unwrap();
        let again = enqueue_who(&stream);
        stream.synchronize().unwrap();
        assert_eq!(again.recv().unwrap(), worker, "not helped again");
    });
}

#[test]
fn a_task_that_overruns_alone_is_noticed_by_the_worker_that_came_for_it() {
    // Goal: as above where one task is all there is, and no clock is read. Method: the task goes on
    // until the worker has looked for it and sleeps again, and for as long as an overrun then.
    finishes(|| {
        let runtime = workers(1);
        let worker = sleeping_workers(&runtime, 1)[0];
        let gate = Gate::enqueue(&stream(&runtime));
        gate.wait_until_inside();
        let stream = short_stream(&runtime);
        let overruns = enqueue_question(&stream, move || {
            gate.open();
            worker.wait_until_asleep();
            spin_for(OVERRUN);
            ThreadId::current()
        });
        stream.synchronize().unwrap();
        assert_eq!(overruns.recv().unwrap(), ThreadId::current());
        let again = enqueue_who(&stream);
        stream.synchronize().unwrap();
        assert_eq!(again.recv().unwrap(), worker, "not helped again");
    });
}

#[test]
fn whoever_stops_executing_a_stream_reschedules_what_is_left() {
    // Goal: nothing is left behind at the ticket. Method: the worker comes for the stream while
    // this thread is inside its first task, finds it taken and goes to sleep; what stands behind
    // the event is then nobody's, unless this thread looks once more when it leaves.
    finishes(|| {
        let runtime = workers(1);
        let gate = Gate::enqueue(&stream(&runtime));
        let worker = gate.wait_until_inside();
        let stream = stream(&runtime);
        let task = move || {
            gate.open();
            worker.wait_until_asleep();
            ThreadId::current()
        };
        let helper = enqueue_question(&stream, task);
        let event = stream.record_event().unwrap();
        let behind = enqueue_who(&stream);
        event.synchronize().unwrap();
        assert_eq!(helper.recv().unwrap(), ThreadId::current());
        assert_eq!(behind.recv().unwrap(), worker);
    });
}

#[test]
fn a_stream_becomes_short_again_when_its_tasks_are() {
    // Goal: lately, not for ever. Method: short tasks by the worker until a waiting thread helps.
    finishes(|| {
        let runtime = workers(1);
        let stream = stream(&runtime);
        make_long(&runtime, &stream);
        while helped(&runtime) == 0 {
            stream.enqueue(|| ()).unwrap();
            stream.synchronize().unwrap();
        }
    });
}

#[test]
fn a_helper_meets_failures_as_a_worker_does() {
    finishes(|| {
        let runtime = workers(1);
        let _gate = Gate::shut(&stream(&runtime));
        let failed = stream(&runtime);
        enqueue_failure(&failed, "broken");
        let skipped = enqueue_who(&failed);
        stream_error(failed.synchronize());
        assert!(skipped.recv().is_err(), "dropped unrun");
        let panicking = stream(&runtime);
        panicking.enqueue(|| -> () { panic!("on the helper") }).unwrap();
        let error = stream_error(panicking.synchronize());
        assert!(error.to_string().contains("on the helper"));
        assert_eq!(runtime.counters().num_skipped_tasks, 1);
    });
}

#[test]
fn a_worker_that_comes_for_a_stream_that_was_helped_finds_nothing_and_sleeps() {
    finishes(|| {
        let runtime = workers(1);
        let threads = sleeping_workers(&runtime, 1);
        for _ in 0..100 {
            let stream = stream(&runtime);
            stream.enqueue(|| ()).unwrap();
            stream.synchronize().unwrap();
        }
        threads[0].wait_until_asleep();
    });
}
