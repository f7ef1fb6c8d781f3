//! What a stream does in a turn whose thread lingers, behind its last task or before the first.
//!
//! Goal: the words of `Turn::linger`. Method: a backend that executes nothing by itself; the test
//! is the worker, and what comes in during a linger is enqueued by the linger.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use accelrt::backend::contract::{
    Address, Backend, DeviceProperties, DoneCallback, Leftover, Mark, MemoryInfo, PointerOwner,
    PriorityRange, StreamHandle, Turn, Work,
};
use accelrt::backend::null::{NullBackend, NullConfig};
use accelrt::{Config, Device, DeviceKind, Result, Runtime, Stream};

/// Turns after which a stream knows that its tasks are short, though this thread lost its processor
/// in the first, and before it measures the next: of long ones a thread would execute none.
const KNOWN_TURNS: u32 = 32;

/// Keeps work for the test.
#[derive(Debug)]
struct KeepingBackend {
    inner: Arc<NullBackend>,
    work: Mutex<Vec<Arc<dyn Work>>>,
}

impl Backend for KeepingBackend {
    hand_on_the_usual!();
    hand_on! {
        when_done(mark: Mark, callback: DoneCallback) -> Result<()>;
    }

    fn runs_on_host(&self) -> bool {
        true
    }

    fn submit(&self, _stream: StreamHandle, work: Arc<dyn Work>) {
        self.work.lock().unwrap().push(work);
    }

    fn resume(&self, stream: StreamHandle, work: Arc<dyn Work>) {
        self.submit(stream, work);
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
        let device = Device::new(DeviceKind::Null, 0).unwrap();
        let stream = runtime.dedicated_stream(device, 0).unwrap();
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

    /// There and back on this thread, which executes it.
    fn round_trip(&self) {
        self.enqueue();
        self.stream.synchronize().unwrap();
    }

    fn ran(&self) -> u32 {
        self.ran.load(Ordering::Relaxed)
    }

    /// Executes what was submitted, as one worker in one turn.
    fn turn(&self, linger: &dyn Fn(&dyn Fn() -> bool) -> bool) {
        let work = self.backend.work.lock().unwrap().pop().expect("work was submitted");
        work.run(&Turn::new(&|| false, &|| false).with_linger(linger));
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
fn a_stream_is_left_to_a_host_thread_that_goes_on_executing_it() {
    let world = World::new();
    world.round_trip();
    for _ in 0..3 {
        world.turn(&|is_standing| {
            world.round_trip();
            // Asked for longer than any thread takes from one round trip to the next.
            assert!((0..100_000).all(|_| !is_standing()));
            false
        });
        assert!(world.is_submitted(), "its entry stays");
    }
    assert_eq!(world.ran(), 4);
}

#[test]
fn a_stream_whose_host_thread_left_it_is_executed_without_another_linger() {
    let world = World::new();
    world.round_trip();
    world.enqueue();
    let lingers = AtomicU32::new(0);
    world.turn(&|is_standing| {
        lingers.fetch_add(1, Ordering::Relaxed);
        while !is_standing() {}
        true
    });
    assert_eq!(world.ran(), 2);
    assert_eq!(lingers.into_inner(), 1, "a host thread will execute what comes next");
    assert!(!world.is_submitted());
}

#[test]
fn a_worker_with_other_work_comes_back_to_a_stream_that_was_left() {
    // As with two such streams, each of which is other work beside the other one.
    let world = World::new();
    world.round_trip();
    world.enqueue();
    while world.ran() == 1 {
        world.turn(&|is_standing| is_standing());
    }
    assert!(!world.is_submitted());
}
