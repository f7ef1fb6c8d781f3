//! The campaign: every scenario on every kind, healthy first, then with each call failing in turn.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Mutex, Once};
use std::time::Duration;

use accelrt::{Error, RuntimeError, StreamError};
use accelrt_testing::fault::{Fault, FaultBackend, FaultError, Method, Repeat};

use crate::asked::asked;
use crate::laws;
use crate::scenarios::{End, Scenario};
use crate::table::Table;
use crate::watchdog::receive_within;
use crate::world::{Kind, World, locked};

/// Far beyond what one run takes: only a hang lasts as long.
const HANG: Duration = Duration::from_secs(60);

/// The number of calls of a method that are failed one by one, an even choice of all its calls.
/// `make faults` asks for more.
fn max_calls() -> u64 {
    asked("ACCELRT_TEST_FAULT_CALLS").unwrap_or(4)
}

/// Violations after which the rest is not looked at.
const MOST_VIOLATIONS: usize = 20;

/// Panics on any thread since the start, those that were caught included.
static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Held by who counts panics and by who panics on purpose.
pub(crate) static ALONE: Mutex<()> = Mutex::new(());

/// What came out.
pub(crate) struct Campaign {
    pub(crate) table: Table,
    violations: Vec<String>,
}

impl Campaign {
    /// Fails every call of every scenario. Panics when a run hangs.
    pub(crate) fn run(kinds: &'static [Kind], scenarios: &'static [Scenario]) -> Self {
        let _alone = locked(&ALONE);
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || Self::run_all(kinds, scenarios, &tell));
        let mut last = String::from("the first run");
        loop {
            match receive_within(HANG, &told) {
                Ok(case) => last = case,
                Err(RecvTimeoutError::Timeout) => panic!("this run hangs: {last}"),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        thread.join().expect("panics of a run are caught")
    }

    fn run_all(kinds: &[Kind], scenarios: &[Scenario], tell: &Sender<String>) -> Self {
        let table = Table::new(scenarios.iter().map(|scenario| scenario.name).collect());
        let mut campaign = Self { table, violations: Vec::new() };
        for kind in kinds {
            for scenario in scenarios {
                let calls = campaign.case(*kind, scenario, None, tell);
                let planned = faults(&calls).into_iter();
                for fault in planned.filter(|fault| kind.may_meet(fault.error)) {
                    if campaign.violations.len() >= MOST_VIOLATIONS {
                        return campaign;
                    }
                    campaign.case(*kind, scenario, Some(fault), tell);
                }
            }
        }
        campaign
    }

    /// Runs one case; the calls of each method that it made.
    fn case(
        &mut self,
        kind: Kind,
        scenario: &Scenario,
        fault: Option<Fault>,
        tell: &Sender<String>,
    ) -> Vec<u64> {
        let name = format!("{} on {kind:?} with {fault:?}", scenario.name);
        // The watchdog gave up on this thread when nobody listens.
        let _ = tell.send(name.clone());
        let outcome = run_case(kind, scenario, fault);
        let found = outcome.violations.into_iter().map(|violation| format!("{name}: {violation}"));
        self.violations.extend(found);
        if let Some(fault) = fault {
            self.table.add(scenario.name, fault.method, outcome.failures);
        }
        outcome.calls
    }

    #[track_caller]
    pub(crate) fn assert_lawful(&self) {
        assert!(self.violations.is_empty(), "violations:\n{}", self.violations.join("\n"));
    }
}

/// The faults of a scenario that makes so many calls: each call of each method is refused once, and
/// loses the device from then on; and the device is lost at some call of any method.
fn faults(calls: &[u64]) -> Vec<Fault> {
    let (mut faults, max_calls) = (Vec::new(), max_calls());
    let from_then_on = |fault| Fault { repeat: Repeat::FromThenOn, ..fault };
    for (method, count) in Method::ALL.into_iter().zip(calls) {
        for call in chosen(*count, max_calls) {
            let refused = Fault::nth(method, call, FaultError::Driver);
            let lost = Fault { error: FaultError::DeviceLost, ..refused };
            faults.extend([refused, from_then_on(lost)]);
            if method.takes_memory() {
                let short = Fault { error: FaultError::OutOfMemory, ..refused };
                faults.extend([short, from_then_on(short)]);
            }
        }
    }
    let lost = |call| from_then_on(Fault::nth_of_any(call, FaultError::DeviceLost));
    // A loss at any call needs more samples: other refusals change the call that it hits.
    faults.extend(chosen(calls.iter().sum(), 3 * max_calls).map(lost));
    faults
}

/// Numbers from 1 to `count`: all, or an even choice of `most` with the first and the last.
fn chosen(count: u64, most: u64) -> impl Iterator<Item = u64> {
    let number = count.min(most);
    (0..number).map(move |place| 1 + place * (count - 1) / (number - 1).max(1))
}

/// What one case led to.
pub(crate) struct Outcome {
    pub(crate) violations: Vec<String>,
    failures: u64,
    calls: Vec<u64>,
}

/// Runs a scenario with a fault, and looks at the laws.
pub(crate) fn run_case(kind: Kind, scenario: &Scenario, fault: Option<Fault>) -> Outcome {
    count_panics();
    // Relaxed, here and below: read after the threads were joined.
    let panics = PANICS.load(Ordering::Relaxed);
    let run = || run_in_world(World::new(kind, scenario), scenario, fault);
    let mut outcome = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Outcome {
        violations: Vec::new(), // the panic is counted
        failures: 0,
        calls: vec![0; Method::ALL.len()],
    });
    let panics = PANICS.load(Ordering::Relaxed) - panics;
    if panics > 0 {
        outcome.violations.push(format!("{panics} panics"));
    }
    outcome
}

