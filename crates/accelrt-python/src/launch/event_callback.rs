//! `Event.add_done_callback`: callables that the host threads call when an event's record is done.

use accelrt::Runtime;
use accelrt::internal::{WhenDone, fork, frames};
use pyo3::prelude::*;

use crate::launch::host_task::call_python;
use crate::launch::host_threads;
use crate::objects::contexts;
use crate::objects::event::PyEvent;
use crate::support::deferred_drops::{DeferredDrop, drop_parked};
use crate::support::errors::{OrRaise, wrong_type};

/// A key that no stream has: they begin at 1.
const NO_STREAM: u64 = 0;

/// A callable and the tuple of its argument, the event; they wait for the event's record.
pub(crate) type EventCallback = WhenDone<DeferredDrop>;

pub(crate) fn add(event: &Bound<'_, PyEvent>, callable: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = event.py();
    drop_parked(py);
    if !callable.is_callable() {
        return Err(wrong_type("callback", "callable", callable));
    }
    fork::check().or_raise()?;
    host_threads::ensure_started(Runtime::global().or_raise()?.config().host_threads)?;
    let arguments = (event,).into_pyobject(py)?.into_any().unbind();
    let call = DeferredDrop::new(vec![callable.clone().unbind(), arguments]);
    let callback = EventCallback::new(event.get().event.clone(), call, host_threads::post_callback);
    if let Some(done) = callback.poll() {
        host_threads::post_callback(done);
    }
    Ok(())
}

/// Calls the callable, with the default streams as the current ones. As a callable of a stream, it
/// enqueues beyond the limit of a stream: the tasks there may need this thread.
pub(crate) fn run(callback: EventCallback, py: Python<'_>) {
    frames::inside(NO_STREAM, || call(callback.value, py));
}

fn call(call: DeferredDrop, py: Python<'_>) {
    let outcome = call_python(py, &call);
    contexts::forget();
    if let Ok(runtime) = Runtime::global() {
        runtime.adopt_stream(None);
    }
    if let Err(error) = outcome {
        error.write_unraisable(py, call.bind(py).next());
    }
    call.release(py);
}
