"""`Worker.data`: values on the device until its memory is needed, then pinned, then on disk.

There is no limit for the device: before a request of the worker fails, the allocator asks for
memory, on the thread of the request, and the values that were not used for longest leave. So the
device's memory is used to the full, and the event loop moves nothing that it does not use.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import MutableMapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from distributed.spill import SpillBuffer

import accelrt
from accelrt.dask.frames import OnHost, Value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sized

    from dask.typing import Key

    _Disk = Literal[False] | int


# How long a request that nothing makes room for waits for a value that can leave.
ARRIVAL_S = 1.0


@dataclass
class Moved:
    """Values and bytes that went between device and host."""

    device_to_host: int = 0
    device_to_host_bytes: int = 0
    host_to_device: int = 0
    host_to_device_bytes: int = 0


class DeviceStore(MutableMapping["Key", object]):
    """The values of a worker by their keys; buffers and views stand on its device.

    Other values, also such that contain buffers, stand on the host. `host_limit` are the bytes of
    host memory above which values go to disk, under the worker's directory; `max_spill` limits
    those. Copies run on `stream`, for which tasks wait before they use a value.
    """

    def __init__(
        self,
        worker_local_directory: str,
        device: accelrt.device,
        *,
        host_limit: int,
        max_spill: _Disk = False,
    ) -> None:
        """Make an empty store, and ask to be told when the device's memory is short."""
        directory = str(Path(worker_local_directory, "storage"))
        self.device, self.stream, self.moved = device, accelrt.Stream(device), Moved()
        self._host = SpillBuffer(directory, target=host_limit, max_spill=max_spill)
        self._on_device: OrderedDict[Key, Value] = OrderedDict()
        self._leaving: set[Key] = set()
        self._owner = threading.get_ident()
        # Held for look-ups alone: what copies, waits or writes runs without it. Told when a value
        # has come or left.
        self._lock = threading.Condition()
        self._module = accelrt.get_device_module(device)
        self._reclaimer = self._module.register_reclaimer(self._reclaim)

    def close(self) -> None:
        """Be asked for memory no more."""
        self._reclaimer.remove()

    def _reclaim(self, device: accelrt.device, _requested_bytes: int, lacking_bytes: int) -> bool:
        if device != self.device:
            return False
        moved = 0
        while moved < lacking_bytes and (size := self._spill()):
            moved += size
        return moved > 0 or (self._wait_for_a_value() and self._spill() > 0)

    def _wait_for_a_value(self) -> bool:
        """Wait until something can leave: what a task has just returned is stored by the loop."""
        if threading.get_ident() == self._owner:
            return False  # the loop's own thread
        with self._lock:
            is_there = self._lock.wait_for(
                lambda: self._on_device.keys() - self._leaving, ARRIVAL_S
            )
            return bool(is_there)

    def _spill(self) -> int:
        """Move the value that was not used for longest to the host; return its size, or 0."""
        with self._lock:
            keys = (key for key in self._on_device if key not in self._leaving)
            key = next(keys, None)
            if key is None:
                return 0
            value = self._on_device[key]
            self._leaving.add(key)
        has_left = False
        try:
            with self.stream:
                host = OnHost.of(value)
            self._host[key] = host  # to disk, as far as the host is full
            has_left = True
        finally:
            with self._lock:
                self._leaving.discard(key)
                if has_left:
                    del self._on_device[key]
                self._lock.notify_all()
        self.moved.device_to_host += 1
        self.moved.device_to_host_bytes += value.nbytes
        return value.nbytes

    def _take(self, key: Key) -> bool:
        """Take a value from the device, if it is there. The caller holds the lock."""
        self._lock.wait_for(lambda: key not in self._leaving)
        return self._on_device.pop(key, None) is not None

    def __getitem__(self, key: Key) -> object:
        with self._lock:
            if key in self._on_device:
                self._on_device.move_to_end(key)
                return self._on_device[key]
        value = self._host[key]
        return self._restore(key, value) if isinstance(value, OnHost) else value

    def _restore(self, key: Key, host: OnHost) -> Value:
        with self.stream:
            value = host.on(self.device)
        self._current_stream().wait_stream(self.stream)
        with self._lock:
            self._on_device[key] = value
        self._discard(key)
        self.moved.host_to_device += 1
        self.moved.host_to_device_bytes += value.nbytes
        return value

    def __setitem__(self, key: Key, value: object) -> None:
        is_on_device = isinstance(value, Value) and value.device == self.device
        if is_on_device:  # what the caller has enqueued comes before what moves the value
            self.stream.wait_stream(self._current_stream())
        with self._lock:
            self._take(key)
            if isinstance(value, Value) and is_on_device:
                self._on_device[key] = value
                self._lock.notify_all()
        if is_on_device:
            self._discard(key)
        else:
            self._host[key] = value

    def _current_stream(self) -> accelrt.Stream:
        stream: accelrt.Stream = self._module.current_stream(self.device)
        return stream

    def _discard(self, key: Key) -> None:
        """Forget what the host has of a value, without reading it."""
        with suppress(KeyError):
            del self._host[key]

    def __delitem__(self, key: Key) -> None:
        with self._lock:
            was_on_device = self._take(key)
        if key in self._host:
            del self._host[key]
        elif not was_on_device:
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return key in self._on_device or key in self._host

    def __iter__(self) -> Iterator[Key]:
        with self._lock:
            on_device = list(self._on_device)
        yield from on_device
        yield from (key for key in list(self._host) if key not in on_device)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def numbers(self) -> dict[str, int]:
        """Return how many values are where, and what has moved."""
        with self._lock:
            on_device = list(self._on_device.values())
        return {
            "on_device": len(on_device),
            "on_device_bytes": sum(value.nbytes for value in on_device),
            "on_host": len(self._host.fast),
            "on_disk": len(self._host.slow),
            **asdict(self.moved),
        }

    # What distributed asks of a store that can spill, and what its dashboard reads.

    @property
    def fast(self) -> Sized:
        """What host memory holds."""
        return self._host.fast

    def evict(self) -> int:
        """Move a value from host memory to disk: see `distributed.spill.ManualEvictProto`."""
        return self._host.evict()

    @property
    def memory(self) -> Mapping[Key, object]:
        """The values in host memory."""
        return self._host.memory

    @property
    def disk(self) -> Mapping[Key, object]:
        """The values on disk."""
        return self._host.disk

    @property
    def spilled_total(self) -> tuple[int, int]:
        """The bytes that are on disk: as values, and of files."""
        return self._host.spilled_total

    @property
    def cumulative_metrics(self) -> dict[tuple[str, str], float]:
        """What writing and reading files took."""
        return self._host.cumulative_metrics
