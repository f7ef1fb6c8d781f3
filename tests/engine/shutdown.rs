//! The end of a runtime: what is finished, what is cancelled, what is reported.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use accelrt::{Config, Error, Runtime, RuntimeError};

use crate::gate::Gate;
use crate::scheduled::scheduled;
use crate::support::thread::sleeping_workers;
use crate::support::{
    CPU, CountDrop, Journal, enqueue_failure, enqueue_question, finishes, stream, stream_error,
    streams, wait_by_query, workers,
};

/// A runtime that cancels what is not done when it is shut down.
fn impatient(workers: usize) -> Runtime {
    let config =
        Config::builder().cpu_threads(workers).exit_timeout(Duration::ZERO).build().unwrap();
    scheduled(Runtime::new(config).unwrap())
}

#[test]
fn runnable_work_is_finished_also_what_becomes_runnable_meanwhile() {
    finishes(|| {
        let runtime = workers(1);
        let all = streams(&runtime, 20);
        let journal = Journal::new();
        for pair in all.windows(2) {
            journal.enqueue(&pair[0], ());
            pair[1].wait_stream(&pair[0]).unwrap();
        }
        let report = runtime.shutdown();
        assert!(report.is_clean(), "{report}");
        assert_eq!(report.to_string(), "");
        assert_eq!(journal.read().len(), 19);
        assert!(all.iter().all(accelrt::Stream::is_done));
    });
}

#[test]
fn dropping_the_last_handle_is_a_shutdown() {
    finishes(|| {
        let runtime = workers(2);
        let (stream, journal) = (stream(&runtime), Journal::new());
        let other_handle = runtime.clone();
        (0..1_000).for_each(|_| journal.enqueue(&stream, ()));
        drop(runtime);
        stream.enqueue(|| ()).unwrap();
        drop(other_handle);
        assert_eq!(journal.read().len(), 1_000);
        assert!(matches!(stream.enqueue(|| ()), Err(Error::Runtime(RuntimeError::ShutDown))));
    });
}

#[test]
fn after_a_shutdown_nothing_is_taken_and_nothing_hangs() {
    finishes(|| {
        let runtime = workers(1);
        let stream = stream(&runtime);
        let event = stream.record_event().unwrap();
        assert!(runtime.shutdown().is_clean());
        for refused in [
            stream.enqueue(|| ()),
            stream.record(&event),
            stream.wait_event(&event),
            runtime.stream(CPU).map(drop),
            runtime.current_stream().map(drop),
        ] {
            assert!(matches!(refused, Err(Error::Runtime(RuntimeError::ShutDown))), "{refused:?}");
        }
        stream.synchronize().unwrap();
        event.synchronize().unwrap();
        assert!(stream.is_done() && event.is_done());
        runtime.synchronize(CPU).unwrap();
        assert!(runtime.shutdown().is_clean(), "a second one has nothing to do");
    });
}

#[test]
fn what_stands_behind_an_endless_task_is_cancelled_and_counted_and_its_thread_left() {
    finishes(|| {
        let runtime = impatient(1);
        let endless = stream(&runtime);
        let (gate, drops) = (Gate::shut(&endless), Arc::new(AtomicUsize::new(0)));
        let journal = Journal::new();
        for _ in 0..5 {
            let (held, journal) = (CountDrop(Arc::clone(&drops)), journal.clone());
            endless.enqueue(move || journal.write(held.0.load(Ordering::Relaxed))).unwrap();
        }
        let report = runtime.shutdown();
        assert_eq!((report.num_cancelled_tasks, report.num_busy_threads), (5, 1), "{report}");
        assert_eq!(report.to_string().lines().count(), 1);
        gate.open();
        while drops.load(Ordering::Relaxed) < 5 {
            std::thread::yield_now(); // the thread that was left drops the rest
        }
        assert!(journal.read().is_empty());
    });
}

