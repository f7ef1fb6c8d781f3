//! The memory history of the process: what `record_memory_history` starts and snapshots contain.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use accelrt::allocator::snapshot::TraceAction;
use accelrt::internal::{
    AllocationContext, KnownBlock, LockRank, Moment, Mutex, config, fork, report_line,
};
use accelrt::{CachingAllocator, Device, DeviceKind, Error, MemoryError, Runtime};
use accelrt_observe::internal::output_file;
use accelrt_observe::memory_history::{MemoryEvent, MemoryHistory, RangeHistory};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::memory::allocator_settings::settings_dict;
use crate::memory::snapshot::{ACTIONS, name_of};
use crate::memory::snapshot_writer::SnapshotWriter;
use crate::support::errors::OrRaise;
use crate::support::parameters::kind_argument;
use crate::support::stacks::{self, Wanted};

/// The default of the argument `max_entries` of `record_memory_history`.
const DEFAULT_MAX_ENTRIES: usize = 100_000;

/// `None` while no history is on.
static CURRENT: Mutex<Option<Arc<Recording>>> = Mutex::new(LockRank::Bindings, None);

/// A history, and the settings that choose which of its entries and stacks a snapshot contains.
struct Recording {
    history: Arc<MemoryHistory>,
    max_entries: usize,
    contexts: Contexts,
    /// The actions that snapshots leave out of the trace, by their names in torch's snapshots.
    skipped_actions: Vec<String>,
    ranges: Option<Arc<RangeHistory>>,
}

/// Which call stacks are captured and written to snapshots: the argument `context` of
/// `record_memory_history`. Each variant includes the stacks of those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Contexts {
    /// `None`: no stacks.
    Nothing,
    /// `"state"`: for each block in use, the stack of its request.
    Blocks,
    /// `"alloc"`: also for each entry of the trace that is not a free.
    Requests,
    /// `"all"`: also for each free in the trace.
    All,
}

impl Contexts {
    fn of(name: Option<&str>) -> PyResult<Self> {
        match name {
            None => Ok(Self::Nothing),
            Some("state") => Ok(Self::Blocks),
            Some("alloc") => Ok(Self::Requests),
            Some("all") => Ok(Self::All),
            Some(_) => refuse("expected context to be 'state', 'alloc', 'all', or None"),
        }
    }

    /// True when entries of the trace with this action have a stack.
    fn has(self, action: TraceAction) -> bool {
        self >= match action {
            TraceAction::FreeRequested | TraceAction::FreeCompleted => Self::All,
            _ => Self::Requests,
        }
    }

    fn wanted(self) -> Wanted {
        match self {
            Self::Nothing => Wanted::Nothing,
            Self::Blocks | Self::Requests => Wanted::Allocations,
            Self::All => Wanted::AllocationsAndFrees,
        }
    }
}

fn refuse<T>(text: &str) -> PyResult<T> {
    Err(PyRuntimeError::new_err(text.to_owned()))
}

/// `None` in a forked child: the recording is the parent's, and a thread of it may hold the lock.
fn current() -> Option<Arc<Recording>> {
    if fork::is_child() { None } else { CURRENT.lock().clone() }
}

fn replace(recording: Option<Recording>) {
    if fork::is_child() {
        return;
    }
    let earlier = std::mem::replace(&mut *CURRENT.lock(), recording.map(Arc::new));
    drop(earlier); // after the lock's release, because the end of a history takes other locks
}

/// Starts the history, or goes on with another choice of what it shows. `context` is "state",
/// "alloc", "all" or None, as in torch; stacks have at most `max_frames` frames. With another
/// `max_entries`, or `clears`, the entries so far are forgotten.
#[pyfunction]
pub(crate) fn start_memory_history(
    context: Option<&str>,
    max_entries: usize,
    clears: bool,
    has_annotations: bool,
    skipped: Vec<String>,
    max_frames: usize,
) -> PyResult<()> {
    fork::check().or_raise()?;
    let contexts = Contexts::of(context)?;
    if let Some(unknown) = skipped.iter().find(|word| !ACTIONS.iter().any(|it| it.0 == **word)) {
        return refuse(&format!("Unknown TraceEntry action: {unknown}"));
    }
    let runtime = Runtime::global().or_raise()?;
    begin(&runtime, contexts, max_entries, clears, has_annotations, skipped);
    stacks::want(contexts.wanted(), max_frames);
    Ok(())
}

