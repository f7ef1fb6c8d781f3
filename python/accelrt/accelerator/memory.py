"""The accelerator's memory: statistics, caches, limits and settings of its allocators.

Source: `torch.accelerator.memory` of torch 2.13. `accelerator` has the same functions.

>>> import accelrt
>>> accelrt.accelerator.memory.memory_allocated() >= 0
True
"""

from __future__ import annotations

import warnings

from accelrt import _core
from accelrt._memory import Memory
from accelrt.accelerator._device import index_of, kind_of

TYPE_CHECKING = False  # not imported: `typing` would double the import time
if TYPE_CHECKING:
    from accelrt._memory import DeviceArgument

__all__ = [
    "dump_snapshot",
    "empty_cache",
    "empty_host_cache",
    "get_allocator_settings",
    "get_memory_info",
    "get_per_process_memory_fraction",
    "host_memory_stats",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_summary",
    "record_memory_history",
    "register_oom_observer",
    "register_reclaimer",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "set_allocator_settings",
    "set_per_process_memory_fraction",
    "shared_memory_stats",
    "take_memory_snapshot",
]


def get_memory_info(device: DeviceArgument = None) -> tuple[int, int]:
    """Return free and total bytes of a device.

    The total is the configured limit (`ACCELRT_CPU_MEMORY`, `ACCELRT_XPU_MEMORY`), else the
    capacity of the device, machine or container. Free bytes are the total minus the reserved
    bytes; for a device that uses the machine's memory, they are at most what the machine or
    container has available. A memory fraction changes neither number.
    """
    return _core.get_memory_info(kind_of(), index_of(device))


def get_allocator_settings() -> str:
    """Return the text of the last settings, which apply to all allocators."""
    return _core.get_allocator_settings()


def set_allocator_settings(settings: str) -> None:
    """Apply settings to later requests of all allocators; see `ACCELRT_ALLOC_CONF`.

    Settings that the text does not name return to their defaults, except a fraction from
    `set_per_process_memory_fraction`. If the policy is `torch` before and after, only
    `max_split_size_mb`, `roundup_power2_divisions` and `garbage_collection_threshold` return to
    their defaults, as in PyTorch.

    An invalid text changes no setting and raises a ValueError that names the key, its value
    and the allowed values. PyTorch's keys without an effect here are refused too; if the text
    says `strict:False`, one warning names them instead.

    >>> import accelrt
    >>> accelrt.accelerator.set_allocator_settings("max_split_size_mb:64,expandable_segments:False")
    >>> accelrt.accelerator.get_allocator_settings()
    'max_split_size_mb:64,expandable_segments:False'
    >>> accelrt.accelerator.set_allocator_settings("max_split_size_mb:64k")
    Traceback (most recent call last):
    ...
    ValueError: Allocator setting "max_split_size_mb" with value "64k" is not valid: ...
    >>> accelrt.accelerator.set_allocator_settings("")
    """
    ignored = _core.set_allocator_settings(settings)
    if ignored:
        reasons = "; ".join(f"{key} ({reason})" for key, reason in ignored)
        warnings.warn(f"Allocator settings without an effect: {reasons}", stacklevel=2)


class _Accelerator(Memory):
    """The memory functions of the accelerator's kind."""

    def _name(self) -> str:
        return kind_of()

    def _index(self, device: DeviceArgument) -> int:
        return index_of(device)


_memory = _Accelerator()

dump_snapshot = _memory.dump_snapshot
empty_cache = _memory.empty_cache
empty_host_cache = _memory.empty_host_cache
get_per_process_memory_fraction = _memory.get_per_process_memory_fraction
host_memory_stats = _memory.host_memory_stats
max_memory_allocated = _memory.max_memory_allocated
max_memory_reserved = _memory.max_memory_reserved
memory_allocated = _memory.memory_allocated
memory_reserved = _memory.memory_reserved
memory_snapshot = _memory.memory_snapshot
memory_stats = _memory.memory_stats
memory_summary = _memory.memory_summary
record_memory_history = _memory.record_memory_history
register_oom_observer = _memory.register_oom_observer
register_reclaimer = _memory.register_reclaimer
reset_accumulated_memory_stats = _memory.reset_accumulated_memory_stats
reset_peak_memory_stats = _memory.reset_peak_memory_stats
set_per_process_memory_fraction = _memory.set_per_process_memory_fraction
shared_memory_stats = _memory.shared_memory_stats
take_memory_snapshot = _memory.take_memory_snapshot
