//! Forks: what a child of a process that used the runtime may do, and what it must not touch.
//!
//! Each test runs a program, which forks: the test binary itself has too many threads.
#![expect(unsafe_code, reason = "fork, waitpid and alarm are the C library's")]

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use accelrt::allocator::snapshot::Snapshot;
use accelrt::allocator::{CachingAllocator, Request, Statistics};
use accelrt::backend::contract::Backend;
use accelrt::{
    AllocatorConfig, Config, DeviceKind, Error, Event, MemPool, PoolOptions, Runtime, RuntimeError,
    Stream,
};
use accelrt_testing::fault::{FaultBackend, Method};
use accelrt_testing::null::{CompletionMode, NullBackend, NullConfig};

use crate::asked::asked;
use crate::child::{self, End};
use crate::gate::Gate;
use crate::process;
use crate::support::{CPU, CountDrop, enqueue_notice, stream, streams, workers};

#[test]
#[ignore = "a program that the other tests start"]
fn program() {
    match process::program().as_deref() {
        Some("idle") => idle(),
        Some("busy") => busy(),
        Some("never used") => never_used(),
        Some("grandchild") => grandchild(),
        Some("nothing pending") => nothing_pending(),
        Some("recording") => recording(),
        Some("making streams") => making_streams(),
        Some("waiting") => waiting(),
        Some("driver") => driver(),
        Some("global") => global(),
        Some("allocating") => allocating(),
        Some("trimming") => trimming(),
        Some("cached") => cached(),
        Some("task") => forking_task(),
        Some(other) => panic!("no program {other}"),
        None => {}
    }
}

/// Runs a program, which must end well and say nothing.
fn assert_succeeds(name: &str) {
    let forks = std::env::var("ACCELRT_TEST_FORKS").ok();
    let variables: Vec<_> = forks.iter().map(|it| ("ACCELRT_TEST_FORKS", it.as_str())).collect();
    let stderr = process::stderr_of_success(&process::run("fork::program", name, &variables));
    assert_eq!(stderr, "");
}

/// Forks; the child runs `child` and exits as a process does.
#[track_caller]
pub(crate) fn in_child(child: impl FnOnce()) {
    child::in_child(End { runs_handlers: true }, child);
}

fn assert_bad_fork<T>(what: &str, result: Result<T, Error>) {
    let Err(error) = result else { panic!("{what} is not refused") };
    assert!(matches!(error, Error::Runtime(RuntimeError::BadFork)), "{what}: {error}");
    let text = error.to_string();
    assert!(text.starts_with("The runtime was initialised before this process was forked"));
    assert!(text.ends_with("in a program that the child executes"), "{text}");
}

/// What a child may ask, without a hang.
fn ask_everything(runtime: &Runtime, stream: &Stream, event: &Event) {
    assert_eq!(runtime.device_count(DeviceKind::CPU).unwrap(), 1);
    assert_eq!(runtime.current_device().unwrap(), CPU);
    runtime.properties(CPU).unwrap();
    runtime.memory_info(CPU).unwrap();
    runtime.priority_range(CPU).unwrap();
    assert!(!runtime.is_initialized());
    assert_eq!((stream.device(), stream.priority()), (CPU, 0));
    let _ = (runtime.counters(), stream.is_done(), event.is_done());
    assert_eq!((event.device(), event.is_timed()), (Some(CPU), false));
    let _ = format!("{runtime:?} {stream:?} {event:?}");
}

/// What needs the runtime is refused with advice.
fn assert_refusals(runtime: &Runtime, stream: &Stream, event: &Event) {
    assert_bad_fork("enqueue", stream.enqueue(|| ()));
    assert_bad_fork("record", stream.record(event));
    assert_bad_fork("record of a new event", stream.record_event());
    assert_bad_fork("wait_event", stream.wait_event(event));
    assert_bad_fork("wait_stream", stream.wait_stream(stream));
    assert_bad_fork("scope", stream.scope(|_| ()));
    assert_bad_fork("device synchronise", runtime.synchronize(CPU));
    assert_bad_fork("stream", runtime.stream(CPU));
    assert_bad_fork("dedicated_stream", runtime.stream(CPU));
    assert_bad_fork("default_stream", runtime.default_stream(CPU));
    assert_bad_fork("stream_by_id", runtime.stream_by_id(CPU, stream.id()));
    assert_bad_fork("current_stream", runtime.current_stream());
    let fresh = workers(1);
    assert_bad_fork("a new runtime's stream", fresh.stream(CPU));
}

