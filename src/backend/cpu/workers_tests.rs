//! Tests of failing worker starts: the call returns an error, and the next call retries.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use crate::backend::contract::{Backend, Turn, Work};
use crate::backend::cpu::run_queue::{NextWork, RunQueue, WorkerRequest};
use crate::backend::cpu::workers::Workers;
use crate::backend::cpu::{CpuBackend, faults};
use crate::base::config::Config;
use crate::base::device::Device;
use crate::base::error::{DriverError, Error, StreamError};
use crate::engine::event::Event;
use crate::engine::stream::Stream;
use crate::engine::stream::interrupt::Interrupt;
use crate::fault::{Fault, FaultBackend, FaultError, Method};
use crate::runtime::Runtime;

/// A runtime with two devices of one worker each. No worker has started yet.
fn runtime() -> Runtime {
    Runtime::new(Config { cpu_devices: 2, cpu_threads: Some(1), ..Config::default() }).unwrap()
}

fn stream(runtime: &Runtime, device_index: u8) -> Stream {
    runtime.stream(Device::cpu(device_index)).unwrap()
}

fn refuse_the_next_worker() {
    faults::refuse_after(0, || ());
}

fn assert_is_refusal(outcome: &Result<(), Error>) {
    let code = i64::from(libc::EAGAIN);
    let Err(Error::Driver(DriverError::Refused { code: given, .. })) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(*given, code);
    assert!(!faults::clear(), "a worker was asked for");
}

#[test]
fn a_failed_worker_start_is_an_error_of_the_call_and_the_next_call_retries() {
    let runtime = runtime();
    let stream = stream(&runtime, 0);
    let (tell, told) = channel();
    for _ in 0..3 {
        refuse_the_next_worker();
        let (tell, held) = (tell.clone(), Arc::new(()));
        let task = Arc::clone(&held);
        assert_is_refusal(&stream.enqueue(move || tell.send(Arc::strong_count(&task)).unwrap()));
        assert_eq!(Arc::strong_count(&held), 1, "the task was dropped");
    }
    assert!(stream.is_done() && stream.is_quiet(), "nothing is queued, and nothing failed");
    stream.enqueue(move || tell.send(7).unwrap()).unwrap();
    assert_eq!(told.iter().collect::<Vec<_>>(), [7], "what was refused did not run");
    stream.synchronize().unwrap();
}

#[test]
fn a_refused_fill_makes_its_stream_retain_no_error() {
    // Goal: a refused fill does not make its stream retain raised errors. Method: two later tasks
    // fail, and the test looks for their errors.
    let runtime = runtime();
    let stream = stream(&runtime, 0);
    let buffer = runtime.empty(64, Device::cpu(0)).unwrap();
    refuse_the_next_worker();
    assert_is_refusal(&buffer.fill(1, &stream).map(drop));
    assert!(stream.is_done(), "nothing is queued");
    for _ in 0..2 {
        stream.enqueue(|| Err::<(), _>("it fails")).unwrap();
        assert!(matches!(stream.synchronize(), Err(Error::Stream(StreamError::Failed(_)))));
        assert!(!stream.core().failures.has_failed(), "the error is kept");
    }
    buffer.fill(2, &stream).unwrap().wait().unwrap();
    assert_eq!(buffer.read_to_vec().unwrap(), [2; 64]);
}

#[test]
fn records_and_synchronises_need_no_worker() {
    let runtime = runtime();
    let stream = stream(&runtime, 0);
    refuse_the_next_worker();
    let event = stream.record_event().unwrap();
    assert!(!faults::clear(), "a worker was asked for");
    assert!(event.is_done());
    stream.synchronize().unwrap();
}

#[test]
fn a_task_that_comes_while_a_start_is_refused_fails_its_stream_and_is_named() {
    let runtime = runtime();
    let stream = stream(&runtime, 0);
    let beside = stream.clone();
    faults::refuse_after(0, move || beside.enqueue(|| ()).unwrap());
    assert_is_refusal(&stream.enqueue(|| ()));
    let raised = stream.synchronize();
    let Err(Error::Stream(StreamError::Failed(error))) = raised else { panic!("{raised:?}") };
    assert_eq!((error.ticket(), error.operation()), (2, Some("call")));
}

#[test]
fn a_panicking_record_without_a_worker_fails_its_stream_and_hangs_no_thread() {
    let config = Config { cpu_threads: Some(1), ..Config::default() };
    let backend = FaultBackend::new(CpuBackend::new(&config).unwrap());
    let backends = [Arc::<FaultBackend>::clone(&backend) as Arc<dyn Backend>];
    let runtime = Runtime::with_backends(config, backends).unwrap();
    let (stream, event) = (stream(&runtime, 0), Event::timed());
    refuse_the_next_worker();
    backend.plan(Fault::nth(Method::Mark, 1, FaultError::Panic));
    stream.record(&event).unwrap();
    assert!(!faults::clear(), "a worker was asked for");
    assert_eq!(backend.failures(Method::Mark), 1);
    assert!(event.is_done());
    assert!(matches!(event.synchronize(), Err(Error::Stream(StreamError::Failed(_)))));
    assert!(matches!(stream.synchronize(), Err(Error::Stream(StreamError::Failed(_)))));
    stream.synchronize().unwrap();
}

