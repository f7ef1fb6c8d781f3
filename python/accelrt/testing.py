"""Tests of programs: schedules that repeat, and calls of devices that fail as planned.

>>> import accelrt
>>> from accelrt import testing
>>> order = []
>>> with testing.schedule(seed=17):
...     streams = [accelrt.Stream(device="cpu") for _ in range(3)]
...     calls = [stream.launch_host(order.append, name) for stream, name in zip(streams, "abc")]
...     accelrt.cpu.synchronize()
>>> "".join(order)  # the same each time, in every process
'bac'

Import this module before the first use of a device: `faults` needs that.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from accelrt import _core
from accelrt._failures import add_note

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    _Durations = int | tuple[int, int]

__all__ = ["each_fault", "faults", "schedule"]

# The operations that take time.
_TIMED = ("call", "launch", "kernel", "copy", "fill", "random", "deferred")

_core.prepare_faults()


class schedule:  # noqa: N801  a function to its users
    """Lets the cpu devices follow a schedule that the seed chooses, inside of a `with`.

    No worker runs meanwhile. A thread that waits runs the tasks, one after the other, each of a
    stream that the schedule chooses; a `query()` runs one. Time is virtual: a task takes one of
    `durations` nanoseconds, a number or the least and the most (1,000 and 100,000), and copies and
    fills a nanosecond more for each 10 bytes. A dict has them by operation: `call`, `launch`,
    `kernel`, `copy`, `fill`, `random`, `deferred`, and `any` for all others. With one thread that
    enqueues, the same seed gives the same order, elapsed times and offsets of memory in every
    process; with several, each sees its own work in the order of the seed.

    `strategy` is `random`; `invert`, where the least urgent stream goes first; `starve`, where one
    stream goes last; or `pct`, probabilistic concurrency testing: one seed finds a bug that needs
    `depth` orders between tasks with a probability of at least `1 / (n * steps**(depth - 1))`, in a
    program of `n` streams and at most `steps` tasks.

    Enter it while no work is queued that waits for this thread. `ValueError` while another schedule
    is on.

    >>> import accelrt
    >>> from accelrt import testing
    >>> with testing.schedule(seed=1, durations=5_000):
    ...     stream = accelrt.Stream(device="cpu")
    ...     start = stream.record_event(accelrt.Event(enable_timing=True))
    ...     call = stream.launch_host(sum, [1, 2])
    ...     end = stream.record_event(accelrt.Event(enable_timing=True))
    ...     stream.synchronize()
    >>> start.elapsed_time(end)
    0.005
    """

    def __init__(
        self,
        seed: int,
        durations: _Durations | Mapping[str, _Durations] | None = None,
        *,
        strategy: str = "random",
        depth: int = 3,
        steps: int = 1_000,
    ) -> None:
        """Prepare a schedule."""
        self.setting = f"seed:{seed},strategy:{strategy},depth:{depth},steps:{steps}"
        if durations is not None:
            by_operation = durations if isinstance(durations, Mapping) else {"any": durations}
            self.setting += "".join(_durations(*item) for item in by_operation.items())
        self.num_steps = 0
        self._is_on = False

    def __enter__(self) -> Self:
        """Wait for all work, and begin."""
        _core.start_schedule(self.setting)
        self._is_on = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Run what is runnable, and end. Then `num_steps` says how often a stream was chosen."""
        _check_entered(is_on=self._is_on)
        self._is_on = False
        self.num_steps = _core.end_schedule()


