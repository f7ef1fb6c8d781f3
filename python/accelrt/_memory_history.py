"""The history of the accelerators' memory: what it records, its files, and what holds the memory.

Source: `torch.cuda.memory._record_memory_history` and `_dump_snapshot` of torch 2.13.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from accelrt import _core
from accelrt._memory_summary import shown, size
from accelrt._whole_file import whole_file

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

MAX_ENTRIES = 100_000
"""The entries that a history keeps unless a program says otherwise: some 10 MB."""
MAX_FRAMES = 32
"""The innermost frames that a stack has unless a program says otherwise."""

_MOST_FRAMES = 256
# The characters of a tag in a table.
_MOST_TAG = 40
# As many as a program can have; torch's default.
_MOST_ENTRIES = sys.maxsize


def record(
    *,
    enabled: str | None,
    context: str | None,
    stacks: str,
    max_entries: int,
    clear_history: bool,
    compile_context: bool,
    global_record_annotations: bool,
    skip_actions: Iterable[str] | None,
    max_frames: int,
) -> None:
    """Start, change or end the history."""
    if isinstance(enabled, bool):
        message = (
            f"enabled must be 'state', 'all' or None, not {enabled}: the form of torch's"
            " _record_memory_history that takes a bool is not there"
        )
        raise TypeError(message)
    # Torch's texts at their beginning, and its class.
    if enabled not in ("state", "all", None):
        message = f"expected state to be 'state', 'all', or None: enabled is {enabled!r}"
        raise RuntimeError(message)
    if context not in ("state", "alloc", "all", None):
        message = f"expected context to be 'state', 'alloc', 'all', or None: it is {context!r}"
        raise RuntimeError(message)
    if stacks not in ("python", "all"):
        message = f"expected stacks to be 'python', or 'all': it is {stacks!r}"
        raise RuntimeError(message)
    most = _whole("max_entries", max_entries, 0, _MOST_ENTRIES)
    frames = _whole("max_frames", max_frames, 1, _MOST_FRAMES)
    has_annotations = _core.flag("global_record_annotations", global_record_annotations)
    clears = _core.flag("clear_history", clear_history)
    _core.flag("compile_context", compile_context)
    skipped = _actions(skip_actions)
    if enabled is None:
        _core.stop_memory_history()
        return
    most = max(most, 1) if enabled == "all" else 1
    _core.start_memory_history(context, most, clears, has_annotations, skipped, frames)


def _actions(given: object) -> list[str]:
    if given is None:
        return []
    if isinstance(given, str) or not isinstance(given, Iterable):
        message = f"skip_actions must be a list of actions, not {type(given).__name__}"
        raise TypeError(message)
    actions = list(given)
    for action in actions:
        if not isinstance(action, str):
            message = f"an action in skip_actions must be a str, not {type(action).__name__}"
            raise TypeError(message)
    return actions


def _whole(name: str, value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        message = f"{name} must be an integer, not {type(value).__name__}"
        raise TypeError(message)
    if not least <= value <= most:
        message = f"{name} must be {least} to {most}, not {value}"
        raise ValueError(message)
    return value


def dump(path: str | bytes | os.PathLike[str], snapshot: dict[str, Any]) -> None:
    """Write a snapshot to a file, which is there as a whole or not at all."""
    with whole_file(path) as file:
        pickle.dump(snapshot, file, protocol=4)


def dump_after_shortage(kind: str, path: str) -> None:
    """Write the snapshot that `ACCELRT_MEMORY_HISTORY` asks for, and say so on standard error."""
    taken = _core.take_memory_snapshot(kind)
    view = f"{path} (python -m accelrt view {path})"
    if any(taken["device_traces"]):
        told = f"out of memory: the history is in {view}"
    elif taken["segments"]:
        told = f"out of memory: the program has ended the history; what is in use is in {view}"
    else:
        _tell("out of memory: the program has ended the history, and there is nothing to write")
        return
    try:
        dump(path, taken)
    except OSError as error:
        told = f"the memory history could not be written to {path}: {error.strerror}"
    _tell(told)


def _tell(told: str) -> None:
    with contextlib.suppress(Exception):  # standard error may be closed
        sys.stderr.write(f"accelrt: {told}\n")


class MemoryUse(NamedTuple):
    """The blocks in use that one line of a program requested, with one tag and for one stream."""

    device: str
    site: str | None
    """`file:line in function`; None of what was requested without a history."""
    tag: str
    stream: int | None
    """The stream for which they were requested, by its number in snapshots; None for the rest."""
    bytes: int
    num_blocks: int


class MemoryReport:
    """What holds the memory in use: `rows`, the largest first, and a table of them as text."""

    def __init__(self, rows: Sequence[MemoryUse]) -> None:
        """Store the rows."""
        self.rows = tuple(rows)

    @property
    def total_bytes(self) -> int:
        """The bytes of all rows, which are `memory_allocated()` of all devices."""
        return sum(row.bytes for row in self.rows)

    def table(self, row_limit: int = 20) -> str:
        """Return the rows as a text; those beyond `row_limit` in one line, unless it is -1."""
        row_limit = _whole("row_limit", row_limit, -_MOST_ENTRIES, _MOST_ENTRIES)
        shown = self.rows if row_limit < 0 else self.rows[:row_limit]
        lines: list[tuple[str, ...]] = [("Bytes", "Blocks", "Device", "Stream", "Tag", "Call site")]
        lines += [_cells(row) for row in shown]
        if rest := self.rows[len(shown) :]:
            held, count = sum(row.bytes for row in rest), sum(row.num_blocks for row in rest)
            lines.append((size(held).rstrip(), str(count), "", "", "", f"{len(rest)} more"))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        rule = "  ".join("-" * width for width in widths)
        texts = ["  ".join(_justified(line, widths)).rstrip() for line in lines]
        total = f"{size(self.total_bytes).rstrip()} in use"
        return "\n".join((texts[0], rule, *texts[1:], rule, total)) + "\n"

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        return f"<accelrt.MemoryReport of {self.total_bytes} bytes in {len(self.rows)} rows>"


def _cells(row: MemoryUse) -> tuple[str, ...]:
    stream = "" if row.stream is None else str(row.stream)
    site = "(not recorded)" if row.site is None else row.site
    tag = shown(row.tag, _MOST_TAG)
    return size(row.bytes).rstrip(), str(row.num_blocks), row.device, stream, tag, site


def _justified(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    numbers = 2
    return [
        cell.rjust(width) if place < numbers else cell.ljust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]


def memory_report() -> MemoryReport:
    """Return what holds the memory of all devices: bytes by call site, tag and stream.

    Call sites are known of memory that was requested while `record_memory_history` was on: the
    innermost line outside of accelrt, of installed packages and of Python's library.

    >>> import accelrt
    >>> with accelrt.memory_tag("kv cache"):
    ...     buffer = accelrt.empty(1 << 20, device="cpu")
    >>> report = accelrt.memory_report()
    >>> [row.bytes for row in report.rows if row.tag == "kv cache"]
    [1048576]
    """
    return MemoryReport([MemoryUse(*row) for row in _core.memory_uses()])