fn begin(
    runtime: &Runtime,
    contexts: Contexts,
    max_entries: usize,
    clears: bool,
    has_annotations: bool,
    skipped: Vec<String>,
) {
    let earlier = current().filter(|earlier| !clears && earlier.max_entries == max_entries);
    let history = earlier.as_ref().map(|earlier| Arc::clone(&earlier.history));
    let history = history.unwrap_or_else(|| Arc::new(MemoryHistory::start(runtime, max_entries)));
    let ranges = has_annotations.then(|| {
        let known = earlier.as_ref().and_then(|earlier| earlier.ranges.clone());
        known.unwrap_or_else(|| Arc::new(RangeHistory::start(max_entries)))
    });
    let skipped_actions = skipped;
    replace(Some(Recording { history, max_entries, contexts, skipped_actions, ranges }));
}

/// Starts to capture stacks if `ACCELRT_MEMORY_HISTORY` is set. [`begin_by_environment`] is called
/// too late for that: the first request captures its stack and then creates the process's runtime.
pub(crate) fn watch_environment() {
    if config::variable("ACCELRT_MEMORY_HISTORY").is_some_and(|asked| !asked.is_empty()) {
        stacks::want(Wanted::AllocationsAndFrees, stacks::USUAL_DEPTH);
    }
}

/// Starts the history of a new runtime if `ACCELRT_MEMORY_HISTORY` is set. Each request that fails
/// for lack of memory then writes a snapshot to the file that the variable names.
pub(crate) fn begin_by_environment(runtime: &Runtime) {
    let Some(file) = runtime.config().memory_history.clone() else { return };
    if let Err(refusal) = output_file::check(Path::new(&file)) {
        report_line(&format!("the memory history cannot be written to {file}: {refusal}"));
    }
    begin(runtime, Contexts::All, DEFAULT_MAX_ENTRIES, false, true, Vec::new());
    runtime.add_oom_observer(move |error| {
        let Error::Memory(MemoryError::OutOfMemory { device, .. }) = error else { return };
        Python::attach(|py| {
            let write = || {
                let history = py.import("accelrt._memory_history")?;
                history.call_method1("dump_after_shortage", (device.kind().name(), &*file))
            };
            if let Err(error) = write() {
                error.write_unraisable(py, None);
            }
        });
    });
}

/// Ends the history and forgets its entries. Blocks in use keep their stacks.
#[pyfunction]
pub(crate) fn stop_memory_history() -> PyResult<()> {
    fork::check().or_raise()?;
    stacks::want(Wanted::Nothing, stacks::USUAL_DEPTH);
    replace(None);
    Ok(())
}

/// The allocators of a kind's devices. Initialises no device.
pub(crate) fn device_allocators(kind: DeviceKind) -> PyResult<Vec<Arc<CachingAllocator>>> {
    let runtime = Runtime::global().or_raise()?;
    let mut all = Vec::new();
    for index in 0..runtime.device_count(kind).or_raise()? {
        all.extend(runtime.existing_allocator(Device::new(kind, index).or_raise()?).or_raise()?);
    }
    Ok(all)
}

/// Returns a function from a block's address to the context of its allocation.
pub(crate) fn contexts_of(
    known: HashMap<u64, KnownBlock>,
) -> impl Fn(u64) -> AllocationContext + use<> {
    move |address| known.get(&address).map_or(AllocationContext::NONE, |block| block.context)
}

/// The segments of a kind's devices, in the format of torch's snapshots.
#[pyfunction]
pub(crate) fn memory_snapshot<'py>(py: Python<'py>, kind: &str) -> PyResult<Bound<'py, PyList>> {
    let (all, mut writer) = (PyList::empty(py), SnapshotWriter::default());
    for allocator in device_allocators(kind_argument(kind)?)? {
        write_segments(&all, allocator.moment(None, || ()), &mut writer)?;
    }
    Ok(all)
}

