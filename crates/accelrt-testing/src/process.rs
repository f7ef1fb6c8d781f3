//! The schedule and the plan of faults of the process's runtime.

use std::sync::Once;

use accelrt::internal::config::{self, REFUSED};
use accelrt::internal::{LockRank, Mutex, ProcessHooks, fork, register_process_hooks};
use accelrt::{Result, Runtime};

use crate::fault_plan::{FaultPlan, Faults, heed_faults};
use crate::schedule::Schedule;
use crate::scheduler::Scheduled;

/// The schedule of the process's runtime.
static SCHEDULED: Mutex<Option<Scheduled>> = Mutex::new(LockRank::Runtime, None);
/// The plan of faults in force.
static FAULTS: Mutex<Option<Faults>> = Mutex::new(LockRank::Runtime, None);

/// Makes the process's runtime follow `ACCELRT_CPU_SCHEDULE` and `ACCELRT_FAULTS`.
///
/// Call it before the first use of that runtime, which then fails when a value is malformed. Faults
/// are in force from here on. Later calls have no effect.
pub fn watch_environment() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let faults = variable("ACCELRT_FAULTS").map(|text| {
            let plan = text.parse::<FaultPlan>()?;
            heed_faults();
            plan.start().map(|faults| _ = FAULTS.lock().replace(faults))
        });
        if let Err(error) = faults.unwrap_or(Ok(())).and_then(|()| schedule().map(drop)) {
            _ = REFUSED.set(error);
        }
        register_process_hooks(ProcessHooks { begin, ..ProcessHooks::default() });
    });
}

fn variable(name: &'static str) -> Option<String> {
    config::setting(name).filter(|text| !text.is_empty())
}

fn schedule() -> Result<Option<Schedule>> {
    variable("ACCELRT_CPU_SCHEDULE").map(|text| text.parse()).transpose()
}

fn begin(runtime: &Runtime) {
    if let Ok(Some(schedule)) = schedule()
        && let Ok(scheduled) = schedule.start(runtime)
    {
        *SCHEDULED.lock() = Some(scheduled);
    }
}

/// Makes the process's runtime follow a schedule until [`end_schedule`].
pub fn start_schedule(schedule: Schedule) -> Result<()> {
    fork::check()?;
    let scheduled = schedule.start(&Runtime::global()?)?;
    *SCHEDULED.lock() = Some(scheduled);
    Ok(())
}

/// Ends the schedule of [`start_schedule`] or of the environment. Returns its number of steps.
pub fn end_schedule() -> u64 {
    if fork::is_child() {
        return 0; // the schedule is the parent's
    }
    let scheduled = SCHEDULED.lock().take(); // the lock ends here: the drop runs tasks
    scheduled.map_or(0, |scheduled| {
        scheduled.finish();
        scheduled.num_steps()
    })
}

/// Puts a plan of faults in force until [`end_faults`].
pub fn start_faults(plan: FaultPlan) -> Result<()> {
    fork::check()?;
    plan.start().map(|faults| *FAULTS.lock() = Some(faults))
}

/// Ends the plan of [`start_faults`] or of the environment. Returns how many calls failed.
pub fn end_faults() -> u64 {
    if fork::is_child() {
        return 0; // the plan is the parent's
    }
    let faults = FAULTS.lock().take();
    faults.map_or(0, |faults| faults.num_failed())
}
