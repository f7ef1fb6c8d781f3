"""Tables of events, read and replayed (V4): on one core, on an allocator without memory.

Beside the whole, reading alone: the lines, and the blocks in use by their numbers. What is left is
the allocator. What one core does in a second is counted by the processor time of this thread, which
does it all.
"""

import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import accelrt
from accelrt import _core
from accelrt.cli.bench.measure import Figure, in_turns, once, row
from accelrt.cli.bench.measurement import Measurement
from accelrt.cli.replay import traces

_CAPACITY_BYTES: Final = 1 << 40
_PAGE_BYTES: Final = 2 << 20
_HOT_EVENTS: Final = 200_000
_HOT_BLOCKS: Final = 64
_HOT_SIZES: Final = (512, 4 << 10, 64 << 10, 1 << 20)

_Recordings = list[_core.Recording]


def measure(folder: Path | None) -> Iterator[Measurement]:
    """Yield the rows: of blocks that caches hold, and of the tables in a folder."""
    with tempfile.TemporaryDirectory() as place:
        hot = Path(place) / "hot.ops.csv"
        write_hot(hot)
        whole, reading = _figures(_recordings([hot]))
    yield row("V4", whole)
    yield row("V4.reading", reading)
    tables = [] if folder is None else sorted((folder / "ops").glob("*.ops.csv"))
    if not tables:
        for name in ("V4.traces", "V4.traces.reading"):
            yield Measurement(name, reason="no traces: --traces names their folder")
        return
    whole, reading = _figures(_recordings(tables))
    yield row("V4.traces", whole)
    yield row("V4.traces.reading", reading)


def write_hot(path: Path, events: int = _HOT_EVENTS) -> None:
    """Write a table whose few blocks live shortly and whose sizes come again."""
    numbers, live = random.Random(4), list[int]()  # noqa: S311
    with path.open("w", encoding="ascii") as file:
        file.write("t,op,id,size,stream\n")
        for time_of_event in range(events):
            if len(live) == _HOT_BLOCKS:
                freed = live.pop(numbers.randrange(_HOT_BLOCKS))
                file.write(f"{time_of_event},f,{freed},0,0\n")
            else:
                size = numbers.choice(_HOT_SIZES)
                file.write(f"{time_of_event},a,{time_of_event},{size},0\n")
                live.append(time_of_event)


def _recordings(paths: list[Path]) -> _Recordings:
    return [trace.recording for path in paths for trace in traces.read(path)]


def _figures(recordings: _Recordings) -> list[Figure]:
    """Return the time of an event: read and replayed, and read alone."""
    settings = accelrt.accelerator.get_allocator_settings()

    def replayed(recording: _core.Recording) -> int:
        return recording.replay(settings, _CAPACITY_BYTES, _PAGE_BYTES).events

    def surveyed(recording: _core.Recording) -> int:
        return recording.survey().events

    def ns_per_event(events_of: Callable[[_core.Recording], int]) -> Callable[[], float]:
        def work() -> float:
            started = time.thread_time_ns()
            events = sum(map(events_of, recordings))
            return (time.thread_time_ns() - started) / events

        return work

    return in_turns(once(ns_per_event(replayed)), once(ns_per_event(surveyed)))
