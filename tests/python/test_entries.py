"""One context manager object that several threads or asyncio tasks have entered at the same time.

Goal: each exit ends the entry of its own thread or task. Method: two entries overlap, and the first
one ends first.
"""

import asyncio
import contextvars
import threading
from contextlib import AbstractContextManager
from typing import Any

import pytest

import accelrt
from accelrt import _entries
from accelrt._entries import Entries
from accelrt.profiler import profile, record_function

LIMIT_S = 60


class Scope:
    """A context manager whose exits return the number of the entry that they end."""

    def __init__(self) -> None:
        self._entries: Entries[int] = Entries()

    def enter(self, number: int) -> None:
        self._entries.push(number)

    def leave(self) -> int:
        return self._entries.pop("nothing is open")


def test_threads_end_their_own_entries() -> None:
    scope, ended = Scope(), []
    has_entered, may_leave = threading.Event(), threading.Event()

    def second() -> None:
        scope.enter(2)
        has_entered.set()
        may_leave.wait(LIMIT_S)
        ended.append(scope.leave())

    thread = threading.Thread(target=second)
    scope.enter(1)
    thread.start()
    has_entered.wait(LIMIT_S)
    ended.append(scope.leave())
    may_leave.set()
    thread.join()
    assert ended == [1, 2]


def test_asyncio_tasks_end_their_own_entries() -> None:
    """Also such that were made inside of an entry, whose number they inherit."""
    scope, ended = Scope(), []

    async def run(number: int, steps: int) -> None:
        scope.enter(number)
        for _ in range(steps):
            await asyncio.sleep(0)
        ended.append(scope.leave())

    async def main() -> None:
        scope.enter(0)
        await asyncio.gather(run(1, 1), run(2, 3), run(3, 2))
        ended.append(scope.leave())

    asyncio.run(main())
    assert ended == [1, 3, 2, 0]


def test_nested_entries_end_in_reverse_order() -> None:
    first, second = Scope(), Scope()
    first.enter(1)
    second.enter(2)
    first.enter(3)
    assert [first.leave(), first.leave(), second.leave()] == [3, 1, 2]
    with pytest.raises(RuntimeError, match=r"^nothing is open$"):
        first.leave()


def test_entry_may_end_in_another_context() -> None:
    """And its number does not stay in the context that made it."""
    scope = Scope()
    for number in range(100):
        scope.enter(number)
        assert contextvars.Context().run(scope.leave) == number
    scope.enter(100)
    assert len(_entries._entered.get()) == 1
    assert scope.leave() == 100


def overlap(scope: AbstractContextManager[Any], inside: Any) -> tuple[Any, Any]:
    """Enter a scope on this thread and then on another one, which leaves it last.

    Returns what both `with` give. `inside` is called by the second after the first has left.
    """
    given = []
    has_entered, may_leave = threading.Event(), threading.Event()

    def second() -> None:
        with scope as it:
            given.append(it)
            has_entered.set()
            may_leave.wait(LIMIT_S)
            inside()

    thread = threading.Thread(target=second, name="second")
    with scope as it:
        given.append(it)
        thread.start()
        has_entered.wait(LIMIT_S)
    may_leave.set()
    thread.join()
    return given[0], given[1]


def test_shared_verbose_keeps_logs_apart() -> None:
    stream = accelrt.Stream(dedicated=True)
    with stream:
        buffer = accelrt.zeros(64)
    stream.synchronize()

    def fill() -> None:
        with stream:
            buffer.fill_(1)
        stream.synchronize()

    first, second = overlap(accelrt.verbose(1, capture=True), fill)
    assert (len(first.records), [record.name for record in second.records]) == (0, ["fill"])


def test_shared_range_keeps_threads_apart() -> None:
    with profile() as run:
        # A range inside of the second one, after the end of the first.
        overlap(record_function("shared"), record_function("inner")(lambda: None))
    rows = {row.key: row for row in run.key_averages()}
    assert (rows["shared"].count, rows["inner"].count) == (2, 1)
    # The inner range is inside of the second one only while that one is open.
    assert rows["shared"].self_ms < rows["shared"].total_ms


def test_shared_inference_mode_keeps_threads_apart() -> None:
    modes = []
    overlap(accelrt.inference_mode(), lambda: modes.append(accelrt.is_inference_mode_enabled()))
    modes.append(accelrt.is_inference_mode_enabled())
    assert modes == [True, False]
