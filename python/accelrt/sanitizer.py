"""Finds uses of the same bytes that nothing orders, although nothing went wrong this time.

>>> import accelrt
>>> other = accelrt.Stream()
>>> with accelrt.sanitizer.watch() as report:
...     buffer = accelrt.zeros(8)  # filled on the default stream
...     with other:
...         _ = buffer.fill_(1)  # nothing orders the two fills
...     accelrt.accelerator.synchronize()
>>> [(finding.kind, finding.first.name, finding.second.name) for finding in report.findings]
[('race', 'fill', 'fill')]

`ACCELRT_SANITIZER=warn|raise|report` watches a program without a change of it, and
`python -m accelrt sanitize SCRIPT` runs one so.
"""

from __future__ import annotations

import atexit
import contextlib
import fnmatch
import os
import re
import sys
import warnings
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Literal

from accelrt import _core
from accelrt._core import ordered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import TracebackType

    from accelrt._core import _Found, _FoundUse

    _Action = Literal["report", "warn", "raise"]

__all__ = [
    "Finding",
    "FoundBuffer",
    "Report",
    "SanitizerError",
    "SanitizerWarning",
    "Use",
    "host_access",
    "ordered",
    "watch",
]


class SanitizerWarning(RuntimeWarning):
    """What a watch with the action `warn` has found."""


class SanitizerError(RuntimeError):
    """What a watch with the action `raise` has found. The task was enqueued all the same."""

    def __init__(self, finding: Finding) -> None:
        """Take the finding."""
        super().__init__(str(finding))
        self.finding = finding


@dataclass(frozen=True)
class Use:
    """One side of a finding: a task, an access of the host, or a free.

    `stream` is as `cpu:0 stream 3`, None for the host. `name` is the function's or kernel's, else
    the operation: `copy`, `fill`. `access` is `read`, `write`, `read or write` or empty. `range` is
    of the buffer's bytes. `file` and `line` are those of the call that enqueued the task.
    """

    stream: str | None
    name: str
    access: str
    range: tuple[int, int]
    file: str | None
    line: int
    thread: str

    @property
    def place(self) -> str:
        """The file and the line."""
        return f"{self.file}:{self.line}" if self.file else "an unknown place"

    def __str__(self) -> str:
        """Say what it is, in one line."""
        where = self.stream or "the host"
        start, stop = self.range
        what = f" {self.access}s bytes {start} to {stop}" if self.access else ""
        what = what.replace("read or writes", "reads or writes")
        return f"{self.name}{what} on {where} at {self.place}, thread {self.thread or '?'}"


@dataclass(frozen=True)
class FoundBuffer:
    """The memory of a finding. `file` is None when the buffer is older than the watch."""

    address: int
    nbytes: int
    file: str | None
    line: int

    def __str__(self) -> str:
        """Say what it is, in one line."""
        made = f"made at {self.file}:{self.line}" if self.file else "older than the watch"
        return f"a buffer of {self.nbytes} bytes at {self.address:#x}, {made}"


@dataclass(frozen=True)
class Finding:
    """Two uses that nothing orders, or one that misses something.

    `kind` is `race`, `use-after-free`, `host-access`, `missing-record-stream`, `unrecorded-event`
    or `uninitialized-read`. `fix` says what would order the two.
    """

    kind: str
    first: Use | None
    second: Use
    buffer: FoundBuffer | None
    fix: str
    count: int

    @property
    def places(self) -> list[str]:
        """The files and lines of both uses."""
        return [use.place for use in (self.first, self.second) if use is not None]

    def __str__(self) -> str:
        """Say what it is, in a line each."""
        times = f" ({self.count} times)" if self.count > 1 else ""
        lines = [f"{self.kind}{times}: {self.buffer or 'no memory'}"]
        lines += [f"  first:  {self.first}"] if self.first is not None else []
        lines += [f"  second: {self.second}", f"  fix:    {self.fix}"]
        return "\n".join(lines)


def _use(found: _FoundUse) -> Use:
    stream, name, access, start, stop, file, line, thread = found
    where = None if stream is None else f"{stream[0]} stream {stream[1]}"
    return Use(where, name, access, (start, stop), file, line, thread)


def _finding(found: _Found) -> Finding:
    kind, first, second, buffer, fix, count = found
    memory = None if buffer is None else FoundBuffer(*buffer)
    return Finding(kind, first and _use(first), _use(second), memory, fix, count)


