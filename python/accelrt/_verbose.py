"""The context manager of a verbose level and its log: the base of all `verbose` classes."""

import contextlib
import json
import sys
import warnings
from collections.abc import Iterator, Sequence
from types import TracebackType

from accelrt import _core, _verbose_table
from accelrt._entries import Entries
from accelrt._verbose_records import Record, parse


class VerboseLog:
    """Lines that a library printed, as records and as a table.

    >>> log = VerboseLog(["MKL_VERBOSE DGEMM(N,N,64) 12.5us CNR:OFF NThr:2", "something else"])
    >>> log.records[0].name, log.records[0].ms, log.records[0].fields["NThr"]
    ('DGEMM', 0.0125, '2')
    """

    def __init__(self, lines: Sequence[str] | _core.VerboseCapture | None) -> None:
        """Store lines, or the capture that collects them; None without a capture."""
        self._source = lines

    @property
    def lines(self) -> list[str]:
        """All lines of the library as printed; inside the `with`, the lines so far."""
        if self._source is None:
            message = "nothing was captured: the scope has no capture=True"
            raise RuntimeError(message)
        if isinstance(self._source, _core.VerboseCapture):
            flush_output()
            return self._source.lines()
        return list(self._source)

    @property
    def records(self) -> list[Record]:
        """A record for each call: library, name, ms, fields and line."""
        return list(parse(self.lines))

    def table(self, sort_by: str = "total") -> str:
        """Return a table of calls by name, sorted by total, calls, mean, max or name.

        >>> lines = ["MKL_VERBOSE DGEMM(N) 3ms CNR:OFF", "MKL_VERBOSE DGEMM(N) 1ms CNR:OFF"]
        >>> print(VerboseLog(lines).table(), end="")
        -------  -----  -----  --------  ------  -------  ------
        library  name   calls  total ms   share  mean ms  max ms
        -------  -----  -----  --------  ------  -------  ------
        oneMKL   DGEMM      2     4.000  100.0%    2.000   3.000
        -------  -----  -----  --------  ------  -------  ------
        2 calls, 4.000 ms
        """
        _verbose_table.check_order(sort_by)
        return _verbose_table.text(self.records, sort_by)

    def to_json(self) -> str:
        """Return the records as a JSON array."""
        return json.dumps([record.as_dict() for record in self.records], indent=1) + "\n"

    def __repr__(self) -> str:
        if self._source is None:
            return "<VerboseLog without a capture>"
        return f"<VerboseLog of {len(self.lines)} lines>"

    def end(self) -> None:
        """End the capture."""
        if isinstance(self._source, _core.VerboseCapture):
            self._source = self._source.end()


class VerboseContext:
    """A verbose level of one library, in the whole process, inside a `with`.

    One object may be entered repeatedly, nested and by several threads or asyncio tasks. Each entry
    returns a separate log, which ends when the same thread or task leaves the `with`.
    """

    def __init__(self, library: str, name: str, level: int, *, capture: bool) -> None:
        """Store the level for the `with`."""
        self._library = library
        self._level = _core.verbose_level(library, name, level)
        self._is_capturing = _core.flag("capture", capture)
        self._open: Entries[tuple[_core.VerboseScope, VerboseLog]] = Entries()

    def __repr__(self) -> str:
        return f"<verbose level {self._level} of {self._library}, open {len(self._open)} times>"

    def __enter__(self) -> VerboseLog:
        _warn_once(self._library)
        log = VerboseLog(_capture(self._library) if self._is_capturing else None)
        try:
            scope = _core.VerboseScope(self._library, self._level)
        except BaseException:
            log.end()
            raise
        self._open.push((scope, log))
        return log

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        scope, log = self._open.pop("a verbose scope was left that had not been entered")
        scope.leave()
        if self._is_capturing:
            flush_output()
            log.end()


class verbose(VerboseContext):  # noqa: N801  as the backends' classes
    """Prints a line for each task of this process's streams inside a `with`.

    `level` is 0 or 1. A line is `accelrt_verbose,kind,device,stream,what,bytes,ms`; `what` is copy,
    fill, random, launch, kernel, deferred (a callable of `launch_host`), call, record or wait.
    Prints each task that is executed inside the `with`: synchronise before the end of the `with` to
    see all enqueued tasks. On driver kinds, as xpu, the stream waits for each task to time it.

    >>> import accelrt
    >>> with accelrt.verbose(1, capture=True) as log:
    ...     accelrt.zeros(4096).stream.synchronize()
    >>> [(record.name, record.fields["bytes"]) for record in log.records]
    [('fill', '4096')]
    """

    def __init__(self, level: int, *, capture: bool = False) -> None:
        """Store the level for the `with`."""
        super().__init__("accelrt", "level", level, capture=capture)


@contextlib.contextmanager
def tell_profiles() -> Iterator[None]:
    """Have oneMKL and oneDNN tell the profiles that are on of their calls.

    One that is missing is passed over: the program cannot call it. `RuntimeError` if both are.
    """
    found = [library for library in ("mkl", "mkldnn") if _core.has_verbose_library(library)]
    if not found:
        reasons = " ".join(map(_absence, ("mkl", "mkldnn")))
        message = f"verbose=True needs oneMKL or oneDNN, and neither was found. {reasons}"
        raise RuntimeError(message)
    with contextlib.ExitStack() as stack:
        for library in found:
            _warn_once(library)
            flush_output()
            stack.callback(_core.VerboseCapture(library, keeps_lines=False).end)
            stack.callback(_core.VerboseScope(library, 1).leave)
        yield
        flush_output()


def _absence(library: str) -> str:
    try:
        _core.VerboseScope(library, 1).leave()
    except RuntimeError as error:
        return f"{error}."
    return ""


def _capture(library: str) -> _core.VerboseCapture:
    flush_output()
    return _core.VerboseCapture(library)


def flush_output() -> None:
    """Flush Python's buffered output, so that it precedes later lines of the library."""
    for stream in filter(None, {sys.stdout, sys.__stdout__}):
        # A stream that is closed or has no reader: the program's next write raises.
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


_warned: set[str] = set()


def _warn_once(library: str) -> None:
    """Warn once when the end of a scope cannot restore the environment's level."""
    lost = _core.VerboseScope.lost_by_restoring(library)
    if lost is not None and library not in _warned:
        _warned.add(library)
        warnings.warn(lost, RuntimeWarning, stacklevel=3)
