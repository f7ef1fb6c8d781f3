//! `accelrt.HostCall`: the handle of a callable that `launch_host` enqueued, and its outcome.

use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Instant;

use accelrt::internal::{
    Interrupt, Lifecycle, LockRank, Mutex, OperationKind, Sleeper, StreamCore, error, fork,
    longest_park, park, skipped_by, while_blocked,
};
use accelrt::{FailureCause, Stream, StreamFailure};
use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::support::awaiting::{Awaited, Awaiting};
use crate::support::deferred_drops::drop_parked;
use crate::support::errors::{OrRaise, exception};
use crate::support::host_thread::must_not_wait;
use crate::support::parameters::timeout_argument;
use crate::support::task_exception::{HandleObjects, RaisedInTask};
use crate::support::waiting::{scheduled, step_schedule, without_gil};

/// The progress of a callable.
enum State {
    /// Not over. Contains the wakers of the threads and asyncio tasks that wait.
    Pending(Vec<Waker>),
    Over(Outcome),
}

/// The outcome of a callable. The handle's objects contain the value or the exception.
#[derive(Clone)]
enum Outcome {
    Returned,
    /// Contains the stream's error, which exists before the stream has failed.
    Raised(Arc<StreamFailure>),
    /// The stream had failed before, with this error if it is known, or was shut down.
    NotCalled(Option<Arc<StreamFailure>>),
}

/// The outcome, as the handle and the task share it.
pub(crate) struct Shared {
    state: Mutex<State>,
    objects: Arc<HandleObjects>,
}

/// The task's end. Its drop says that the callable was not called.
pub(crate) struct Report(Arc<Shared>);

impl Report {
    pub(crate) fn new() -> (Self, Arc<Shared>) {
        let state = Mutex::new(LockRank::Bindings, State::Pending(Vec::new()));
        let shared = Arc::new(Shared { state, objects: HandleObjects::new() });
        (Self(Arc::clone(&shared)), shared)
    }

    /// Stores the outcome, if the program has the handle. Returns the stream's error.
    pub(crate) fn finish(
        self,
        py: Python<'_>,
        stream: &Stream,
        outcome: PyResult<Bound<'_, PyAny>>,
    ) -> Result<(), Arc<StreamFailure>> {
        let error = match outcome {
            Ok(value) => {
                self.store(py, || vec![value.unbind()], Outcome::Returned);
                return Ok(());
            }
            Err(error) => error,
        };
        let traceback = error.traceback(py).map_or_else(|| py.None(), |it| it.into_any().unbind());
        let exception = error.into_value(py).into_bound(py).into_any();
        let raised = RaisedInTask::new(&exception, &self.0.objects);
        let (device, operation) = (stream.device(), OperationKind::Deferred.name());
        let cause = FailureCause::Returned(Box::new(raised));
        let failure = StreamFailure::new(device, stream.id(), operation, cause);
        let objects = || vec![exception.unbind(), traceback];
        self.store(py, objects, Outcome::Raised(Arc::clone(&failure)));
        Err(failure)
    }

    fn store(&self, py: Python<'_>, objects: impl FnOnce() -> Vec<Py<PyAny>>, outcome: Outcome) {
        if Arc::strong_count(&self.0) > 1 {
            self.0.objects.set(py, objects());
        }
        self.0.set(outcome);
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        self.0.set(Outcome::NotCalled(skipped_by()));
    }
}

impl Shared {
    /// Stores the outcome, unless one is stored, and wakes the threads that wait for it.
    fn set(&self, outcome: Outcome) {
        if fork::is_child() {
            return std::mem::forget(outcome); // a callable has forked; its handle is the parent's
        }
        let mut state = self.state.lock();
        if let State::Pending(waiting) = &mut *state {
            let waiting = std::mem::take(waiting);
            *state = State::Over(outcome);
            drop(state);
            waiting.into_iter().for_each(Waker::wake);
        }
    }

    /// True when an outcome is stored. False in a forked child, where a thread that it lacks may
    /// hold the lock.
    fn is_done(&self) -> bool {
        !fork::is_child() && !matches!(*self.state.lock(), State::Pending(_))
    }

