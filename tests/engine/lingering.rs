//! What a stream does in a turn whose thread lingers, and when it is left to others.
//!
//! Goal: the words of `Turn::linger` and `Work::leave_for`. Method: a backend that executes nothing
//! by itself; the test is the worker, and what comes in during a linger is enqueued by the linger.
#![expect(unsafe_code, reason = "a backend of the test's own")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use accelrt::backend::contract::{
    Address, Backend, DeviceProperties, DoneCallback, Leftover, Mark, MemoryInfo, PointerOwner,
    PriorityRange, StreamHandle, Turn, Work,
};
use accelrt::{Config, Device, DeviceKind, Result, Runtime, Stream};
use accelrt_testing::null::{NullBackend, NullConfig};

/// Turns after which a stream knows that its tasks are short, though this thread lost its processor
/// in the first, and before it measures the next: of long ones a thread would execute none.
const KNOWN_TURNS: u32 = 32;

/// After this a worker comes to a thread that waits and executes nothing.
const LATE: Duration = Duration::from_secs(1);

/// How often a test may lose its processor in a measured task.
const ATTEMPTS: u32 = 20;

/// Keeps work for the test.
#[derive(Debug)]
struct KeepingBackend {
    inner: Arc<NullBackend>,
    work: Mutex<Vec<Arc<dyn Work>>>,
}

// SAFETY: the inner backend keeps the contract of whatever is handed on; work is the test's.
unsafe impl Backend for KeepingBackend {
    hand_on_the_usual!();
    hand_on_unsafe! {
        when_done(mark: Mark, callback: DoneCallback) -> Result<()>;
    }

    fn runs_on_host(&self) -> bool {
        true
    }

    unsafe fn submit(&self, _stream: StreamHandle, work: Arc<dyn Work>) {
        self.work.lock().unwrap().push(work);
    }

    unsafe fn resume(&self, stream: StreamHandle, work: Arc<dyn Work>) {
        // SAFETY: as for this method.
        unsafe { self.submit(stream, work) };
    }
}

struct World {
    _runtime: Runtime,
    backend: Arc<KeepingBackend>,
    stream: Stream,
    /// How many tasks ran.
    ran: Arc<AtomicU32>,
}

impl World {
    fn new() -> Self {
        let inner = NullBackend::new(NullConfig::default());
        let backend = Arc::new(KeepingBackend { inner, work: Mutex::default() });
        let backends = [Arc::<KeepingBackend>::clone(&backend) as Arc<dyn Backend>];
        let runtime = Runtime::with_backends(Config::default(), backends).unwrap();
        let device = Device::new(DeviceKind::NULL, 0).unwrap();
        let stream = runtime.stream(device).unwrap();
        let world = Self { _runtime: runtime, backend, stream, ran: Arc::default() };
        for _ in 0..KNOWN_TURNS {
            world.enqueue();
            world.turn(&|_| false);
        }
        world.ran.store(0, Ordering::Relaxed);
        world
    }

    fn enqueue(&self) {
        let ran = Arc::clone(&self.ran);
        let count = move || {
            ran.fetch_add(1, Ordering::Relaxed);
        };
        self.stream.enqueue(count).unwrap();
    }

    /// Waits for what was enqueued. True when this thread executed it, as it does while tasks count
    /// as short. Where it lost its processor in a measured one they do not, and a worker comes.
    fn wait_here(&self) -> bool {
        let (end, has_ended) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let worker = scope.spawn(move || {
                let is_late = has_ended.recv_timeout(LATE) == Err(RecvTimeoutError::Timeout);
                if is_late {
                    self.turn(&|_| false);
                }
                is_late
            });
            self.stream.synchronize().unwrap();
            drop(end);
            !worker.join().unwrap()
        })
    }

    fn ran(&self) -> u32 {
        self.ran.load(Ordering::Relaxed)
    }

    /// Executes what was submitted, as one worker in one turn.
    fn turn(&self, linger: &dyn Fn(&dyn Fn() -> bool) -> bool) {
        let work = self.backend.work.lock().unwrap().pop().expect("work was submitted");
        work.run(&Turn::new(&|| false, &|| false).with_linger(linger));
    }

    /// What a worker asks before it runs what was submitted.
    fn leave_for(&self) -> Option<Duration> {
        self.backend.work.lock().unwrap().last().expect("work was submitted").leave_for()
    }

    fn is_submitted(&self) -> bool {
        !self.backend.work.lock().unwrap().is_empty()
    }
}

#[test]
fn what_comes_during_a_linger_is_executed_in_the_same_turn() {
    let world = World::new();
    world.enqueue();
    world.turn(&|has_more| {
        let is_first = world.ran() == 1;
        assert!(!has_more());
        if is_first {
            world.enqueue();
            assert!(has_more());
        }
        is_first
    });
    assert_eq!(world.ran(), 2);
    assert!(!world.is_submitted());
}

#[test]
fn nothing_is_executed_after_a_linger_for_nothing_and_what_came_is_submitted_again() {
    let world = World::new();
    world.enqueue();
    world.turn(&|_| {
        if world.ran() == 1 {
            world.enqueue(); // in the moment between the last look and the end of the turn
        }
        false
    });
    assert_eq!(world.ran(), 1, "the thread counts as looking: others rely on it");
    assert!(world.is_submitted());
    world.turn(&|_| false);
    assert_eq!(world.ran(), 2);
    assert!(!world.is_submitted());
}

#[test]
fn a_stream_is_left_to_a_host_thread_while_that_goes_on_executing_it() {
    let is_left = || {
        let world = World::new();
        world.enqueue();
        assert_eq!(world.leave_for(), None, "no host thread has executed anything");
        if !world.wait_here() {
            return false;
        }
        assert_eq!(world.ran(), 1);
        for _ in 0..10 {
            assert!(world.leave_for().is_some());
            world.enqueue();
            if !world.wait_here() {
                return false;
            }
        }
        world.enqueue();
        assert!(world.leave_for().is_some());
        assert_eq!(world.leave_for(), None, "nothing was executed since");
        world.turn(&|_| unreachable!("a host thread will execute what comes next"));
        assert_eq!(world.ran(), 12);
        true
    };
    assert!((0..ATTEMPTS).any(|_| is_left()), "{ATTEMPTS} times this thread executed no task");
}
