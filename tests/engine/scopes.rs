//! Scopes: tasks that borrow, all done when the scope ends, whatever happened inside.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use accelrt::{Config, Error, Runtime, Scope, StreamError};

use crate::gate::Gate;
use crate::scheduled::scheduled;
use crate::support::{
    CountDrop, enqueue_failure, enqueue_question, finishes, stream, stream_error, workers,
};
use crate::thread_id::ThreadId;

#[test]
fn tasks_borrow_from_the_caller_and_are_done_when_the_scope_ends() {
    let runtime = workers(2);
    let stream = stream(&runtime);
    let mut squares = vec![0; 100];
    let count = stream.scope(|scope| {
        for (number, square) in squares.iter_mut().enumerate() {
            scope.enqueue(move || *square = number * number).unwrap();
        }
        assert_eq!(scope.stream(), &stream);
        100
    });
    assert_eq!(count.unwrap(), 100);
    assert!(squares.iter().enumerate().all(|(number, square)| *square == number * number));
}

#[test]
fn the_end_of_a_scope_raises_the_streams_error_and_ends_it() {
    let runtime = workers(1);
    let stream = stream(&runtime);
    let drops = Arc::new(AtomicUsize::new(0));
    let raised = stream.scope(|scope| {
        scope.enqueue(|| Err::<(), _>("broken")).unwrap();
        let held = CountDrop(Arc::clone(&drops));
        scope.enqueue(move || drop(held)).unwrap();
    });
    stream_error(raised);
    assert_eq!(drops.load(Ordering::SeqCst), 1, "dropped unrun before the scope ended");
    stream.scope(|scope| scope.enqueue(|| ())).unwrap().unwrap();
}

#[test]
fn a_scope_whose_error_a_device_synchronise_ended_raises_it_too() {
    let runtime = workers(1);
    let stream = stream(&runtime);
    let ended_elsewhere = |first: fn() -> Result<(), &'static str>| {
        stream.scope(|scope| {
            scope.enqueue(first).unwrap();
            scope.enqueue(|| ()).unwrap();
            let raised = runtime.synchronize(stream.device());
            scope.enqueue(|| ()).unwrap();
            raised
        })
    };
    let error = stream_error(ended_elsewhere(|| Err("broken")).map(drop));
    assert!(error.to_string().contains("broken"), "{error}");
    ended_elsewhere(|| Ok(())).unwrap().unwrap();
    enqueue_failure(&stream, "of others, before");
    let error = stream_error(runtime.synchronize(stream.device()));
    assert!(error.to_string().contains("of others, before"), "{error}");
    stream.scope(|scope| scope.enqueue(|| ())).unwrap().unwrap();
}

#[test]
fn a_scope_on_a_failed_stream_raises_what_was_open() {
    let runtime = workers(1);
    let stream = stream(&runtime);
    enqueue_failure(&stream, "before");
    let error = stream_error(stream.scope(|scope| scope.enqueue(|| ()).unwrap()));
    assert!(error.to_string().contains("before"), "{error}");
}

