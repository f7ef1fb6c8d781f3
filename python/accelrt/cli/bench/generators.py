"""Random numbers: fills of 64 MiB (R1-R6), beside NumPy's generators over Philox and SFC64."""

import importlib
import time
from collections.abc import Iterator
from typing import Any

import accelrt
from accelrt.cli.bench.measure import Thing, in_turns, once, row
from accelrt.cli.bench.measurement import Measurement

_BYTES = 64 << 20
# NumPy's integers take no array to fill: pieces that its allocator keeps spare it fresh pages.
_PIECE_BYTES = 1 << 20
_ROWS = (
    ("R1", "fill_raw_", "uint32"),
    ("R2", "fill_raw_", "uint64"),
    ("R3", "fill_uniform_", "float32"),
    ("R4", "fill_uniform_", "float64"),
    ("R5", "fill_normal_", "float32"),
    ("R6", "fill_normal_", "float64"),
)
_PEERS = ("Philox", "SFC64")


def measure() -> Iterator[Measurement]:
    """Yield the rows."""
    try:
        numpy = importlib.import_module("numpy")
    except ImportError:
        numpy = None
    buffer = accelrt.empty(_BYTES, device="cpu")
    for name, method, dtype in _ROWS:
        ours = _ours(buffer, method, dtype)
        theirs = [] if numpy is None else [_peer(numpy, peer, method, dtype) for peer in _PEERS]
        figure, *figures = in_turns(ours, *theirs)
        for place, peer in enumerate(_PEERS):
            known = figures[place] if figures else None
            yield row(f"{name}.{peer.lower()}", figure, f"NumPy {peer}", known)


def _ours(buffer: accelrt.Buffer, method: str, dtype: str) -> Thing:
    fill = getattr(accelrt.Generator("cpu"), method)

    def work() -> float:
        started = time.perf_counter_ns()
        fill(buffer, dtype)
        accelrt.cpu.synchronize()
        return time.perf_counter_ns() - started

    return once(work)


def _peer(numpy: Any, peer: str, method: str, dtype: str) -> Thing:  # noqa: ANN401
    generator = numpy.random.Generator(getattr(numpy.random, peer)(1))
    array = numpy.zeros(_BYTES // numpy.dtype(dtype).itemsize, dtype)

    def integers() -> None:
        highest, count = 2 ** (8 * array.itemsize), _PIECE_BYTES // array.itemsize
        for _ in range(_BYTES // _PIECE_BYTES):
            generator.integers(0, highest, count, dtype)

    def work() -> float:
        started = time.perf_counter_ns()
        if method == "fill_raw_":
            integers()
        elif method == "fill_uniform_":
            generator.random(out=array, dtype=dtype)
        else:
            generator.standard_normal(out=array, dtype=dtype)
        return time.perf_counter_ns() - started

    return once(work)
