//! Replays recorded requests without the GIL, for Python's `replay` command.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::path::PathBuf;

use accelrt::allocator::recorded_settings;
use accelrt::allocator::snapshot::{Snapshot, TraceAction};
use accelrt::{AllocatorConfig, Runtime};
use accelrt_replay::{
    Accounting, EventTable, Events, Operation, ReplayFigures, TraceError, Visitor, check,
    failed_request, minimum, operations, replay_all, survey, timeline,
};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::memory::snapshot::snapshot;
use crate::objects::task_contexts;
use crate::support::errors::{OrRaise, exception};

pyo3::create_exception!(
    accelrt._core,
    TableError,
    PyValueError,
    "A table of events cannot be read; the text names the file and the line."
);

/// The recorded requests of one device, with the snapshot that they were read from, if any.
#[pyclass(name = "Recording", module = "accelrt._core", frozen)]
pub(crate) struct PyRecording {
    requests: Requests,
    snapshot: Option<Snapshot>,
}

/// Where a recording's events are.
enum Requests {
    Kept(Vec<Operation>),
    Table(EventTable),
}

/// How many batches are visited between two looks for Ctrl-C: some milliseconds of replaying.
const BATCHES_A_LOOK: u32 = 64;

/// The events of a recording, as a pass that Ctrl-C interrupts sees them.
struct Interruptible<'a> {
    requests: &'a Requests,
    /// What a signal handler raised.
    raised: &'a RefCell<Option<PyErr>>,
    /// Batches of all visits: short recordings are visited often.
    batches: Cell<u32>,
}

impl Events for Interruptible<'_> {
    fn visit(&self, visitor: &mut Visitor<'_>) -> Result<(), TraceError> {
        let mut watched = |batch: &[Operation]| {
            self.batches.set(self.batches.get().wrapping_add(1));
            if self.batches.get().is_multiple_of(BATCHES_A_LOOK) {
                let raised = Python::attach(|py| py.check_signals().err());
                if raised.is_some() {
                    self.raised.replace(raised);
                    return Err(TraceError::Interrupted);
                }
            }
            visitor(batch)
        };
        match self.requests {
            Requests::Kept(operations) => operations.visit(&mut watched),
            Requests::Table(table) => table.visit(&mut watched),
        }
    }
}

/// Makes passes over the events without the GIL.
fn without_gil<T: Send>(
    py: Python<'_>,
    requests: &Requests,
    pass: impl FnOnce(&Interruptible<'_>) -> Result<T, TraceError> + Send,
) -> PyResult<T> {
    py.detach(|| {
        let raised = RefCell::new(None);
        let result = pass(&Interruptible { requests, raised: &raised, batches: Cell::new(0) });
        match raised.into_inner() {
            Some(interrupt) => Err(interrupt),
            None => result.map_err(raised_by),
        }
    })
}

impl<T> OrRaise<T> for Result<T, TraceError> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(raised_by)
    }
}

