"""What a watch of the sanitizer costs an enqueue from Python (S1).

No worker runs the tasks while they are enqueued, below as many frames as a program may have. Blocks
with and without a watch take turns; the watch begins and ends outside of what is measured.
"""

import ctypes
from collections.abc import Iterator
from timeit import Timer
from typing import Final

import accelrt
from accelrt.cli.bench.gate import held
from accelrt.cli.bench.measure import in_pairs, paired, warm_ns_per_round
from accelrt.cli.bench.measurement import Measurement

_ROUNDS: Final = 500
_FRAMES: Final = 10


def measure() -> Iterator[Measurement]:
    """Yield the rows."""
    stream = accelrt.Stream("cpu")
    with stream:
        first, second = (accelrt.zeros(4096, device="cpu") for _ in range(2))
    names = {
        "launch": stream.launch,
        "nothing": ctypes.CDLL(None).abs,
        "memset": ctypes.CDLL(None).memset,
        "first": first,
        "second": second,
        "byte": ctypes.c_size_t(1),
    }
    for name, statement in (
        ("S1", "launch(memset, first, 0, byte)"),
        ("S1.number", "launch(nothing, 1)"),
        ("S1.copy", "first.copy_(second, True)"),
    ):
        timer = Timer(statement, globals=names)

        def unwatched(timer: Timer = timer) -> float:
            with held(stream), stream:
                return _below(_FRAMES, timer)

        def watched(timer: Timer = timer) -> float:
            with held(stream), stream, accelrt.sanitizer.watch():
                return _below(_FRAMES, timer)

        yield paired(name, in_pairs(watched, unwatched), "off")


def _below(depth: int, timer: Timer) -> float:
    """Return the nanoseconds of a round, below at least so many frames."""
    return _below(depth - 1, timer) if depth else warm_ns_per_round(_ROUNDS, timer)
