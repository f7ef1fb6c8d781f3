"""Events: records from Python (E1), the clock's tick (E2) and its rate (E3)."""

import itertools
import time
from collections.abc import Iterable, Iterator
from timeit import Timer

import accelrt
from accelrt.cli.bench.gate import held
from accelrt.cli.bench.machine import clock_source
from accelrt.cli.bench.measure import Thing, in_turns, ns_per_round, once, row, warm_ns_per_round
from accelrt.cli.bench.measurement import Measurement

# Of a block, and beside a worker.
_RECORDS, _BLOCKS = 1_000, 16
_PIPELINED = 20_000
_STATEMENT = "record(event)"
_TIMED_RECORDS = 20_000
_BRACKETS = 50


def measure() -> Iterator[Measurement]:
    """Yield the rows."""
    stream = accelrt.Stream()
    alone, beside = in_turns(_alone(stream), once(lambda: _beside_ns(stream)))
    yield row("E1.python", alone)
    yield row("E1.python.beside", beside)
    elapsed_ns = _neighbours_ns(stream)
    yield from _tick(_step(elapsed_ns))
    yield _exact("E2.negative", sum(ns < 0 for ns in elapsed_ns))
    (drift,) = in_turns(once(lambda: _drift_ns(stream)))
    yield row("E3", drift)


def _alone(stream: accelrt.Stream) -> Thing:
    timer = Timer(_STATEMENT, globals=_names(stream))

    def ns_of(count: int) -> float:
        with held(stream):
            return warm_ns_per_round(count, timer)

    return lambda watch: watch.blocks(_BLOCKS, _RECORDS, ns_of)


def _beside_ns(stream: accelrt.Stream) -> float:
    ns = ns_per_round(_PIPELINED, _STATEMENT, **_names(stream))
    stream.synchronize()
    return ns


def _names(stream: accelrt.Stream) -> dict[str, object]:
    return {"record": stream.record_event, "event": accelrt.Event()}


def _neighbours_ns(stream: accelrt.Stream) -> list[int]:
    """Return the times between records that follow each other."""
    events = [accelrt.Event(enable_timing=True) for _ in range(_TIMED_RECORDS)]
    for event in events:
        stream.record_event(event)
    stream.synchronize()
    return [round(start.elapsed_time(end) * 1e6) for start, end in itertools.pairwise(events)]


def _tick(tick_ns: int) -> Iterator[Measurement]:
    """Yield the two rows, of which one applies to this machine's clock."""
    step_ns = _step([-time.monotonic_ns() + time.monotonic_ns() for _ in range(_TIMED_RECORDS)])
    if clock_source() == "tsc":
        yield _exact("E2", tick_ns)
        yield Measurement("E2.clock", reason="the TSC keeps time here")
    else:
        yield Measurement("E2", reason="the TSC does not keep time here")
        yield _exact("E2.clock", tick_ns, "step of CLOCK_MONOTONIC", step_ns)


def _step(values: Iterable[int]) -> int:
    """Return the least difference between values: what they are multiples of, seen often enough."""
    return min(b - a for a, b in itertools.pairwise(sorted(set(values))))


def _exact(
    name: str, value: float, peer: str | None = None, peer_ns: float | None = None
) -> Measurement:
    return Measurement(name, value, value, peer, peer_ns)


def _drift_ns(stream: accelrt.Stream) -> float:
    """Return by how much two events a second apart differ from the system's clock."""
    start, started_ns = _tightest_bracket(stream)
    time.sleep(1)
    end, ended_ns = _tightest_bracket(stream)
    return abs(start.elapsed_time(end) * 1e6 - (ended_ns - started_ns))


def _tightest_bracket(stream: accelrt.Stream) -> tuple[accelrt.Event, float]:
    """Record until the system's clock was read close before and after; return its middle."""

    def bracket() -> tuple[int, accelrt.Event, float]:
        event = accelrt.Event(enable_timing=True)
        before = time.monotonic_ns()
        stream.record_event(event)
        event.synchronize()
        after = time.monotonic_ns()
        return after - before, event, (before + after) / 2

    _, event, middle_ns = min((bracket() for _ in range(_BRACKETS)), key=lambda found: found[0])
    return event, middle_ns