#[test]
fn idle_workers_are_joined_and_not_counted_while_one_is_left_inside_a_task() {
    // Goal: threads inside user code are left, the others joined. Method: four workers, three of
    // them asleep, when the runtime is shut down.
    finishes(|| {
        let runtime = impatient(4);
        let workers = sleeping_workers(&runtime, 4);
        let endless = stream(&runtime);
        let gate = Gate::enqueue(&endless);
        let inside = gate.wait_until_inside();
        assert_eq!(runtime.shutdown().num_busy_threads, 1);
        let idle = workers.iter().filter(|worker| **worker != inside);
        for worker in idle {
            while worker.is_alive() {
                std::thread::yield_now(); // joined: only the kernel's list may lag
            }
        }
        assert!(inside.is_alive());
    });
}

#[test]
fn slow_return_from_a_last_task_is_waited_for() {
    // Method: the worker wakes an awaiter after its last task, and the wake takes some tenths of a
    // second, as long as a busy machine may leave a thread without a processor.
    struct Slow(mpsc::Sender<()>);
    impl Wake for Slow {
        fn wake(self: Arc<Self>) {
            self.0.send(()).unwrap();
            // The worker is idle inside its wake.
            std::thread::sleep(Duration::from_millis(400));
        }
    }
    finishes(|| {
        let runtime = workers(1);
        let stream = stream(&runtime);
        let gate = Gate::shut(&stream);
        let mut future = stream.record_event().unwrap().into_future();
        let (tell, woken) = mpsc::channel();
        let waker = Waker::from(Arc::new(Slow(tell)));
        assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
        gate.open();
        woken.recv().unwrap();
        let report = runtime.shutdown();
        assert!(report.is_clean(), "{report}");
    });
}

#[test]
fn what_is_cancelled_is_counted_in_tasks_of_the_user() {
    // Goal: the number says how much work is lost. Method: the same three tasks, parked and behind
    // an endless one, with records and waits among them that are no work.
    finishes(|| {
        let runtime = impatient(1);
        let [endless, parked] = [stream(&runtime), stream(&runtime)];
        let _gate = Gate::shut(&endless);
        parked.wait_stream(&endless).unwrap();
        for stream in [&endless, &parked, &parked] {
            stream.enqueue(|| ()).unwrap();
            drop(stream.record_event().unwrap());
        }
        assert_eq!(runtime.shutdown().num_cancelled_tasks, 3);
    });
}

#[test]
fn a_stream_parked_for_ever_is_cancelled() {
    // Goal: a wait that nobody will complete ends too. Method: it is for a stream with a task that
    // nobody finishes.
    finishes(|| {
        let own = workers(1);
        let [source, parked] = [stream(&own), stream(&own)];
        source.enqueue_deferred(std::mem::forget).unwrap();
        parked.wait_stream(&source).unwrap();
        parked.enqueue(|| ()).unwrap();
        let report = own.shutdown();
        assert_eq!((report.num_cancelled_tasks, report.num_busy_threads), (2, 0));
        assert!(parked.is_done());
    });
}

#[test]
fn a_thread_that_waits_for_cancelled_work_is_told() {
    // Goal: every task runs or is reported as not run, also to who waits for it. Method: threads
    // are asleep in both waits when the work in front of them is cancelled.
    finishes(|| {
        let runtime = impatient(1);
        let [endless, parked] = [stream(&runtime), stream(&runtime)];
        let _gate = Gate::shut(&endless);
        parked.wait_stream(&endless).unwrap();
        parked.enqueue(|| ()).unwrap();
        let (asleep, is_asleep) = mpsc::channel();
        let waited = parked.clone();
        let thread =
            std::thread::spawn(move || waited.synchronize_unless(&mut || asleep.send(()).is_err()));
        is_asleep.recv().unwrap();
        runtime.shutdown();
        assert!(matches!(thread.join().unwrap(), Err(Error::Runtime(RuntimeError::ShutDown))));
    });
}

#[test]
fn an_event_behind_cancelled_work_is_failed() {
    // Goal: as above, for events: success is never told of what did not run.
    finishes(|| {
        let runtime = impatient(1);
        let [endless, parked] = [stream(&runtime), stream(&runtime)];
        let _gate = Gate::shut(&endless);
        parked.wait_stream(&endless).unwrap();
        parked.enqueue(|| ()).unwrap();
        let event = parked.record_event().unwrap();
        assert!(runtime.shutdown().num_cancelled_tasks > 0);
        wait_by_query(&event);
        event.synchronize().unwrap_err();
    });
}