fn write_segments(
    all: &Bound<'_, PyList>,
    moment: Moment,
    writer: &mut SnapshotWriter,
) -> PyResult<()> {
    let Moment { segments, known } = moment;
    for segment in writer.segments(all.py(), &segments, &contexts_of(known))? {
        all.append(segment)?;
    }
    Ok(())
}

/// The whole snapshot of a kind's devices, as torch's dictionary. The trace of each device ends at
/// the moment of its segments.
#[pyfunction]
pub(crate) fn take_memory_snapshot<'py>(
    py: Python<'py>,
    kind: &str,
) -> PyResult<Bound<'py, PyDict>> {
    let (runtime, kind) = (Runtime::global().or_raise()?, kind_argument(kind)?);
    let (recording, mut writer) = (current(), SnapshotWriter::default());
    let (segments, traces, annotations) = (PyList::empty(py), PyList::empty(py), PyList::empty(py));
    let count = runtime.device_count(kind).or_raise()?;
    let allocator = |index| {
        let device = Device::new(kind, index).or_raise()?;
        runtime.existing_allocator(device).or_raise()
    };
    let allocators: Vec<_> = (0..count).map(allocator).collect::<PyResult<_>>()?;
    let existing: Vec<&CachingAllocator> = allocators.iter().flatten().map(|it| &**it).collect();
    let (moments, num_lost) = if let Some(recording) = &recording {
        recording.history.moments(&existing)
    } else {
        let moment = |it: &&CachingAllocator| (it.moment(None, || ()), Vec::new());
        (existing.iter().map(moment).collect(), 0)
    };
    let mut moments = moments.into_iter();
    for (index, allocator) in allocators.iter().enumerate() {
        let trace = PyList::empty(py);
        let moment = allocator.as_ref().and_then(|_| moments.next());
        let (moment, events) = moment.unwrap_or_default();
        write_segments(&segments, moment, &mut writer)?;
        if let Some(recording) = &recording {
            write_trace(&trace, recording, &events, &mut writer)?;
            write_ranges(&annotations, recording, index)?;
        }
        traces.append(trace)?;
    }
    let snapshot = PyDict::new(py);
    snapshot.set_item("segments", segments)?;
    snapshot.set_item("device_traces", traces)?;
    snapshot.set_item("allocator_settings", settings_dict(py, &runtime)?)?;
    snapshot.set_item("external_annotations", annotations)?;
    let lost = PyDict::new(py);
    lost.set_item("version", env!("CARGO_PKG_VERSION"))?;
    lost.set_item("num_dropped_entries", num_lost)?;
    lost.set_item("num_unknown_stacks", stacks::num_lost(py))?;
    snapshot.set_item("accelrt", lost)?;
    Ok(snapshot)
}

fn write_trace(
    trace: &Bound<'_, PyList>,
    recording: &Recording,
    events: &[MemoryEvent],
    writer: &mut SnapshotWriter,
) -> PyResult<()> {
    let Recording { contexts, skipped_actions, .. } = recording;
    for event in events {
        let action = event.event.action;
        if !skipped_actions.iter().any(|name| name == name_of(ACTIONS, action)) {
            trace.append(writer.entry(trace.py(), event, contexts.has(action))?)?;
        }
    }
    Ok(())
}

/// Appends two annotations for each range of the program, one for its start and one for its end, in
/// the order of their times. Torch's format requires a device, so each device gets all ranges.
fn write_ranges(all: &Bound<'_, PyList>, recording: &Recording, index: usize) -> PyResult<()> {
    let ranges = recording.ranges.iter().flat_map(|ranges| ranges.ranges());
    let mut boundaries: Vec<_> = ranges
        .flat_map(|range| {
            [("START", range.start, range.name.clone()), ("END", range.end, range.name)]
        })
        .collect();
    boundaries.sort_by_key(|(_, time, _)| *time);
    for (stage, time, name) in boundaries {
        let dict = PyDict::new(all.py());
        dict.set_item("stage", stage)?;
        dict.set_item("name", &*name)?;
        dict.set_item("device", index)?;
        let since_1970 = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        dict.set_item("time_us", since_1970.as_micros())?;
        all.append(dict)?;
    }
    Ok(())
}
