//! What the process's runtime follows and heeds, by its variables and on request.

use crate::base::config::{self, REFUSED};
use crate::base::error::Result;
use crate::base::sync::{LockRank, Mutex};
use crate::runtime::Runtime;
use crate::testing::{FaultPlan, Faults, Schedule, Scheduled, heed_faults};

/// The schedule of the process's runtime, and the plan of faults in force.
static SCHEDULED: Mutex<Option<Scheduled>> = Mutex::new(LockRank::Runtime, None);
static FAULTS: Mutex<Option<Faults>> = Mutex::new(LockRank::Runtime, None);

/// Reads `ACCELRT_CPU_SCHEDULE` and `ACCELRT_FAULTS` before the first use of the process's runtime,
/// which fails when a value is malformed. Faults are in force from here on.
pub fn check_environment() {
    let faults = variable("ACCELRT_FAULTS").map(|text| {
        let plan = text.parse::<FaultPlan>()?;
        heed_faults();
        plan.start().map(|faults| _ = FAULTS.lock().replace(faults))
    });
    if let Err(error) = faults.unwrap_or(Ok(())).and_then(|()| schedule().map(drop)) {
        _ = REFUSED.set(error);
    }
}

fn variable(name: &'static str) -> Option<String> {
    config::setting(name).filter(|text| !text.is_empty())
}

fn schedule() -> Result<Option<Schedule>> {
    variable("ACCELRT_CPU_SCHEDULE").map(|text| text.parse()).transpose()
}

/// Follows the schedule that the environment asks for, at the begin of the process's runtime.
pub(crate) fn begin(runtime: &Runtime) {
    if let Ok(Some(schedule)) = schedule()
        && let Ok(scheduled) = schedule.start(runtime)
    {
        *SCHEDULED.lock() = Some(scheduled);
    }
}

/// Lets the process's runtime follow a schedule until [`end_schedule`].
pub fn start_schedule(schedule: Schedule) -> Result<()> {
    let scheduled = schedule.start(&Runtime::global()?)?;
    *SCHEDULED.lock() = Some(scheduled);
    Ok(())
}

/// Ends the schedule. Returns its number of steps.
pub fn end_schedule() -> u64 {
    let scheduled = SCHEDULED.lock().take(); // the lock ends here: the drop runs tasks
    scheduled.map_or(0, |scheduled| {
        scheduled.finish();
        scheduled.num_steps()
    })
}

/// Puts a plan of faults in force until [`end_faults`].
pub fn start_faults(plan: FaultPlan) -> Result<()> {
    plan.start().map(|faults| *FAULTS.lock() = Some(faults))
}

/// Ends the plan. Returns how many calls failed.
pub fn end_faults() -> u64 {
    let faults = FAULTS.lock().take();
    faults.map_or(0, |faults| faults.num_failed())
}
