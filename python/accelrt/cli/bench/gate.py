"""A gate that holds a stream: no thread executes the tasks behind it until it opens."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import accelrt


@contextmanager
def held(stream: accelrt.Stream) -> Iterator[None]:
    """Keep `stream` parked; open the gate at the end and wait until the stream has caught up."""
    gate, keeper, opened = (
        threading.Event(),
        accelrt.Stream(stream.device),
        accelrt.Event(stream.device),
    )
    keeper.launch_host(gate.wait)
    try:
        keeper.record_event(opened)
        stream.wait_event(opened)
        yield
    finally:
        gate.set()
        stream.synchronize()
