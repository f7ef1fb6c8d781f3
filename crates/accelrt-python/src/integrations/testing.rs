//! Bindings for `accelrt.testing`: the schedule and the planned faults of the process's runtime.

use accelrt::internal::{Interrupt, fork};
use accelrt::{Error, Runtime, RuntimeError, Stream};
use accelrt_testing::{FaultPlan, Schedule, heed_faults};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::support::errors::OrRaise;
use crate::support::waiting::without_gil;

/// Lets cpu devices follow the schedule of this text. Waits, without the GIL, for all work.
#[pyfunction]
pub(crate) fn start_schedule(py: Python<'_>, text: &str) -> PyResult<()> {
    fork::check().or_raise()?;
    let schedule = text.parse::<Schedule>().or_raise()?;
    py.detach(|| accelrt_testing::start_schedule(schedule)).or_raise()
}

/// Runs, without the GIL, what is runnable, and ends the schedule. Returns its number of steps.
#[pyfunction]
pub(crate) fn end_schedule(py: Python<'_>) -> u64 {
    py.detach(accelrt_testing::end_schedule)
}

/// Prepares the process's runtime for faults. False when it was made before.
#[pyfunction]
pub(crate) fn prepare_faults() -> bool {
    heed_faults()
}

/// Puts the plan of this text in force.
#[pyfunction]
pub(crate) fn start_faults(text: &str) -> PyResult<()> {
    fork::check().or_raise()?;
    let plan = text.parse::<FaultPlan>().or_raise()?;
    if !heed_faults() {
        return Err(PyRuntimeError::new_err(
            "faults come too late: a device was used before accelrt.testing was imported; import \
             it first, or set ACCELRT_FAULTS",
        ));
    }
    accelrt_testing::start_faults(plan).or_raise()
}

/// Ends the plan. Returns how many calls failed.
#[pyfunction]
pub(crate) fn end_faults() -> u64 {
    accelrt_testing::end_faults()
}

/// Waits, without the GIL, for all streams and drops their errors. Asks devices for nothing else.
#[pyfunction]
pub(crate) fn finish_streams(py: Python<'_>) -> PyResult<()> {
    let Some(runtime) = Runtime::existing_of_process() else { return Ok(()) };
    without_gil(
        py,
        || false,
        |is_interrupted| {
            for core in runtime.all_streams() {
                let interrupt = &mut Interrupt::by(&mut *is_interrupted);
                let waited = Stream::from_core(core).synchronize_within(interrupt);
                if let Err(interrupted @ Error::Runtime(RuntimeError::Interrupted)) = waited {
                    return Err(interrupted);
                }
            }
            Ok(())
        },
    )
}
