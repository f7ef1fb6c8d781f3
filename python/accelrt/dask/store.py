"""`Worker.data`: values on the device until its memory is needed, then pinned, then on disk.

There is no limit for the device: before a request of the worker fails, the allocator asks for
memory, on the thread of the request, and the values that were not used for longest leave. Nothing
that copies, waits for room, reads or writes a file runs on the event loop's thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter, OrderedDict
from collections.abc import MutableMapping
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from distributed.spill import AnyKeyFile, SpillBuffer
from distributed.threadpoolexecutor import ThreadPoolExecutor

import accelrt
from accelrt import _core
from accelrt._memory import ObserverHandle
from accelrt._owned_lock import OwnedLock
from accelrt._patience import wait_for_others
from accelrt._unused import first_unused
from accelrt.dask.frames import FORMS, RECEIVING, STORING, OnHost
from accelrt.profiler import record_function

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from dask.typing import Key

# What was brought for the running coroutine.
_brought: ContextVar[Mapping[Key, object]] = ContextVar("brought", default={})  # noqa: B039


class _Files(AnyKeyFile):
    """The files of values, written and read in ranges that a profile shows.

    What came from a device is read into pinned memory, whose pages are there, and stays in it.
    """

    def __init__(self, directory: str, away: set[Key]) -> None:
        super().__init__(directory)
        self._away = away

    def __setitem__(self, key: str, value: Any) -> None:
        with record_function("write to disk"):
            super().__setitem__(key, value)

    def __getitem__(self, key: str) -> Any:
        with record_function("read from disk"):
            if key not in self._away:
                return super().__getitem__(key)
            with self.lock, Path(self.directory, self.filenames[key]).open("rb") as file:
                pinned: Any = accelrt.empty_pinned(os.fstat(file.fileno()).st_size)
                with self.unlock():
                    file.readinto(pinned)
            return memoryview(pinned)


def _bring(keys: Iterable[Key], find: Callable[[Key], object], brought: dict[Key, object]) -> None:
    with suppress(Exception):  # who uses the values meets it again
        for key in keys:
            with suppress(KeyError):  # of what was deleted meanwhile
                brought[key] = find(key)


class DeviceStore(MutableMapping["Key", object]):
    """The values of a worker by their keys; buffers and views stand on its device.

    Other values, also such that contain buffers, stand on the host. `host_limit` are the bytes of
    host memory above which values go to disk, under the worker's directory; `max_spill` limits
    those. Copies run on `stream`, for which tasks wait before they use a value. What is put
    in is complete.
    """

    def __init__(
        self,
        worker_local_directory: str,
        device: accelrt.device,
        *,
        host_limit: int,
        max_spill: Literal[False] | int = False,
    ) -> None:
        """Make an empty store, and ask to be told when the device's memory is short."""
        directory = str(Path(worker_local_directory, "storage"))
        self.device, self.stream = device, accelrt.Stream(device, dedicated=True)
        self.moved = Counter(
            device_to_host=0, device_to_host_bytes=0, host_to_device=0, host_to_device_bytes=0
        )
        self._away: set[Key] = set()  # of the device's values those that the host has
        self._host = SpillBuffer(directory, target=host_limit, max_spill=max_spill)
        cast("Any", self._host.slow).data.d = _Files(directory, self._away)
        self._on_device: OrderedDict[Key, Any] = OrderedDict()
        self._leaving: set[Key] = set()
        self._vacated = 0  # how often a value has left the host
        self._sends: set[int] = set()  # the calls that send values
        self._arrivals: set[object] = set()  # those that have received some
        self._coming: dict[Key, object] = {}
        self._owner = threading.get_ident()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="accelrt-store")
        # The first is held for look-ups alone, and told when a value has come or left: what copies,
        # waits or writes runs without it. The second has files written one behind the other.
        self._lock, self._writing = threading.Condition(), OwnedLock()
        self._module = accelrt.get_device_module(device)
        self._reclaimer = ObserverHandle(_core.add_reclaimer(self._reclaim), _core.remove_reclaimer)

    def close(self) -> None:
        """Be asked for memory no more."""
        self._reclaimer.remove()
        self._thread.shutdown(wait=False)

    def _reclaim(self, kind: str, index: int, *numbers: int) -> bool:
        _requested_bytes, lacking_bytes, allocated_bytes = numbers
        is_loop = threading.get_ident() == self._owner
        is_here = (kind, index) == (self.device.type, self.device.index)
        if not is_here or (is_loop and RECEIVING.is_on) or self._writing.is_mine():
            # What comes by the loop and has no room comes to the host; what is being written and
            # needs the device for it stays where it is: it cannot wait for itself.
            return False
        moved = 0
        refused: dict[Key, int] = {}
        while moved < lacking_bytes and (size := self._spill(refused)) is not None:
            moved += size
        if moved or is_loop or RECEIVING.is_on:
            return moved > 0
        sends = set(self._sends)

        def is_there() -> bool:  # also what came free before this call
            is_less = _core.allocated_bytes_of_all(kind, index) < allocated_bytes
            return is_less or self._spill(refused) is not None

        # Other tasks end, and the loop, which itself cannot wait, stores and drops what they had.
        # What is being sent is used until the other worker has it, what arrives until the rest of
        # its message has, what leaves until it is written: none waits for anything here.
        def goes_on() -> bool:
            are_moving = len(self._arrivals) + len(self._leaving) > 0
            return are_moving or not sends.isdisjoint(self._sends)

        return wait_for_others(self._lock, is_there, goes_on)

    def _spill(self, refused: dict[Key, int]) -> int | None:
        """Move the value that was not used for longest to the host; return its size, or None.

        No copy helps while a task has the value. One that neither host nor disk has room for is
        added to `refused`, and not tried again until another value has left them.
        """
        with self._lock:
            full = {key for key, vacated in refused.items() if vacated == self._vacated}
            key = first_unused(self._on_device, self._leaving | full)
            if key is None:
                return None
            value = self._on_device[key]
            self._leaving.add(key)
        has_left, nbytes = False, value.nbytes
        try:
            with record_function("leave the device"):
                with self.stream:
                    host = FORMS[type(value)].of(value)
                with self._writing:
                    self._host[key] = host  # to disk, as far as the host is full
                has_left = self._host.fast.total_weight <= self._host.n  # else the disk is
        finally:
            with self._lock:
                self._leaving.discard(key)
                if has_left and self._on_device.get(key) is value:
                    del self._on_device[key]
                    self._away.add(key)
                    self.moved.update(device_to_host=1, device_to_host_bytes=nbytes)
                else:  # or it was deleted or replaced meanwhile
                    self._discard(key)
                    refused[key] = self._vacated
                self._lock.notify_all()
        return nbytes if has_left else None

    def __getitem__(self, key: Key) -> object:
        if key in (brought := _brought.get()):
            return brought[key]
        with self._lock:
            self._lock.wait_for(lambda: key in self._on_device or key not in self._coming)
            if (found := self._here(key)) is not None:
                return found
            if is_away := key in self._away:
                coming = self._coming[key] = object()
        if not is_away:
            return self._host[key]
        try:
            host = cast("OnHost", self._read(key))
            with record_function("come to the device"), self.stream:
                value = host.on(self.device)
            self._module.current_stream(self.device).wait_stream(self.stream)
            with self._lock:
                self.moved.update(host_to_device=1, host_to_device_bytes=host.pinned.nbytes)
                if self._coming.get(key) is coming:  # neither deleted nor replaced meanwhile
                    self._discard(key)
                    self._vacated += 1
                    self._on_device[key] = value
                return value
        finally:
            with self._lock:
                if self._coming.get(key) is coming:
                    del self._coming[key]
                self._lock.notify_all()

    def _here(self, key: Key) -> Any:
        """Return what is on the device. The caller holds the lock."""
        if key in self._on_device:
            self._on_device.move_to_end(key)
        return self._on_device.get(key)

    def _read(self, key: Key) -> object:
        """Return what host or disk has, where it stays."""
        with suppress(KeyError):
            return self._host.fast[key]
        return self._host.slow[key]

    async def during(
        self, keys: Iterable[Key], call: Callable[[], Awaitable[Any]], *, is_sent: bool = False
    ) -> Any:
        """Await a call that reads values: a thread brings what is elsewhere before.

        What is sent does not come to the device for that. What is there stays until the call ends.
        """
        find = self._sent if is_sent else self.__getitem__
        with self._lock:
            brought = {key: find(key) for key in keys if key in self._on_device}
            others = [key for key in keys if key not in brought]
            are_here = not any(key in self._away or key in self._host.slow for key in others)
        if not are_here:
            await asyncio.wrap_future(self._thread.submit(_bring, others, find, brought))
        token = _brought.set(brought)
        self._sends.update([id(brought)] if is_sent else [])
        try:
            return await call()
        finally:
            _brought.reset(token)
            brought.clear()
            self._sends.discard(id(brought))

    async def storing(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Await a call that receives values for this store, and has them until it ends."""
        calls = {object()}

        def arrive() -> None:
            with self._lock:
                self._arrivals |= calls

        token = STORING.set(arrive)
        try:
            return await call()
        finally:
            STORING.reset(token)
            with self._lock:  # a thread may still deserialise what a cancelled call received
                self._arrivals -= calls
                calls.clear()

    def _sent(self, key: Key) -> object:
        """Return a value on its way to another worker, from wherever it is."""
        while True:
            with self._lock:
                if (value := self._here(key)) is not None:
                    return FORMS[type(value)].sending(value)
                if key not in self:
                    raise KeyError(key)
            with suppress(KeyError):  # it came to the device, or was deleted, before it was read
                value = self._read(key)
                return value.sent() if isinstance(value, OnHost) else value

    def __setitem__(self, key: Key, value: Any) -> None:
        form = FORMS.get(type(value))
        with self._lock:
            self._forget(key)
            if form is not None and form.device_of(value) == self.device:
                self._on_device[key] = value
                self._lock.notify_all()
                return
            self._lock.wait_for(lambda: key not in self._leaving)
            self._host.set_noevict(key, value)
            if isinstance(value, OnHost):
                self._away.add(key)
        if self._host.fast.total_weight > self._host.n:
            self._thread.submit(self._evict)

    def _evict(self) -> None:
        with self._writing:
            while self._host.fast.total_weight > self._host.n and self._host.evict() != -1:
                pass

    def _discard(self, key: Key) -> None:
        """Forget what the host has of a value, without reading it."""
        self._away.discard(key)
        with suppress(KeyError):
            del self._host[key]

    def __delitem__(self, key: Key) -> None:
        with self._lock:
            if key not in self:
                raise KeyError(key)
            self._forget(key)

    def _forget(self, key: Key) -> None:
        """Forget a value, also where it is on its way. The caller holds the lock."""
        self._on_device.pop(key, None)
        self._coming.pop(key, None)
        self._discard(key)
        self._vacated += 1

    def __contains__(self, key: object) -> bool:
        with self._lock:  # what moves meanwhile is in one of them
            return key in self._on_device or key in self._host

    def __iter__(self) -> Iterator[Key]:
        with self._lock:
            return iter(dict.fromkeys((*self._on_device, *self._host)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def numbers(self) -> dict[str, int]:
        """Return how many values are where, and what has moved."""
        with self._lock:
            sizes = [value.nbytes for value in self._on_device.values()]
        return {
            "on_device": len(sizes),
            "on_device_bytes": sum(sizes),
            "on_host": len(self._host.fast),
            "on_disk": len(self._host.slow),
            "spilled_bytes": self._host.spilled_total.disk,
            **self.moved,
        }

    # What distributed asks of a store that can spill, and what its dashboard reads, by these names.

    def __getattr__(self, name: str) -> Any:  # as SpillBuffer's
        if name in {"fast", "evict", "memory", "disk", "spilled_total", "cumulative_metrics"}:
            return getattr(self._host, name)
        raise AttributeError(name)
