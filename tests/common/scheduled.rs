//! The schedule that the environment asks for: `ACCELRT_TEST_SCHEDULE` has the text of one.
//!
//! Without it this changes nothing. With it a runtime that is given to [`scheduled`] follows that
//! schedule until the next one is, and no worker runs its tasks: tests run one after the other, and
//! what waits outside of the API makes steps meanwhile (`steps.rs`). `tests/schedules/suites.py`
//! runs the suites like that.

use accelrt::Runtime;

/// Lets a runtime follow the schedule, if there is one.
pub(crate) fn scheduled(runtime: Runtime) -> Runtime {
    if let Ok(text) = std::env::var("ACCELRT_TEST_SCHEDULE") {
        follow(&runtime, &text);
    }
    runtime
}

#[cfg(not(core_alone))]
fn follow(runtime: &Runtime, text: &str) {
    use accelrt::testing::{Schedule, Scheduled};
    use std::sync::{Mutex, PoisonError};

    static LATEST: Mutex<Option<Scheduled>> = Mutex::new(None);
    let schedule: Schedule = text.parse().expect("ACCELRT_TEST_SCHEDULE is a schedule");
    let mut latest = LATEST.lock().unwrap_or_else(PoisonError::into_inner);
    *latest = None; // a process follows one at a time
    *latest = Some(schedule.start(runtime).unwrap());
}

/// `make core` has deleted schedules.
#[cfg(core_alone)]
fn follow(_: &Runtime, text: &str) {
    panic!("nothing follows {text}");
}
