"""Awaits (W1, W2), what is current in an asyncio task (W3), and work that sleeps (W4)."""

import asyncio
import ctypes
import operator
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import TypeAlias

import accelrt
from accelrt.cli.bench.current import Asked
from accelrt.cli.bench.measure import WARM_UP, Thing, in_pairs, in_turns, once, paired, row
from accelrt.cli.bench.measurement import Measurement

# Of a block: awaits of what is done, and of what another thread does first.
_DONE, _PENDING, _BLOCKS = 1_000, 10, 20
# Work that sleeps, and for how long.
_SLEEPERS, _SLEEP_S = 8, 0.25

Rounds: TypeAlias = Callable[[int], Coroutine[None, None, None]]


def measure() -> Iterator[Measurement]:
    """Yield the rows."""
    yield from _awaits()
    for name, statement in (("W3", "current_stream()"), ("W3.empty", "empty(512)")):
        with ExitStack() as stack:
            inside, outside = (
                stack.enter_context(Asked(statement, is_inside=is_inside))
                for is_inside in (True, False)
            )
            yield paired(name, in_pairs(inside.ns, outside.ns), "outside")
    native, callables = in_turns(once(lambda: _ms(_sleep)), once(lambda: _ms(_sleep_in_python)))
    yield row("W4", native)
    yield row("W4.callable", callables)


def _awaits() -> Iterator[Measurement]:
    stream = accelrt.Stream()
    event = stream.record_event()
    event.synchronize()
    with asyncio.Runner() as runner, ThreadPoolExecutor(1) as executor:
        done, future, pending, call, peer = in_turns(
            _timed(runner, _DONE, partial(_of_one, event)),
            _timed(runner, _DONE, partial(_of_one, _done_future(runner.get_loop()))),
            _timed(runner, _PENDING, partial(_of_events, stream)),
            _timed(runner, _PENDING, partial(_of_callables, stream)),
            _timed(runner, _PENDING, partial(_in_executor, executor)),
        )
    yield row("W1", done, "asyncio.Future", future)
    yield row("W2", pending, "run_in_executor", peer)
    yield row("W2.callable", call, "run_in_executor", peer)


def _timed(runner: asyncio.Runner, count: int, rounds: Rounds) -> Thing:
    """Have a loop of awaits measured in blocks; the result is nanoseconds an await."""

    async def ns_of(count: int) -> float:
        await rounds(count // WARM_UP)
        began = time.perf_counter_ns()
        await rounds(count)
        return (time.perf_counter_ns() - began) / count

    return lambda watch: watch.blocks(_BLOCKS, count, lambda count: runner.run(ns_of(count)))


def _done_future(loop: asyncio.AbstractEventLoop) -> "asyncio.Future[None]":
    future = loop.create_future()
    future.set_result(None)
    return future


async def _of_one(awaitable: Awaitable[None], count: int) -> None:
    for _ in range(count):
        await awaitable


async def _of_events(stream: accelrt.Stream, count: int) -> None:
    # The callable in front needs the GIL, so the event is pending when it is awaited.
    for _ in range(count):
        stream.launch_host(operator.not_, 0)
        await stream.record_event()


async def _of_callables(stream: accelrt.Stream, count: int) -> None:
    for _ in range(count):
        await stream.launch_host(operator.not_, 0)


async def _in_executor(executor: ThreadPoolExecutor, count: int) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(count):
        await loop.run_in_executor(executor, operator.not_, 0)


def _ms(sleep: Callable[[accelrt.Stream], object]) -> float:
    """Return the milliseconds that as many streams need, each with one task that sleeps."""
    streams = [accelrt.Stream("cpu", dedicated=True) for _ in range(_SLEEPERS)]
    began = time.perf_counter()
    for stream in streams:
        sleep(stream)
    for stream in streams:
        stream.synchronize()
    return (time.perf_counter() - began) * 1e3


def _sleep(stream: accelrt.Stream) -> None:
    stream.launch(ctypes.CDLL(None).usleep, int(_SLEEP_S * 1e6), blocking=True)


def _sleep_in_python(stream: accelrt.Stream) -> None:
    stream.launch_host(time.sleep, _SLEEP_S)
