"""`Worker.data`: values on the device until its memory is needed, then pinned, then on disk.

There is no limit for the device: before a request of the worker fails, the allocator asks for
memory, on the thread of the request, and the values that were not used for longest leave. Nothing
that copies, waits for room, reads or writes a file runs on the event loop's thread.

`accelrt.dask.values` describes the states of a value. This module does what the states name
(copies, files and waits), without the lock that guards them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter, defaultdict
from collections.abc import MutableMapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from distributed.metrics import context_meter
from distributed.sizeof import safe_sizeof
from distributed.threadpoolexecutor import ThreadPoolExecutor
from distributed.utils import RateLimiterFilter

import accelrt
from accelrt import _core
from accelrt._failures import causes
from accelrt._memory import ObserverHandle
from accelrt._owned_lock import OwnedLock
from accelrt._patience import wait_for_others
from accelrt._unused import first_unused
from accelrt.dask.files import Files, SpilledFile, UnwritableError
from accelrt.dask.frames import FORMS, RECEIVING, STORING, OnHost
from accelrt.dask.values import StoredValue, ValueState, ValueTable
from accelrt.profiler import record_function

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from dask.typing import Key
    from distributed.spill import SpilledSize

_logger = logging.getLogger("distributed.worker.accelrt")
_logger.addFilter(RateLimiterFilter("cannot write"))  # a full disk refuses each value

_ELSEWHERE = object()  # in place of a value that must move before it is read

# What was brought for the running coroutine.
_brought: ContextVar[Mapping[Key, object]] = ContextVar("brought", default={})  # noqa: B039


class _Failure:
    """The error of a value that could not be brought: the call that reads it raises the error."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        for it in causes(error):
            it.__traceback__ = None  # whose frames have values


