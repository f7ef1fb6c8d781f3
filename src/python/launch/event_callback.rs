//! `Event.add_done_callback`: callables that the host threads call when an event's record is done.

use std::sync::Arc;
use std::task::{Wake, Waker};

use pyo3::prelude::*;

use crate::base::fork;
use crate::base::spin::SpinMutex;
use crate::engine::event::future::EventFuture;
use crate::engine::stream::frames;
use crate::python::launch::host_task::call_python;
use crate::python::launch::host_threads;
use crate::python::objects::contexts;
use crate::python::objects::event::PyEvent;
use crate::python::support::deferred_drops::{DeferredDrop, drop_parked};
use crate::python::support::errors::wrong_type;
use crate::runtime::Runtime;

/// A key that no stream has: they begin at 1.
const NO_STREAM: u64 = 0;

/// A callable, and the record that it waits for.
pub(crate) struct EventCallback {
    future: EventFuture,
    /// The callable, and the tuple of its argument, the event.
    call: DeferredDrop,
    watch: Arc<Watch>,
}

/// Where a callback is while its record is pending.
struct Watch(SpinMutex<Watched>);

enum Watched {
    /// A thread polls the record.
    Polled,
    /// A thread polls the record, which was completed meanwhile.
    PolledAndWoken,
    /// No thread has the callback.
    Left(EventCallback),
}

pub(crate) fn add(event: &Bound<'_, PyEvent>, callable: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = event.py();
    drop_parked(py);
    if !callable.is_callable() {
        return Err(wrong_type("callback", "callable", callable));
    }
    fork::check()?;
    host_threads::ensure_started(Runtime::global()?.config().host_threads)?;
    let arguments = (event,).into_pyobject(py)?.into_any().unbind();
    let call = DeferredDrop::new(vec![callable.clone().unbind(), arguments]);
    let future = EventFuture::new(event.get().event.clone());
    let watch = Arc::new(Watch(SpinMutex::new(Watched::Polled)));
    if let Some(done) = (EventCallback { future, call, watch }).poll() {
        host_threads::post_callback(done);
    }
    Ok(())
}

impl EventCallback {
    /// Returns the callback when its record is done. Else the thread that completes the record
    /// hands the callback to the host threads.
    pub(crate) fn poll(mut self) -> Option<Self> {
        let watch = Arc::clone(&self.watch);
        let waker = Waker::from(Arc::clone(&watch));
        loop {
            // A failed record is done too. Its failure stays unraised: the program has not seen it.
            if self.future.poll_done(&waker).is_ready() {
                return Some(self);
            }
            let mut watched = watch.0.lock();
            if let Watched::PolledAndWoken = *watched {
                *watched = Watched::Polled;
                continue;
            }
            *watched = Watched::Left(self);
            return None;
        }
    }

    /// Calls the callable, with the default streams as the current ones. As a callable of a
    /// stream, it enqueues beyond the limit of a stream: the tasks there may need this thread.
    pub(crate) fn run(self, py: Python<'_>) {
        frames::inside(NO_STREAM, || self.call(py));
    }

    fn call(self, py: Python<'_>) {
        let outcome = call_python(py, &self.call);
        contexts::forget();
        if let Ok(runtime) = Runtime::global() {
            runtime.adopt_stream(None);
        }
        if let Err(error) = outcome {
            error.write_unraisable(py, self.call.bind(py).next());
        }
        self.release(py);
    }

    pub(crate) fn release(self, py: Python<'_>) {
        self.call.release(py);
    }
}

impl Wake for Watch {
    fn wake(self: Arc<Self>) {
        let mut watched = self.0.lock();
        match std::mem::replace(&mut *watched, Watched::PolledAndWoken) {
            Watched::Polled | Watched::PolledAndWoken => {}
            Watched::Left(callback) => {
                *watched = Watched::Polled;
                drop(watched);
                host_threads::post_callback(callback);
            }
        }
    }
}