fn assert_waits_are_refused(stream: &Stream, event: &Event) {
    assert_bad_fork("stream synchronise", stream.synchronize());
    assert_bad_fork("interruptible synchronise", stream.synchronize_unless(&mut || true));
    assert_bad_fork("event synchronise", event.synchronize());
    #[cfg(feature = "async")]
    assert_bad_fork("await", futures::executor::block_on(event.clone().into_future()));
}

#[test]
fn the_child_of_an_idle_parent_may_ask_and_is_refused_the_rest_with_advice() {
    assert_succeeds("idle");
}

fn idle() {
    let runtime = workers(2);
    let stream = runtime.stream(CPU).unwrap();
    let event = stream.record_event().unwrap();
    enqueue_notice(&stream).recv().unwrap();
    in_child(|| {
        ask_everything(&runtime, &stream, &event);
        assert_refusals(&runtime, &stream, &event);
        drop((runtime.clone(), stream.clone(), event.clone()));
        assert!(runtime.shutdown().is_clean());
    });
    enqueue_notice(&stream).recv().unwrap();
    assert!(runtime.is_initialized());
}

#[test]
fn a_synchronise_is_refused_in_the_child_also_when_nothing_is_pending() {
    // Goal: what a child is told does not depend on what the parent was doing.
    assert_succeeds("nothing pending");
}

fn nothing_pending() {
    let runtime = workers(1);
    let stream = runtime.stream(CPU).unwrap();
    let event = stream.record_event().unwrap();
    stream.synchronize().unwrap();
    in_child(|| assert_waits_are_refused(&stream, &event));
}

#[test]
fn the_child_of_a_busy_parent_drops_nothing_of_it_and_ends() {
    assert_succeeds("busy");
}

/// A worker is inside a task, its queue is full, streams are parked on it and queued behind it.
fn busy() {
    let runtime = workers(1);
    let [held, parked] = [stream(&runtime), stream(&runtime)];
    let drops = Arc::new(AtomicUsize::new(0));
    let enqueue_counted = |stream: &Stream| {
        let counted = CountDrop(Arc::clone(&drops));
        stream.enqueue(move || drop(counted)).unwrap();
    };
    let source = stream(&runtime);
    let gate = Gate::shut(&held);
    parked.wait_stream(&held).unwrap();
    source.wait_stream(&parked).unwrap();
    let queued = streams(&runtime, 10);
    let all: Vec<Stream> = queued.into_iter().chain([held, parked, source]).collect();
    for stream in &all {
        (0..100).for_each(|_| enqueue_counted(stream));
    }
    let event = all[11].record_event().unwrap();
    let mut handles = Some((runtime, all, event));
    in_child(|| {
        let (runtime, all, event) = handles.take().expect("the parent's handles");
        ask_everything(&runtime, &all[11], &event);
        assert!(!event.is_done() && !all[11].is_done());
        assert_refusals(&runtime, &all[10], &event);
        assert_waits_are_refused(&all[10], &event);
        assert_waits_are_refused(&all[11], &event);
        drop((runtime, all, event));
        assert_eq!(drops.load(Ordering::SeqCst), 0);
    });
    gate.open();
    drop(handles); // the last handle in the parent: what is queued is finished
    assert_eq!(drops.load(Ordering::SeqCst), 1_300);
}

#[test]
fn the_child_of_a_parent_that_never_used_the_runtime_may_use_it() {
    assert_succeeds("never used");
}

fn never_used() {
    // Made and asked, but not initialised.
    let runtime = workers(1);
    runtime.memory_info(CPU).unwrap();
    in_child(|| {
        let stream = runtime.stream(CPU).unwrap();
        enqueue_notice(&stream).recv().unwrap();
        stream.synchronize().unwrap();
        assert!(runtime.is_initialized());
    });
    assert!(!runtime.is_initialized());
    enqueue_notice(&runtime.stream(CPU).unwrap()).recv().unwrap();
}

#[test]
fn grandchildren_are_told_as_children_are() {
    assert_succeeds("grandchild");
}

/// Through a child that is refused, and through one that was first to use the runtime.
fn grandchild() {
    let first_used_in_child = workers(1);
    in_child(|| {
        let stream = first_used_in_child.stream(CPU).unwrap();
        enqueue_notice(&stream).recv().unwrap();
        in_child(|| assert_bad_fork("enqueue", stream.enqueue(|| ())));
        enqueue_notice(&stream).recv().unwrap();
    });
    let runtime = workers(1);
    let stream = runtime.stream(CPU).unwrap();
    let event = stream.record_event().unwrap();
    enqueue_notice(&stream).recv().unwrap();
    in_child(|| {
        in_child(|| {
            ask_everything(&runtime, &stream, &event);
            assert_refusals(&runtime, &stream, &event);
        });
        assert_refusals(&runtime, &stream, &event);
    });
}