#[test]
fn errors_that_nobody_saw_are_reported_once_and_those_that_were_seen_are_not() {
    finishes(|| {
        let runtime = workers(1);
        let [unseen, inheriting, seen, by_event] = [(); 4].map(|()| stream(&runtime));
        let gone = stream(&runtime);
        for (stream, text) in
            [(&unseen, "unseen"), (&seen, "seen"), (&by_event, "by event"), (&gone, "gone")]
        {
            enqueue_failure(stream, text);
        }
        inheriting.wait_stream(&unseen).unwrap();
        stream_error(seen.synchronize());
        stream_error(by_event.record_event().unwrap().synchronize());
        drop(gone);
        let report = runtime.shutdown();
        let mut reported: Vec<String> =
            report.unseen_errors.iter().map(ToString::to_string).collect();
        reported.sort_unstable_by_key(|text| text.contains("unseen"));
        assert_eq!(reported.len(), 2, "{reported:?}");
        assert!(reported[0].contains("gone") && reported[1].contains("unseen"), "{reported:?}");
        assert_eq!(report.to_string().lines().count(), 2);
    });
}

#[test]
fn an_error_seen_by_who_inherited_it_is_seen() {
    finishes(|| {
        let runtime = workers(1);
        let [failed, inheriting] = [stream(&runtime), stream(&runtime)];
        enqueue_failure(&failed, "broken");
        inheriting.wait_stream(&failed).unwrap();
        stream_error(inheriting.synchronize());
        assert!(runtime.shutdown().is_clean());
    });
}

#[test]
fn an_error_kept_of_a_dropped_stream_is_seen_by_who_inherited_it() {
    finishes(|| {
        let runtime = workers(1);
        let [failed, inheriting] = [stream(&runtime), stream(&runtime)];
        enqueue_failure(&failed, "broken");
        inheriting.wait_stream(&failed).unwrap();
        // Its error is kept for the report before it is raised.
        while !inheriting.is_done() {
            std::thread::yield_now();
        }
        drop(failed);
        stream_error(inheriting.synchronize());
        let report = runtime.shutdown();
        assert!(report.is_clean(), "{report}");
    });
}

#[test]
fn an_event_behind_a_wait_that_a_shutdown_cut_short_has_failed() {
    finishes(|| {
        let runtime = impatient(1);
        let [held, waiting] = [(); 2].map(|()| stream(&runtime));
        let gate = Gate::shut(&held);
        waiting.wait_stream(&held).unwrap();
        let event = waiting.record_event().unwrap();
        runtime.shutdown();
        wait_by_query(&event);
        let outcome = event.synchronize();
        assert!(matches!(outcome, Err(Error::Runtime(RuntimeError::ShutDown))), "{outcome:?}");
        gate.open();
    });
}

#[test]
fn a_task_may_shut_its_own_runtime_down() {
    // Goal: no thread waits for itself. Method: the only worker calls it, then drops the last
    // handle.
    finishes(|| {
        let runtime = impatient(1);
        let stream = stream(&runtime);
        let (give, given) = mpsc::channel::<Runtime>();
        let task = move || {
            let runtime = given.recv().unwrap();
            let report = runtime.shutdown();
            drop(runtime);
            report.num_cancelled_tasks
        };
        let cancelled = enqueue_question(&stream, task);
        stream.enqueue(|| ()).unwrap();
        give.send(runtime).unwrap();
        assert_eq!(cancelled.recv().unwrap(), 1);
    });
}

#[test]
fn a_task_that_drops_the_last_handle_ends_the_runtime() {
    finishes(|| {
        let runtime = impatient(1);
        let stream = stream(&runtime);
        let (give, given) = mpsc::channel::<Runtime>();
        let dropped = enqueue_question(&stream, move || drop(given.recv().unwrap()));
        give.send(runtime).unwrap();
        dropped.recv().unwrap();
        assert!(matches!(stream.enqueue(|| ()), Err(Error::Runtime(RuntimeError::ShutDown))));
    });
}