fn raised_by(error: TraceError) -> PyErr {
    match error {
        TraceError::Replay(error) => exception(error),
        other => TableError::new_err(other.to_string()),
    }
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

/// The smallest capacity that completes a recording, and how it was found.
#[pyclass(name = "ReplayMinimum", module = "accelrt._core", frozen, get_all)]
pub(crate) struct PyReplayMinimum {
    /// In bytes; None when the recording completes on no capacity up to the largest.
    bytes: Option<usize>,
    /// The peak of the live bytes in whole pages: less suffices for no allocator.
    bound_bytes: usize,
    /// The largest capacity above it on which the recording fails again, of those that were tried.
    fails_again_bytes: Option<usize>,
    /// The number of replays.
    replays: usize,
    /// The replay on the largest capacity.
    figures: Py<PyReplayFigures>,
}

/// What the events of a recording need, whatever serves them.
#[pyclass(name = "ReplaySurvey", module = "accelrt._core", frozen, get_all)]
pub(crate) struct PyReplaySurvey {
    events: usize,
    requests: usize,
    peak_live_bytes: usize,
    largest_bytes: usize,
    /// Pairs of a size in MiB, rounded up, and the number of requests, for sizes above 1 MiB.
    requests_by_mib: Vec<(usize, usize)>,
}

/// Live and reserved bytes over a replay, as columns of points, each the peaks of a run of events.
#[pyclass(name = "ReplayTimeline", module = "accelrt._core", frozen, get_all)]
pub(crate) struct PyReplayTimeline {
    /// The index of the first event of each run.
    events: Vec<usize>,
    /// The peak of the live bytes in each run.
    live_bytes: Vec<usize>,
    /// The peak of the reserved bytes in each run.
    reserved_bytes: Vec<usize>,
    /// The replay's figures.
    figures: Py<PyReplayFigures>,
}

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
        Self { requests: Requests::Kept(operations), snapshot: None }
    }

    /// A recording from a table of events. Only its first line is read now; each replay reads the
    /// file, a piece at a time, and raises a `TableError` at the first line that is wrong.
    #[staticmethod]
    fn of_table(path: PathBuf) -> PyResult<Self> {
        Ok(Self { requests: Requests::Table(EventTable::open(path).or_raise()?), snapshot: None })
    }

    /// A recording from the segments and the trace of one device in one of torch's snapshots.
    #[staticmethod]
    fn of_snapshot(segments: &Bound<'_, PyList>, trace: &Bound<'_, PyList>) -> PyResult<Self> {
        Ok(Self::of(snapshot(segments, trace)?))
    }

    /// The settings text of a recording, without PyTorch's keys that have no effect here and
    /// without unknown keys; and these unknown keys.
    #[staticmethod]
    fn settings(text: &str) -> PyResult<(String, Vec<String>)> {
        recorded_settings(text).or_raise()
    }

    /// The events, as `of_operations` takes them. Size and stream of a free are 0.
    fn operations(&self, py: Python<'_>) -> PyResult<Vec<(bool, u64, usize, u64)>> {
        let tuple = |operation: &Operation| match *operation {
            Operation::Allocate { id, bytes, stream } => (true, id, bytes, stream),
            Operation::Free { id } => (false, id, 0, 0),
        };
        without_gil(py, &self.requests, |events| {
            let mut tuples = Vec::new();
            events.visit(&mut |batch| {
                tuples.extend(batch.iter().map(tuple));
                Ok(ControlFlow::Continue(()))
            })?;
            Ok(tuples)
        })
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
        let config = settings.parse::<AllocatorConfig>().or_raise()?;
        let accounting = Accounting { config, capacity_bytes, granularity_bytes };
        let figures = without_gil(py, &self.requests, |events| {
            let allocator = accounting.allocator()?;
            for _ in 1..rounds {
                replay_all(&allocator, events, true)?;
            }
            replay_all(&allocator, events, true)
        })?;
        Ok(PyReplayFigures::of(&figures, granularity_bytes))
    }

    /// Replays the events against an empty allocator on this thread's current device. Buffers
    /// cannot use that allocator's memory until the call returns.
    fn replay_on_device(&self, py: Python<'_>, settings: &str) -> PyResult<PyReplayFigures> {
        let config = settings.parse::<AllocatorConfig>().or_raise()?;
        task_contexts::apply();
        let runtime = Runtime::global().or_raise()?;
        let allocator =
            runtime.separate_allocator(runtime.current_device().or_raise()?, config).or_raise()?;
        let replayed = |events: &Interruptible<'_>| replay_all(&allocator, events, true);
        let figures = without_gil(py, &self.requests, replayed)?;
        Ok(PyReplayFigures::of(&figures, allocator.page_bytes()))
    }

    /// Searches the smallest capacity up to `capacity_bytes`, in whole pages, that completes the
    /// recording.
    fn minimum(
        &self,
        py: Python<'_>,
        settings: &str,
        capacity_bytes: usize,
        granularity_bytes: usize,
    ) -> PyResult<PyReplayMinimum> {
        let config = settings.parse::<AllocatorConfig>().or_raise()?;
        let most = Accounting { config, capacity_bytes, granularity_bytes };
        let found = without_gil(py, &self.requests, |events| minimum(events, &most))?;
        Ok(PyReplayMinimum {
            bytes: found.bytes,
            bound_bytes: found.bound_bytes,
            fails_again_bytes: found.fails_again_bytes,
            replays: found.replays,
            figures: Py::new(py, PyReplayFigures::of(&found.figures, granularity_bytes))?,
        })
    }

    /// The number of events, the peak of the live bytes and the sizes of the requests, without an
    /// allocator.
    fn survey(&self, py: Python<'_>) -> PyResult<PyReplaySurvey> {
        let found = without_gil(py, &self.requests, |events| survey(events))?;
        Ok(PyReplaySurvey {
            events: found.events,
            requests: found.requests,
            peak_live_bytes: found.peak_live_bytes,
            largest_bytes: found.largest_bytes,
            requests_by_mib: found.requests_by_mib.into_iter().collect(),
        })
    }

    /// Replays the events against an empty allocator without memory, and returns live and reserved
    /// bytes over them in at most `points` points, which keep the peaks.
    fn timeline(
        &self,
        py: Python<'_>,
        settings: &str,
        capacity_bytes: usize,
        granularity_bytes: usize,
        points: usize,
    ) -> PyResult<PyReplayTimeline> {
        let config = settings.parse::<AllocatorConfig>().or_raise()?;
        let accounting = Accounting { config, capacity_bytes, granularity_bytes };
        let found = without_gil(py, &self.requests, |events| {
            timeline(&accounting.allocator()?, events, points)
        })?;
        Ok(PyReplayTimeline {
            events: found.points.iter().map(|point| point.event).collect(),
            live_bytes: found.points.iter().map(|point| point.live_bytes).collect(),
            reserved_bytes: found.points.iter().map(|point| point.reserved_bytes).collect(),
            figures: Py::new(py, PyReplayFigures::of(&found.figures, granularity_bytes))?,
        })
    }

    /// For a snapshot behind whose last out-of-memory error no request was served: the size of the
    /// failed request, the capacity that the device had for the allocator, and the recording with
    /// the request as if it had been served. None for others.
    fn failed_request(&self) -> Option<(usize, usize, Self)> {
        let failed = failed_request(self.snapshot.as_ref()?)?;
        Some((failed.bytes, failed.capacity_bytes, Self::of(failed.served)))
    }

    /// Replays the snapshot's trace from the layout before its first entry, and compares the
    /// addresses and the final layout.
    fn check(&self, py: Python<'_>, settings: &str) -> PyResult<PyAgreement> {
        let Some(snapshot) = &self.snapshot else {
            return Err(PyValueError::new_err("a table of events records no addresses"));
        };
        let mut actions = snapshot.trace.iter().map(|entry| entry.action);
        if actions.any(|it| matches!(it, TraceAction::SegmentMap | TraceAction::SegmentUnmap)) {
            return Err(PyRuntimeError::new_err(
                "cannot check a recording with segments that grow: record with policy:torch and \
                 without expandable_segments",
            ));
        }
        let config = settings.parse::<AllocatorConfig>().or_raise()?;
        let agreement = py.detach(|| check(snapshot, &config)).or_raise()?;
        Ok(PyAgreement {
            addresses: (agreement.addresses_agreed, agreement.addresses),
            layouts: (agreement.layouts_agreed, agreement.layouts),
            first_difference: agreement.first_difference,
        })
    }
}

impl PyRecording {
    fn of(snapshot: Snapshot) -> Self {
        let operations = operations(&snapshot);
        Self { requests: Requests::Kept(operations), snapshot: Some(snapshot) }
    }
}