def _merged(findings: Iterable[Finding]) -> Iterable[Finding]:
    """Count findings at equal places as one."""
    merged: dict[object, Finding] = {}
    for place, finding in enumerate(findings):
        places = tuple(finding.places)
        key = (finding.kind, *places) if finding.second.file else place
        known = merged.setdefault(key, finding)
        if known is not finding:
            merged[key] = replace(known, count=known.count + finding.count)
    return merged.values()


class Report:
    """What a watch has found, also while it goes on."""

    def __init__(self, suppress: Sequence[str] = ()) -> None:
        """Take the patterns of places whose findings are left out."""
        if isinstance(suppress, str):  # whose characters would be patterns, `*` of everything
            message = f"suppress must be a list of patterns, as [{suppress!r}]"
            raise TypeError(message)
        for pattern in suppress:
            check_pattern(pattern)
        self._suppress = tuple(suppress)
        self._watch: _core.OrderWatch | None = None
        self._findings: list[Finding] = []
        self._forgotten = 0

    @property
    def findings(self) -> list[Finding]:
        """The findings, in the order of their second uses; equal places are one, counted."""
        if self._watch is not None:
            return self._wanted(self._watch.findings())
        return list(self._findings)

    @property
    def num_forgotten(self) -> int:
        """How much the watch forgot for want of room: 0 when nothing can have been missed."""
        return self._forgotten if self._watch is None else self._watch.num_forgotten()

    def _wanted(self, found: Sequence[_Found]) -> list[Finding]:
        return [it for it in _merged(map(_finding, found)) if not self._is_suppressed(it)]

    def _is_suppressed(self, finding: Finding) -> bool:
        names = [name for it in finding.places for name in (it, it.rpartition(":")[0])]
        patterns = [form for it in self._suppress for form in (it, f"*/{it}")]
        return any(fnmatch.fnmatch(name, pattern) for name in names for pattern in patterns)

    def _stop(self) -> None:
        if self._watch is not None:
            self._findings, self._forgotten = self.findings, self.num_forgotten
            self._watch.stop()
            self._watch = None

    def as_dict(self) -> dict[str, object]:
        """Return what JSON can have."""
        findings = [asdict(finding) for finding in self.findings]
        return {"findings": findings, "num_forgotten": self.num_forgotten}

    def __str__(self) -> str:
        """Say all of it."""
        texts = [str(finding) for finding in self.findings]
        if self.num_forgotten:
            texts.append(f"{self.num_forgotten} uses were forgotten: more may be wrong")
        return "\n".join(texts) or "nothing found"


def check_pattern(pattern: str) -> None:
    """Raise `ValueError` for a pattern that no place can match.

    >>> check_pattern("vendor/*"), check_pattern("loader.py:12"), check_pattern("old.py:*")
    (None, None, None)
    >>> check_pattern("loader.py:twelve")
    Traceback (most recent call last):
    ...
    ValueError: 'loader.py:twelve' is not a place: expected FILE or FILE:LINE, as 'loader.py:12'
    """
    file, colon, line = pattern.rpartition(":")
    if not (file if colon else line) or (colon and not re.fullmatch(r"[\d*?!\[\]-]+", line)):
        message = f"{pattern!r} is not a place: expected FILE or FILE:LINE, as 'loader.py:12'"
        raise ValueError(message)


def _patterns(text: str) -> list[str]:
    """Return the patterns between colons; those in front of a line belong to the pattern.

    >>> _patterns("loader.py:12:vendor/*:old.py:*")
    ['loader.py:12', 'vendor/*', 'old.py:*']
    """
    return [pattern for pattern in re.split(r":(?![\d*?]+(?::|$))", text) if pattern]


def _untold(found: Sequence[_Found], count: int) -> list[_Found]:
    """Return what was not told at once: waits for events, and what no call came after."""
    waits = [it for it in found if it[0] == "unrecorded-event"]
    return waits + [it for it in found if it[0] != "unrecorded-event"][count:]


def _act(action: _Action, findings: Sequence[Finding]) -> None:
    errors: list[Exception] = []
    for finding in findings:
        if action == "raise":
            raise SanitizerError(finding)
        if action == "warn":
            use = finding.second
            where = (use.file or "<unknown>", use.line)
            try:
                warnings.warn_explicit(str(finding), SanitizerWarning, *where)
            except SanitizerWarning as error:  # the program's filter makes errors of warnings
                errors.append(error)
    if errors:
        try:
            raise errors[0]
        finally:
            errors.clear()  # which the frames of the error keep