#[test]
fn a_refused_wait_leaves_the_streams_order_unchanged() {
    let runtime = runtime();
    let [source, waiting] = [0, 1].map(|index| stream(&runtime, index));
    let (open, opened) = channel::<()>();
    source.enqueue(move || opened.recv().unwrap_or_default()).unwrap();
    let event = source.record_event().unwrap();
    refuse_the_next_worker();
    assert_is_refusal(&waiting.wait_event(&event));
    assert!(!waiting.is_ordered_after(&event));
    let (tell, told) = channel();
    waiting.enqueue(move || tell.send(()).unwrap()).unwrap();
    told.recv().unwrap(); // the task does not wait for the event
    drop(open);
    source.synchronize().unwrap();
}

/// After this time, a test fails instead of hanging.
const LIMIT: Duration = Duration::from_secs(30);

/// Submits a task that occupies the second device's worker, so that no waiting thread executes it.
/// Returns the sender that ends the task, the stream, and the event behind the task.
fn occupy_second_device(runtime: &Runtime) -> (Sender<()>, Stream, Event) {
    let elsewhere = stream(runtime, 1);
    let ((enter, entered), (open, opened)) = (channel(), channel::<()>());
    let task = move || {
        enter.send(()).unwrap();
        opened.recv().unwrap_or_default();
    };
    elsewhere.enqueue(task).unwrap();
    entered.recv().unwrap();
    let event = elsewhere.record_event().unwrap();
    (open, elsewhere, event)
}

#[test]
fn a_spare_worker_refused_to_a_waiting_task_is_started_while_it_waits() {
    for is_marked in [true, false] {
        let runtime = runtime();
        let [waiting, behind] = [0, 0].map(|index| stream(&runtime, index));
        let (open, elsewhere, event) = occupy_second_device(&runtime);
        let ((enter, entered), (go, gone)) = (channel(), channel::<()>());
        let task = move || {
            enter.send(()).unwrap();
            gone.recv().unwrap();
            refuse_the_next_worker();
            if is_marked {
                event.synchronize().unwrap();
            } else {
                // For the occupying task.
                elsewhere.core().wait_ticket(1, false, &mut Interrupt::default()).unwrap();
            }
            assert!(!faults::clear(), "a worker was asked for");
        };
        waiting.enqueue(task).unwrap();
        entered.recv().unwrap();
        let (tell, told) = channel();
        behind.enqueue(move || tell.send(()).unwrap()).unwrap();
        go.send(()).unwrap();
        told.recv_timeout(LIMIT).expect("the task is queued for ever");
        drop(open);
        waiting.synchronize().unwrap();
    }
}

#[test]
fn a_spare_worker_refused_to_a_submitter_is_started_by_the_waiting_task() {
    let runtime = runtime();
    let [waiting, behind] = [0, 0].map(|index| stream(&runtime, index));
    let (open, elsewhere, event) = occupy_second_device(&runtime);
    waiting.enqueue(move || event.synchronize().unwrap()).unwrap();
    while elsewhere.core().waiters.count() == 0 {
        std::thread::yield_now(); // until the task sleeps
    }
    let (tell, told) = channel();
    refuse_the_next_worker();
    behind.enqueue(move || tell.send(()).unwrap()).unwrap();
    assert!(!faults::clear(), "a worker was asked for");
    told.recv_timeout(LIMIT).expect("the task is queued for ever");
    assert_eq!(runtime.counters().num_spare_workers, 1);
    drop(open);
    waiting.synchronize().unwrap();
}

#[test]
fn a_worker_that_unblocks_retries_the_start_it_requested() {
    let queue = RunQueue::new(2);
    let [first, second] = [(); 2].map(|()| std::thread::spawn(|| ()).thread().clone());
    for work in 0..2 {
        assert!(matches!(queue.push(0, work), Ok(WorkerRequest::Start)));
        assert!(matches!(queue.take(), NextWork::Work(..)));
    }
    assert!(matches!(queue.begin_block(&first), WorkerRequest::None));
    assert!(matches!(queue.push(0, 2), Ok(WorkerRequest::Start)));
    // The second worker blocks while a worker starts, so it requests no start itself.
    assert!(matches!(queue.begin_block(&second), WorkerRequest::None));
    assert!(matches!(queue.retry_start(), WorkerRequest::None), "a worker is on its way");
    assert!(
        matches!(queue.start_failed(), WorkerRequest::RetryStart(blocked) if blocked.len() == 2)
    );
    assert!(matches!(queue.end_block(&first), WorkerRequest::Start));
    let WorkerRequest::RetryStart(blocked) = queue.start_failed() else { panic!("no retry") };
    assert_eq!(blocked[0].id(), second.id());
    assert!(matches!(queue.retry_start(), WorkerRequest::Start));
}

