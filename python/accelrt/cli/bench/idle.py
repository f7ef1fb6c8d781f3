"""Idleness: the CPU time of a process without work (Q7)."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import accelrt
from accelrt.cli.bench import native
from accelrt.cli.bench.measure import in_turns, once, row
from accelrt.cli.bench.measurement import Measurement

_UNREST_NS = 100_000
_TASKS, _SCHEDULING = Path("/proc/self/task"), Path("/proc/self/schedstat")


def measure() -> Iterator[Measurement]:
    """Yield the row."""
    stream, nothing = accelrt.Stream(), native.without_arguments()

    def idle_ns() -> float:
        for _ in range(1_000):
            stream.launch(nothing)
        stream.synchronize()
        began = time.monotonic_ns()
        while time.monotonic_ns() - began < _UNREST_NS:
            pass
        before = _other_threads_ns()
        time.sleep(1)
        return _other_threads_ns() - before

    if not _SCHEDULING.is_file():
        yield Measurement("Q7", reason="the kernel does not say what each thread used")
        return
    (idle,) = in_turns(once(idle_ns))
    yield row("Q7", idle)


def _other_threads_ns() -> int:
    """Return the CPU time of all threads except this one, which only sleeps and polls."""
    others = (task for task in _TASKS.iterdir() if task.name != str(threading.get_native_id()))
    return sum(int((task / "schedstat").read_text().split()[0]) for task in others)
