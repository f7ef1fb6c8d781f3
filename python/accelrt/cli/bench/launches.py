"""Launches from Python: enqueueing (Q2) and round trips (Q3), beside executors and SYCL queues."""

import operator
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from timeit import Timer

import accelrt
from accelrt.cli.bench import native, sycl
from accelrt.cli.bench.gate import held
from accelrt.cli.bench.measure import (
    Thing,
    in_blocks,
    in_turns,
    ns_of_first_after_idleness,
    ns_per_round,
    once,
    row,
    warm_ns_per_round,
)
from accelrt.cli.bench.measurement import Measurement

# Of a block, and beside a worker.
_LAUNCHES, _BLOCKS = 500, 20
_PIPELINED = 20_000
_PEER_TASKS = 2_000
_PEER_TRIPS = 10  # each takes as long as a hundred launches
_WITHOUT, _WITH_TWO = "launch(nothing)", "launch(difference, 1, 2)"


def measure() -> Iterator[Measurement]:
    """Yield the rows."""
    stream, nothing = accelrt.Stream(), native.without_arguments()

    def there_and_back() -> None:
        stream.launch(nothing)
        stream.synchronize()

    barrier, barrier_round_trip = sycl.figures()
    with ThreadPoolExecutor(1) as executor:
        alone, alone_two, beside, beside_two, submit = in_turns(
            _alone(stream, _WITHOUT),
            _alone(stream, _WITH_TWO),
            once(lambda: _beside_ns(stream, _WITHOUT)),
            once(lambda: _beside_ns(stream, _WITH_TWO)),
            once(lambda: _submitting_ns(executor)),
        )
        # Not in turns with those after idleness: this one is of a warm loop.
        trip, executor_trip = in_turns(
            in_blocks(_BLOCKS, _LAUNCHES, f"{_WITHOUT}; synchronize()", **_names(stream)),
            in_blocks(
                _BLOCKS,
                _PEER_TRIPS,
                "submit(f, 0).result()",
                submit=executor.submit,
                f=operator.not_,
            ),
        )
        (first,) = in_turns(once(lambda: ns_of_first_after_idleness(there_and_back)))
    yield row("Q2", alone)
    yield row("Q2.executor", alone, "ThreadPoolExecutor", submit)
    yield row("Q2.dpctl", alone, sycl.NAME, barrier)
    yield row("Q2.two", alone_two)
    yield row("Q2.beside", beside)
    yield row("Q2.two.beside", beside_two)
    yield row("Q3.python", trip)
    yield row("Q3.python.executor", trip, "ThreadPoolExecutor", executor_trip)
    yield row("Q3.python.dpctl", trip, sycl.NAME, barrier_round_trip)
    yield row("Q3.python.first", first)


def _names(stream: accelrt.Stream) -> dict[str, object]:
    return {
        "launch": stream.launch,
        "synchronize": stream.synchronize,
        "nothing": native.without_arguments(),
        "difference": native.with_two_arguments(),
    }


def _alone(stream: accelrt.Stream, statement: str) -> Thing:
    timer = Timer(statement, globals=_names(stream))

    def ns_of(count: int) -> float:
        with held(stream):
            return warm_ns_per_round(count, timer)

    return lambda watch: watch.blocks(_BLOCKS, _LAUNCHES, ns_of)


def _beside_ns(stream: accelrt.Stream, statement: str) -> float:
    ns = ns_per_round(_PIPELINED, statement, **_names(stream))
    stream.synchronize()
    return ns


def _submitting_ns(executor: ThreadPoolExecutor) -> float:
    ns = ns_per_round(_PEER_TASKS, "submit(f, 0)", submit=executor.submit, f=operator.not_)
    executor.submit(operator.not_, 0).result()
    return ns
