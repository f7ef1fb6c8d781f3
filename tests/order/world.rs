//! What a random program works on: a runtime's streams and events, with the model beside them.
//!
//! Locks of the test, in this order: an event's, slots' by number, the model's. A slot's is held
//! while something is enqueued, so that the model knows the order in the stream; an event's while
//! it is recorded or waited for, so that the model knows which record a wait is bound to. None is
//! held while anything is waited for, except by a producer that is throttled.

use std::fmt::Debug;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use accelrt::backend::contract::Backend;
use accelrt::{Config, Device, DeviceKind, Error, Event, Runtime, Stream, StreamError};
use accelrt_testing::null::{NullBackend, NullConfig};

use crate::model::{Model, Trace};
use crate::program::{Parameters, Target};
use crate::scheduled::scheduled;
use crate::semantics::machine::Actor;

/// Why a program failed.
pub(crate) type Outcome<T = ()> = Result<T, String>;

/// A stream and its number in the model.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) stream: Stream,
    pub(crate) model: usize,
}

#[derive(Debug)]
pub(crate) struct EventSlot {
    pub(crate) event: Event,
    pub(crate) turn: Mutex<()>,
}

/// Shared by all host threads, and by tasks that enqueue.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) parameters: Parameters,
    pub(crate) slots: Vec<Mutex<Slot>>,
    pub(crate) events: Vec<EventSlot>,
    model: Mutex<Model>,
    /// Numbers starts and ends over all tasks.
    clock: Arc<AtomicU64>,
}

/// What a task does besides leaving its trace.
#[derive(Debug)]
pub(crate) enum Body {
    Plain { fails: bool, spins: usize },
    Spawn { world: Arc<World>, onto: usize },
    Wait { event: Event },
}

/// Held by a task: tells when the task is dropped, run or not.
struct Guard {
    trace: Arc<Trace>,
    clock: Arc<AtomicU64>,
}

impl Guard {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn run(self, body: Body) -> Result<(), &'static str> {
        self.trace.start.store(self.now(), Ordering::SeqCst);
        self.trace.runs.fetch_add(1, Ordering::SeqCst);
        let result = match body {
            Body::Plain { fails, spins } => {
                (0..spins).for_each(|turn| {
                    black_box(turn);
                });
                if fails { Err("meant to fail") } else { Ok(()) }
            }
            Body::Spawn { world, onto } => {
                let parent = &self.trace;
                world.spawn(parent.node, onto).map_err(|_| "a task could not enqueue")
            }
            Body::Wait { event } => {
                let said = if event.synchronize().is_ok() { 1 } else { 2 };
                self.trace.waited.store(said, Ordering::SeqCst);
                Ok(())
            }
        };
        self.trace.end.store(self.now(), Ordering::SeqCst);
        result
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.trace.did_run() {
            self.trace.end.store(self.now(), Ordering::SeqCst);
        }
        self.trace.drops.fetch_add(1, Ordering::SeqCst);
    }
}

/// Says what failed.
pub(crate) fn must<T, E: Debug>(result: Result<T, E>, what: &str) -> Outcome<T> {
    result.map_err(|error| format!("{what}: {error:?}"))
}

/// A synchronise: true when it raised the error of a stream.
pub(crate) fn raised(result: Result<(), Error>, what: &str) -> Outcome<bool> {
    match result {
        Ok(()) => Ok(false),
        Err(Error::Stream(StreamError::Failed(_) | StreamError::SeveralFailed { .. })) => Ok(true),
        Err(error) => Err(format!("{what}: {error:?}")),
    }
}

