//! Functions of `accelrt._core` for the caching allocators: statistics, caches, limits, settings.

use std::collections::BTreeMap;

use accelrt::allocator::{DurationStat, Stat, Statistics};
use accelrt::internal::{Interrupt, Moment, fork};
use accelrt::{
    AllocatorConfig, CachingAllocator, Device, Error, MemPool, PoolId, PoolOptions, Runtime,
};
use accelrt_mkl::internal::host_heap;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyList};

use crate::memory::history::contexts_of;
use crate::memory::snapshot_writer::SnapshotWriter;
use crate::objects::functions::device_argument;
use crate::objects::selection::{Context, EnteredPool};
use crate::objects::task_contexts;
use crate::support::errors::OrRaise;
use crate::support::parameters::kind_argument;
use crate::support::stacks::StackScope;
use crate::support::waiting::without_gil;

/// What the keys of tags begin with.
const TAGS: &str = "tags.";

/// The statistics of a device's allocator, by flat keys in sorted order.
#[pyfunction]
pub(crate) fn memory_stats(kind: &str, index: i64) -> PyResult<BTreeMap<String, i64>> {
    let (runtime, device) = (Runtime::global().or_raise()?, device_argument(kind, index)?);
    let statistics = runtime.memory_statistics(device).or_raise()?;
    let mut all: BTreeMap<_, _> = statistics.entries().into_iter().collect();
    let allocator = runtime.existing_allocator(device).or_raise()?;
    for (tag, stat) in allocator.iter().flat_map(|allocator| allocator.tag_statistics()) {
        let Stat { current, peak, allocated, freed, .. } = stat;
        let values =
            [("current", current), ("peak", peak), ("allocated", allocated), ("freed", freed)];
        for (name, value) in values {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            all.insert(format!("{TAGS}{tag}.{name}"), value);
        }
    }
    Ok(all)
}

/// The statistics of memory that the device shares with the host, by flat keys in sorted order.
#[pyfunction]
pub(crate) fn shared_memory_stats(kind: &str, index: i64) -> PyResult<BTreeMap<String, i64>> {
    let statistics = Runtime::global()
        .or_raise()?
        .shared_memory_statistics(device_argument(kind, index)?)
        .or_raise()?;
    Ok(statistics.entries().into_iter().collect())
}

/// The current and peak bytes of allocated blocks. Does not flush the threads' caches.
#[pyfunction]
pub(crate) fn allocated_bytes(kind: &str, index: i64) -> PyResult<(u64, u64)> {
    current_and_peak(kind, index, |statistics| statistics.allocated_bytes.all)
}

/// The bytes of allocated blocks, also of memory that the device shares with the host.
#[pyfunction]
pub(crate) fn allocated_bytes_of_all(kind: &str, index: i64) -> PyResult<u64> {
    bytes_of_all(&Runtime::global().or_raise()?, device_argument(kind, index)?).or_raise()
}

pub(super) fn bytes_of_all(runtime: &Runtime, device: Device) -> Result<u64, Error> {
    let all = runtime.existing_allocators(device)?;
    Ok(all.iter().map(|it| it.statistics().allocated_bytes.all.current).sum())
}

/// The current and peak bytes reserved from the device. Does not flush the threads' caches.
#[pyfunction]
pub(crate) fn reserved_bytes(kind: &str, index: i64) -> PyResult<(u64, u64)> {
    current_and_peak(kind, index, |statistics| statistics.reserved_bytes.all)
}

fn current_and_peak(
    kind: &str,
    index: i64,
    stat: impl Fn(&Statistics) -> Stat,
) -> PyResult<(u64, u64)> {
    let known = Runtime::global()
        .or_raise()?
        .existing_allocator(device_argument(kind, index)?)
        .or_raise()?;
    let Stat { current, peak, .. } = known.map_or_else(Stat::default, |it| stat(&it.statistics()));
    Ok((current, peak))
}

