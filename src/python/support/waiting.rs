//! Waits without the GIL, with Ctrl-C; a callable of `launch_host` waits for no unfinished work.

use std::cell::Cell;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::base::error::{Error, Result, RuntimeError};
use crate::engine::stream::Stream;
use crate::python::support::deferred_drops::drop_parked;

thread_local! {
    /// True on the helper thread.
    static IS_WAITED_FOR: Cell<bool> = const { Cell::new(false) };
}

/// Other threads wait for this one: from now on it waits for nothing unfinished, and drops no
/// parked objects.
pub(crate) fn wait_for_nothing() {
    IS_WAITED_FOR.set(true);
}

/// True on such a thread.
pub(crate) fn is_waited_for() -> bool {
    IS_WAITED_FOR.get()
}

/// Calls `wait` without the GIL. `wait` calls its closure at least every 50 ms while asleep; a
/// signal handler that raises ends the wait with its exception, and the work goes on.
///
/// Inside a callable it is refused unless `is_done`: the awaited work may need the helper thread,
/// which is this one. If more work comes in between, the wait is given up rather than asleep for
/// ever.
pub(crate) fn without_gil<T: Send>(
    py: Python<'_>,
    is_done: impl FnOnce() -> bool,
    wait: impl FnOnce(&mut dyn FnMut() -> bool) -> Result<T> + Send,
) -> PyResult<T> {
    let is_inside = is_waited_for();
    if is_inside && !is_done() {
        return Err(refusal());
    }
    let mut raised = None;
    let result = py.detach(|| {
        let mut is_interrupted = || {
            if is_inside {
                return true;
            }
            raised = Python::attach(|py| py.check_signals().err());
            raised.is_some()
        };
        wait(&mut is_interrupted)
    });
    drop_parked(py);
    result.map_err(|error| failure(error, raised, is_inside))
}

/// Why a wait failed.
#[cold]
fn failure(error: Error, raised: Option<PyErr>, is_inside: bool) -> PyErr {
    match (error, raised) {
        (Error::Runtime(RuntimeError::Interrupted), Some(raised)) => raised,
        (Error::Runtime(RuntimeError::Interrupted), None) if is_inside => refusal(),
        (error, _) => error.into(),
    }
}

/// Refuses, inside a callable, calls that would wait for work that is yet to be enqueued.
pub(crate) fn check_may_wait() -> PyResult<()> {
    if is_waited_for() { Err(refusal()) } else { Ok(()) }
}

fn refusal() -> PyErr {
    PyRuntimeError::new_err(
        "a callable of launch_host cannot wait for unfinished work: that may need the thread that \
         callables run on",
    )
}

/// Calls `push`, which enqueues on `stream`, when there is room.
#[inline]
pub(crate) fn enqueue<T>(
    py: Python<'_>,
    stream: &Stream,
    push: impl FnOnce() -> Result<T>,
) -> PyResult<T> {
    make_room(py, stream)?;
    Ok(push()?)
}

/// Waits, without the GIL and with Ctrl-C, while a stream has its limit of tasks queued: callables
/// among them need the GIL. The next push, still with the GIL, then does not wait. Inside a
/// callable no push waits: it would wait for itself.
#[inline]
pub(crate) fn make_room(py: Python<'_>, stream: &Stream) -> PyResult<()> {
    // Again after each wait: other threads may fill the queue until this one has the GIL.
    while !stream.has_room() && !is_waited_for() {
        let wait =
            |is_interrupted: &mut dyn FnMut() -> bool| stream.wait_for_room_unless(is_interrupted);
        without_gil(py, || false, wait)?;
    }
    Ok(())
}
