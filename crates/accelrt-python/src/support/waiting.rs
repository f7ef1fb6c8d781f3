//! Waits that release the GIL and that Ctrl-C interrupts. Callables of `launch_host` must not wait.

use accelrt::internal::Lifecycle;
use accelrt::{Error, Result, Runtime, RuntimeError, Stream};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::support::deferred_drops::drop_parked;
use crate::support::errors::{OrRaise, exception};
use crate::support::findings;
use crate::support::host_thread::must_not_wait;
use crate::support::stacks::StackScope;

/// Calls `wait` without the GIL. `wait` calls its argument about every 50 ms while it sleeps.
/// When a signal handler raises, the wait fails with that exception, and the work continues.
///
/// On host threads, fails unless `is_done`: unfinished work may need these threads. `wait` also
/// fails there when it has to sleep for work that arrived meanwhile.
pub(crate) fn without_gil<T: Send>(
    py: Python<'_>,
    is_done: impl FnOnce() -> bool,
    wait: impl FnOnce(&mut dyn FnMut() -> bool) -> Result<T> + Send,
) -> PyResult<T> {
    let is_inside = must_not_wait();
    if is_inside && !is_done() {
        return Err(refusal());
    }
    let mut raised = None;
    let _scope = StackScope::of_order(py);
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

#[cold]
fn failure(error: Error, raised: Option<PyErr>, is_inside: bool) -> PyErr {
    match (error, raised) {
        (Error::Runtime(RuntimeError::Interrupted), Some(raised)) => raised,
        (Error::Runtime(RuntimeError::Interrupted), None) if is_inside => refusal(),
        (error, _) => exception(error),
    }
}

/// Fails on host threads. For calls that always wait, because they wait for work that they enqueue.
pub(crate) fn check_may_wait() -> PyResult<()> {
    if must_not_wait() { Err(refusal()) } else { Ok(()) }
}

fn refusal() -> PyErr {
    PyRuntimeError::new_err(
        "a callable of launch_host cannot wait for unfinished work, which may need the threads \
         that callables run on: order the callable behind the work, by wait_stream or wait_event",
    )
}

/// Waits until the stream is below its task limit, then calls `push`, which enqueues a task.
#[inline]
pub(crate) fn enqueue<T>(
    py: Python<'_>,
    stream: &Stream,
    push: impl FnOnce() -> Result<T>,
) -> PyResult<T> {
    make_room(py, stream)?;
    let scope = StackScope::of_order(py);
    let pushed = push().or_raise()?;
    if scope.is_known() {
        findings::tell_new(py)?;
    }
    Ok(pushed)
}

/// Waits until the stream is below its task limit, so that the next enqueue does not block. The
/// wait releases the GIL, which queued callables need, and Ctrl-C interrupts it. Host threads do
/// not wait, because queued tasks may need the callables that they run.
#[inline]
pub(crate) fn make_room(py: Python<'_>, stream: &Stream) -> PyResult<()> {
    // Loops, because other threads may reach the limit before this thread holds the GIL again.
    while !stream.is_below_limit() && !must_not_wait() {
        let wait = |is_interrupted: &mut dyn FnMut() -> bool| {
            stream.wait_below_limit_unless(is_interrupted)
        };
        without_gil(py, || false, wait)?;
    }
    Ok(())
}

/// The state of the process's runtime while it follows a schedule.
pub(crate) fn scheduled() -> Option<&'static Lifecycle> {
    let lifecycle = &**Runtime::existing_of_process()?.lifecycle();
    lifecycle.scheduler().is_some().then_some(lifecycle)
}

/// Makes a step of the schedule, without the GIL. False without a schedule.
#[cold]
pub(crate) fn step_schedule(py: Python<'_>) -> bool {
    scheduled().is_some_and(|lifecycle| py.detach(|| lifecycle.step()))
}
