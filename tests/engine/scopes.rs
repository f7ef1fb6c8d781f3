//! Scopes: tasks that borrow, all done when the scope ends, whatever happened inside.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use accelrt::{Config, Error, Runtime};

use crate::support::gate::Gate;
use crate::support::{
    CountDrop, enqueue_failure, enqueue_question, finishes, stream, stream_error, workers,
};

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
        assert!(matches!(refused, Err(Error::WaitInsideTask { .. })) && !is_called);
    });
}

#[test]
fn a_scope_that_a_shutdown_overtakes_ends_only_when_its_tasks_are_run_or_dropped() {
    // Goal: what is borrowed stays valid. Method: the runtime is shut down, with no time to drain,
    // while the scope's first task is inside; the scope may end only after it.
    finishes(|| {
        let config = Config { exit_timeout: Duration::ZERO, ..Config::default() };
        let runtime = Runtime::new(config).unwrap();
        let stream = stream(&runtime);
        let (mut is_left, drops) = (false, Arc::new(AtomicUsize::new(0)));
        let (open, opened) = std::sync::mpsc::channel::<()>();
        let (enter, inside) = std::sync::mpsc::channel();
        let (start, may_start) = std::sync::mpsc::channel();
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