    /// Wakes `waker` when the outcome is stored. False when it is stored.
    fn register(&self, waker: &Waker) -> bool {
        match &mut *self.state.lock() {
            State::Pending(waiting) => waiting.push(waker.clone()),
            State::Over(_) => return false,
        }
        true
    }

    fn withdraw(&self, waker: &Waker) {
        if let State::Pending(waiting) = &mut *self.state.lock() {
            waiting.retain(|waiting| !waiting.will_wake(waker));
        }
    }

    /// Blocks until the outcome of the task `ticket` is stored. Executes no task meanwhile, but for
    /// a schedule.
    fn wait(
        &self,
        stream: &StreamCore,
        ticket: u64,
        interrupt: &mut Interrupt<'_>,
    ) -> error::Result<()> {
        if let Some(scheduler) = scheduled().and_then(Lifecycle::scheduler) {
            return scheduler.follow(stream.key(), &|| self.is_done(), interrupt);
        }
        let sleeper = Sleeper::new();
        let waker = Waker::from(Arc::clone(&sleeper));
        if !self.register(&waker) {
            return Ok(());
        }
        let (mut last_check, mut outcome) = (Instant::now(), Ok(()));
        let sleep = || {
            while outcome.is_ok() && !sleeper.is_woken() {
                park(interrupt.longest_sleep(longest_park()));
                if !sleeper.is_woken() {
                    outcome = interrupt.check(&mut last_check);
                }
            }
        };
        stream.record_wait(ticket, || while_blocked(sleep));
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
    ) -> PyResult<Result<Bound<'py, PyAny>, PyErr>> {
        let timeout = timeout_argument(timeout)?;
        fork::check().or_raise()?;
        let is_done = || self.shared.is_done();
        if is_done() {
            drop_parked(py);
        } else {
            without_gil(py, is_done, |is_interrupted| {
                let interrupt = &mut Interrupt::by(is_interrupted).or_after(timeout);
                self.shared.wait(self.stream.core(), self.ticket, interrupt)
            })?;
        }
        Ok(self.outcome(py))
    }

    /// Returns the value, or the exception, which the caller thereby receives. The outcome is
    /// stored.
    fn outcome<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let core = self.stream.core();
        core.tell_waited(self.ticket, false, &Ok(()));
        let outcome = match &*self.shared.state.lock() {
            State::Over(outcome) => outcome.clone(),
            State::Pending(_) => Outcome::NotCalled(None),
        };
        match outcome {
            Outcome::Returned => self.shared.objects.get(py, 0).ok_or_else(not_called),
            Outcome::Raised(failure) => {
                core.end_received(&failure);
                Err(self.exception_object(py).unwrap_or_else(not_called))
            }
            Outcome::NotCalled(failure) => {
                let failure = failure.or_else(|| core.failures.at(self.ticket));
                let failure = failure.filter(|failure| !failure.is_cancellation());
                Err(core.receive(failure).map_or_else(exception, |()| not_called()))
            }
        }
    }

    /// The exception that the callable raised, with its first traceback: each receiver that raises
    /// the object adds frames.
    fn exception_object(&self, py: Python<'_>) -> Option<PyErr> {
        let objects = &self.shared.objects;
        let (exception, traceback) = (objects.get(py, 0)?, objects.get(py, 1)?);
        exception.setattr("__traceback__", traceback).ok()?;
        Some(PyErr::from_value(exception))
    }
}

/// The exception for a callable without an outcome.
fn not_called() -> PyErr {
    PyRuntimeError::new_err(
        "the callable was not called: its stream had failed before, or the runtime was shut down",
    )
}

impl Drop for PyHostCall {
    /// Drops the value or the exception at once, except where destructors must not wait.
    fn drop(&mut self) {
        if Arc::strong_count(&self.shared) == 1 && !fork::is_child() && !must_not_wait() {
            Python::try_attach(|py| self.shared.objects.release(py));
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

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.shared.objects.visit(&visit)
    }

    fn __clear__(&self, py: Python<'_>) {
        if !fork::is_child() {
            self.shared.objects.release(py); // a leak in a child: as in `visit`
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
