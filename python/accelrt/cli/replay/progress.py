"""A progress bar of the replays, on a terminal."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from accelrt.cli import terminal

_T = TypeVar("_T")


def shown(items: Sequence[_T]) -> Iterator[_T]:
    """Yield the items; shows the number of finished ones, and erases the bar at the end."""
    try:
        for done, item in enumerate(items):
            terminal.bar(f"replay {done}/{len(items)}", done / len(items))
            yield item
    finally:
        terminal.wipe()