/// The statistics of a kind's pinned memory, by flat keys in sorted order.
#[pyfunction]
pub(crate) fn host_memory_stats<'py>(py: Python<'py>, kind: &str) -> PyResult<Bound<'py, PyDict>> {
    let kind = kind_argument(kind)?;
    let known = Runtime::global().or_raise()?.existing_pinned_allocator(kind).or_raise()?;
    let of_buffers = known.and_then(|allocator| allocator.host_statistics()).unwrap_or_default();
    let of_heap = host_heap::statistics(kind);
    let counted = of_heap.map_or(of_buffers, |of_heap| of_buffers.with(&of_heap));
    let stats = PyDict::new(py);
    add_stat(&stats, "active_bytes", &counted.active_bytes)?;
    add_stat(&stats, "active_requests", &counted.active_requests)?;
    add_stat(&stats, "allocated_bytes", &counted.allocated_bytes)?;
    add_stat(&stats, "allocations", &counted.allocations)?;
    stats.set_item("bucket_allocation", PyList::new(py, counted.bucket_allocation)?)?;
    add_duration(&stats, "host_alloc_time", &counted.host_alloc_time)?;
    add_duration(&stats, "host_free_time", &counted.host_free_time)?;
    stats.set_item("num_host_alloc", counted.allocations.allocated)?;
    stats.set_item("num_host_free", counted.allocations.freed)?;
    stats.set_item("num_leaks", counted.num_leaks)?;
    Ok(stats)
}

fn add_stat(stats: &Bound<'_, PyDict>, name: &str, stat: &Stat) -> PyResult<()> {
    stats.set_item(format!("{name}.allocated"), stat.allocated)?;
    stats.set_item(format!("{name}.current"), stat.current)?;
    stats.set_item(format!("{name}.freed"), stat.freed)?;
    stats.set_item(format!("{name}.peak"), stat.peak)
}

fn add_duration(stats: &Bound<'_, PyDict>, name: &str, stat: &DurationStat) -> PyResult<()> {
    stats.set_item(format!("{name}.avg"), stat.avg_us())?;
    stats.set_item(format!("{name}.count"), stat.count)?;
    stats.set_item(format!("{name}.max"), stat.max_us)?;
    stats.set_item(format!("{name}.min"), stat.min_us)?;
    stats.set_item(format!("{name}.total"), stat.total_us)
}

/// Resets every peak of a device to the current value, also for memory shared with the host.
#[pyfunction]
pub(crate) fn reset_peak_memory_stats(kind: &str, index: i64) -> PyResult<()> {
    for allocator in Runtime::global()
        .or_raise()?
        .existing_allocators(device_argument(kind, index)?)
        .or_raise()?
    {
        allocator.reset_peak_statistics();
    }
    Ok(())
}

/// Resets every sum and count of a device to zero, also for memory shared with the host.
#[pyfunction]
pub(crate) fn reset_accumulated_memory_stats(kind: &str, index: i64) -> PyResult<()> {
    for allocator in Runtime::global()
        .or_raise()?
        .existing_allocators(device_argument(kind, index)?)
        .or_raise()?
    {
        allocator.reset_accumulated_statistics();
    }
    Ok(())
}

/// Waits, without the GIL, until no stream uses the cached memory of a kind's devices, and returns
/// that memory to the devices.
#[pyfunction]
pub(crate) fn empty_cache(py: Python<'_>, kind: &str) -> PyResult<()> {
    task_contexts::apply();
    let runtime = Runtime::global().or_raise()?;
    let kind = kind_argument(kind)?;
    for allocator in runtime.existing_allocators_of(kind).or_raise()? {
        // As in torch, `empty_cache` frees no memory inside a pool.
        if runtime.current_pool(allocator.device()) == PoolId::DEFAULT {
            empty(py, &allocator)?;
        }
    }
    Ok(())
}

