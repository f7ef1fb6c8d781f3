"""What a memory history of this process has, and where functions are."""

from collections.abc import Callable
from typing import Any

from accelrt import accelerator

Entry = dict[str, Any]


def trace(action: str | None = None) -> list[Entry]:
    """Return the entries of device 0, of one action."""
    entries: list[Entry] = accelerator.take_memory_snapshot()["device_traces"][0]
    return [entry for entry in entries if action in (None, entry["action"])]


def line_of(function: Callable[..., object]) -> tuple[str, int]:
    return function.__code__.co_filename, function.__code__.co_firstlineno
