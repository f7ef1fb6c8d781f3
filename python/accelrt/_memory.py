"""What the modules of all kinds, and `accelerator`, offer about their allocators."""

from __future__ import annotations

from accelrt import _core
from accelrt._memory_summary import summary

TYPE_CHECKING = False  # as `typing` has it, whose import would be half of ours
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol, Self

    class _OomObserver(Protocol):
        """Called when a request fails for want of memory, on the thread of the request."""

        def __call__(
            self, device: _core.device, requested_bytes: int, limit_bytes: int, free_bytes: int, /
        ) -> object:
            """Take what was asked for, the limit, and what the device had free."""


DeviceArgument = _core.device | str | int | None


class ObserverHandle:
    """Ends an observer, by `remove()` or at the end of a `with`."""

    def __init__(self, number: int) -> None:
        """Keep the number."""
        self._number = number

    def remove(self) -> None:
        """End the observer; nothing when it has ended."""
        _core.remove_oom_observer(self._number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.remove()


class Memory:
    """The memory functions of one module. Arguments are devices, their names, indices, or None."""

    def _name(self) -> str:
        """Return the kind."""
        raise NotImplementedError

    def _index(self, device: DeviceArgument) -> int:
        """Return the index that an argument means."""
        raise NotImplementedError

    def empty_cache(self) -> None:
        """Wait, without the GIL, until no stream uses free memory, and give it back."""
        _core.empty_cache(self._name())

    def empty_host_cache(self) -> None:
        """Wait, without the GIL, until no stream uses free pinned memory, and give it back."""
        _core.empty_host_cache(self._name())

    def memory_stats(self, device: DeviceArgument = None) -> dict[str, int]:
        """Return what a device's allocator counts, by sorted flat keys; zeros before its use.

        Keys and meanings are PyTorch's: `allocated_bytes.all.current` and so on, in bytes where the
        name says so. Ours: `num_oom_rejections` counts requests that `throw_on_cudamalloc_oom`
        refused, `num_pages_stolen` pages that moved to where memory was missing,
        `num_frontier_reuses` requests that another stream's memory served. `inactive_split` and its
        bytes are what is free and cannot go back to the device as it is. What threads keep for
        their next buffers becomes free memory before this counts.
        """
        return _core.memory_stats(self._name(), self._index(device))

    def shared_memory_stats(self, device: DeviceArgument = None) -> dict[str, int]:
        """Return what is counted of memory that a device shares with the host: `empty_shared`.

        Keys are those of `memory_stats`, which does not count it. It takes from the same capacity,
        goes back with `empty_cache`, and its peaks and sums are reset with the device's;
        `set_per_process_memory_fraction` does not limit it.
        """
        return _core.shared_memory_stats(self._name(), self._index(device))

    def host_memory_stats(self) -> dict[str, int | float | list[int]]:
        """Return what the cache of pinned memory counts, by sorted flat keys; times in us."""
        return _core.host_memory_stats(self._name())

    def memory_allocated(self, device: DeviceArgument = None) -> int:
        """Return the bytes of blocks that were handed out and not freed."""
        return _core.allocated_bytes(self._name(), self._index(device))[0]

    def max_memory_allocated(self, device: DeviceArgument = None) -> int:
        """Return the most of `memory_allocated` since its peak was reset.

        When several threads made buffers it is a bound under the default policy: what threads kept
        for their next ones counts too, unless settings say `exact_statistics:True`, and what was
        freed and awaited other streams.
        """
        return _core.allocated_bytes(self._name(), self._index(device))[1]

    def memory_reserved(self, device: DeviceArgument = None) -> int:
        """Return the bytes that were taken from the device."""
        return _core.reserved_bytes(self._name(), self._index(device))[0]

    def max_memory_reserved(self, device: DeviceArgument = None) -> int:
        """Return the most of `memory_reserved` since its peak was reset."""
        return _core.reserved_bytes(self._name(), self._index(device))[1]

    def reset_peak_memory_stats(self, device: DeviceArgument = None) -> None:
        """Make every peak the current value."""
        _core.reset_peak_memory_stats(self._name(), self._index(device))

    def reset_accumulated_memory_stats(self, device: DeviceArgument = None) -> None:
        """Make every sum and every count zero."""
        _core.reset_accumulated_memory_stats(self._name(), self._index(device))

    def memory_summary(self, device: DeviceArgument = None, abbreviated: bool = False) -> str:  # noqa: FBT001, FBT002  torch's signature
        """Return the statistics of a device as a table; `abbreviated` without the two pools."""
        index = self._index(device)
        is_short = _core.flag("abbreviated", abbreviated)
        title = f"accelrt memory summary of {self._name()}:{index}"
        return summary(title, _core.memory_stats(self._name(), index), abbreviated=is_short)

    def memory_snapshot(self) -> list[dict[str, Any]]:
        """Return the segments of all devices with their blocks, as torch's snapshots have them."""
        return _core.memory_snapshot(self._name())

    def get_per_process_memory_fraction(self, device: DeviceArgument = None) -> float:
        """Return the part of a device's memory that may be reserved."""
        return _core.get_memory_fraction(self._name(), self._index(device))

    def set_per_process_memory_fraction(
        self, fraction: float, device: DeviceArgument = None
    ) -> None:
        """Limit what may be reserved from now on to a part of a device's memory, 0 to 1."""
        _core.set_memory_fraction(self._name(), self._index(device), fraction)

    def register_oom_observer(self, observer: _OomObserver) -> ObserverHandle:
        """Call `observer` when a request of this kind fails for want of memory; return its end.

        It is called as `observer(device, requested_bytes, limit_bytes, free_bytes)` before the
        error is raised; what it raises goes to `sys.unraisablehook`.
        """
        if not callable(observer):
            message = f"observer must be callable, not {type(observer).__name__}"
            raise TypeError(message)
        return ObserverHandle(_core.add_oom_observer(_of_kind(self._name(), observer)))


def _of_kind(kind: str, observer: _OomObserver) -> Callable[[str, int, int, int, int], None]:
    def observe(name: str, index: int, requested: int, limit: int, free: int) -> None:
        if name == kind:
            observer(_core.device(kind, index), requested, limit, free)

    return observe


class MemPool:
    """A private pool of a device's memory: only requests made inside of `use_mem_pool` get it.

    With `use_on_oom` other requests may take from it when memory is short. With `no_split` its
    blocks are not split: each request gets a whole one, as PyTorch takes it from the device. When
    the last reference is dropped, what is free in it goes back.

    >>> import accelrt
    >>> pool = accelrt.accelerator.MemPool()
    >>> with accelrt.accelerator.use_mem_pool(pool):
    ...     buffer = accelrt.empty(1000)
    >>> [segment["requested_size"] for segment in pool.snapshot()]
    [1000]
    """

    def __init__(
        self,
        device: DeviceArgument = None,
        *,
        use_on_oom: bool = False,
        no_split: bool = False,
    ) -> None:
        """Make the pool, on the accelerator's current device where none is named."""
        kind = _core.current_accelerator().type
        index = _core.accelerator_index(device, optional=True)
        may_help = _core.flag("use_on_oom", use_on_oom)
        is_whole = _core.flag("no_split", no_split)
        self._pool = _core.Pool(kind, index, may_help, is_whole)

    @property
    def id(self) -> tuple[int, int]:
        """Its name in snapshots."""
        return self._pool.id

    def snapshot(self) -> list[dict[str, Any]]:
        """Return its segments, as torch's snapshots have them."""
        return self._pool.snapshot()


class use_mem_pool:  # noqa: N801  torch's name
    """Serves this thread's requests from a pool inside a `with`; of several the innermost.

    `empty_cache()` inside gives back nothing of the pool's device.
    """

    def __init__(self, pool: MemPool) -> None:
        """Keep the pool for the `with`."""
        if not isinstance(pool, MemPool):
            message = f"pool must be a MemPool, not {type(pool).__name__}"
            raise TypeError(message)
        self._pool = pool._pool  # noqa: SLF001  of this file

    def __enter__(self) -> None:
        self._pool.enter()

    def __exit__(self, *_raised: object) -> None:
        self._pool.exit()