#[test]
fn a_child_forked_in_the_middle_of_a_record_does_not_hang() {
    // Goal: nothing touches a parent's lock. Method: a thread records one event without a pause
    // while this one forks again and again; each child asks and drops.
    assert_succeeds("recording");
}

fn recording() {
    fork_while(|_, stream, event| stream.record(event).unwrap());
}

#[test]
fn a_child_forked_while_streams_are_made_and_counted_does_not_hang() {
    assert_succeeds("making streams");
}

fn making_streams() {
    fork_while(|runtime, _, _| {
        drop(runtime.stream(CPU).unwrap().record_event());
        let _ = runtime.counters();
    });
}

#[test]
fn a_child_forked_while_threads_enqueue_and_wait_does_not_hang() {
    assert_succeeds("waiting");
}

fn waiting() {
    fork_while(|_, stream, _| {
        stream.enqueue(|| ()).unwrap();
        stream.synchronize().unwrap();
    });
}

/// Forks again and again while two threads do the same thing without a pause.
fn fork_while(work: fn(&Runtime, &Stream, &Event)) {
    let runtime = workers(2);
    let stream = runtime.stream(CPU).unwrap();
    let event = stream.record_event().unwrap();
    let is_over = AtomicBool::new(false);
    let fork_often = || {
        for _ in 0..asked("ACCELRT_TEST_FORKS").unwrap_or(25) {
            in_child(|| {
                ask_everything(&runtime, &stream, &event);
                assert_refusals(&runtime, &stream, &event);
                drop((runtime.clone(), stream.clone(), event.clone()));
            });
        }
    };
    let outcome = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    work(&runtime, &stream, &event);
                }
            });
        }
        let outcome = catch_unwind(AssertUnwindSafe(fork_often));
        is_over.store(true, Ordering::Relaxed);
        outcome
    });
    assert!(outcome.is_ok(), "a child failed");
}

#[test]
fn drops_in_the_child_call_no_driver() {
    // Goal: drops of inherited objects do nothing. Method: a driver kind that counts its calls; the
    // child drops the last handle of everything, also of streams that only the runtime holds.
    assert_succeeds("driver");
}

fn driver() {
    let null = NullBackend::new(NullConfig {
        completion: CompletionMode::WhenAsked { polls: 100 },
        ..NullConfig::default()
    });
    let driver = FaultBackend::new(null);
    let backend = Arc::clone(&driver) as Arc<dyn Backend>;
    let runtime = Runtime::with_backends(Config::default(), [backend]).unwrap();
    let device = "null:0".parse().unwrap();
    let stream = runtime.stream(device).unwrap();
    let event = Event::timed();
    stream.record(&event).unwrap();
    drop(runtime.stream(device).unwrap().record_event().unwrap());
    in_child(|| {
        let calls = || Method::ALL.map(|method| driver.calls(method));
        let before = calls();
        drop((stream, event, runtime));
        assert_eq!(calls(), before);
    });
}

#[test]
fn the_exit_of_a_child_leaves_the_global_runtimes_work_alone() {
    // Goal: the handler at exit does nothing in a child. Method: an unseen error and unfinished
    // work are there when the child exits; the parent then sees and finishes both itself.
    assert_succeeds("global");
}

fn global() {
    let runtime = Runtime::global().unwrap();
    let [failed, held] = [stream(&runtime), stream(&runtime)];
    crate::support::enqueue_failure(&failed, "broken");
    crate::support::wait_by_query(&failed.record_event().unwrap());
    let gate = Gate::shut(&held);
    let behind = enqueue_notice(&held);
    in_child(|| ());
    in_child(|| {
        let again = Runtime::global().unwrap();
        assert_bad_fork("the global runtime's stream", again.stream(CPU));
        assert_eq!(again.device_count(DeviceKind::CPU).unwrap(), 1);
    });
    gate.open();
    behind.recv().unwrap();
    crate::support::stream_error(failed.synchronize());
}

/// Forks beside threads that are inside of an allocator: its lock is held in some of the children.
const ALLOCATING_FORKS: usize = 40;

#[test]
fn an_allocator_of_the_parents_holds_no_child_up_whoever_was_inside() {
    // Goal: no lock is waited for whose thread is not there. Method: three threads that grow and
    // shrink an allocator, and children that ask everything; a hang is killed by its timer.
    assert_succeeds("allocating");
}

