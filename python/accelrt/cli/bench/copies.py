"""Copies: asynchronous ones from Python (C1), and while a Python thread keeps the GIL (C2)."""

import ctypes
import time
from collections.abc import Callable, Iterator
from functools import partial
from operator import methodcaller
from timeit import Timer

import accelrt
from accelrt.cli.bench import native
from accelrt.cli.bench.measure import WARM_UP, in_turns, once, row, warm_ns_per_round
from accelrt.cli.bench.measurement import Measurement

# How many blocks of how many copies.
_SIZES = (("4KiB", 4 << 10, 10, 500), ("1MiB", 1 << 20, 1, 100), ("64MiB", 64 << 20, 1, 4))
_GIL_SECONDS = 0.1
_GIL_COPY_BYTES, _GIL_COPIES = 1 << 20, 128


def measure() -> Iterator[Measurement]:
    """Yield the rows."""
    for name, size, blocks, count in _SIZES:
        source, target = accelrt.zeros(size), accelrt.zeros(size)
        pipelined_ns = partial(_pipelined_ns, target, source)
        memcpy_ns = partial(warm_ns_per_round, timer=_memcpy(target, source))
        ours, memcpy = in_turns(
            methodcaller("blocks", blocks, count, pipelined_ns),
            methodcaller("blocks", blocks, count, memcpy_ns),
        )
        yield row(f"C1.python.{name}", ours, "memcpy", memcpy)
    held, free = in_turns(
        once(lambda: _progress_ns(native.sleep_with_gil)), once(lambda: _progress_ns(time.sleep))
    )
    yield row("C2", held, "GIL left", free)


def _pipelined_ns(target: accelrt.Buffer, source: accelrt.Buffer, count: int) -> float:
    _copy_all(target, source, count // WARM_UP)
    started = time.perf_counter_ns()
    _copy_all(target, source, count)
    return (time.perf_counter_ns() - started) / count


def _copy_all(target: accelrt.Buffer, source: accelrt.Buffer, count: int) -> None:
    for _ in range(count):
        target.copy_(source, non_blocking=True)
    accelrt.accelerator.synchronize()


def _memcpy(target: accelrt.Buffer, source: accelrt.Buffer) -> Timer:
    names = {"copy": ctypes.memmove, "target": target.data_ptr(), "source": source.data_ptr()}
    return Timer("copy(target, source, size)", globals={**names, "size": source.nbytes})


def _progress_ns(sleep: Callable[[float], object]) -> float:
    """Return how long copies from the host took while this thread slept; they are over by then."""
    stream, source = accelrt.Stream(), bytearray(_GIL_COPY_BYTES)
    target = accelrt.zeros(_GIL_COPY_BYTES)
    start, end = (accelrt.Event(enable_timing=True) for _ in range(2))
    accelrt.accelerator.synchronize()
    with stream:
        start.record()
        for _ in range(_GIL_COPIES):
            target.copy_(source, non_blocking=True)
        end.record()
    sleep(_GIL_SECONDS)
    if not end.query():  # they made no progress, or far too little
        end.synchronize()
        return _GIL_SECONDS * 1e9
    return start.elapsed_time(end) * 1e6
