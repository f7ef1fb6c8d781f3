"""Device-agnostic functions: they act on the current accelerator and take no device type.

Source: `torch.accelerator` of torch 2.13. There is always an accelerator: the cpu device where
nothing else is.

>>> import accelrt
>>> accelrt.accelerator.is_available()
True
"""

import warnings

from accelrt import _core
from accelrt._kinds import DeviceContext, capability
from accelrt._memory import DeviceArgument, Memory, MemPool, use_mem_pool

__all__ = [
    "MemPool",
    "current_accelerator",
    "current_device_idx",
    "current_device_index",
    "current_stream",
    "device_count",
    "device_index",
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
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_summary",
    "register_oom_observer",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "set_allocator_settings",
    "set_device_idx",
    "set_device_index",
    "set_per_process_memory_fraction",
    "set_stream",
    "shared_memory_stats",
    "synchronize",
    "use_mem_pool",
]

_Device = DeviceArgument


def _kind() -> str:
    return _core.current_accelerator().type


def _index(device: _Device, *, optional: bool = True) -> int:
    return _core.accelerator_index(device, optional)


def is_available() -> bool:
    """Return True when the accelerator has a device; starts nothing."""
    return _core.device_count(_kind()) > 0


def device_count() -> int:
    """Return how many devices the accelerator has; starts nothing."""
    return _core.device_count(_kind())


def current_accelerator(check_available: bool = False) -> _core.device | None:  # noqa: FBT001, FBT002  torch's signature
    """Return the accelerator's kind, as a device without index.

    With `check_available`, None when it has no device.
    """
    is_checked = _core.flag("check_available", check_available)
    return None if is_checked and not is_available() else _core.current_accelerator()


def current_device_index() -> int:
    """Return the index of this thread's current device."""
    return _core.current_device(_kind())


def set_device_index(device: _Device, /) -> None:
    """Make a device current in this thread; a negative index changes nothing."""
    _core.exchange_device(_kind(), _index(device, optional=False))


def current_device_idx() -> int:
    """Return `current_device_index()`; deprecated."""
    warnings.warn("Use `current_device_index` instead.", FutureWarning, stacklevel=2)
    return current_device_index()


def set_device_idx(device: _Device, /) -> None:
    """Call `set_device_index(device)`; deprecated."""
    warnings.warn("Use `set_device_index` instead.", FutureWarning, stacklevel=2)
    set_device_index(device)


# The language's standard mark of a deprecated function; on the old names alone.
current_device_idx.__deprecated__ = "Use `current_device_index` instead."  # type: ignore[attr-defined]
set_device_idx.__deprecated__ = "Use `set_device_index` instead."  # type: ignore[attr-defined]


class device_index(DeviceContext):  # noqa: N801  torch's name
    """A context manager with a device as the current one; None and negative change nothing."""

    def __init__(self, device: int | None, /) -> None:
        """Keep the index for the `with`."""
        super().__init__(_kind(), None if device is None else _index(device))


def current_stream(device: _Device = None, /) -> _core.Stream:
    """Return this thread's current stream on a device."""
    return _core.current_stream(_kind(), _index(device))


def set_stream(stream: _core.Stream) -> None:
    """Make a stream, and its device, current in this thread."""
    _core.set_stream(stream)


def synchronize(device: _Device = None, /) -> None:
    """Wait, without the GIL, until all streams of a device are done; raise their errors."""
    _core.synchronize(_kind(), _index(device))


def get_device_capability(device: _Device = None, /) -> dict[str, object]:
    """Return what a device can do: `{"supported_dtypes": names}`."""
    return capability(_kind(), _index(device))


def get_memory_info(device_index: _Device = None, /) -> tuple[int, int]:
    """Return free and total bytes of a device.

    The total is the limit that was set (`ACCELRT_CPU_MEMORY`), else what the device, the machine or
    the container has; a memory fraction is a part of it. Free is what that leaves, and no more than
    the machine or the container has available where the device's memory is theirs.
    """
    return _core.get_memory_info(_kind(), _index(device_index))


def get_allocator_settings() -> str:
    """Return the settings of all allocators, as they were given."""
    return _core.get_allocator_settings()


def set_allocator_settings(settings: str) -> None:
    """Serve the next requests of all allocators by other settings; see `ACCELRT_ALLOC_CONF`.

    What the text does not name has its default. A text that is not valid changes nothing and raises
    a ValueError that names the key, its value and what is allowed.

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
    _core.set_allocator_settings(settings)


class _Accelerator(Memory):
    """The memory functions of whichever kind is the accelerator."""

    def _name(self) -> str:
        return _kind()

    def _index(self, device: DeviceArgument) -> int:
        return _index(device)


_memory = _Accelerator()

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
register_oom_observer = _memory.register_oom_observer
reset_accumulated_memory_stats = _memory.reset_accumulated_memory_stats
reset_peak_memory_stats = _memory.reset_peak_memory_stats
set_per_process_memory_fraction = _memory.set_per_process_memory_fraction
shared_memory_stats = _memory.shared_memory_stats