class watch:  # noqa: N801  as `profiler.profile`
    """Watches the order of all streams of the process, inside a `with`; gives a `Report`.

    Tasks take up to 0.3 microseconds more meanwhile. A buffer that is older than the watch counts
    as written. `suppress` has patterns of places, as `"loader.py:12"` or `"vendor/*"`: findings
    with a use there are left out. With `action="warn"` each finding is a `SanitizerWarning`, with
    `"raise"` the call that enqueues the second use raises a `SanitizerError`; what a free makes
    known is told by the next call, or by the end of the watch.
    """

    def __init__(self, *, suppress: Sequence[str] = (), action: _Action = "report") -> None:
        """Prepare a watch."""
        if action not in {"report", "warn", "raise"}:
            message = f"action must be 'report', 'warn' or 'raise', not {action!r}"
            raise ValueError(message)
        self._suppress, self._action = suppress, action
        self._report: Report | None = None
        self._told = 0

    def _tell(self, found: Sequence[_Found]) -> None:
        self._told += len(found)
        if self._report is not None and self._action != "report":
            _act(self._action, self._report._wanted(found))  # noqa: SLF001  of this module

    def __enter__(self) -> Report:
        """Begin."""
        if self._report is not None:
            message = "the watch has begun already: make another one"
            raise RuntimeError(message)
        self._report = report = Report(self._suppress)
        self._told = 0
        try:
            report._watch = _core.OrderWatch(self._tell)  # noqa: SLF001
        except BaseException:
            self._report = None
            raise
        return report

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End."""
        report, self._report = self._report, None
        if report is None or report._watch is None:  # noqa: SLF001
            message = "a watch was left that had not been entered"
            raise RuntimeError(message)
        late = _untold(report._watch.findings(), self._told)  # noqa: SLF001
        report._stop()  # noqa: SLF001
        if exception is None and self._action != "report":
            _act(self._action, report._wanted(late))  # noqa: SLF001


@contextlib.contextmanager
def host_access(buffer: _core.Buffer, *, writes: bool = True) -> Iterator[_core.Buffer]:
    """Say that the host uses a buffer's bytes inside a `with`, through a view or an address.

    Waits for nothing: a watch of the sanitizer finds what is not over by then, and what is enqueued
    meanwhile. Without a watch it does nothing.

    >>> import accelrt
    >>> buffer = accelrt.zeros(8)
    >>> buffer.stream.synchronize()
    >>> with accelrt.host_access(buffer), memoryview(buffer) as view:
    ...     view[0] = 1
    """
    access = _core.begin_host_access(buffer, writes)
    try:
        yield buffer
    finally:
        if access is not None:
            access.end()


class _Process:
    """The watch that `ACCELRT_SANITIZER` asks for."""

    def __init__(self) -> None:
        self.report = Report(_patterns(os.environ.get("ACCELRT_SANITIZER_SUPPRESS", "")))
        self.action: str = os.environ.get("ACCELRT_SANITIZER", "")
        self.is_quiet = False

    def tell(self, found: Sequence[_Found]) -> None:
        """Take new findings."""
        if self.action in {"warn", "raise"}:
            _act(self.action, self.report._wanted(found))  # type: ignore[arg-type]  # noqa: SLF001

    def finish(self) -> None:
        """Print what was found, when the program ends."""
        self.report._watch = _core.process_order_watch(self.tell)  # noqa: SLF001
        self.report._stop()  # noqa: SLF001
        if self.report.findings and not self.is_quiet and sys.stderr is not None:
            count = len(self.report.findings)
            plural = "s" if count > 1 else ""
            sys.stderr.write(f"accelrt sanitizer: {count} finding{plural}\n{self.report}\n")


process = _Process()


def watch_script(suppress: Sequence[str]) -> Callable[[], Report]:
    """Watch from the first use on, which may set accelrt up; what is returned ends the watch."""
    os.environ["ACCELRT_SANITIZER"] = process.action = "report"
    process.report, process.is_quiet = Report(suppress), True

    def end() -> Report:
        process.finish()
        return process.report

    return end


def watch_process() -> None:
    """Watch as the environment asks for."""
    _core.process_order_watch(process.tell)
    atexit.register(process.finish)
