"""A progress bar of the replays, on a terminal."""

import sys
from collections.abc import Iterator, Sequence
from typing import TypeVar

_T = TypeVar("_T")
_WIDTH = 40


def shown(items: Sequence[_T]) -> Iterator[_T]:
    """Yield the items; shows the number of finished ones, and erases the bar at the end."""
    try:
        for done, item in enumerate(items):
            _show(done, len(items))
            yield item
    finally:
        _write("\r\x1b[K")


def _show(done: int, count: int) -> None:
    filled = _WIDTH * done // count
    _write(f"\rreplay {done}/{count} [{'#' * filled}{'.' * (_WIDTH - filled)}]")


def _write(text: str) -> None:
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(text)
        sys.stderr.flush()
