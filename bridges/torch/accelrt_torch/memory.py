"""`torch.accelrt.memory`: memory of devices, as torch's modules have it.

Histories and snapshots are accelrt's own; `python -m accelrt view` and pytorch.org/memory_viz show
their files.
"""

from collections import OrderedDict
from collections.abc import Iterable
from os import PathLike
from typing import Any

import torch
from torch.accelerator import empty_cache

import accelrt
from accelrt_torch import _C  # type: ignore[attr-defined]
from accelrt_torch._argument import DeviceArgument, index_of

__all__ = [
    "empty_cache",
    "get_per_process_memory_fraction",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "poison",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
]


def memory_stats(device: DeviceArgument = None) -> OrderedDict[str, Any]:
    """Return a device's statistics of memory, with torch's flat names."""
    flat: OrderedDict[str, Any] = torch.accelerator.memory_stats(index_of(device))
    return flat


def memory_stats_as_nested_dict(device: DeviceArgument = None) -> dict[str, Any]:
    """Return a device's statistics of memory, as dictionaries in dictionaries."""
    return accelrt.cpu.memory_stats_as_nested_dict(index_of(device))


def memory_allocated(device: DeviceArgument = None) -> int:
    """Return the bytes of a device's tensors."""
    return int(torch.accelerator.memory_allocated(index_of(device)))


def max_memory_allocated(device: DeviceArgument = None) -> int:
    """Return the most bytes of a device's tensors since `reset_peak_memory_stats`."""
    return int(torch.accelerator.max_memory_allocated(index_of(device)))


def memory_reserved(device: DeviceArgument = None) -> int:
    """Return the bytes that a device's allocator holds."""
    return int(torch.accelerator.memory_reserved(index_of(device)))


def max_memory_reserved(device: DeviceArgument = None) -> int:
    """Return the most bytes that a device's allocator held since `reset_peak_memory_stats`."""
    return int(torch.accelerator.max_memory_reserved(index_of(device)))


def reset_peak_memory_stats(device: DeviceArgument = None) -> None:
    """Make a device's peaks what there is now."""
    torch.accelerator.reset_peak_memory_stats(index_of(device))


def reset_accumulated_memory_stats(device: DeviceArgument = None) -> None:
    """Set to zero what a device's statistics add up."""
    torch.accelerator.reset_accumulated_memory_stats(index_of(device))


def mem_get_info(device: DeviceArgument = None) -> tuple[int, int]:
    """Return the bytes of a device that are free, and all that it has."""
    free_bytes, total_bytes = torch.accelerator.get_memory_info(index_of(device))
    return free_bytes, total_bytes


def get_per_process_memory_fraction(device: DeviceArgument = None) -> float:
    """Return the part of a device's memory that its allocator may hold."""
    return accelrt.cpu.get_per_process_memory_fraction(index_of(device))


def set_per_process_memory_fraction(fraction: float, device: DeviceArgument = None) -> None:
    """Let a device's allocator hold a part of its memory, of 0 to 1.

    A request beyond it is a `torch.OutOfMemoryError`.
    """
    accelrt.cpu.set_per_process_memory_fraction(fraction, index_of(device))


def memory_summary(device: DeviceArgument = None) -> str:
    """Return a table of what a device's allocator has, as accelrt shows it."""
    return accelrt.cpu.memory_summary(index_of(device))


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
