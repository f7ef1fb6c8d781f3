//! Helping: a waiting thread executes the stream it waits for, while that pays.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use accelrt::{Runtime, Stream};

use crate::support::gate::Gate;
use crate::support::thread::{ThreadId, sleeping_workers};
use crate::support::{
    CPU, enqueue_failure, enqueue_question, finishes, stream, stream_error, workers,
};

fn helped(runtime: &Runtime) -> u64 {
    runtime.counters().num_helped_tasks
}

/// Asks which thread executes a stream's next task.
fn enqueue_who(stream: &Stream) -> std::sync::mpsc::Receiver<ThreadId> {
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
        assert!(matches!(given_up, Err(accelrt::Error::Interrupted)));
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
