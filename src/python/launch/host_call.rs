//! `accelrt.HostCall`: the handle of a callable that `launch_host` enqueued, and its outcome.

use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Instant;

use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::base::blocking::{longest_park, while_blocked};
use crate::base::error::{Error, Result, StreamError};
use crate::base::fork;
use crate::base::sync::{LockRank, Mutex, Sleeper, park};
use crate::engine::stream::Stream;
use crate::engine::stream::interrupt::Interrupt;
use crate::engine::stream::lifecycle::Lifecycle;
use crate::python::support::awaiting::{Awaited, Awaiting};
use crate::python::support::deferred_drops::{DeferredDrop, drop_parked};
use crate::python::support::parameters::timeout_argument;
use crate::python::support::waiting::{scheduled, step_schedule, without_gil};

/// The outcome of a callable, and the threads and asyncio tasks that wait for it.
enum Outcome {
    Pending(Vec<Waker>),
    Returned(DeferredDrop),
    Raised(DeferredDrop),
    /// The stream had failed before, or was shut down.
    NotCalled,
}

/// The outcome, as the handle and the task share it.
pub(crate) struct Shared(Mutex<Outcome>);

/// The task's end. Its drop says that the callable was not called.
pub(crate) struct Report(Arc<Shared>);

impl Report {
    pub(crate) fn new() -> (Self, Arc<Shared>) {
        let pending = Outcome::Pending(Vec::new());
        let shared = Arc::new(Shared(Mutex::new(LockRank::Bindings, pending)));
        (Self(Arc::clone(&shared)), shared)
    }

    /// Stores what the callable returned or raised, if the program has the handle.
    pub(crate) fn finish(self, py: Python<'_>, outcome: &PyResult<Bound<'_, PyAny>>) {
        if Arc::strong_count(&self.0) == 1 {
            return;
        }
        self.0.set(match outcome {
            Ok(value) => Outcome::Returned(DeferredDrop::new(vec![value.clone().unbind()])),
            Err(error) => {
                let raised = error.value(py).clone().into_any().unbind();
                Outcome::Raised(DeferredDrop::new(vec![raised]))
            }
        });
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        self.0.set(Outcome::NotCalled);
    }
}

impl Shared {
    /// Stores the outcome, unless one is stored, and wakes the threads that wait for it.
    fn set(&self, outcome: Outcome) {
        let mut state = self.0.lock();
        if let Outcome::Pending(waiting) = &mut *state {
            let waiting = std::mem::take(waiting);
            *state = outcome;
            drop(state);
            waiting.into_iter().for_each(Waker::wake);
        }
    }

    /// True when an outcome is stored. False in a forked child, where a thread that it lacks may
    /// hold the lock.
    fn is_done(&self) -> bool {
        !fork::is_child() && !matches!(*self.0.lock(), Outcome::Pending(_))
    }

    /// Wakes `waker` when the outcome is stored. False when it is stored.
    fn register(&self, waker: &Waker) -> bool {
        match &mut *self.0.lock() {
            Outcome::Pending(waiting) => waiting.push(waker.clone()),
            _ => return false,
        }
        true
    }

    fn withdraw(&self, waker: &Waker) {
        if let Outcome::Pending(waiting) = &mut *self.0.lock() {
            waiting.retain(|waiting| !waiting.will_wake(waker));
        }
    }

    /// Blocks until the outcome is stored. Executes no task meanwhile, but for a schedule.
    fn wait(&self, stream_key: u64, interrupt: &mut Interrupt<'_>) -> Result<()> {
        if let Some(scheduler) = scheduled().and_then(Lifecycle::scheduler) {
            return scheduler.follow(stream_key, &|| self.is_done(), interrupt);
        }
        let sleeper = Sleeper::new();
        let waker = Waker::from(Arc::clone(&sleeper));
        if !self.register(&waker) {
            return Ok(());
        }
        let (mut last_check, mut outcome) = (Instant::now(), Ok(()));
        while_blocked(|| {
            while outcome.is_ok() && !sleeper.is_woken() {
                park(interrupt.longest_sleep(longest_park()));
                if !sleeper.is_woken() {
                    outcome = interrupt.check(&mut last_check);
                }
            }
        });
        self.withdraw(&waker);
        outcome
    }
}

/// The outcome as an asyncio task awaits it.
struct CallFuture {
    call: Py<PyHostCall>,
    registered: Option<Waker>,
}

impl CallFuture {
    fn withdraw(&mut self) {
        if let Some(waker) = self.registered.take()
            && !fork::is_child()
        {
            self.call.get().shared.withdraw(&waker);
        }
    }
}

impl Awaited for CallFuture {
    fn is_done(&self) -> bool {
        self.call.get().shared.is_done()
    }

    fn poll<'py>(&mut self, py: Python<'py>, waker: &Waker) -> Poll<PyResult<Bound<'py, PyAny>>> {
        self.withdraw();
        let call = self.call.get();
        if call.shared.register(waker) {
            self.registered = Some(waker.clone());
            return Poll::Pending;
        }
        Poll::Ready(call.outcome(py))
    }
}

impl Drop for CallFuture {
    fn drop(&mut self) {
        self.withdraw();
    }
}

