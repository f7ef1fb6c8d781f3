//! Waiting without the GIL, with Ctrl-C.

use pyo3::prelude::*;

use crate::error::{Error, Result};
use crate::python::deferred_drops::drop_parked;

/// Calls `wait` without the GIL. `wait` asks the closure it is given at least every 50 ms while
/// asleep; a signal handler that raises ends the wait with its exception, and the work goes on.
/// What tasks parked meanwhile is dropped.
pub(super) fn without_gil<T: Send>(
    py: Python<'_>,
    wait: impl FnOnce(&mut dyn FnMut() -> bool) -> Result<T> + Send,
) -> PyResult<T> {
    let (result, raised) = py.detach(|| {
        let mut raised = None;
        let mut is_interrupted = || {
            raised = Python::attach(|py| py.check_signals().err());
            raised.is_some()
        };
        (wait(&mut is_interrupted), raised)
    });
    drop_parked(py);
    match (result, raised) {
        (Err(Error::Interrupted), Some(raised)) => Err(raised),
        (result, _) => result.map_err(PyErr::from),
    }
}
