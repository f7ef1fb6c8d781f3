"""What a memory history costs a buffer, without the stacks of its frames and with ten of each (V2).

A buffer has three records: it is allocated, its free is requested, and complete. Blocks with and
without a history take turns.
"""

from collections.abc import Iterator
from timeit import Timer
from typing import Final

import accelrt
from accelrt.cli.bench.measure import in_pairs, paired, warm_ns_per_round
from accelrt.cli.bench.measurement import Measurement

_ROUNDS: Final = 1_000
#: Of a stack.
_FRAMES: Final = 10


def measure() -> Iterator[Measurement]:
    """Yield the rows."""
    timer = Timer("empty(512)", globals={"empty": accelrt.empty})
    for name, context in (("V2.empty", None), ("V2.empty.stacks", "alloc")):

        def recorded(context: str | None = context) -> float:
            accelrt.accelerator.record_memory_history(context=context, max_frames=_FRAMES)
            try:
                return _below(_FRAMES, timer)
            finally:
                accelrt.accelerator.record_memory_history(None)

        yield paired(name, in_pairs(recorded, lambda: _below(_FRAMES, timer)), "off")


def _below(depth: int, timer: Timer) -> float:
    """Return the nanoseconds of a round, below at least so many frames."""
    return _below(depth - 1, timer) if depth else warm_ns_per_round(_ROUNDS, timer)