fn run_in_world(world: World, scenario: &Scenario, fault: Option<Fault>) -> Outcome {
    let backend = std::sync::Arc::downgrade(world.backend());
    let backend = || backend.upgrade().expect("the world has it");
    if let Some(fault) = fault {
        backend().plan(fault);
    }
    (scenario.run)(&world);
    if scenario.end == End::Shutdown {
        let (calls, failures) = counts(&backend());
        backend().clear();
        let mut errors = world.take_errors();
        errors.retain(|error| !matches!(error, Error::Runtime(RuntimeError::ShutDown)));
        let unseen = world.reports().into_iter().flat_map(|report| report.unseen_errors);
        errors.extend(unseen.map(|failure| StreamError::Failed(failure).into()));
        let mut violations = laws::of_errors(&errors, fault, failures);
        violations.extend(laws::at_the_end(world, failures, false));
        return Outcome { violations, failures, calls };
    }
    // What was opened and not raised is raised here.
    world.synchronize();
    let (calls, failures) = counts(&backend());
    backend().clear();
    world.synchronize();
    let mut violations = laws::of_errors(&world.take_errors(), fault, failures);
    violations.extend(laws::at_rest(&world, scenario, failures));
    // The fault is over: everything works, from the first call to the end. Only a stream that met a
    // lost device stays failed.
    (scenario.run)(&world);
    world.synchronize();
    let mut late = world.take_errors();
    if fault.is_some_and(|fault| fault.error == FaultError::DeviceLost) {
        late.retain(|error| !laws::is_lost_stream(error));
    }
    violations.extend(late.iter().map(|error| format!("after the fault was over: {error}")));
    violations.extend(laws::at_rest(&world, scenario, failures));
    world.shut_down();
    violations.extend(laws::at_the_end(world, failures, true));
    Outcome { violations, failures, calls }
}

/// Calls of each method, and failures of all.
fn counts(backend: &FaultBackend) -> (Vec<u64>, u64) {
    let calls = Method::ALL.into_iter().map(|method| backend.calls(method)).collect();
    (calls, Method::ALL.into_iter().map(|method| backend.failures(method)).sum())
}

/// From here on panics are counted, beside being printed.
fn count_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            print(panic);
        }));
    });
}
