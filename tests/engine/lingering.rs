//! What a stream does in a turn whose thread lingers.
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
        Self { _runtime: runtime, backend, stream, ran: Arc::default() }
    }

    fn enqueue(&self) {
        let ran = Arc::clone(&self.ran);
        let count = move || {
            ran.fetch_add(1, Ordering::Relaxed);
        };
        self.stream.enqueue(count).unwrap();
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
fn streams_that_host_threads_execute_are_left_without_a_linger() {
    let world = World::new();
    world.enqueue();
    world.stream.synchronize().unwrap(); // helps
    assert_eq!(world.ran(), 1);
    world.turn(&|_| unreachable!("the entry of what the helper executed"));
    world.enqueue();
    world.turn(&|_| unreachable!("a host thread will execute what comes next"));
    assert_eq!(world.ran(), 2);
}