def _bring(keys: Iterable[Key], find: Callable[[Key], object], brought: dict[Key, object]) -> None:
    for key in keys:
        try:
            brought[key] = find(key)
        except KeyError:  # deleted meanwhile
            continue
        except Exception as error:  # noqa: BLE001  the call that reads the value raises it
            brought[key] = _Failure(error)
            return


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
        self._table = ValueTable(host_limit)
        self._files = Files(directory, None if max_spill is False else max_spill)
        self._leaving: dict[StoredValue, Key] = {}
        self._sends: set[int] = set()  # the calls that send values
        self._arrivals: set[object] = set()  # those that have received some
        self._owner = threading.get_ident()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="accelrt-store")
        # The mutex guards the table, and is held for look-ups only: copies, waits and files run
        # without it. Requests for memory wait on `_lock`, reads of a value that moves on
        # `_settled`. The owned lock orders writes of files, one after the other.
        mutex = threading.RLock()
        self._lock, self._settled = threading.Condition(mutex), threading.Condition(mutex)
        self._writing = OwnedLock()
        self._metrics: defaultdict[tuple[str, str], float] = defaultdict(float)
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
            full = {key for key, vacated in refused.items() if vacated == self._table.vacated}
            key = first_unused(self._table.on_device, full.union(self._leaving.values()))
            if key is None:
                return None
            value, stored = self._table.on_device[key], self._table.values[key]
            ticket = self._table.begin(stored, ValueState.LEAVING)
            self._leaving[stored] = key
        has_left, nbytes = False, value.nbytes
        try:
            with record_function("leave the device"), suppress(accelrt.OutOfMemoryError):
                with self.stream:
                    host = FORMS[type(value)].of(value)
                has_left = self._leave(stored, ticket, host)
        finally:
            del value  # before a request is notified
            with self._lock:
                if has_left:
                    self.moved.update(device_to_host=1, device_to_host_bytes=nbytes)
                    self._lock.notify_all()
                else:
                    self._table.cancel(stored, ticket)
                    refused[key] = self._table.vacated
                del self._leaving[stored]
        return nbytes if has_left else None

    def _leave(self, stored: StoredValue, ticket: int, host: OnHost) -> bool:
        """Put a value that leaves the device on the host, or on disk; return whether it fits."""
        weight = safe_sizeof(host)
        with self._writing:
            while not self._try_host(stored, ticket, host, weight):
                if weight <= self._table.host_limit and self._evict_one() != -1:
                    continue
                if (file := self._write(stored, host, weight)) is None:
                    return False
                with self._lock:
                    if stored.ticket == ticket:
                        stored.weight = weight
                    left = self._table.end(stored, ticket, ValueState.DISK, file)
                _release(left)
                break
        return True

    def _try_host(self, stored: StoredValue, ticket: int, host: OnHost, weight: int) -> bool:
        """Put a value on the host if it fits; of one that was dropped there is nothing to put."""
        with self._lock:
            if stored.ticket == ticket:
                if self._table.host_bytes + weight > self._table.host_limit:
                    return False
                stored.weight = weight
            left = self._table.end(stored, ticket, ValueState.HOST, host)
        _release(left)
        return True

    def _write(self, stored: StoredValue, host: object, weight: int) -> SpilledFile | None:
        """Write a value to a file; return None, and log it, where that fails."""
        is_pinned = isinstance(host, OnHost)
        try:
            with self._metered():
                used_bytes = self._table.spilled.disk
                return self._files.write(host, weight, used_bytes, is_pinned=is_pinned)
        except UnwritableError as error:
            if not stored.is_reported:
                stored.is_reported = True
                _logger.warning("cannot serialize %r; it is not spilled: %s", stored.key, error)
        except OSError as error:
            stored.is_reported = False
            _logger.warning("cannot write %r to disk; it is not spilled: %s", stored.key, error)
        return None

    def __getitem__(self, key: Key) -> object:
        found = _brought.get().get(key, _ELSEWHERE)
        if isinstance(found, _Failure):
            try:
                raise found.error
            finally:
                del found  # which the frames of the error's traceback would keep
        return self._find(key) if found is _ELSEWHERE else found

    def _find(self, key: Key, *, is_sent: bool = False) -> object:
        """Return a value, which comes to the device unless it is sent to another worker."""
        table = self._table
        with self._metered(), self._lock:
            while (found := self._find_at_once(key, is_sent=is_sent)) is _ELSEWHERE:
                stored = table.values[key]
                if stored.state not in {ValueState.READING, ValueState.COMING}:
                    break
                self._settled.wait()
            else:
                return found
            is_coming = stored.is_of_device and not is_sent
            state = ValueState.COMING if is_coming else ValueState.READING
            ticket, read = table.begin(stored, state), stored.file
            host = stored.find_used() if stored.host is None else stored.host
        left: list[Any] = []
        try:
            if host is None:
                with self._metered():
                    host = self._files.read(key, cast("SpilledFile", read))
            value: Any = self._copy_to_device(cast("OnHost", host)) if is_coming else host
            with self._lock:
                if is_coming:
                    self.moved.update(host_to_device=1, host_to_device_bytes=value.nbytes)
                    left = table.end(stored, ticket, ValueState.DEVICE, value, read)
                    self._lock.notify_all()
                elif is_sent or stored.weight > table.host_limit:
                    stored.remember(host)
                    left = table.cancel(stored, ticket, read)
                else:
                    left = table.end(stored, ticket, ValueState.HOST, value, read)
                self._settled.notify_all()
        except BaseException:
            with self._lock:
                left = table.cancel(stored, ticket, read)
                self._settled.notify_all()
            raise
        finally:
            _release(left)
        if not is_coming:
            self._evict()
        return host.sent() if is_sent and isinstance(host, OnHost) else value

    def _copy_to_device(self, host: OnHost) -> object:
        with record_function("come to the device"), self.stream:
            value = host.on(self.device)
        self._module.current_stream(self.device).wait_stream(self.stream)
        return value

    def _find_at_once(self, key: Key, *, is_sent: bool) -> Any:
        """Return a value that need not move, or `_ELSEWHERE`. The caller holds the lock."""
        stored = self._table.values[key]
        if stored.is_at_device():
            self._table.note_use(stored)
            value = self._table.on_device[key]
            return FORMS[type(value)].sending(value) if is_sent else value
        if stored.is_at_host() and (is_sent or not stored.is_of_device):
            self._table.note_use(stored)
            context_meter.digest_metric("memory-read", 1, "count")
            context_meter.digest_metric("memory-read", stored.weight, "bytes")
            return stored.host.sent() if isinstance(stored.host, OnHost) else stored.host
        return _ELSEWHERE

    async def during(
        self, keys: Iterable[Key], call: Callable[[], Awaitable[Any]], *, is_sent: bool = False
    ) -> Any:
        """Await a call that reads values: a thread brings what is elsewhere before.

        What is sent does not come to the device for that. What is there stays until the call ends.
        """
        keys = list(keys)
        with self._metered(), self._lock:
            known = [key for key in keys if key in self._table.values]
            found = {key: self._find_at_once(key, is_sent=is_sent) for key in known}
        brought = {key: value for key, value in found.items() if value is not _ELSEWHERE}
        others = [key for key in known if key not in brought]
        del found
        if others:
            find = partial(self._find, is_sent=is_sent)
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

    def __setitem__(self, key: Key, value: Any) -> None:
        form = FORMS.get(type(value))
        is_on_device = form is not None and form.device_of(value) == self.device
        weight = 0 if is_on_device else safe_sizeof(value)
        with self._lock:
            if is_on_device:
                left = self._table.add_to_device(key, value)
                self._lock.notify_all()
            else:
                left = self._table.add_to_host(key, value, weight)
            self._settled.notify_all()
        _release(left)
        if self._table.host_bytes > self._table.host_limit:
            with suppress(RuntimeError):  # of a closed store, whose thread has ended
                self._thread.submit(self._evict)

    def _evict(self) -> None:
        """Write values to disk until the host's limit holds, or no more can be written."""
        is_above = self._table.host_bytes > self._table.host_limit
        if is_above and not self._writing.is_mine():
            with self._writing:
                while self._table.host_bytes > self._table.host_limit and self._evict_one() != -1:
                    pass

    def evict(self) -> int:
        """Write the value of the host that was not used for longest to disk.

        Returns its size in bytes, or -1 where none could be written.
        """
        with self._writing:
            return self._evict_one()

    def _evict_one(self) -> int:
        """As `evict`. The caller holds `_writing`."""
        tried: set[StoredValue] = set()
        while True:
            with self._lock:
                stored = self._table.find_oldest_on_host(tried)
                if stored is None:
                    return -1
                ticket = self._table.begin(stored, ValueState.WRITING)
                host, weight = stored.host, stored.weight
            tried.add(stored)
            left: list[Any] = []
            file = None
            try:
                file = self._write(stored, host, weight)
            finally:
                with self._lock:
                    if file is None:
                        self._table.cancel(stored, ticket)
                        if stored.is_reported:
                            self._table.postpone(stored)
                    else:
                        left = self._table.end(stored, ticket, ValueState.DISK, file)
                    self._settled.notify_all()
            del host
            _release(left)
            if file is not None:
                return weight
            if not stored.is_reported:  # the disk took nothing
                return -1

    def __delitem__(self, key: Key) -> None:
        with self._lock:
            if key not in self._table.values:
                raise KeyError(key)
            left = self._table.drop(key)
            self._settled.notify_all()
        _release(left)

    def __contains__(self, key: object) -> bool:
        with self._lock:
            return key in self._table.values

    def __iter__(self) -> Iterator[Key]:
        with self._lock:
            return iter(list(self._table.values))

    def __len__(self) -> int:
        return len(self._table.values)

    def pop(self, key: Key, *default: object) -> object:
        """Delete a value and return it, or the default if there is none."""
        while True:
            stored = self._table.values.get(key)
            try:
                value = self._find(key)
            except KeyError:
                if default:
                    return default[0]
                raise
            with self._lock:
                if is_same := stored is not None and self._table.values.get(key) is stored:
                    left = self._table.drop(key)
                    self._settled.notify_all()
            if is_same:
                _release(left)
                return value

    def popitem(self) -> tuple[Key, object]:
        """Delete a value and return it with its key."""
        for key in self:
            with suppress(KeyError):  # deleted meanwhile
                return key, self.pop(key)
        message = "the store is empty"
        raise KeyError(message)

    def setdefault(self, key: Key, default: object = None) -> object:
        """Return the value of a key, or store the default if there is none."""
        while True:
            with suppress(KeyError):
                return self._find(key)
            with self._lock:
                if key not in self._table.values:
                    self[key] = default
                    return default

    def clear(self) -> None:
        """Delete all values, without reading them from disk."""
        for key in list(self):
            with suppress(KeyError):
                del self[key]

    def numbers(self) -> dict[str, int]:
        """Return how many values are where, and what has moved."""
        table = self._table
        with self._lock:
            return {
                "on_device": len(table.on_device),
                "on_device_bytes": sum(value.nbytes for value in table.on_device.values()),
                "on_host": len(table.on_host),
                "on_disk": len(table.on_disk),
                "spilled_bytes": table.spilled.disk,
                **self.moved,
            }

    @contextmanager
    def _metered(self) -> Iterator[None]:
        """Count what is read and written, for dask's metrics."""

        def count(label: Any, value: float, unit: str) -> None:
            with self._lock:
                self._metrics[label, unit] += value

        with context_meter.add_callback(count):
            yield

    # Distributed and its dashboard read these names of stores that can spill.

    @property
    def fast(self) -> bool:
        """Whether the host has values that could be written to disk."""
        return bool(self._table.on_host)

    @property
    def memory(self) -> dict[Key, object]:
        """The values on the host at this moment."""
        with self._lock:
            return {key: stored.host for key, stored in self._table.on_host.items()}

    @property
    def disk(self) -> dict[Key, SpilledSize]:
        """The keys of the values on disk at this moment, and their sizes."""
        with self._lock:
            on_disk = self._table.on_disk
            return {key: cast("SpilledFile", it.file).size for key, it in on_disk.items()}

    @property
    def spilled_total(self) -> SpilledSize:
        """The bytes of the values on disk: in memory before, and in files."""
        return self._table.spilled

    @property
    def cumulative_metrics(self) -> dict[tuple[str, str], float]:
        """What was read and written since the start."""
        with self._lock:
            return dict(self._metrics)


def _release(left: list[Any]) -> None:
    """Release what a change has left over, without the store's lock."""
    for it in left:
        if isinstance(it, SpilledFile):
            it.remove()
    left.clear()
