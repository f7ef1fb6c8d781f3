//! `Event.add_done_callback`: callables that the host threads call when an event's record is done.

use accelrt::Runtime;
use accelrt::internal::{WhenDone, frames};
use pyo3::prelude::*;

use crate::launch::host_task::call_python;
use crate::objects::contexts;
use crate::support::deferred_drops::DeferredDrop;

/// A key that no stream has: they begin at 1.
const NO_STREAM: u64 = 0;

/// A callable and the tuple of its argument, the event; they wait for the event's record.
pub(crate) type EventCallback = WhenDone<DeferredDrop>;

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
