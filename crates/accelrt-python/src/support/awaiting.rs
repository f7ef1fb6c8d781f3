//! What `await` iterates over: the wait of an asyncio task for work of the runtime.

use std::mem;
use std::task::{Poll, Waker};

use accelrt::internal::{SynchronizeFuture, fork};
use accelrt::{EventFuture, Result};
use pyo3::exceptions::{PyRuntimeError, PyStopIteration};
use pyo3::intern;
use pyo3::prelude::*;

use crate::support::deferred_drops::drop_parked;
use crate::support::errors::OrRaise;
use crate::support::event_loop::new_future;
use crate::support::waiting::{check_may_wait, scheduled};

/// Work that an asyncio task waits for.
pub(crate) trait Awaited: Send + Sync {
    /// True when a poll is ready. Registers nothing.
    fn is_done(&self) -> bool;

    /// The outcome, or a promise to wake `waker` when another poll may be ready.
    fn poll<'py>(&mut self, py: Python<'py>, waker: &Waker) -> Poll<PyResult<Bound<'py, PyAny>>>;
}

/// The iterator behind `await`. It yields a future of the loop, which is done when the work is;
/// then it returns the outcome. Work that is done already needs no loop.
///
/// Cancelling the asyncio task drops the iterator; the work goes on.
#[pyclass(module = "accelrt")]
pub(crate) struct Awaiting {
    awaited: Box<dyn Awaited>,
    /// True behind the first poll.
    was_polled: bool,
}

impl Awaiting {
    pub(crate) fn new(awaited: impl Awaited + 'static) -> Self {
        Self { awaited: Box::new(awaited), was_polled: false }
    }
}

impl Awaited for EventFuture {
    fn is_done(&self) -> bool {
        EventFuture::is_done(self)
    }

    fn poll<'py>(&mut self, py: Python<'py>, waker: &Waker) -> Poll<PyResult<Bound<'py, PyAny>>> {
        none_or_error(py, self.poll_record(waker))
    }
}

impl Awaited for SynchronizeFuture {
    fn is_done(&self) -> bool {
        SynchronizeFuture::is_done(self)
    }

    fn poll<'py>(&mut self, py: Python<'py>, waker: &Waker) -> Poll<PyResult<Bound<'py, PyAny>>> {
        none_or_error(py, SynchronizeFuture::poll(self, waker))
    }
}

fn none_or_error(py: Python<'_>, polled: Poll<Result<()>>) -> Poll<PyResult<Bound<'_, PyAny>>> {
    polled.map(|outcome| outcome.map(|()| py.None().into_bound(py)).or_raise())
}

/// An error to raise in `await`, where a `StopIteration` would be the result.
fn no_result(py: Python<'_>, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyStopIteration>(py) {
        return error;
    }
    let raised = PyRuntimeError::new_err("the awaited callable raised StopIteration");
    raised.set_cause(py, Some(error));
    raised
}

#[pymethods]
impl Awaiting {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        fork::check().or_raise()?;
        drop_parked(py);
        let pending = if self.awaited.is_done() {
            None
        } else {
            check_may_wait()?;
            Some(new_future(py)?)
        };
        let waker = pending.as_ref().map_or(Waker::noop(), |(_, waker)| waker);
        if let Some(lifecycle) = scheduled().filter(|_| pending.is_some()) {
            // At the first poll the other tasks of the loop have still to enqueue theirs.
            if mem::replace(&mut self.was_polled, true) {
                py.detach(|| lifecycle.step());
            }
            waker.wake_by_ref();
        }
        match (self.awaited.poll(py, waker), pending) {
            (Poll::Ready(outcome), _) => Err(match outcome {
                Ok(value) => PyStopIteration::new_err((value.unbind(),)),
                Err(error) => no_result(py, error),
            }),
            (Poll::Pending, Some((future, _))) => {
                // As an asyncio future says that it is awaited, and not merely yielded.
                future.setattr(intern!(py, "_asyncio_future_blocking"), true)?;
                Ok(future)
            }
            (Poll::Pending, None) => unreachable!("what is done is ready"),
        }
    }
}
