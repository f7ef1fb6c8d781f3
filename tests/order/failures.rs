//! Random programs with failures and receivers on the cpu device, against their semantics.
//!
//! Goal: each call raises the errors that the semantics has for it, and no other; a received error
//! ends for later tasks; an unreceived one is reported at the end. Method: one host thread, pooled
//! streams that are issued again, fills as handles, buffers that the host reads.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};

use accelrt::internal::SynchronizeFuture;
use accelrt::{
    Buffer, Config, Device, Error, Event, Runtime, Stream, StreamError, StreamFailure, Transfer,
};

use crate::asked::asked;
use crate::failure_semantics::{Action, Machine, Root, draw};
use crate::hang::Watchdog;
use crate::numbers::Numbers;
use crate::scheduled::scheduled;

/// The number of streams of a pool.
const POOL_STREAMS: usize = 32;
const BUFFER_BYTES: usize = 16;
/// A stream keeps the details of 16 errors of each phase.
const MAX_FAILURES: usize = 16;
const CPU: Device = Device::cpu(0);

struct World {
    runtime: Runtime,
    holders: Vec<Stream>,
    events: Vec<Event>,
    buffers: Vec<Buffer>,
    fills: Vec<Option<Transfer>>,
    begun: Vec<Option<(Stream, SynchronizeFuture)>>,
    has_run: Vec<Arc<AtomicBool>>,
}

impl World {
    /// Streams of different pools, so that each pool issues its stream again after 32 requests.
    fn new(num_streams: usize, num_events: usize, num_buffers: usize) -> Self {
        let config = Config::builder().cpu_threads(2).build().unwrap();
        let runtime = scheduled(Runtime::new(config).unwrap());
        let holders: Vec<Stream> =
            (0..num_streams).map(|number| pooled(&runtime, priority(number))).collect();
        let buffer = |number: usize| {
            runtime.exchange_stream(&holders[number % num_streams]).unwrap();
            runtime.empty(BUFFER_BYTES, CPU).unwrap()
        };
        let buffers = (0..num_buffers).map(buffer).collect();
        let events = (0..num_events).map(|_| Event::new()).collect();
        let (fills, begun, has_run) = (Vec::new(), Vec::new(), Vec::new());
        Self { runtime, holders, events, buffers, fills, begun, has_run }
    }

    /// Performs an action. Returns the roots of the errors that it raises.
    fn perform(&mut self, action: &Action) -> BTreeSet<Root> {
        let outcome = match *action {
            Action::Task { stream, fails } => {
                let (number, has_run) = (self.has_run.len(), Arc::new(AtomicBool::new(false)));
                self.has_run.push(Arc::clone(&has_run));
                self.holders[stream].enqueue(move || {
                    has_run.store(true, Ordering::Relaxed);
                    if fails { Err(number.to_string()) } else { Ok(()) }
                })
            }
            Action::Fill(stream, buffer) => {
                let fill = self.buffers[buffer].fill(1, &self.holders[stream]).unwrap();
                self.fills.push(Some(fill));
                Ok(())
            }
            Action::Record(event, stream) => self.holders[stream].record(&self.events[event]),
            Action::WaitEvent(stream, event) => {
                self.holders[stream].wait_event(&self.events[event])
            }
            Action::WaitStream(stream, other) => {
                self.holders[stream].wait_stream(&self.holders[other])
            }
            Action::Reissue(stream) => {
                (1..POOL_STREAMS).for_each(|_| drop(pooled(&self.runtime, priority(stream))));
                self.holders.push(pooled(&self.runtime, priority(stream)));
                Ok(())
            }
            Action::WaitForFill(fill) => self.fills[fill].as_ref().expect("it exists").wait(),
            Action::HostAccess(buffer) => self.buffers[buffer].read_to_vec().map(drop),
            Action::SynchronizeEvent(event) => self.events[event].synchronize(),
            Action::Synchronize(holder) => self.holders[holder].synchronize(),
            Action::SynchronizeDevice => self.runtime.synchronize(CPU),
            Action::Begin(holder) => {
                let stream = &self.holders[holder];
                let begun = SynchronizeFuture::new(stream.core(), stream.issued_after()).unwrap();
                self.begun.push(Some((stream.clone(), begun)));
                Ok(())
            }
            Action::Finish(begun) => {
                let (stream, mut future) = self.begun[begun].take().expect("it was begun");
                loop {
                    if let Poll::Ready(outcome) = future.poll(Waker::noop()) {
                        break outcome;
                    }
                    let _ = stream.is_done(); // a step, under a schedule
                    std::thread::yield_now();
                }
            }
            Action::GiveUp(begun) => {
                self.begun[begun] = None;
                Ok(())
            }
            Action::DropFills => {
                self.fills.iter_mut().for_each(|fill| *fill = None);
                Ok(())
            }
        };
        outcome.err().map(roots).unwrap_or_default()
    }
}

