//! The running asyncio loop, and how threads without the GIL end futures of a loop.
//!
//! Each loop reads one eventfd. A thread that completes work queues the future and raises the
//! eventfd; the loop then ends all queued futures. So no thread waits for the work, and the loop
//! does not poll it.

use std::os::fd::RawFd;
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use accelrt::internal::{EventFd, SpinMutex};
use crossbeam_queue::SegQueue;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::support::deferred_drops::DeferredDrop;

/// What threads share with one loop.
#[derive(Debug)]
struct Ready {
    event_fd: EventFd,
    futures: SegQueue<DeferredDrop>,
}

impl Ready {
    fn push(&self, future: DeferredDrop) {
        self.futures.push(future);
        self.event_fd.raise();
    }
}

/// Ends one future of a loop, once. The asyncio task that awaits the future keeps this value, so it
/// lets the loop's queue go, which keeps the future of a closed loop.
struct FutureWaker(SpinMutex<Option<(Arc<Ready>, DeferredDrop)>>);

impl Wake for FutureWaker {
    fn wake(self: Arc<Self>) {
        let pending = self.0.lock().take();
        if let Some((ready, future)) = pending {
            ready.push(future);
        }
    }
}

/// The callable that a loop calls when its eventfd is raised.
#[pyclass(module = "accelrt", frozen)]
struct EventLoopReader {
    ready: Arc<Ready>,
}

#[pymethods]
impl EventLoopReader {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        let Ready { event_fd, futures } = &*self.ready;
        event_fd.lower();
        // Ends those that are queued now, so that the loop has its turn between. What is queued
        // from here on raises the eventfd again.
        for _ in 0..futures.len() {
            let Some(queued) = futures.pop() else { break };
            for future in queued.bind(py) {
                // A cancelled future is done.
                if !future.call_method0(intern!(py, "done"))?.is_truthy()? {
                    future.call_method1(intern!(py, "set_result"), (py.None(),))?;
                }
            }
            queued.release(py);
        }
        Ok(())
    }
}

/// A new future of the loop that runs on this thread, and the waker that ends it from any thread.
/// Fails when no loop runs.
pub(crate) fn new_future(py: Python<'_>) -> PyResult<(Bound<'_, PyAny>, Waker)> {
    static GET_RUNNING_LOOP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let running = GET_RUNNING_LOOP.import(py, "asyncio", "get_running_loop")?.call0()?;
    let ready = ready_of(&running)?;
    let future = running.call_method0(intern!(py, "create_future"))?;
    let kept = DeferredDrop::new(vec![future.clone().unbind()]);
    let waker = FutureWaker(SpinMutex::new(Some((ready, kept))));
    Ok((future, Waker::from(Arc::new(waker))))
}

/// Finds what a loop reads. The loop's own registration keeps it alive: a queue that lived as long
/// as the entry of the loop would keep the futures of a closed loop, and so the loop.
#[pyclass(module = "accelrt", frozen)]
struct KnownLoop {
    ready: Weak<Ready>,
}

/// The queue of a loop. At the first call the loop begins to read an eventfd.
fn ready_of(running: &Bound<'_, PyAny>) -> PyResult<Arc<Ready>> {
    /// A `WeakKeyDictionary` of [`KnownLoop`]s.
    static LOOPS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = running.py();
    let new = || Ok::<_, PyErr>(py.import("weakref")?.call_method0("WeakKeyDictionary")?.unbind());
    let loops = LOOPS.get_or_try_init(py, new)?.bind(py);
    let known = loops.call_method1(intern!(py, "get"), (running,))?;
    if let Ok(known) = known.cast::<KnownLoop>()
        && let Some(ready) = known.get().ready.upgrade()
    {
        return Ok(ready);
    }
    let ready = Arc::new(Ready { event_fd: EventFd::new()?, futures: SegQueue::new() });
    let descriptor: RawFd = ready.event_fd.descriptor();
    let reader = EventLoopReader { ready: Arc::clone(&ready) };
    running.call_method1("add_reader", (descriptor, Bound::new(py, reader)?))?;
    loops.set_item(running, Bound::new(py, KnownLoop { ready: Arc::downgrade(&ready) })?)?;
    Ok(ready)
}
