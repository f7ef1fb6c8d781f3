//! `accelrt.Event`: a point in a stream.

use accelrt::Event;
use pyo3::prelude::*;

use crate::objects::device::PyDevice;
use crate::objects::stream::PyStream;

/// A point in a stream that can be recorded, waited for and queried.
///
/// `Event(device=None, *, enable_timing=False, blocking=False, interprocess=False)`, or the flags
/// by position: `Event(True)` is timed. An event without a record counts as done. A wait ignores
/// records made after its call. `device` sets only the kind; the first record sets the index.
/// `await event` waits in asyncio, as `synchronize` does.
/// `blocking` and `interprocess` are accepted without an effect.
///
/// >>> import accelrt
/// >>> start, end = accelrt.Event(enable_timing=True), accelrt.Event(enable_timing=True)
/// >>> start.record(); end.record(); end.synchronize()
/// >>> start.elapsed_time(end) >= 0
/// True
#[pyclass(name = "Event", module = "accelrt", subclass, weakref, frozen)]
pub(crate) struct PyEvent {
    pub(crate) event: Event,
    pub(crate) device: PyDevice,
}

impl PyEvent {
    pub(crate) fn untimed(stream: &PyStream) -> Self {
        let device = PyDevice::from(stream.stream.device());
        let event = Event::for_kind(device.kind, false);
        Self { event, device: PyDevice { index: None, ..device } }
    }
}