/// The handle of a callable that `Stream.launch_host` enqueued: done when the callable has returned
/// or raised, or will not be called.
///
/// `await call` waits in asyncio, as `result` does. Dropping the handle changes nothing. An
/// exception fails the stream too, whose `synchronize` raises it again.
///
/// >>> import accelrt
/// >>> stream = accelrt.Stream()
/// >>> stream.launch_host(max, 3, 4).result()
/// 4
#[pyclass(name = "HostCall", module = "accelrt", weakref, frozen)]
pub(crate) struct PyHostCall {
    shared: Arc<Shared>,
    stream: Stream,
    ticket: u64,
}

impl PyHostCall {
    pub(crate) fn new(shared: Arc<Shared>, stream: &Stream, ticket: u64) -> Self {
        Self { shared, stream: stream.clone(), ticket }
    }

    /// Waits for the outcome. Returns the value, or the exception.
    fn wait<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<std::result::Result<Bound<'py, PyAny>, PyErr>> {
        let timeout = timeout_argument(timeout)?;
        fork::check()?;
        let is_done = || self.shared.is_done();
        if is_done() {
            drop_parked(py);
        } else {
            without_gil(py, is_done, |is_interrupted| {
                let key = self.stream.core().key();
                self.shared.wait(key, &mut Interrupt::by(is_interrupted).or_after(timeout))
            })?;
        }
        Ok(self.outcome(py))
    }

    /// What the callable returned or raised. The outcome is stored.
    fn outcome<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.stream.core().tell_waited(self.ticket, false, &Ok(()));
        let object = |kept: &DeferredDrop| kept.bind(py).next().expect("it keeps one").clone();
        let known = match &*self.shared.0.lock() {
            Outcome::Returned(value) => Some(Ok(object(value))),
            Outcome::Raised(exception) => Some(Err(PyErr::from_value(object(exception)))),
            Outcome::NotCalled | Outcome::Pending(_) => None,
        };
        known.unwrap_or_else(|| Err(self.not_called()))
    }

    /// The exception for a callable that was skipped: its stream's failure, while that is known.
    fn not_called(&self) -> PyErr {
        let failure = self.stream.core().failures.at(self.ticket);
        match failure.filter(|failure| !failure.is_cancellation()) {
            Some(failure) => Error::Stream(StreamError::Failed(failure)).into(),
            None => PyRuntimeError::new_err(
                "the callable was not called: its stream had failed before, or the runtime was \
                 shut down",
            ),
        }
    }
}

#[pymethods]
impl PyHostCall {
    /// True when the callable has returned or raised, or will not be called. Does not block.
    /// Under a schedule, runs one task unless it is done.
    fn done(&self, py: Python<'_>) -> bool {
        let is_done = self.shared.is_done() || step_schedule(py) && self.shared.is_done();
        if is_done {
            self.stream.core().tell_waited(self.ticket, false, &Ok(()));
        }
        is_done
    }

    /// Blocks, without the GIL, until the callable is done; returns what it returned, or raises
    /// what it raised. A callable that was skipped because its stream had failed raises that
    /// failure.
    ///
    /// After `timeout` seconds raises `TimeoutError`, and the work goes on. None waits without a
    /// limit.
    #[pyo3(signature = (timeout=None))]
    fn result<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.wait(py, timeout)?
    }

    /// As `result`, but returns the exception; None when the callable returned.
    #[pyo3(signature = (timeout=None))]
    fn exception<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let outcome = self.wait(py, timeout)?;
        Ok(outcome.err().map(|error| error.into_value(py).into_bound(py).into_any()))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        if fork::is_child() {
            return Ok(()); // a leak: a thread that the child lacks may hold the lock
        }
        // No thread runs Python code, and so the collector, while it holds the lock.
        match &*self.shared.0.lock() {
            Outcome::Returned(kept) | Outcome::Raised(kept) => kept.visit(&visit),
            Outcome::NotCalled | Outcome::Pending(_) => Ok(()),
        }
    }

    fn __clear__(&self, py: Python<'_>) {
        if fork::is_child() {
            return; // as in `__traverse__`
        }
        let mut outcome = self.shared.0.lock();
        if let Outcome::Returned(_) | Outcome::Raised(_) = *outcome {
            let kept = std::mem::replace(&mut *outcome, Outcome::NotCalled);
            drop(outcome);
            if let Outcome::Returned(kept) | Outcome::Raised(kept) = kept {
                kept.release(py);
            }
        }
    }

    /// `await call` waits as `result`, while the loop runs other tasks. Cancelling the asyncio task
    /// ends the wait only.
    fn __await__(slf: Bound<'_, Self>) -> Awaiting {
        Awaiting::new(CallFuture { call: slf.unbind(), registered: None })
    }

    /// For annotations, as in `HostCall[int]`.
    #[classmethod]
    fn __class_getitem__<'py>(
        class: &Bound<'py, PyType>,
        item: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let alias = class.py().import("types")?.getattr("GenericAlias")?;
        alias.call1((class, item))
    }

    fn __repr__(&self) -> String {
        let (device, id) = (self.stream.device(), self.stream.id());
        let state = if self.shared.is_done() { "done" } else { "pending" };
        format!("accelrt.HostCall(device='{device}', stream_id={id}, {state})")
    }
}
