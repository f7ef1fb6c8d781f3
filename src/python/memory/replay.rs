//! Replays recorded requests without the GIL, for Python's `replay` command.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::memory::allocator::replay::{self, Accounting, Operation, ReplayFigures};
use crate::memory::allocator::snapshot::Snapshot;
use crate::memory::allocator::{AllocatorConfig, recorded_settings};
use crate::python::memory::replay_curve;
use crate::python::memory::snapshot::snapshot;
use crate::python::objects::task_contexts;
use crate::runtime::Runtime;

/// The recorded requests of one device, with the snapshot that they were read from, if any.
#[pyclass(name = "Recording", module = "accelrt._core", frozen)]
pub(crate) struct PyRecording {
    operations: Vec<Operation>,
    snapshot: Option<Snapshot>,
}

/// The measurements of a replay: peak bytes, page operations, and time per event.
#[pyclass(name = "ReplayFigures", module = "accelrt._core", frozen, get_all)]
pub(crate) struct PyReplayFigures {
    events: usize,
    peak_live_bytes: usize,
    peak_reserved_bytes: usize,
    page_operations: u64,
    ns_per_event: f64,
    failed_at: Option<usize>,
    granularity_bytes: usize,
}

impl PyReplayFigures {
    fn of(figures: &ReplayFigures, granularity_bytes: usize) -> Self {
        Self {
            events: figures.events,
            peak_live_bytes: figures.peak_live_bytes,
            peak_reserved_bytes: figures.peak_reserved_bytes,
            page_operations: figures.page_operations,
            ns_per_event: figures.ns_per_event,
            failed_at: figures.failed_at,
            granularity_bytes,
        }
    }
}

/// A comparison of a replay with its recording. Each tuple has the number of matches and of
/// comparisons.
#[pyclass(name = "Agreement", module = "accelrt._core", frozen, get_all)]
pub(crate) struct PyAgreement {
    addresses: (usize, usize),
    layouts: (usize, usize),
    first_difference: Option<String>,
}

/// Events, live bytes, reserved bytes, and the event that failed.
type CourseColumns = (Vec<usize>, Vec<u64>, Vec<u64>, Option<usize>);

#[pymethods]
impl PyRecording {
    /// A recording from one tuple per event: whether it allocates, id, size in bytes, stream.
    #[staticmethod]
    fn of_operations(operations: Vec<(bool, u64, usize, u64)>) -> Self {
        let operation = |(is_allocation, id, bytes, stream)| {
            if is_allocation {
                Operation::Allocate { id, bytes, stream }
            } else {
                Operation::Free { id }
            }
        };
        let operations = operations.into_iter().map(operation).collect();
        Self { operations, snapshot: None }
    }

    /// A recording from the segments and the trace of one device in one of torch's snapshots.
    #[staticmethod]
    fn of_snapshot(segments: &Bound<'_, PyList>, trace: &Bound<'_, PyList>) -> PyResult<Self> {
        let snapshot = snapshot(segments, trace)?;
        Ok(Self { operations: replay::operations(&snapshot), snapshot: Some(snapshot) })
    }

    /// The settings text of a recording, without PyTorch's keys that have no effect here.
    #[staticmethod]
    fn settings(text: &str) -> PyResult<String> {
        Ok(recorded_settings(text)?)
    }

    /// The events, as `of_operations` takes them. Size and stream of a free are 0.
    fn operations(&self) -> Vec<(bool, u64, usize, u64)> {
        let tuple = |operation: &Operation| match *operation {
            Operation::Allocate { id, bytes, stream } => (true, id, bytes, stream),
            Operation::Free { id } => (false, id, 0, 0),
        };
        self.operations.iter().map(tuple).collect()
    }

    /// Replays the events `rounds` times against an empty allocator without memory, and returns the
    /// results of the last round.
    #[pyo3(signature = (settings, capacity_bytes, granularity_bytes, rounds=1))]
    fn replay(
        &self,
        py: Python<'_>,
        settings: &str,
        capacity_bytes: usize,
        granularity_bytes: usize,
        rounds: usize,
    ) -> PyResult<PyReplayFigures> {
        let config: AllocatorConfig = settings.parse()?;
        let accounting = Accounting { config, capacity_bytes, granularity_bytes };
        let figures = py.detach(|| {
            let allocator = accounting.allocator()?;
            for _ in 1..rounds {
                replay::replay(&allocator, &self.operations)?;
            }
            replay::replay(&allocator, &self.operations)
        })?;
        Ok(PyReplayFigures::of(&figures, granularity_bytes))
    }

    /// Replays the events as `replay` does, and returns its course in at most `points` stretches:
    /// the number of events up to the end of each, the peaks of live and of reserved bytes in it,
    /// and the index of the event that ran out of memory.
    fn course(
        &self,
        py: Python<'_>,
        settings: &str,
        capacity_bytes: usize,
        granularity_bytes: usize,
        points: usize,
    ) -> PyResult<CourseColumns> {
        let config: AllocatorConfig = settings.parse()?;
        let accounting = Accounting { config, capacity_bytes, granularity_bytes };
        let course =
            py.detach(|| replay_curve::course(&accounting.allocator()?, &self.operations, points))?;
        Ok((course.events, course.allocated_bytes, course.reserved_bytes, course.failed_at))
    }

    /// Replays the events against an empty allocator on this thread's current device. Buffers
    /// cannot use that allocator's memory until the call returns.
    fn replay_on_device(&self, py: Python<'_>, settings: &str) -> PyResult<PyReplayFigures> {
        let config: AllocatorConfig = settings.parse()?;
        task_contexts::apply();
        let runtime = Runtime::global()?;
        let allocator = runtime.separate_allocator(runtime.current_device()?, config)?;
        let figures = py.detach(|| replay::replay(&allocator, &self.operations))?;
        Ok(PyReplayFigures::of(&figures, allocator.page_bytes()))
    }

    /// Replays the snapshot's trace from the layout before its first entry, and compares the
    /// addresses and the final layout.
    fn check(&self, py: Python<'_>, settings: &str) -> PyResult<PyAgreement> {
        let Some(snapshot) = &self.snapshot else {
            return Err(PyValueError::new_err("a table of events records no addresses"));
        };
        let config: AllocatorConfig = settings.parse()?;
        let agreement = py.detach(|| replay::check(snapshot, &config))?;
        Ok(PyAgreement {
            addresses: (agreement.addresses_agreed, agreement.addresses),
            layouts: (agreement.layouts_agreed, agreement.layouts),
            first_difference: agreement.first_difference,
        })
    }
}