/// Waits, without the GIL, until no stream uses a kind's cached pinned memory, and frees that
/// memory.
#[pyfunction]
pub(crate) fn empty_host_cache(py: Python<'_>, kind: &str) -> PyResult<()> {
    let kind = kind_argument(kind)?;
    let of_buffers = Runtime::global().or_raise()?.existing_pinned_allocator(kind).or_raise()?;
    for allocator in of_buffers.into_iter().chain(host_heap::allocator(kind)) {
        empty(py, &allocator)?;
    }
    Ok(())
}

fn empty(py: Python<'_>, allocator: &CachingAllocator) -> PyResult<()> {
    let _stack = StackScope::of_free(py);
    without_gil(
        py,
        || allocator.is_idle(),
        |is_interrupted| allocator.empty_cache_unless(&mut Interrupt::by(is_interrupted)),
    )
}

/// The fraction of a device's memory that the allocator may reserve.
#[pyfunction]
pub(crate) fn get_memory_fraction(kind: &str, index: i64) -> PyResult<f64> {
    Ok(Runtime::global()
        .or_raise()?
        .allocator(device_argument(kind, index)?)
        .or_raise()?
        .memory_fraction())
}

/// Limits the fraction of a device's memory that the allocator may reserve.
#[pyfunction]
pub(crate) fn set_memory_fraction(
    kind: &str,
    index: i64,
    fraction: &Bound<'_, PyAny>,
) -> PyResult<()> {
    if !fraction.is_instance_of::<PyFloat>() {
        return Err(PyTypeError::new_err("Invalid type for fraction argument, must be `float`"));
    }
    let allocator =
        Runtime::global().or_raise()?.allocator(device_argument(kind, index)?).or_raise()?;
    allocator.set_memory_fraction(fraction.extract()?).or_raise()
}

/// The settings text of all allocators, as last set.
#[pyfunction]
pub(crate) fn get_allocator_settings() -> PyResult<String> {
    Ok(Runtime::global().or_raise()?.allocator_settings())
}

/// Applies settings to later requests. Returns each key that has no effect, with the reason.
#[pyfunction]
pub(crate) fn set_allocator_settings(settings: &str) -> PyResult<Vec<(String, String)>> {
    Runtime::global().or_raise()?.set_allocator_settings(settings).or_raise()?;
    let ignored = AllocatorConfig::ignored_keys(settings).or_raise()?;
    Ok(ignored.into_iter().map(|(key, reason)| (key.to_owned(), reason.to_owned())).collect())
}

/// A private pool of a device's memory, for the requests of threads inside the pool.
#[pyclass(name = "Pool", module = "accelrt._core", frozen)]
pub(crate) struct PyPool(MemPool);

#[pymethods]
impl PyPool {
    #[new]
    fn new(kind: &str, index: i64, use_on_oom: bool, no_split: bool) -> PyResult<Self> {
        let device = device_argument(kind, index)?;
        let options = PoolOptions::default().use_on_oom(use_on_oom).no_split(no_split);
        Ok(Self(MemPool::new(&Runtime::global().or_raise()?, device, options).or_raise()?))
    }

    /// The pool's id in snapshots.
    #[getter]
    fn id(&self) -> (u64, u64) {
        let PoolId(owner, number) = self.0.id();
        (owner, number)
    }

    /// The pool's segments, in the format of torch's snapshots.
    fn snapshot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        fork::check().or_raise()?;
        let Moment { segments, known } = self.0.moment();
        SnapshotWriter::default().segments(py, &segments, &contexts_of(known))
    }

    /// Serves this thread's requests of device memory from the pool until `exit`; inside a running
    /// asyncio loop those of the asyncio task.
    fn enter(&self, py: Python<'_>) -> PyResult<()> {
        fork::check().or_raise()?;
        Context::Pool(EnteredPool(self.0.clone())).enter(py)
    }

    /// Leaves the pool.
    fn exit(&self, py: Python<'_>) -> PyResult<()> {
        Context::Pool(EnteredPool(self.0.clone())).exit(py)
    }
}