#[test]
fn a_panic_inside_a_scope_goes_on_when_the_tasks_are_done() {
    // Goal: nothing borrowed is left behind by an unwinding. Method: a task stands behind a gate
    // that opens while the scope is waiting for it.
    finishes(|| {
        let runtime = workers(1);
        let stream = stream(&runtime);
        let mut value = 0;
        let gate = Gate::shut(&stream);
        let opener = std::thread::spawn(move || gate.open());
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            stream.scope(|scope| {
                scope.enqueue(|| value = 7).unwrap();
                panic!("inside the scope");
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(value, 7);
        opener.join().unwrap();
    });
}

#[test]
fn scopes_nest_on_one_stream_and_on_two() {
    let runtime = workers(2);
    let [one, other] = [stream(&runtime), stream(&runtime)];
    let (mut outer, mut inner) = (0, 0);
    one.scope(|scope| {
        scope.enqueue(|| outer = 1).unwrap();
        other.scope(|nested| nested.enqueue(|| inner = 2)).unwrap().unwrap();
        one.scope(|again| again.enqueue(|| ())).unwrap().unwrap();
    })
    .unwrap();
    assert_eq!((outer, inner), (1, 2));
}

#[test]
fn a_scope_inside_a_task_of_its_own_stream_is_refused_before_anything_is_enqueued() {
    finishes(|| {
        let runtime = workers(1);
        let stream = stream(&runtime);
        let own = stream.clone();
        let task = move || {
            let mut is_called = false;
            let refused = own.scope(|_| is_called = true);
            (refused, is_called)
        };
        let (refused, is_called) = enqueue_question(&stream, task).recv().unwrap();
        assert!(
            matches!(refused, Err(Error::Stream(StreamError::WaitInsideTask { .. }))) && !is_called
        );
    });
}

#[test]
fn a_scope_that_a_shutdown_overtakes_ends_only_when_its_tasks_are_run_or_dropped() {
    // Goal: what is borrowed stays valid. Method: the runtime is shut down, with no time to drain,
    // while the scope's first task is inside; the scope may end only after it.
    finishes(|| {
        let config = Config::builder().exit_timeout(Duration::ZERO).build().unwrap();
        let runtime = scheduled(Runtime::new(config).unwrap());
        let stream = stream(&runtime);
        let (mut is_left, drops) = (false, Arc::new(AtomicUsize::new(0)));
        let (open, opened) = mpsc::channel::<()>();
        let (enter, inside) = mpsc::channel();
        let (start, may_start) = mpsc::channel();
        let held = CountDrop(Arc::clone(&drops));
        let shut_down = runtime.clone();
        let ending = std::thread::spawn(move || {
            may_start.recv().unwrap();
            let report = shut_down.shutdown();
            drop(open);
            report
        });
        let left = &mut is_left;
        let ended = stream.scope(|scope| {
            let task = move || {
                enter.send(()).unwrap();
                let _ = opened.recv(); // an error says that it was opened
                *left = true;
            };
            scope.enqueue(task).unwrap();
            scope.enqueue(move || drop(held)).unwrap();
            inside.recv().unwrap(); // a worker is, so nobody helps
            start.send(()).unwrap();
        });
        drop(ended);
        assert!(is_left);
        assert_eq!(drops.load(Ordering::SeqCst), 1);
        assert_eq!(ending.join().unwrap().num_busy_threads, 1);
    });
}

/// Tells, when it is dropped, whether the scope had ended.
struct Borrowed {
    has_ended: Arc<AtomicBool>,
    tell: mpsc::Sender<bool>,
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        std::thread::sleep(Duration::from_millis(50)); // the scope stays idle at its end
        self.tell.send(self.has_ended.load(Ordering::SeqCst)).unwrap();
    }
}

#[test]
fn a_scope_ends_behind_the_drop_of_what_a_discarded_task_borrows() {
    // Goal: what is skipped, cancelled or refused borrows until it is dropped. Method: a task that
    // runs while the scope's end is queued enqueues what is discarded behind that end, so only the
    // count of pending tasks keeps the scope open.
    for (fails, shuts_down) in [(true, false), (false, true), (true, true)] {
        finishes(move || {
            let config = Config::builder().exit_timeout(Duration::ZERO).build().unwrap();
            let runtime = scheduled(Runtime::new(config).unwrap());
            let stream = stream(&runtime);
            let has_ended = Arc::new(AtomicBool::new(false));
            let (tell, told) = mpsc::channel();
            let (enter, inside) = mpsc::channel();
            let waiting = ThreadId::current();
            let ended = stream.scope(|scope| {
                let borrowed =
                    || Borrowed { has_ended: Arc::clone(&has_ended), tell: tell.clone() };
                let [before, behind] = [borrowed(), borrowed()];
                let runtime = runtime.clone();
                let task = move || {
                    enter.send(()).unwrap();
                    waiting.wait_until_asleep(); // the end is queued
                    if fails {
                        enqueue_failure(scope.stream(), "skips what follows");
                    }
                    scope.enqueue(move || drop(before)).unwrap();
                    if shuts_down {
                        runtime.shutdown();
                    }
                    let refused = scope.enqueue(move || drop(behind));
                    assert_eq!(refused.is_err(), shuts_down);
                };
                scope.enqueue(task).unwrap();
                inside.recv().unwrap(); // a worker is, so nobody helps
            });
            has_ended.store(true, Ordering::SeqCst);
            assert_eq!((told.recv(), told.recv()), (Ok(false), Ok(false)), "{ended:?}");
        });
    }
}

/// Enqueues something through the scope when it is dropped.
struct EnqueueAtDrop<'scope, 'env>(&'scope Scope<'scope, 'env>, &'env Arc<AtomicUsize>);

impl Drop for EnqueueAtDrop<'_, '_> {
    fn drop(&mut self) {
        let Self(scope, drops) = self;
        let counted = CountDrop(Arc::clone(drops));
        scope.enqueue(move || drop(counted)).unwrap();
        std::panic::panic_any("a drop that panics");
    }
}

#[test]
fn what_a_discarded_task_enqueues_at_its_drop_is_awaited_too() {
    finishes(|| {
        let runtime = workers(2);
        let stream = stream(&runtime);
        let drops = Arc::new(AtomicUsize::new(0));
        let waiting = ThreadId::current();
        let (enter, inside) = mpsc::channel();
        let ended = stream.scope(|scope| {
            let at_drop = EnqueueAtDrop(scope, &drops);
            let task = move || {
                enter.send(()).unwrap();
                waiting.wait_until_asleep(); // the end is queued
                enqueue_failure(scope.stream(), "skips what follows");
                scope.enqueue(move || drop(at_drop)).unwrap();
            };
            scope.enqueue(task).unwrap();
            inside.recv().unwrap();
        });
        // The failure came behind the end of the scope, which ends it not.
        stream_error(ended);
        assert_eq!(drops.load(Ordering::SeqCst), 1);
        stream_error(stream.synchronize());
    });
}

#[test]
fn a_scope_inside_a_task_runs_what_was_enqueued_behind_its_end() {
    // Goal: the end of a scope leaves no task without a thread. Method: the only worker is inside
    // of the scope and helps; what its tasks enqueue stands behind what the end waits for.
    finishes(|| {
        let runtime = workers(1);
        let [outer, inner] = [stream(&runtime), stream(&runtime)];
        let task = move || {
            let ran = AtomicUsize::new(0);
            let scoped = inner.scope(|scope| {
                let ran = &ran;
                let count = move || _ = ran.fetch_add(1, Ordering::SeqCst);
                let again = move || scope.enqueue(count).unwrap();
                scope.enqueue(move || scope.enqueue(again).unwrap()).unwrap();
            });
            (scoped.is_ok(), ran.load(Ordering::SeqCst))
        };
        let told = enqueue_question(&outer, task);
        assert_eq!(told.recv().unwrap(), (true, 1));
    });
}