fn allocating() {
    let runtime = workers(1);
    let pool = MemPool::new(&runtime, CPU, PoolOptions::default()).unwrap();
    let allocator = runtime.allocator(CPU).unwrap();
    let block = || allocator.allocate(Request::new(40 << 20, 7)).unwrap();
    let block = Cell::new(Some(block())); // too large for a thread's cache
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for stream in 0..3 {
            let (allocator, is_over) = (&allocator, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let block = allocator.allocate(Request::new(3 << 20, stream)).unwrap();
                    allocator.free(block).expect("it is its own");
                    allocator.trim();
                }
            });
        }
        for _ in 0..ALLOCATING_FORKS {
            in_child(|| {
                ask_allocator(&allocator, &pool);
                allocator.free(block.take().expect("of the parent")).expect("it is its own");
            });
        }
        is_over.store(true, Ordering::Relaxed);
    });
    allocator.free(block.take().expect("no child took it")).expect("it is its own");
    assert!(allocator.statistics().num_device_alloc > 0);
}

/// What a child may do with an allocator of its parent's.
fn ask_allocator(allocator: &CachingAllocator, pool: &MemPool) {
    assert_bad_fork("allocate", allocator.allocate(Request::new(1 << 20, 7)));
    assert_eq!(allocator.statistics(), Statistics::default());
    assert_eq!(allocator.snapshot(), Snapshot::default());
    assert_eq!(allocator.block_at(4096), None);
    assert_eq!(allocator.config(), AllocatorConfig::default());
    allocator.set_config(allocator.config());
    allocator.empty_cache();
    allocator.trim();
    allocator.reset_peak_statistics();
    allocator.reset_accumulated_statistics();
    assert_bad_fork("limit", allocator.set_memory_fraction(0.5));
    assert!((allocator.memory_fraction() - 1.0).abs() < f64::EPSILON);
    assert!(pool.segments().is_empty());
    drop(pool.enter());
}

#[test]
fn what_a_parents_thread_has_cached_serves_no_child() {
    // Method: the thread that forks has pieces of the size that is asked for in its cache.
    assert_succeeds("cached");
}

fn cached() {
    let runtime = workers(1);
    let allocator = runtime.allocator(CPU).unwrap();
    let request = Request::new(512, 7);
    for _ in 0..2 {
        allocator.free(allocator.allocate(request).unwrap()).expect("it is its own");
    }
    in_child(|| assert_bad_fork("a cached piece", allocator.allocate(request)));
    allocator.free(allocator.allocate(request).unwrap()).expect("it is its own");
}

#[test]
fn what_a_child_trims_of_its_parents_allocator_stays_with_the_driver() {
    // Method: a driver kind that counts its calls, and memory that is free when the child comes.
    assert_succeeds("trimming");
}

fn trimming() {
    let driver = FaultBackend::new(NullBackend::new(NullConfig::default()));
    let backend = Arc::clone(&driver) as Arc<dyn Backend>;
    let runtime = Runtime::with_backends(Config::default(), [backend]).unwrap();
    let allocator = runtime.allocator("null:0".parse().unwrap()).unwrap();
    let block = allocator.allocate(Request::new(3 << 20, 7)).unwrap();
    allocator.free(block).expect("it is its own");
    in_child(|| {
        let calls = || Method::ALL.map(|method| driver.calls(method));
        let before = calls();
        allocator.trim();
        assert_eq!(calls(), before);
    });
    assert!(allocator.statistics().reserved_bytes.all.current > 0);
    allocator.trim();
    assert_eq!(allocator.statistics().reserved_bytes.all.current, 0);
}

#[test]
fn the_child_of_a_task_that_forks_ends_with_its_thread() {
    assert_succeeds("task");
}

fn forking_task() {
    let runtime = workers(1);
    let stream = stream(&runtime);
    let (sender, receiver) = mpsc::channel();
    let task = move || {
        // SAFETY: the child has this worker alone, which returns from the task and ends.
        let process = unsafe { libc::fork() };
        assert!(process >= 0, "the system forks");
        if process == 0 {
            // SAFETY: sets a timer whose signal kills this child.
            unsafe { libc::alarm(child::HANG_S) };
            return;
        }
        let mut status = 0;
        // SAFETY: the child is ours; the pointer is to a number of this frame.
        unsafe { libc::waitpid(process, &raw mut status, 0) };
        sender.send(status).unwrap();
    };
    stream.enqueue(task).unwrap();
    assert_eq!(receiver.recv().unwrap(), 0, "0 is an end without a signal");
    stream.synchronize().unwrap();
}
