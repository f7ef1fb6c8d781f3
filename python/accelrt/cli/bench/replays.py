"""Replays: what is reserved for recorded requests over what they need (A7-A9), page work (A10).

Ours are the settings in force; the peer is policy `torch`, with and without expandable segments.
Nothing is timed: the allocator is real, and its device has numbers in place of memory.
"""

import math
import random
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import accelrt
from accelrt import _core
from accelrt.cli.bench.measurement import Measurement
from accelrt.cli.bench.rows import ROWS
from accelrt.cli.replay import traces

_CAPACITY_BYTES: Final = 1 << 40
_PAGE_BYTES: Final = 2 << 20
_SMALL_PAGE_BYTES: Final = 64 << 10
_TORCH: Final = "policy:torch"
_EXPANDABLE: Final = "policy:torch,expandable_segments:True"
_PUBLIC: Final = (
    "ops/resnet50.ops.csv",
    "ops/pangu_2.6B.ops.csv",
    "ops/G_1.ops.csv",
    "ops/df_index_resolver.ops.csv",
    "pytorch/bcrafton_memory_snapshot.pickle",
    "pytorch/wedsonlin_medium_512_inference.pickle",
)
_OWN: Final = "ops/own_*.ops.csv"
_ADVERSARY: Final = "ops/synth_robson.ops.csv"

_Recordings = list[_core.Recording]


def measure(folder: Path | None) -> Iterator[Measurement]:
    """Yield the rows, of the traces that are in a folder."""
    ours = accelrt.accelerator.get_allocator_settings()
    yield _row("A9.fuzz", [_wastes([_fuzz()], settings)[0] for settings in (ours, _TORCH)])
    needed = (*_PUBLIC, _ADVERSARY)
    if folder is None or not all((folder / name).is_file() for name in needed):
        for name in (row.name for row in ROWS if row.name.startswith(_OF_TRACES)):
            yield Measurement(name, reason="no traces: --traces names their folder")
        return
    public = [it.recording for name in _PUBLIC for it in traces.read(folder / name)]
    yield from _wasted("A7", public, ours, _PAGE_BYTES)
    own = [it.recording for path in sorted(folder.glob(_OWN)) for it in traces.read(path)]
    yield _row("A7.own", [_own_over_limit(own, settings) for settings in (ours, _TORCH)])
    yield from _wasted("A8", public, ours, _SMALL_PAGE_BYTES)
    adversary = [it.recording for it in traces.read(folder / _ADVERSARY)]
    yield _row("A9.robson", [_wastes(adversary, settings)[0] for settings in (ours, _TORCH)])
    for name, figures in zip(
        _PAGE_ROWS, zip(*(_pages(public, it) for it in (ours, _TORCH)), strict=True), strict=True
    ):
        yield _row(name, list(figures))


_OF_TRACES: Final = ("A7", "A8", "A9.robson", "A10")
_PAGE_ROWS: Final = ("A10", "A10.worst", "A10.third", "A10.third.worst")


def _row(name: str, figures: list[float], peer: str = "policy torch") -> Measurement:
    ours, theirs = figures
    return Measurement(name, ours, ours, peer, theirs)


def _wasted(
    name: str, recordings: _Recordings, ours: str, page_bytes: int
) -> Iterator[Measurement]:
    """Yield the mean and the worst, each beside both peers."""
    peers = (("", "policy torch", _TORCH), (".expandable", "expandable segments", _EXPANDABLE))
    of_ours = _wastes(recordings, ours, page_bytes)
    for suffix, peer, settings in peers:
        theirs = _wastes(recordings, settings, page_bytes)
        yield _row(f"{name}{suffix}", [_mean(of_ours), _mean(theirs)], peer)
        yield _row(f"{name}.max{suffix}", [max(of_ours), max(theirs)], peer)


def _mean(wastes: list[float]) -> float:
    """Return the geometric mean of what is reserved over what is needed, as a waste."""
    return (statistics.geometric_mean(1 + waste / 100 for waste in wastes) - 1) * 100


def _wastes(recordings: _Recordings, settings: str, page_bytes: int = _PAGE_BYTES) -> list[float]:
    """Return by how many percent what is reserved at most exceeds what is live at most."""
    figures = [it.replay(settings, _CAPACITY_BYTES, page_bytes) for it in recordings]
    return [(it.peak_reserved_bytes / it.peak_live_bytes - 1) * 100 for it in figures]


def _own_over_limit(recordings: _Recordings, settings: str) -> float:
    """Return the worst percentage of what may be reserved when little is live.

    That is 12 % above the whole pages that hold the live bytes, or one page above them.
    """
    figures = [it.replay(settings, _CAPACITY_BYTES, _PAGE_BYTES) for it in recordings]

    def limit(live_bytes: int) -> float:
        bound_bytes = math.ceil(live_bytes / _PAGE_BYTES) * _PAGE_BYTES
        return max(1.12 * bound_bytes, bound_bytes + _PAGE_BYTES)

    return max(it.peak_reserved_bytes / limit(it.peak_live_bytes) * 100 for it in figures)


def _pages(recordings: _Recordings, settings: str) -> tuple[float, float, float, float]:
    """Return median and worst of pages mapped or moved.

    In a first replay over the pages at its peak, and in a third one over its events.
    """
    replayed = [
        [it.replay(settings, _CAPACITY_BYTES, _PAGE_BYTES, rounds) for rounds in (1, 3)]
        for it in recordings
    ]
    firsts = [
        first.page_operations / math.ceil(first.peak_reserved_bytes / _PAGE_BYTES)
        for first, _ in replayed
    ]
    thirds = [third.page_operations / third.events for _, third in replayed]
    return statistics.median(firsts), max(firsts), statistics.median(thirds), max(thirds)


def _fuzz() -> _core.Recording:
    """Make requests of four streams, from 512 B to 64 MiB, whose number rises and falls."""
    numbers, live, events = random.Random(4), list[int](), list[tuple[bool, int, int, int]]()  # noqa: S311
    for identity in range(20_000):
        most = 300 + round(200 * math.sin(identity / 1_500))
        while len(live) >= most or (live and numbers.random() < 1 / 3):
            freed = live.pop(numbers.randrange(len(live)))
            events.append((False, freed, 0, 0))
        size = round(512 * 2 ** numbers.uniform(0, 17))
        events.append((True, identity, size, numbers.randrange(4)))
        live.append(identity)
    return _core.Recording.of_operations(events)
