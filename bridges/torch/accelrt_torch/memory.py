"""`torch.accelrt.memory`: histories and snapshots of memory, as `torch.cuda.memory` has them.

They are accelrt's own; `python -m accelrt view` and pytorch.org/memory_viz show their files.
"""

from collections.abc import Iterable
from os import PathLike
from typing import Any

import accelrt
from accelrt_torch import _C  # type: ignore[attr-defined]

__all__ = ["memory_snapshot", "poison"]


def _record_memory_history(  # noqa: PLR0917 - torch's
    enabled: str | None = "all",
    context: str | None = "all",
    stacks: str = "all",
    max_entries: int = 100_000,
    device: object = None,  # noqa: ARG001 - the history is of all devices
    clear_history: bool = False,  # noqa: FBT001, FBT002
    *,
    skip_actions: Iterable[str] | None = None,
) -> None:
    """Record what the allocators do, with the program's stacks, until `enabled` is None.

    Meanwhile a failed operator's error has the line of its call, too.
    """
    accelrt.cpu.record_memory_history(
        enabled,
        context,
        stacks,
        max_entries,
        clear_history=clear_history,
        skip_actions=skip_actions,
    )
    _C.set_notes_places(enabled is not None and context is not None)


def _snapshot(device: object = None) -> dict[str, Any]:  # noqa: ARG001 - it has all devices
    """Return what is allocated, and the history."""
    return accelrt.cpu.take_memory_snapshot()


def _dump_snapshot(filename: str | PathLike[str] = "dump_snapshot.pickle") -> None:
    """Write a snapshot to a file."""
    accelrt.cpu.dump_snapshot(filename)


def memory_snapshot() -> list[dict[str, Any]]:
    """Return the segments of all devices with their blocks."""
    return accelrt.cpu.memory_snapshot()


def poison(enabled: bool = True) -> None:  # noqa: FBT001, FBT002 - a switch, as torch's are
    """Fill device memory with 0xFF, NaN of every floating type, before a tensor gets it.

    The fills are tasks of the current stream: what reads memory that is free, or that nothing has
    written, reads that.
    """
    _C.set_poisons_memory(bool(enabled))