impl World {
    /// The runtime of a program, its null backend if it has one, and its world.
    pub(crate) fn build(
        parameters: &Parameters,
    ) -> Outcome<(Runtime, Option<Arc<NullBackend>>, Arc<Self>)> {
        let config = Config::builder()
            .cpu_devices(parameters.devices)
            .cpu_threads(parameters.workers)
            .stream_task_limit(parameters.stream_task_limit)
            .opencl_library(std::env::var("ACCELRT_OPENCL_LIBRARY").ok())
            .build()
            .unwrap();
        let device_count = parameters.devices;
        let null = match parameters.target {
            Target::Driver { completion: Some(completion), .. } => {
                let config = NullConfig { device_count, completion, ..NullConfig::default() };
                Some(NullBackend::new(config))
            }
            _ => None, // the runtime has it
        };
        let backends = null.clone().map(|null| null as Arc<dyn Backend>);
        let runtime = must(Runtime::with_backends(config, backends), "a runtime")?;
        let runtime = if null.is_some() { runtime } else { scheduled(runtime) };
        let mut model = Model::new(parameters.events);
        let slot = |number| {
            let (device, priorities) = (parameters.device(number), [0, 0, -1, 1]);
            let priority = possible(&runtime, device, priorities[number % priorities.len()]);
            let stream = match number / parameters.devices {
                0 => runtime.default_stream(device),
                1 => runtime.pooled_stream_with_priority(device, priority),
                _ => runtime.stream_with_priority(device, priority),
            };
            let model = model.add_stream(number % parameters.devices);
            Ok(Mutex::new(Slot { stream: must(stream, "a stream")?, model }))
        };
        let slots = (0..parameters.slots).map(slot).collect::<Outcome<_>>()?;
        let event = |number| {
            let event = if number % 2 == 0 { Event::new() } else { Event::timed() };
            EventSlot { event, turn: Mutex::new(()) }
        };
        let events = (0..parameters.events).map(event).collect();
        let (parameters, model) = (parameters.clone(), Mutex::new(model));
        let clock = Arc::new(AtomicU64::new(1));
        Ok((runtime, null, Arc::new(Self { parameters, slots, events, model, clock })))
    }

    pub(crate) fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap()
    }

    pub(crate) fn slot(&self, number: usize) -> MutexGuard<'_, Slot> {
        self.slots[number].lock().unwrap()
    }

    /// Two different slots, taken in the order of their numbers.
    pub(crate) fn two_slots(&self, a: usize, b: usize) -> [MutexGuard<'_, Slot>; 2] {
        if a < b {
            let first = self.slot(a);
            [first, self.slot(b)]
        } else {
            let first = self.slot(b);
            [self.slot(a), first]
        }
    }

    /// Enqueues a task on a slot that is held; its number.
    pub(crate) fn enqueue(&self, slot: &Slot, body: Body, is_large: bool) -> Outcome<usize> {
        self.enqueue_by(Actor::Host, slot, body, is_large)
    }

    fn enqueue_by(&self, actor: Actor, slot: &Slot, body: Body, is_large: bool) -> Outcome<usize> {
        let fails = matches!(body, Body::Plain { fails: true, .. });
        let trace = self.model().enqueue_task(actor, slot.model, fails);
        let number = trace.node;
        let guard = Guard { trace, clock: Arc::clone(&self.clock) };
        let enqueued = if is_large {
            let ballast = [number; 32];
            slot.stream.enqueue(move || guard.run(black_box((body, ballast)).0))
        } else {
            match body {
                // Small enough to be stored in the queue itself.
                Body::Plain { fails, spins } => {
                    slot.stream.enqueue(move || guard.run(Body::Plain { fails, spins }))
                }
                body => slot.stream.enqueue(move || guard.run(body)),
            }
        };
        must(enqueued, "enqueue").map(|()| number)
    }

    /// Inside a task: enqueues another one.
    fn spawn(&self, parent: usize, onto: usize) -> Outcome {
        let (slot, body) = (self.slot(onto), Body::Plain { fails: false, spins: 10 });
        let child = self.enqueue_by(Actor::Callable(parent), &slot, body, false)?;
        self.model().spawned.push((parent, child));
        Ok(())
    }
}

/// A priority, or the one next to it that the device has.
pub(crate) fn possible(runtime: &Runtime, device: Device, priority: i32) -> i32 {
    let range = runtime.priority_range(device).expect("the device exists");
    priority.clamp(range.greatest, range.least)
}

impl Parameters {
    /// The device of a slot or an event.
    pub(crate) fn device(&self, number: usize) -> Device {
        let kind = match self.target {
            Target::Cpu => DeviceKind::CPU,
            Target::Driver { kind, .. } => kind,
        };
        Device::new(kind, number % self.devices).expect("three devices at most")
    }
}
