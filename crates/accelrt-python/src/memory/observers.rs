//! Functions of `accelrt._core` for who hears of requests that lack memory.

use accelrt::{Error, MemoryError, Runtime};
use pyo3::call::PyCallArgs;
use pyo3::prelude::*;

use crate::memory::allocator::bytes_of_all;
use crate::support::deferred_drops::{DeferredDrop, drop_parked};
use crate::support::errors::OrRaise;

/// Calls `observer(kind, index, requested_bytes, limit_bytes, free_bytes)` at each out-of-memory
/// error of buffers; returns the id for `remove_oom_observer`. Exceptions of an observer go to
/// `sys.unraisablehook`; errors of requests inside an observer are not reported.
#[pyfunction]
pub(crate) fn add_oom_observer(py: Python<'_>, observer: Py<PyAny>) -> PyResult<u64> {
    drop_parked(py);
    let observer = DeferredDrop::new(vec![observer]);
    Ok(Runtime::global().or_raise()?.add_oom_observer(move |error| {
        if let Error::Memory(MemoryError::OutOfMemory {
            device,
            requested_bytes,
            free_bytes,
            total_bytes,
            cache,
        }) = error
        {
            let limit_bytes = cache.as_ref().and_then(|cache| cache.limit_bytes);
            let limit_bytes = limit_bytes.unwrap_or(*total_bytes);
            let (kind, index) = (device.kind().name(), device.index());
            let told = (kind, index, *requested_bytes, limit_bytes, *free_bytes);
            call(&observer, told, |_| Ok(()));
        }
    }))
}

/// Removes an observer. An unknown id has no effect.
#[pyfunction]
pub(crate) fn remove_oom_observer(py: Python<'_>, id: u64) -> PyResult<()> {
    Runtime::global().or_raise()?.remove_oom_observer(id);
    drop_parked(py); // the removal usually parks the observer
    Ok(())
}

/// Calls `reclaimer(kind, index, requested_bytes, lacking_bytes, allocated_bytes)` before such an
/// error, with the `allocated_bytes_of_all` before it waits for the GIL; if it returns something
/// true, the request is tried again. Returns the id for `remove_reclaimer`. Exceptions of a
/// reclaimer go to `sys.unraisablehook`, and count as false.
#[pyfunction]
pub(crate) fn add_reclaimer(py: Python<'_>, reclaimer: Py<PyAny>) -> PyResult<u64> {
    drop_parked(py);
    let reclaimer = DeferredDrop::new(vec![reclaimer]);
    Ok(Runtime::global().or_raise()?.add_reclaimer(move |error| {
        let Error::Memory(MemoryError::OutOfMemory { device, requested_bytes, cache, .. }) = error
        else {
            return false;
        };
        let Ok(allocated_bytes) = Runtime::global().and_then(|it| bytes_of_all(&it, *device))
        else {
            return false; // the process ends
        };
        let lacking_bytes = cache.as_ref().map_or(*requested_bytes, |cache| cache.lacking_bytes);
        let (kind, index) = (device.kind().name(), device.index());
        let asked = (kind, index, *requested_bytes, lacking_bytes, allocated_bytes);
        call(&reclaimer, asked, |answer| answer.is_truthy()).unwrap_or(false)
    }))
}

/// Removes a reclaimer. An unknown id has no effect.
#[pyfunction]
pub(crate) fn remove_reclaimer(py: Python<'_>, id: u64) -> PyResult<()> {
    Runtime::global().or_raise()?.remove_reclaimer(id);
    drop_parked(py); // as above
    Ok(())
}

/// Calls a function, and reads its answer. `None` behind an exception, which is reported.
fn call<A>(
    function: &DeferredDrop,
    arguments: impl for<'py> PyCallArgs<'py>,
    read: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<A>,
) -> Option<A> {
    Python::attach(|py| {
        let function = function.bind(py).next()?;
        let called = function.call1(arguments).and_then(|answer| read(&answer));
        called.map_err(|error| error.write_unraisable(py, Some(function))).ok()
    })
}
