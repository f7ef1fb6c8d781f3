"""Every call of the Python face that may wait, each on a stream that a gate keeps from being done.

Method: a helper thread is let go by a lock, which does not pass the GIL on, while no thread is made
to give the GIL up. So the helper runs when the wait has left the GIL, and not before.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

import accelrt
from gates import NATIVE, Gate
from kinds import KIND, content, module

SIZE = 64
# The second device, where there is one.
PLACE = f"{KIND}:{min(1, module.device_count() - 1)}"


class Blocked:
    """A stream behind a gate, with an event and a buffer that are done when the gate opens."""

    def __init__(self) -> None:
        """Enqueue the gate, and behind it a task that writes to the buffer."""
        with accelrt.Stream(PLACE) as home:
            self.buffer, self.other = accelrt.empty(SIZE), accelrt.zeros(SIZE)
        home.synchronize()
        # Trap: a thread that waits for a stream whose tasks were short runs the next one itself. A
        # stream without a past leaves the gate to a worker.
        self.stream = accelrt.Stream(PLACE, dedicated=True)
        self.gate = Gate(self.stream)
        with self.stream:
            self.buffer.fill_(7)
        self.event = self.stream.record_event()

    def check(self) -> None:
        """Check that the work went on to its end."""
        self.stream.synchronize()
        assert self.event.query()
        assert content(self.buffer) == b"\x07" * SIZE


def on_the_stream(call: Callable[[Blocked], object]) -> Callable[[Blocked], object]:
    """Return the call with the blocked stream as the current one."""

    def with_stream(blocked: Blocked) -> object:
        with blocked.stream:
            return call(blocked)

    return with_stream


WAITS: dict[str, Callable[[Blocked], object]] = {
    "Stream.synchronize": lambda it: it.stream.synchronize(),
    "Event.synchronize": lambda it: it.event.synchronize(),
    "accelerator.synchronize": lambda it: accelrt.accelerator.synchronize(it.stream.device),
    "module.synchronize": lambda it: module.synchronize(it.stream.device),
    "copy_ of a buffer": on_the_stream(lambda it: it.other.copy_(it.buffer)),
    "copy_ of bytes": on_the_stream(lambda it: it.other.copy_(bytes(SIZE))),
    "copy_ of an array": on_the_stream(lambda it: it.other.copy_(np.zeros(SIZE, np.uint8))),
    "copy_to a buffer": on_the_stream(lambda it: it.buffer.copy_to(it.other)),
    "copy_to bytes": on_the_stream(lambda it: it.buffer.copy_to(bytearray(SIZE))),
}
# Of memory that the host reaches.
HOST_WAITS: dict[str, Callable[[Blocked], object]] = {
    "memoryview": lambda it: memoryview(it.buffer),
    "memoryview of a slice": lambda it: memoryview(it.buffer[3:5]),
    "memoryview of a view": lambda it: memoryview(it.buffer.view("float32")),
    "bytes": lambda it: bytes(it.buffer),
    "Buffer.__dlpack__": lambda it: it.buffer.__dlpack__(),
    "View.__dlpack__": lambda it: it.buffer.view("int64").__dlpack__(),
    "View.__dlpack__ of a copy": lambda it: it.buffer.view("int64").__dlpack__(copy=True),
    "View.__array_interface__": lambda it: it.buffer.view("int16").__array_interface__,
    "numpy.asarray": lambda it: np.asarray(it.buffer.view("int16")),
    "numpy.asarray of a buffer": lambda it: np.asarray(it.buffer),
    "numpy.from_dlpack": lambda it: np.from_dlpack(it.buffer.view("int16")),
}

if NATIVE:
    WAITS |= HOST_WAITS


@contextmanager
def nobody_gives_the_gil_up() -> Iterator[None]:
    """Have a thread keep the GIL until it waits for something."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def while_waiting(wait: Callable[[], object], act: Callable[[], object]) -> object:
    """Return what `wait` returns; `act` runs in another thread when `wait` has left the GIL."""
    go, is_there = threading.Lock(), threading.Event()

    def run() -> None:
        is_there.set()
        with go:
            act()

    go.acquire()
    thread = threading.Thread(target=run)
    thread.start()
    is_there.wait()
    try:
        with nobody_gives_the_gil_up():
            go.release()
            return wait()
    finally:
        thread.join()


def interrupt() -> None:
    """Press Ctrl-C, as far as the main thread can tell."""
    os.kill(os.getpid(), signal.SIGINT)
