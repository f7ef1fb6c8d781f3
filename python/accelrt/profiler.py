"""Shows what ran where and when: a table of functions and ranges, and a trace for Perfetto.

>>> import accelrt
>>> from accelrt import profiler
>>> stream = accelrt.Stream()
>>> with profiler.profile() as run:
...     with profiler.record_function("load"):
...         call = stream.launch_host(sum, [1, 2])
...     stream.synchronize()
>>> [row.count for row in run.key_averages() if row.key in ("sum", "load")]
[1, 1]
>>> run.streams()[0].num_tasks
1

`ACCELRT_PROFILE=trace.json` profiles a program without a change of it.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from accelrt import _core, _verbose
from accelrt._core import DeviceUse, KeyAverage, LongWait, StreamUse
from accelrt._decorators import Function, inside
from accelrt._entries import Entries

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = [
    "DeviceUse",
    "KeyAverage",
    "KeyAverages",
    "LongWait",
    "StreamUse",
    "profile",
    "record_function",
]


class KeyAverages(list[KeyAverage]):
    """The rows of a profile, the largest own time first."""

    def __init__(self, trace: _core.Trace) -> None:
        """Read the rows of a trace."""
        super().__init__(trace.key_averages())
        self._trace = trace

    def table(self, sort_by: str | None = None, row_limit: int = 100) -> str:
        """Return the rows as a text with torch's columns.

        `sort_by` is `self_ms` (the default), `total_ms`, `mean_ms`, `stream_ms` or `count`; with
        `stream_ms` there is a column more. A negative `row_limit` shows all rows. Longer names
        than 55 characters are shortened. A last line says so when records are missing.

        >>> from accelrt import profiler
        >>> with profiler.profile() as run:
        ...     pass
        >>> run.key_averages().table().splitlines()[1].split()[:3]
        ['Name', 'Self', '%']
        """
        return self._trace.table(sort_by, row_limit)


class profile:  # noqa: N801  torch's name
    """Records what streams do, inside a `with` or from `start` to `stop`.

    Profiles may overlap: each one records for itself. The end does not wait: what has not ended by
    then, also on a device, is left out, so synchronise before. While no profile is on, tasks cost
    what they cost without a profiler.

    With `verbose=True` the calls of oneMKL and oneDNN are rows as well, as `mkl::DGEMM` and
    `onednn::matmul`: the libraries print a line about each call, which the profile takes in place
    of the standard output. `RuntimeError` when the process neither has nor can load one of them.
    Calls that a `backends.mkl.verbose(1, capture=True)` captures are rows without this.

    With `profile_memory=True` the trace has each device's allocated and reserved bytes over time.
    Requests and frees take some hundred nanoseconds more meanwhile.
    """

    def __init__(
        self, *, max_records: int | None = None, verbose: bool = False, profile_memory: bool = False
    ) -> None:
        """Prepare a profile of at most `max_records` records, by default 16 million.

        A task has two records, and memory one as it is allocated and two as it is freed.
        `num_dropped_records` counts those that found no room.
        """
        self._max_records = max_records
        self._is_verbose = _core.flag("verbose", verbose)
        self._has_memory = _core.flag("profile_memory", profile_memory)
        self._scopes = ExitStack()
        self._running: _core.Profile | None = None
        self._trace: _core.Trace | None = None

    def start(self) -> None:
        """Start; `RuntimeError` when this object was started before and not stopped."""
        if self._running is not None:
            message = "the profile has started already: stop it first, or make another one"
            raise RuntimeError(message)
        with ExitStack() as scopes:
            if self._is_verbose:
                scopes.enter_context(_verbose.tell_profiles())
            self._running = _core.Profile(self._max_records, self._has_memory)
            self._scopes = scopes.pop_all()

    def stop(self) -> None:
        """Stop. The object then has what was recorded, until it is started again."""
        if self._running is None:
            has_ended = self._trace is not None
            message = (
                f"the profile {'has been stopped already' if has_ended else 'was not started'}"
            )
            raise RuntimeError(message)
        running, self._running = self._running, None
        try:
            self._trace = running.stop()
        finally:
            self._scopes.close()

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()

    def _stopped(self) -> _core.Trace:
        if self._trace is None:
            message = "the profile has not ended: it shows what it recorded after stop()"
            raise RuntimeError(message)
        return self._trace

    def key_averages(self) -> KeyAverages:
        """Return a row for each function, kernel, callable, operation, range and library call.

        Rows have `key`, `count`, `self_ms`, `total_ms`, `mean_ms`, `stream_ms`, `bytes` and
        `is_range`.
        """
        return KeyAverages(self._stopped())

    def streams(self) -> list[StreamUse]:
        """Return how busy each stream was, and how long it waited for other streams."""
        return self._stopped().streams()

    def devices(self) -> list[DeviceUse]:
        """Return how busy each device was, and how much its streams overlapped, in percent."""
        return self._stopped().devices()

    def longest_waits(self, count: int = 10) -> list[LongWait]:
        """Return the longest waits of streams and threads, with what they waited for."""
        return self._stopped().longest_waits(count)

    def export_chrome_trace(self, path: str | bytes | os.PathLike[str]) -> None:
        """Write a trace that Perfetto (ui.perfetto.dev) and Chrome open. Replaces the file.

        A name that ends in `.gz` has it packed by gzip, which they open too.
        Streams and host threads are tracks, and so are the libraries whose calls are known. Arrows
        lead from an enqueue to its task and from a record to the waits for it.
        """
        self._stopped().export_chrome_trace(os.fsdecode(path))

    @property
    def num_skipped_tasks(self) -> int:
        """The number of tasks that failed streams skipped."""
        return self._stopped().num_skipped_tasks

    @property
    def num_dropped_records(self) -> int:
        """The number of records that found no room: 0 in a complete profile."""
        return self._stopped().num_dropped_records


class record_function:  # noqa: N801  torch's name
    """A named range of a thread's time, inside a `with` or around a function.

    Of a decorated coroutine function each call is a range, from its begin to its end; of a
    generator function each step, without what the caller does between them.

    >>> from accelrt.profiler import profile, record_function
    >>> @record_function("decode")
    ... def decode(text):
    ...     return int(text)
    >>> with profile() as run:
    ...     total = sum(map(decode, ["1", "2", "3"]))
    >>> [(row.key, row.count) for row in run.key_averages()]
    [('decode', 3)]
    """

    def __init__(self, name: str) -> None:
        """Store the name; `TypeError` when it is no text."""
        if not isinstance(name, str):
            message = f"the name of a range must be a str, not {type(name).__name__}"
            raise TypeError(message)
        self._name = name
        self._open: Entries[_core.OpenRange | None] = Entries()

    def __call__(self, function: Function) -> Function:
        """Wrap a function; each call has an object of its own."""
        return inside(lambda: type(self)(self._name), function, "record_function")

    def __enter__(self) -> Self:
        """Begin the range."""
        self._open.push(_core.begin_profiled_range(self._name))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the range."""
        begun = self._open.pop("a range was left that had not been entered")
        if begun is not None:
            begun.end()
