"""Measuring: eleven repetitions after a warm-up, of which the median and the least count."""

import importlib
import operator
import statistics
import time
import timeit
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from accelrt.cli.bench.measurement import Measurement
from accelrt.cli.bench.quiet import Patience, Watch

_REPETITIONS = 11

# Of a repetition, where differences are measured.
_PAIRS = 9

#: Which part of a block's rounds comes first, untimed: the pulse and a wait leave caches cold and
#: workers asleep.
WARM_UP = 8

Thing: TypeAlias = Callable[[Watch], float]


@dataclass(frozen=True)
class Figure:
    """What was measured, in nanoseconds unless the row says otherwise."""

    median: float
    least: float
    quiet: int  # of the repetitions, that were taken while the machine was quiet
    unfiltered: float  # the median of every block, quiet or not
    p99: float  # of a hundred blocks 99 took no longer


def in_turns(*things: Thing) -> list[Figure]:
    """Measure several things in turns, so that their ratios come from one run.

    Whatever slows the machine slows all of them. The first turn warms up and does not count.
    """
    for thing in things:
        _repetition(thing, Patience(0))
    # Of each its own: what a peer does may be seldom quiet.
    patient = [(thing, Patience()) for thing in things]
    turns = [[_repetition(*thing) for thing in patient] for _ in range(_REPETITIONS)]
    return [_figure(repetitions) for repetitions in zip(*turns, strict=True)]


@dataclass(frozen=True)
class Pair:
    """Ours and a peer's that are compared by their difference."""

    ours: Figure
    theirs: Figure
    excess_ns: float  # the median of what ours took more in each repetition


def in_pairs(ours: Callable[[], float], theirs: Callable[[], float]) -> Pair:
    """Measure blocks of two things in pairs, of which the first one alternates.

    So a difference is of neighbours. A repetition is the medians of its blocks and of their
    differences; the first one warms up.
    """
    _paired_repetition((ours, theirs), (Patience(0), Patience(0)))
    patience = (Patience(), Patience())
    repetitions = [_paired_repetition((ours, theirs), patience) for _ in range(_REPETITIONS)]
    of_ours, of_theirs = (_figure([sides[side] for sides, _ in repetitions]) for side in range(2))
    return Pair(of_ours, of_theirs, statistics.median(excess for _, excess in repetitions))


def _paired_repetition(
    things: tuple[Callable[[], float], Callable[[], float]], patience: tuple[Patience, Patience]
) -> tuple[list[tuple[float, Watch]], float]:
    watches = [Watch(each) for each in patience]
    blocks: list[list[float]] = [[], []]
    for number in range(_PAIRS):
        for side in (number % 2, 1 - number % 2):
            blocks[side].append(watches[side].once(things[side]))
    excess = statistics.median(map(operator.sub, *blocks))
    return [*zip(map(statistics.median, blocks), watches, strict=True)], excess


def once(thing: Callable[[], float]) -> Thing:
    """Have something measured as a whole."""
    return lambda watch: watch.once(thing)


def in_blocks(blocks: int, rounds: int, statement: str, **names: object) -> Thing:
    """Have a statement measured in blocks of its loop; the result is nanoseconds a round."""
    timer = timeit.Timer(statement, globals=names)
    return lambda watch: watch.blocks(blocks, rounds, lambda count: warm_ns_per_round(count, timer))


def _repetition(thing: Thing, patience: Patience) -> tuple[float, Watch]:
    watch = Watch(patience)
    return thing(watch), watch


def _figure(repetitions: Sequence[tuple[float, Watch]]) -> Figure:
    values = [value for value, _ in repetitions]
    quiet = sum(watch.was_quiet for _, watch in repetitions)
    blocks = sorted(block for _, watch in repetitions for block in watch.blocks_taken)
    last = len(blocks) - 1
    unfiltered, p99 = blocks[len(blocks) // 2], blocks[last - last // 100]
    return Figure(statistics.median(values), min(values), quiet, unfiltered, p99)


def ns_per_round(count: int, statement: str, **names: object) -> float:
    """Nanoseconds of a statement in a loop, the loop included, as `timeit` measures it."""
    return timeit.Timer(statement, globals=names).timeit(count) / count * 1e9


def warm_ns_per_round(count: int, timer: timeit.Timer) -> float:
    """As `ns_per_round`, of a block; all blocks of a loop have one timer, whose code is warm."""
    timer.timeit(count // WARM_UP)
    return timer.timeit(count) / count * 1e9


def ns_of_first_after_idleness(work: Callable[[], object]) -> float:
    """Nanoseconds of a call after a millisecond in which nothing happened."""
    count, total_ns = 20, 0
    for _ in range(count):
        time.sleep(1e-3)
        started = time.perf_counter_ns()
        work()
        total_ns += time.perf_counter_ns() - started
    return total_ns / count


def row(
    name: str, ours: Figure, peer: str | None = None, theirs: Figure | None = None
) -> Measurement:
    """Return the row of a figure; a peer without a figure is missing."""
    return Measurement(
        name,
        ours.median,
        ours.least,
        peer,
        None if theirs is None else theirs.median,
        unfiltered=ours.unfiltered,
        p99=ours.p99,
        peer_unfiltered=None if theirs is None else theirs.unfiltered,
        peer_p99=None if theirs is None else theirs.p99,
        quiet=ours.quiet,
    )


def paired(name: str, pair: Pair, peer: str) -> Measurement:
    """Return the row of two things that were measured in pairs."""
    return replace(row(name, pair.ours, peer, pair.theirs), excess_ns=pair.excess_ns)


def optional(name: str) -> Any:  # noqa: ANN401  what a module has
    """Return a module of a peer; None when it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