/// Work that calls a function each time it runs.
struct Call<F>(F);

impl<F: Fn() + Send + Sync> Work for Call<F> {
    fn run(self: Arc<Self>, _turn: &Turn<'_>) {
        (self.0)();
    }
}

#[test]
fn dropped_streams_leave_the_run_queue_during_long_tasks() {
    // Goal: work that waiting threads have executed does not stay queued. Method: the only worker
    // is inside a task while the test creates, uses and drops 500 streams.
    let runtime = runtime();
    let (open, busy, _) = occupy_second_device(&runtime);
    let used = |_| {
        let used = stream(&runtime, 1);
        used.enqueue(|| ()).unwrap();
        used.synchronize().unwrap();
        Arc::downgrade(used.core())
    };
    let cores: Vec<_> = (0..500).map(used).collect();
    let kept = cores.iter().filter(|core| core.strong_count() > 0).count();
    assert!(kept <= 20, "{kept} streams that are gone are kept");
    drop(open);
    busy.synchronize().unwrap();
}

#[test]
fn a_full_run_queue_retains_streams_that_have_work() {
    let runtime = runtime();
    let (open, busy, _) = occupy_second_device(&runtime);
    let (tell, told) = channel();
    let streams: Vec<_> = (0..500).map(|_| stream(&runtime, 1)).collect();
    for (number, waiting) in streams.iter().enumerate() {
        let tell = tell.clone();
        waiting.enqueue(move || tell.send(number).unwrap()).unwrap();
    }
    drop((open, tell));
    let mut ran: Vec<usize> = told.iter().collect();
    ran.sort_unstable();
    assert_eq!(ran, (0..500).collect::<Vec<_>>());
    busy.synchronize().unwrap();
}

#[test]
fn work_queued_during_a_failing_start_wakes_a_sleeping_worker() {
    // Goal: no work stays queued while a worker sleeps. Method: during the start of the second
    // worker, the first worker takes the work that requested the start, and sleeps. More work
    // then arrives, for which the second worker is responsible, and the start fails.
    let workers = Arc::new(Workers::new("test".to_owned(), 2, 2));
    let submit = |workers: &Workers, work: Arc<dyn Work>| workers.submit(0, work).unwrap();
    let is_open = Arc::new(AtomicBool::new(false));
    let ((say_inside, inside), (say_ran, ran)) = (channel(), channel());
    let (gate, (tell, told)) = (Arc::clone(&is_open), channel());
    let first = move || {
        say_inside.send(()).unwrap();
        while !gate.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
    };
    submit(&workers, Arc::new(Call(first)));
    inside.recv_timeout(LIMIT).expect("the only worker begins");
    let same = Arc::clone(&workers);
    let while_it_starts = move || {
        is_open.store(true, Ordering::Relaxed);
        ran.recv_timeout(LIMIT).expect("the only worker takes what is there");
        while !format!("{same:?}").contains("asleep: 1") {
            std::thread::yield_now();
        }
        submit(&same, Arc::new(Call(move || tell.send(()).unwrap())));
    };
    faults::refuse_after(0, while_it_starts);
    submit(&workers, Arc::new(Call(move || say_ran.send(()).unwrap())));
    assert!(!faults::clear(), "a worker was asked for");
    told.recv_timeout(LIMIT).expect("the work is queued for ever");
    workers.shutdown(Instant::now() + LIMIT);
}

/// Work that waiting threads have executed while a worker left it to them.
struct ExecutedElsewhere {
    was_left: AtomicBool,
    tell: Sender<&'static str>,
}

impl Work for ExecutedElsewhere {
    fn run(self: Arc<Self>, _: &Turn<'_>) {
        self.tell.send("run").unwrap();
    }

    fn leave_for(&self) -> Option<Duration> {
        let was_left = self.was_left.swap(true, Ordering::Relaxed);
        (!was_left).then_some(Duration::from_micros(5))
    }

    fn is_needed(&self) -> bool {
        false
    }

    fn give_up(self: Arc<Self>) {
        self.tell.send("given up").unwrap();
    }
}

#[test]
fn a_worker_gives_up_what_it_left_to_threads_that_have_executed_it() {
    // Goal: a worker begins no turn, and so no search, for a stream that is no longer used. Method:
    // work that is not needed after its deferral reports what the worker does with it.
    let (tell, told) = channel();
    let workers = Workers::new("test".into(), 1, 2);
    for _ in 0..10 {
        let work = ExecutedElsewhere { was_left: AtomicBool::new(false), tell: tell.clone() };
        workers.submit(0, Arc::new(work)).unwrap();
        assert_eq!(told.recv_timeout(LIMIT).unwrap(), "given up");
    }
    assert_eq!(workers.shutdown(Instant::now() + LIMIT).busy_threads, 0);
    assert_eq!(told.try_iter().count(), 0);
}
