"""Device-agnostic functions: they act on the current accelerator and take no device type.

Source: `torch.accelerator` of torch 2.13. Without another accelerator, the cpu device is the
accelerator.

>>> import accelrt
>>> accelrt.accelerator.is_available()
True
"""

import warnings

from accelrt import _core
from accelrt._kinds import DeviceContext, capability
from accelrt._memory import DeviceArgument, MemPool, use_mem_pool
from accelrt.accelerator import memory
from accelrt.accelerator._device import index_of, kind_of
from accelrt.accelerator.memory import (
    dump_snapshot,
    empty_cache,
    empty_host_cache,
    get_allocator_settings,
    get_memory_info,
    get_per_process_memory_fraction,
    host_memory_stats,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_summary,
    record_memory_history,
    register_oom_observer,
    register_reclaimer,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
    set_allocator_settings,
    set_per_process_memory_fraction,
    shared_memory_stats,
    take_memory_snapshot,
)

__all__ = [
    "MemPool",
    "current_accelerator",
    "current_device_idx",
    "current_device_index",
    "current_stream",
    "device_count",
    "device_index",
    "dump_snapshot",
    "empty_cache",
    "empty_host_cache",
    "get_allocator_settings",
    "get_device_capability",
    "get_memory_info",
    "get_per_process_memory_fraction",
    "host_memory_stats",
    "is_available",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory",
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
    "set_device_idx",
    "set_device_index",
    "set_per_process_memory_fraction",
    "set_stream",
    "shared_memory_stats",
    "synchronize",
    "take_memory_snapshot",
    "use_mem_pool",
]

_Device = DeviceArgument


def is_available() -> bool:
    """Return True when the accelerator has a device; initialises no device."""
    return _core.device_count(kind_of()) > 0


def device_count() -> int:
    """Return the number of the accelerator's devices; initialises no device."""
    return _core.device_count(kind_of())


def current_accelerator(check_available: bool = False) -> _core.device | None:  # noqa: FBT001, FBT002  torch's signature
    """Return the accelerator's kind, as a device without index.

    With `check_available`, return None when the kind has no device.
    """
    is_checked = _core.flag("check_available", check_available)
    return None if is_checked and not is_available() else _core.current_accelerator()


def current_device_index() -> int:
    """Return the index of this thread's current device."""
    return _core.current_device(kind_of())


def set_device_index(device: _Device, /) -> None:
    """Make a device current in this thread; a negative index has no effect."""
    _core.exchange_device(kind_of(), index_of(device, optional=False))


def current_device_idx() -> int:
    """Return `current_device_index()`; deprecated."""
    warnings.warn("Use `current_device_index` instead.", FutureWarning, stacklevel=2)
    return current_device_index()


def set_device_idx(device: _Device, /) -> None:
    """Call `set_device_index(device)`; deprecated."""
    warnings.warn("Use `set_device_index` instead.", FutureWarning, stacklevel=2)
    set_device_index(device)


# The attribute that `warnings.deprecated` sets.
current_device_idx.__deprecated__ = "Use `current_device_index` instead."  # type: ignore[attr-defined]
set_device_idx.__deprecated__ = "Use `set_device_index` instead."  # type: ignore[attr-defined]


class device_index(DeviceContext):  # noqa: N801  torch's name
    """A context manager that makes a device current; None and a negative index have no effect."""

    def __init__(self, device: int | None, /) -> None:
        """Store the index for the `with`."""
        super().__init__(kind_of(), None if device is None else index_of(device))


def current_stream(device: _Device = None, /) -> _core.Stream:
    """Return this thread's current stream on a device."""
    return _core.current_stream(kind_of(), index_of(device))


def set_stream(stream: _core.Stream) -> None:
    """Make a stream and its device current in this thread."""
    _core.set_stream(stream)


def synchronize(device: _Device = None, /, timeout: float | None = None) -> None:
    """Wait, without the GIL, until all streams of a device are done; raise and clear errors.

    After `timeout` seconds raise TimeoutError; the work goes on.
    """
    _core.synchronize(kind_of(), index_of(device), timeout)


def get_device_capability(device: _Device = None, /) -> dict[str, object]:
    """Return the capabilities of a device: `{"supported_dtypes": names}`."""
    return capability(kind_of(), index_of(device))
