"""The allocator functions of `accelerator` and of the modules of all kinds."""

from __future__ import annotations

import math

from accelrt import _core
from accelrt._memory_summary import summary

TYPE_CHECKING = False  # not imported: `typing` would double the import time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from os import PathLike
    from typing import Any, Protocol, Self

    class _OomObserver(Protocol):
        """Called at an out-of-memory error, on the thread of the request."""

        def __call__(
            self, device: _core.device, requested_bytes: int, limit_bytes: int, free_bytes: int, /
        ) -> object:
            """Receive the device, and the requested, limit and free bytes."""

    class _Reclaimer(Protocol):
        """Called before an out-of-memory error, on the thread of the request."""

        def __call__(
            self, device: _core.device, requested_bytes: int, lacking_bytes: int, /
        ) -> object:
            """Free memory of the device; return something true if there was some."""


DeviceArgument = _core.device | str | int | None


class ObserverHandle:
    """Removes an observer or a reclaimer, by `remove()` or at the end of a `with`."""

    def __init__(self, number: int, remove: Callable[[int], None]) -> None:
        """Store the id, and what removes it."""
        self._number, self._remove = number, remove

    def remove(self) -> None:
        """Remove the observer or reclaimer; a second call has no effect."""
        self._remove(self._number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.remove()


class Memory:
    """The memory functions of one kind's module, or of `accelerator`.

    The argument `device` is a device, its name, its index, or None for the current device.
    """

    def _name(self) -> str:
        """Return the kind."""
        raise NotImplementedError

    def _index(self, device: DeviceArgument) -> int:
        """Return the device index of an argument."""
        raise NotImplementedError

    def empty_cache(self) -> None:
        """Free the cached memory. Wait, without the GIL, until no stream uses it."""
        _core.empty_cache(self._name())

    def empty_host_cache(self) -> None:
        """Free the cached pinned memory. Wait, without the GIL, until no stream uses it."""
        _core.empty_host_cache(self._name())

    def memory_stats(self, device: DeviceArgument = None) -> dict[str, int]:
        """Return the statistics of a device's allocator by sorted flat keys; zeros before its use.

        Keys and meanings are PyTorch's, as `allocated_bytes.all.current`. accelrt's own keys:
        `num_oom_rejections` counts requests that `throw_on_cudamalloc_oom` refused,
        `num_pages_stolen` pages that moved to a request that had too few, `num_frontier_reuses`
        requests that another stream's freed memory served. `inactive_split` counts free blocks in
        segments that are partly in use. Calling this returns the memory in the threads' caches to
        the allocator first.
        """
        return _core.memory_stats(self._name(), self._index(device))

    def shared_memory_stats(self, device: DeviceArgument = None) -> dict[str, int]:
        """Return the statistics of memory from `empty_shared`, which the host and a device share.

        The keys are those of `memory_stats`, which does not count this memory. Shared memory uses
        the device's capacity, `empty_cache` frees it, and resets of the device's peaks and sums
        include it; `set_per_process_memory_fraction` does not limit it.
        """
        return _core.shared_memory_stats(self._name(), self._index(device))

    def host_memory_stats(self) -> dict[str, int | float | list[int]]:
        """Return the statistics of the pinned-memory cache, by sorted flat keys; times in us."""
        return _core.host_memory_stats(self._name())

    def memory_allocated(self, device: DeviceArgument = None) -> int:
        """Return the bytes of allocated blocks."""
        return _core.allocated_bytes(self._name(), self._index(device))[0]

    def max_memory_allocated(self, device: DeviceArgument = None) -> int:
        """Return the peak of `memory_allocated` since its last reset.

        Under the default policy the peak is an upper bound when several threads create buffers: it
        includes freed memory that other streams still use and, without the setting
        `exact_statistics:True`, memory in the threads' caches.
        """
        return _core.allocated_bytes(self._name(), self._index(device))[1]

    def memory_reserved(self, device: DeviceArgument = None) -> int:
        """Return the bytes reserved from the device."""
        return _core.reserved_bytes(self._name(), self._index(device))[0]

    def max_memory_reserved(self, device: DeviceArgument = None) -> int:
        """Return the peak of `memory_reserved` since its last reset."""
        return _core.reserved_bytes(self._name(), self._index(device))[1]

    def reset_peak_memory_stats(self, device: DeviceArgument = None) -> None:
        """Reset every peak to the current value."""
        _core.reset_peak_memory_stats(self._name(), self._index(device))

    def reset_accumulated_memory_stats(self, device: DeviceArgument = None) -> None:
        """Reset every sum and count to zero."""
        _core.reset_accumulated_memory_stats(self._name(), self._index(device))

    def memory_summary(self, device: DeviceArgument = None, abbreviated: bool = False) -> str:  # noqa: FBT001, FBT002  torch's signature
        """Return a device's statistics as a table; `abbreviated` leaves out the rows of pools."""
        index = self._index(device)
        is_short = _core.flag("abbreviated", abbreviated)
        title = f"accelrt memory summary of {self._name()}:{index}"
        return summary(title, _core.memory_stats(self._name(), index), abbreviated=is_short)

    def memory_snapshot(self) -> list[dict[str, Any]]:
        """Return all devices' segments with their blocks, in the format of torch's snapshots.

        Blocks in use have the `frames` that a history recorded, and the tag as `user_metadata`.
        """
        return _core.memory_snapshot(self._name())

    def record_memory_history(  # noqa: PLR0917  torch's
        self,
        enabled: str | None = "all",
        context: str | None = "all",
        stacks: str = "all",
        max_entries: int = 100_000,
        device: DeviceArgument = None,
        clear_history: bool = False,  # noqa: FBT001, FBT002
        compile_context: bool = False,  # noqa: FBT001, FBT002
        global_record_annotations: bool = False,  # noqa: FBT001, FBT002
        skip_actions: Iterable[str] | None = None,
        *,
        max_frames: int = 32,
    ) -> None:
        """Record what the allocators of all devices do, with Python's stacks, for snapshots.

        As torch's `_record_memory_history`: `enabled` is "all", "state" for blocks in use alone,
        or None to end and forget the history. `context` says whose stacks are recorded: "all",
        "alloc" without frees, "state" of blocks in use, None of nothing. `stacks` is "python" or
        "all"; both mean Python's. Of the entries the newest `max_entries` are kept, of a stack the
        innermost `max_frames`. With `global_record_annotations` snapshots have the ranges of
        `accelrt.profiler.record_function`; without the actions in `skip_actions`. `device` is
        checked alone, and `compile_context` has no effect.

        While a history is on, requests and frees take the allocator's slow path.

        >>> import accelrt
        >>> accelrt.cpu.record_memory_history()
        >>> buffer = accelrt.empty(4096, device="cpu")
        >>> entries = accelrt.cpu.take_memory_snapshot()["device_traces"][0]
        >>> [entry["size"] for entry in entries if entry["action"] == "alloc"]
        [4096]
        >>> accelrt.cpu.record_memory_history(None)
        """
        from accelrt import _memory_history  # noqa: PLC0415  few programs need it

        _core.allocated_bytes(self._name(), self._index(device))  # a device that is not there
        _memory_history.record(
            enabled=enabled,
            context=context,
            stacks=stacks,
            max_entries=max_entries,
            clear_history=clear_history,
            compile_context=compile_context,
            global_record_annotations=global_record_annotations,
            skip_actions=skip_actions,
            max_frames=max_frames,
        )

    def take_memory_snapshot(self) -> dict[str, Any]:
        """Return what `dump_snapshot` writes: torch's dictionary, `memory_snapshot()` in it.

        `segments` are those of `memory_snapshot()`, `device_traces` the history of each device,
        `allocator_settings` the settings by torch's names, `external_annotations` the ranges.
        """
        return _core.take_memory_snapshot(self._name())

    def dump_snapshot(self, path: str | bytes | PathLike[str] = "dump_snapshot.pickle") -> None:
        """Write a snapshot with the history to a file, for `python -m accelrt view` and `replay`.

        The file is a pickle as torch's `_dump_snapshot` writes, which pytorch.org/memory_viz opens.
        """
        from accelrt import _memory_history  # noqa: PLC0415  few programs need it

        _memory_history.dump(path, self.take_memory_snapshot())

    def get_per_process_memory_fraction(self, device: DeviceArgument = None) -> float:
        """Return the fraction of a device's memory that the allocator may reserve."""
        return _core.get_memory_fraction(self._name(), self._index(device))

    def set_per_process_memory_fraction(
        self, fraction: float, device: DeviceArgument = None
    ) -> None:
        """Limit the fraction, 0 to 1, of a device's memory that the allocator may reserve."""
        _core.set_memory_fraction(self._name(), self._index(device), fraction)

    def register_oom_observer(self, observer: _OomObserver) -> ObserverHandle:
        """Call `observer` at each out-of-memory error of this kind; return its handle.

        The call `observer(device, requested_bytes, limit_bytes, free_bytes)` precedes the raise of
        the error; exceptions of the observer go to `sys.unraisablehook`.
        """
        observe = _of_kind(self._name(), "observer", observer)
        return ObserverHandle(_core.add_oom_observer(observe), _core.remove_oom_observer)

    def register_reclaimer(self, reclaimer: _Reclaimer) -> ObserverHandle:
        """Ask `reclaimer` for memory before a request of this kind fails; return its handle.

        The call `reclaimer(device, requested_bytes, lacking_bytes)` comes on the thread of the
        request. It drops what it can spare of that device, at once or a little at a time, and
        returns something true if that was any: then the request is tried again, behind the streams
        that still use the memory, and the reclaimers are asked again if it lacks more. They are
        asked in the order of their registration until one had some. Exceptions go to
        `sys.unraisablehook` and count as false. A request inside of a reclaimer asks none.

        >>> import accelrt
        >>> cache = [accelrt.empty(1000)]
        >>> def spare(device, requested_bytes, lacking_bytes):
        ...     return cache.pop() if cache else None
        >>> with accelrt.accelerator.register_reclaimer(spare):
        ...     try:
        ...         accelrt.empty(1 << 62)
        ...     except accelrt.OutOfMemoryError:  # above the limit: no reclaimer is asked
        ...         len(cache)
        1
        """
        ask = _of_kind(self._name(), "reclaimer", reclaimer)

        def call(kind: str, index: int, *numbers: int) -> object:
            return ask(kind, index, *numbers[:2])

        return ObserverHandle(_core.add_reclaimer(call), _core.remove_reclaimer)


def _of_kind(
    kind: str, role: str, function: Callable[..., object]
) -> Callable[[str, int, *tuple[int, ...]], object]:
    if not callable(function):
        message = f"{role} must be callable, not {type(function).__name__}"
        raise TypeError(message)

    def call(name: str, index: int, *numbers: int) -> object:
        return function(_core.device(kind, index), *numbers) if name == kind else None

    return call


class MemPool:
    """A private pool of a device's memory, for requests inside `use_mem_pool`.

    With `use_on_oom`, other requests may use the pool's free memory when memory is short. With
    `no_split`, each request gets a whole segment. When the last reference to the pool is dropped,
    the pool's free memory returns to the device.

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
        """Create the pool, by default on the accelerator's current device."""
        kind = _core.current_accelerator().type
        index = _core.accelerator_index(device, optional=True)
        may_help = _core.flag("use_on_oom", use_on_oom)
        is_whole = _core.flag("no_split", no_split)
        self._pool = _core.Pool(kind, index, may_help, is_whole)

    @property
    def id(self) -> tuple[int, int]:
        """The pool's id in snapshots."""
        return self._pool.id

    def snapshot(self) -> list[dict[str, Any]]:
        """Return the pool's segments, in the format of torch's snapshots."""
        return self._pool.snapshot()


class use_mem_pool:  # noqa: N801  torch's name
    """Serves this thread's requests from a pool inside a `with`; the innermost pool applies.

    Inside a running asyncio loop the requests of the asyncio task. Inside the `with`,
    `empty_cache()` frees no memory of the pool's device.
    """

    def __init__(self, pool: MemPool) -> None:
        """Store the pool for the `with`."""
        if not isinstance(pool, MemPool):
            message = f"pool must be a MemPool, not {type(pool).__name__}"
            raise TypeError(message)
        self._pool = pool._pool  # noqa: SLF001  of this file

    def __enter__(self) -> None:
        self._pool.enter()

    def __exit__(self, *_raised: object) -> None:
        self._pool.exit()


def fraction_of(nbytes: int, total_bytes: int) -> float:
    """Return the memory fraction that limits a device of `total_bytes` to `nbytes`; at most 1.

    The quotient alone may be a little too low: the limit, rounded down, then is a byte less.
    """
    fraction = min(nbytes / total_bytes, 1.0)
    is_short = int(fraction * total_bytes) < nbytes
    return math.nextafter(fraction, 1.0) if is_short else fraction