fn priority(stream: usize) -> i32 {
    i32::try_from(stream).expect("a few streams") - 1
}

fn pooled(runtime: &Runtime, priority: i32) -> Stream {
    runtime.pooled_stream_with_priority(CPU, priority).unwrap()
}

fn root(failure: &StreamFailure) -> Root {
    let text = failure.root().failure().to_string();
    let number = text.strip_prefix("a task returned an error: ");
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

fn roots(error: Error) -> BTreeSet<Root> {
    match error {
        Error::Stream(StreamError::Failed(failure)) => BTreeSet::from([root(&failure)]),
        Error::Stream(StreamError::SeveralFailed { errors, .. }) => {
            errors.iter().map(|failure| root(failure)).collect()
        }
        error => panic!("{error:?}"),
    }
}

fn check(seed: u64) -> Result<(), String> {
    let mut numbers = Numbers::new(seed);
    let (streams, events, buffers) =
        (1 + numbers.below(3), 1 + numbers.below(3), 1 + numbers.below(3));
    let mut machine = Machine::new(streams, events, buffers);
    let mut world = World::new(streams, events, buffers);
    let mut actions = Vec::new();
    for _ in 0..10 + numbers.below(120) {
        let action = draw(&machine, &mut numbers, MAX_FAILURES);
        let (expected, raised) = (machine.apply(&action), world.perform(&action));
        actions.push(action);
        if expected != raised {
            let actions: Vec<String> = actions.iter().map(|it| format!("{it:?}")).collect();
            return Err(format!("raised {raised:?}, not {expected:?}:\n{}", actions.join("\n")));
        }
    }
    let World { runtime, has_run, .. } = world;
    let report = runtime.shutdown();
    let ran: Vec<bool> = has_run.iter().map(|ran| ran.load(Ordering::Relaxed)).collect();
    let unseen: BTreeSet<Root> = report.unseen_errors.iter().map(|error| root(error)).collect();
    if ran != machine.has_run || unseen != machine.unreceived() {
        let (expected, actions) = (machine.unreceived(), actions);
        let tasks = (ran, &machine.has_run);
        return Err(format!("tasks {tasks:?}, report {unseen:?}, not {expected:?}: {actions:#?}"));
    }
    Ok(())
}

#[test]
fn receivers_get_the_failures_of_the_semantics() {
    let watchdog = Watchdog::new("programs with failures");
    let seed = asked("ACCELRT_TEST_SEED");
    let programs = asked("ACCELRT_TEST_PROGRAMS").unwrap_or(1_000);
    for number in 0..if seed.is_some() { 1 } else { programs } {
        let seed = seed.unwrap_or(number);
        let advice = format!("ACCELRT_TEST_SEED={seed} repeats this program");
        watchdog.step(advice.clone());
        if let Err(difference) = check(seed) {
            panic!("{difference}\n{advice}");
        }
    }
}
