//! `Event.add_done_callback`: callables that the host threads call when an event's record is done.

use accelrt::Runtime;
use accelrt::internal::{WhenDone, frames};
use pyo3::prelude::*;

use crate::launch::host_task::call_python;
use crate::objects::contexts;
use crate::support::deferred_drops::DeferredDrop;

/// The key of a frame without a stream. Keys of streams begin at 1.
const NO_STREAM: u64 = 0;

/// A Python callable and its argument tuple `(event,)`, to call when the event's record is done.
pub(crate) type EventCallback = WhenDone<DeferredDrop>;

/// Calls the callable, with the default streams as the current ones. Like a callable of
/// `launch_host`, it may exceed the task limit of a stream. A wait for the queue to become shorter
/// could deadlock, because queued tasks may need this thread.
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