class faults:  # noqa: N801  a function to its users
    """Lets calls of devices fail as planned, inside of a `with`, on every kind.

    The plan has parts with semicolons between. `allocate:3` fails the third request for device
    memory, `copy:from 3` the third copy and all later ones, `fill@cpu:1:every 100` each hundredth
    fill on that device, `any:7` the seventh call of any kind; `lose xpu:0 after 100` lets 100 calls
    pass, and then the device is lost. Calls have the names of the contract of backends, as
    `stream_create`, `mark`, `launch`. Requests for memory fail with `OutOfMemoryError`, others with
    a `RuntimeError`; what fails in a stream fails the stream.

    When a device has no memory, what is cached is released and the request made again: one failed
    request of a program may go unseen, and `allocate:from 3` is a device that is full.

    `RuntimeError` when a device was used before this module was imported, `ValueError` while
    another plan is on.

    >>> import accelrt
    >>> from accelrt import testing
    >>> buffer = accelrt.empty(1_000, device="cpu")
    >>> with testing.faults("fill:2") as planned:
    ...     for number in range(3):
    ...         buffer = buffer.fill_(number)
    ...     try:
    ...         accelrt.cpu.synchronize()
    ...     except accelrt.StreamError:
    ...         print("a fill failed, and skipped what was behind it")
    a fill failed, and skipped what was behind it
    >>> planned.num_failed
    1
    """

    def __init__(self, plan: str) -> None:
        """Prepare a plan."""
        self.plan = plan
        self.num_failed = 0
        self._is_on = False

    def __enter__(self) -> Self:
        """Begin: calls are counted from here on."""
        _core.start_faults(self.plan)
        self._is_on = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End. Then `num_failed` says how many calls failed."""
        _check_entered(is_on=self._is_on)
        self._is_on = False
        self.num_failed = _core.end_faults()


def each_fault(function: Callable[[], object], call: str = "any") -> int:
    """Call a function again and again, its first call of a device failing, its second, and so on.

    The function may raise what accelrt raises of the fault, a `RuntimeError`; whatever else it
    raises is a bug, and is raised with the number of the call. Ends when no call failed, and does
    it all again until that is so after as many calls as before: what is set up once in the process
    is not called for again, and later calls have other numbers then. Returns how many there are.
    Behind each call of the function streams are synchronised, with what it has left queued, and
    their errors dropped; before each one caches of memory are emptied. `call` is what a plan has in
    front of the number.

    >>> import accelrt
    >>> from accelrt import testing
    >>> def program():
    ...     buffer = accelrt.empty(1_000, device="cpu")
    ...     buffer.fill_(1).fill_(2)
    ...     accelrt.cpu.synchronize()
    >>> testing.each_fault(program, "fill")
    2
    """
    num_calls = _fail_each(function, call)
    while num_calls > 0 and (now := _fail_each(function, call)) < num_calls:
        num_calls = now  # streams and the like were made for the last time meanwhile
    return num_calls


def _fail_each(function: Callable[[], object], call: str) -> int:
    for number in itertools.count(1):
        _empty_caches()
        planned = faults(f"{call}:{number}")
        try:
            with planned:
                try:
                    function()
                finally:
                    _core.finish_streams()  # what it has left queued is part of the plan, too
        except RuntimeError as error:
            if planned.num_failed == 0:
                raise
            error.__traceback__ = None  # its frames would keep what the function holds
        except Exception as error:
            add_note(error, f"with the fault {call}:{number}")
            raise
        _drop_errors()
        if planned.num_failed == 0:
            return number - 1
    raise AssertionError  # the count has no end


def _durations(operation: str, given: object) -> str:
    if operation not in {"any", *_TIMED}:
        message = f"durations has {operation!r}; allowed are any, {', '.join(_TIMED)}"
        raise ValueError(message)
    key = "durations" if operation == "any" else f"durations.{operation}"
    pair = given if isinstance(given, tuple | list) else (given, given)
    is_right = len(pair) == 2 and all(type(it) is int and it >= 0 for it in pair)  # noqa: PLR2004
    if not is_right or pair[0] > pair[1]:
        message = (
            f"durations is {given!r}; allowed are a whole number of nanoseconds from 0 on, a pair "
            "of them, the least and the most, and a dict of these by operation"
        )
        raise ValueError(message)
    return f",{key}:{pair[0]}..{pair[1]}"


def _check_entered(*, is_on: bool) -> None:
    if not is_on:  # what is on is another's
        message = "a schedule or plan was left that had not been entered"
        raise RuntimeError(message)


def _kinds() -> set[str]:
    return {_core.current_accelerator().type, "cpu"}


def _empty_caches() -> None:
    for kind in _kinds():
        _core.empty_cache(kind)
        _core.empty_host_cache(kind)


def _drop_errors() -> None:
    for kind in _kinds():
        for index in range(_core.device_count(kind)):
            with suppress(RuntimeError):
                _core.synchronize(kind, index)
