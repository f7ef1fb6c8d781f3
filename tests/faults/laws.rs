//! What must hold after a failure: the laws of the design, as far as a backend call can break them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use accelrt::backend::contract::{Backend, Leftover};
use accelrt::{
    DriverError, Error, EventError, FailureCause, MemoryError, StreamError, StreamFailure,
};
use accelrt_testing::fault::{Fault, FaultError, Method};
use accelrt_testing::null::ResourceCounts;

use crate::scenarios::Scenario;
use crate::world::{Machine, World};

/// The code of planned driver errors.
const PLANNED_CODE: i64 = 999;

/// Far beyond what a thread needs to end when it is told to.
const ENDS: Duration = Duration::from_secs(20);

/// True when an error says what was planned, or what follows from it.
fn is_explained(error: &Error) -> bool {
    match error {
        Error::Driver(DriverError::Refused { code, .. }) => *code == PLANNED_CODE,
        // With an event that is not complete, its record was refused or its end is not known.
        Error::Driver(DriverError::DeviceLost { .. })
        | Error::Memory(MemoryError::OutOfMemory { .. })
        | Error::Event(EventError::NotComplete | EventError::NotRecorded) => true,
        Error::Stream(StreamError::Failed(error)) => is_planned_cause(error.root().failure()),
        Error::Stream(StreamError::SeveralFailed { errors, .. }) => {
            errors.iter().all(|error| is_planned_cause(error.root().failure()))
        }
        _ => false,
    }
}

/// True for the failure of a stream whose device is lost.
pub(crate) fn is_lost_stream(error: &Error) -> bool {
    let is_lost = |error: &StreamFailure| {
        let cause = error.root().failure();
        matches!(cause, FailureCause::Backend(Error::Driver(DriverError::DeviceLost { .. })))
    };
    match error {
        Error::Stream(StreamError::Failed(error)) => is_lost(error),
        Error::Stream(StreamError::SeveralFailed { errors, .. }) => {
            errors.iter().all(|error| is_lost(error))
        }
        _ => false,
    }
}

fn is_planned_cause(cause: &FailureCause) -> bool {
    matches!(cause, FailureCause::Backend(error) if is_explained(error))
}

/// True when a refusal of the method is always told to somebody. The others have a second way, or
/// promise no answer:
///
/// * what gives something back: the caller is done with it, and the driver keeps it or not
/// * `mark_done`, `stream_query`: not done yet, and asked again
/// * `memory_info`: asked for the numbers of a shortage, which is told without them
/// * `VirtualMemory::reserve`: fewer addresses are asked for next
/// * `mark`, `wait_mark`, `stream_synchronize`, `when_done`: each stands in for another where the
///   host only wants to know how far the device is
const fn is_told(method: Method) -> bool {
    !method.is_release()
        && !matches!(
            method,
            Method::MarkDone
                | Method::MemoryInfo
                | Method::VmReserve
                | Method::StreamQuery
                | Method::Mark
                | Method::WaitMark
                | Method::StreamSynchronize
                | Method::WhenDone
        )
}

/// What is wrong with what was said. `failures` is how often the fault struck.
pub(crate) fn of_errors(errors: &[Error], fault: Option<Fault>, failures: u64) -> Vec<String> {
    let strange = errors.iter().filter(|error| failures == 0 || !is_explained(error));
    let mut found: Vec<String> =
        strange.map(|error| format!("after {failures} failures somebody said: {error}")).collect();
    if let Some(Fault { method: Some(method), error, .. }) = fault
        && is_told(method)
        && error != FaultError::OutOfMemory // what is being freed may be enough
        && failures > 0
        && errors.is_empty()
    {
        found.push(format!("nobody was told that {method} failed"));
    }
    found
}

/// What is wrong once all is synchronised with, nothing fails any more, and the scenario's handles
/// are gone. `failures` is how often tasks may have been their stream's failure themselves.
pub(crate) fn at_rest(world: &World, scenario: &Scenario, failures: u64) -> Vec<String> {
    world.machines.iter().for_each(Machine::settle);
    let mut found = world.ledger.violations();
    world.empty_caches();
    found.extend(world.machines.iter().flat_map(|machine| machine.at_rest(scenario.kept_until)));
    let counters = [&world.runtime, &world.neighbour].map(accelrt::Runtime::counters);
    let skipped: u64 = counters.iter().map(|counters| counters.num_skipped_tasks).sum();
    found.extend(of_unrun(world, skipped, failures));
    found
}

/// What is wrong with the number of tasks that were reported as not run.
fn of_unrun(world: &World, reported: u64, failures: u64) -> Option<String> {
    // A deferred task that could not find out how far its device is was not run, and is told as its
    // stream's error instead.
    let unrun = world.ledger.unrun() as u64;
    let most = unrun + world.unlisted() as u64;
    let least = if world.runs_on_host() { unrun } else { unrun.saturating_sub(failures) };
    let is_right = (least..=most).contains(&reported);
    (!is_right).then(|| format!("{reported} tasks are reported as not run: {least} to {most} are"))
}

/// What is wrong after the end, which leaves nothing undone when it is to be clean.
pub(crate) fn at_the_end(world: World, failures: u64, is_clean: bool) -> Vec<String> {
    let reports = world.reports();
    let mut found = world.ledger.violations();
    found.extend(world.take_errors().iter().map(|error| format!("too late: {error}")));
    for report in &reports {
        if report.num_busy_threads > 0 || is_clean && !report.is_clean() {
            found.push(format!("the end was not clean: {report:?}"));
        }
    }
    let counters = [&world.runtime, &world.neighbour].map(accelrt::Runtime::counters);
    let skipped: u64 = counters.iter().map(|counters| counters.num_skipped_tasks).sum();
    let cancelled: u64 = reports.iter().map(|report| report.num_cancelled_tasks).sum();
    found.extend(of_unrun(&world, skipped + cancelled, failures));
    let World { runtime, neighbour, machines, .. } = world;
    drop((runtime, neighbour));
    found.extend(machines.iter().flat_map(Machine::after_the_end));
    found
}

impl Machine {
    /// What is out although nobody has a buffer or an event. Streams are kept for the next user, as
    /// is what these methods give back.
    fn at_rest(&self, kept_until: &[Method]) -> Vec<String> {
        let is_kept = |text: &str| {
            let mut methods = kept_until.iter().chain(&[Method::StreamDestroy]);
            methods.any(|method| text.starts_with(method.name()))
        };
        let mut found = self.still_out();
        found.retain(|text| !is_kept(text));
        if self.taken_bytes() != 0 {
            found.push(format!("{} bytes are not back", self.taken_bytes()));
        }
        found
    }

    /// What is left when the runtime is gone.
    fn after_the_end(&self) -> Vec<String> {
        // Workers that were slow to end at the runtime's deadline still hold what they hold.
        let left = self.backend.shutdown(Instant::now() + ENDS);
        let mut found = self.still_out();
        if left != Leftover::default() {
            found.push(format!("threads are left: {left:?}"));
        }
        if self.taken_bytes() != 0 {
            found.push(format!("{} bytes are not back at the end", self.taken_bytes()));
        }
        let live = self.null.as_ref().map(|null| null.resource_counts()).unwrap_or_default();
        if live != ResourceCounts::default() {
            found.push(format!("the driver's books say: {live:?}"));
        }
        let holders = Arc::strong_count(&self.backend) - 1;
        if holders != 0 {
            found.push(format!("{holders} things that are gone still hold their backend"));
        }
        found
    }
}
