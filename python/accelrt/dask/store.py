"""`Worker.data`: values on the device until its memory is needed, then pinned, then on disk.

There is no limit for the device: before a request of the worker fails, the allocator asks for
memory, on the thread of the request, and the values that were not used for longest leave. Nothing
that copies, waits for room, reads or writes a file runs on the event loop's thread.

`accelrt.dask.values` describes the states of a value. This module does what the states name
(copies, files and waits), without the lock that guards them. A request for memory inside a callable
of a stream waits for no work that may be queued behind the callable: see `DeviceStore._reclaim`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import MutableMapping
from concurrent.futures import ThreadPoolExecutor as OwnThread
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from distributed.metrics import context_meter
from distributed.sizeof import safe_sizeof
from distributed.threadpoolexecutor import ThreadPoolExecutor

import accelrt
from accelrt import _core
from accelrt._failures import text_of
from accelrt._memory import ObserverHandle
from accelrt._patience import wait_for_others
from accelrt._unused import unused
from accelrt.dask.calls import CALL, Call, Failure, Found, bring, drop_frames
from accelrt.dask.copies import Copies
from accelrt.dask.evictions import Evictions, Metrics, logger, settled
from accelrt.dask.files import Files, SpilledFile
from accelrt.dask.frames import FORMS, RECEIVING, STORING, OnHost
from accelrt.dask.values import Move, StoredValue, ValueState, ValueTable
from accelrt.profiler import record_function

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container, Iterable, Iterator

    from dask.typing import Key
    from distributed.spill import SpilledSize

_Result = TypeVar("_Result")

_ELSEWHERE = object()  # in place of a value that must move before it is read

# How long a thread writes values for dask's memory monitor, which looks again after that.
_MONITOR_S = 0.1

# Whether this thread does what the event loop's thread waits for.
_is_for_loop: ContextVar[bool] = ContextVar("is_for_loop", default=False)


class DeviceStore(MutableMapping["Key", object]):
    """The values of a worker by their keys; buffers and views stand on its device.

    Other values, also such that contain buffers, stand on the host. `host_limit` are the bytes of
    host memory above which values go to disk, under the worker's directory; `max_spill` limits
    those. What is put in is complete, and so is what is read: a read ends after its copy. What the
    worker receives is copied on `stream`.
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
        # without it, and there is no other lock. Requests for memory wait on `_lock`, reads of a
        # value that moves on `_settled`. A `with` is of the mutex: an interrupt inside of a
        # condition's `__enter__` or `__exit__`, which are Python code, would leave it locked.
        self._mutex = threading.RLock()
        self._lock = threading.Condition(self._mutex)
        self._copies, self._metrics = Copies(device), Metrics()
        self._evictions = Evictions(self._table, self._mutex, self._files, self._metrics)
        self._settled = self._evictions.settled
        self._is_relieving = False  # whether a thread writes for dask's memory monitor
        self._reclaimer = ObserverHandle(_core.add_reclaimer(self._reclaim), _core.remove_reclaimer)

    def close(self) -> None:
        """Be asked for memory no more."""
        self._reclaimer.remove()
        self._thread.shutdown(wait=False)

    def _is_on_loop(self) -> bool:
        """Return whether this is the event loop's thread, while it runs the loop."""
        if threading.get_ident() != self._owner:
            return False
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return False
        return True

    def _off_loop(self, call: Callable[[], _Result]) -> _Result:
        """Call, on a thread of its own where this one is the event loop's."""
        if not self._is_on_loop():
            return call()
        context = copy_context()
        context.run(_is_for_loop.set, True)  # noqa: FBT003  a variable's value
        with OwnThread(1, thread_name_prefix="accelrt-store-loop") as thread:
            return thread.submit(context.run, call).result()

    def _reclaim(self, kind: str, index: int, *numbers: int) -> bool:
        _requested_bytes, lacking_bytes, allocated_bytes = numbers
        is_loop = threading.get_ident() == self._owner or _is_for_loop.get()
        is_here = (kind, index) == (self.device.type, self.device.index)
        if not is_here or (is_loop and RECEIVING.is_on) or self._evictions.moving.is_on:
            # What comes by the loop and has no room comes to the host; what is being moved and
            # needs the device for it stays where it is: it cannot wait for itself.
            return False
        moved = 0
        refused: dict[Key, int] = {}
        while moved < lacking_bytes and (size := self._spill(refused)) is not None:
            moved += size
        if moved or is_loop or RECEIVING.is_on:
            return moved > 0
        sends, is_in_callable = set(self._sends), _core.must_not_wait()

        def is_there() -> bool:  # also what came free before this call
            is_less = _core.allocated_bytes_of_all(kind, index) < allocated_bytes
            return is_less or self._spill(refused) is not None

        # Other tasks end, and the loop, which itself cannot wait, stores and drops what they had.
        # What is being sent is used until the other worker has it, what arrives until the rest of
        # its message has, what leaves until it is written. Each of them may need the end of a
        # callable, so that a request inside of one waits for none of them without a limit.
        def goes_on() -> bool:
            are_moving = len(self._arrivals) + len(self._leaving) > 0
            return not is_in_callable and (are_moving or not sends.isdisjoint(self._sends))

        return wait_for_others(self._wait_for_memory, is_there, goes_on)

    def _wait_for_memory(self, timeout: float) -> bool:
        with self._mutex:
            return self._lock.wait(timeout)

    def _spill(self, refused: dict[Key, int]) -> int | None:
        """Move the value that was not used for longest to the host; return its size, or None.

        No copy helps while a task has the value. One that could not be copied, or that neither host
        nor disk has room for, is added to `refused`, and not tried again until another value has
        left them.
        """
        return self._off_loop(partial(self._spill_here, refused))

    def _spill_here(self, refused: dict[Key, int]) -> int | None:
        while True:
            move = Move()
            move_off = partial(self._move_off, move, refused)
            nbytes = settled(move_off, partial(self._settle, move, refused))
            if nbytes is not None or move.stored is None:
                return nbytes

    def _choose(self, move: Move, refused: dict[Key, int]) -> bool:
        """Begin the move of the next value; return False if no value can move."""
        with self._mutex:
            full = {key for key, vacated in refused.items() if vacated == self._table.vacated}
            key = self._find_leaving(full.union(self._leaving.values()))
            if key is None:
                return False
            move.stored = stored = self._table.values[key]
            self._leaving[stored] = key
            self._table.begin(move, stored, ValueState.LEAVING)
            return True

    def _move_off(self, move: Move, refused: dict[Key, int]) -> int | None:
        """Move the next value off the device; return the size of what comes free, or None."""
        if not self._choose(move, refused):
            return None
        self._evictions.note_moving(move)
        with record_function("leave the device"):
            if (host := self._copy_to_host(move)) is None:
                return None
            self._end_copy(move)
            if not self._leave(move, host):
                return None
        with self._mutex:
            self.moved.update(device_to_host=1, device_to_host_bytes=host.pinned.nbytes)
            self._lock.notify_all()
        return host.pinned.nbytes

    def _settle(self, move: Move, refused: dict[Key, int]) -> None:
        """Settle a move off the device; refuse its value if it is still there."""
        if (stored := move.stored) is not None:
            with self._mutex:
                if move.is_valid():
                    refused[stored.key] = self._table.vacated
                self._leaving.pop(stored, None)
        self._evictions.settle(move)

    def _find_leaving(self, excluded: Container[Key]) -> Key | None:
        """Return the key of the least recently used value that can move, or None.

        Skips values whose work is pending or failed, released buffers, and values whose memory
        others hold, for example through a slice: a move would free nothing, and writes through the
        slice would be lost. The caller holds the lock.
        """
        on_device, values = self._table.on_device, self._table.values
        shared: Container[Key] | None = None
        for key in unused(on_device):
            if key in excluded or values[key].is_awaited:
                continue
            form = FORMS[type(on_device[key])]
            if form.work_state(on_device[key]) != "done":
                continue
            if form.is_only_holder(on_device[key]):
                return key
            if shared is None:  # by other values of the store, or also by others
                shared = set(_core.keys_of_shared_memory(on_device))
            if key not in shared:
                return key
        return None

    def _copy_to_host(self, move: Move) -> OnHost | None:
        """Return the complete copy of a value, or log why there is none."""
        stored = cast("StoredValue", move.stored)
        with self._mutex:
            if not move.is_valid():
                return None
            value = self._table.on_device[stored.key]
        try:
            return self._copies.waited(partial(FORMS[type(value)].of, value))
        except accelrt.OutOfMemoryError:  # of the host
            return None
        except Exception as error:  # noqa: BLE001  the request goes on with the next value
            drop_frames(error)
            text = "cannot copy %r to the host: %s; it stays on the device"
            logger.warning(text, stored.key, text_of(error))
            return None

    def _end_copy(self, move: Move) -> None:
        """Begin to look for a place for a value that was copied.

        One that a read waits for stays on the device.
        """
        stored = cast("StoredValue", move.stored)
        with self._mutex:
            if move.is_valid():
                if stored.is_awaited:
                    self._table.cancel(move)
                else:
                    self._table.begin(move, stored, ValueState.PLACING)
                self._settled.notify_all()

    def _leave(self, move: Move, host: OnHost) -> bool:
        """Put a value that leaves the device on the host, or on disk.

        Returns whether its memory comes free.
        """
        weight, limit = safe_sizeof(host), self._table.host_limit
        while (has_left := self._put(move, ValueState.HOST, host, weight)) is None:
            if weight <= limit and self._evictions.evict_one() != -1:
                continue
            file, _ = self._evictions.write(move, host, weight)
            return file is not None and bool(self._put(move, ValueState.DISK, file, weight))
        return has_left

    def _put(self, move: Move, state: ValueState, copy: object, weight: int) -> bool | None:
        """End the move of a value off the device; return whether its memory comes free.

        It does not where a read has taken over. None where the host has no room for it.
        """
        stored = cast("StoredValue", move.stored)
        with self._mutex:
            is_full = self._table.host_bytes + weight > self._table.host_limit
            if has_left := move.is_valid():
                if state is ValueState.HOST and is_full:
                    return None
                stored.weight = weight
            else:
                has_left = stored.state is ValueState.DROPPED
            self._table.end(move, state, copy)
        self._evictions.release(move.left)
        return has_left

    def __getitem__(self, key: Key) -> object:
        call = CALL.get()
        if call is not None and (brought := call.brought.get(key)) is not None:
            with self._mutex:
                is_current = self._table.values.get(key) is brought.stored
            found = brought.value
            del brought
            if is_current and isinstance(found, Failure):
                try:
                    raise found.error
                finally:
                    del found  # which the frames of the error's traceback would keep
            if is_current:
                return found
        return self._find(key, is_sent=call is not None and call.is_sent).value

    def _find(self, key: Key, *, is_sent: bool = False) -> Found:
        """Find a value, which comes to the device unless it is sent to another worker."""
        with self._metrics.counted(), self._mutex:
            stored = self._table.values[key]
            value = self._find_at_once(stored, is_sent=is_sent)
        if value is _ELSEWHERE:
            return self._off_loop(partial(self._find_elsewhere, key, is_sent=is_sent))
        return Found(stored, value)

    def _find_elsewhere(self, key: Key, *, is_sent: bool) -> Found:
        move = Move()
        bring = partial(self._bring, key, move, is_sent=is_sent)
        found = settled(bring, partial(self._evictions.settle, move))
        if move.stored is not None and not found.stored.is_at_device():
            self._evictions.evict_excess()
        return found

    def _bring(self, key: Key, move: Move, *, is_sent: bool) -> Found:
        """Find a value; bring it to the device or the host if it is not there."""
        table = self._table
        with self._metrics.counted(), self._mutex:
            while True:
                stored = table.values[key]
                if (found := self._find_at_once(stored, is_sent=is_sent)) is not _ELSEWHERE:
                    return Found(stored, found)
                if not stored.blocks_reads():
                    break
                self._wait_for(stored)
            is_coming = stored.is_of_device and not is_sent
            host = stored.find_used() if stored.host is None else stored.host
            table.begin(move, stored, ValueState.COMING if is_coming else ValueState.READING)
        if host is None:
            with self._metrics.counted(), self.device:  # that of pinned memory
                host = self._files.read(key, cast("SpilledFile", move.read))
        value: Any = self._copy_to_device(cast("OnHost", host)) if is_coming else host
        with self._mutex:
            if is_coming:
                self.moved.update(host_to_device=1, host_to_device_bytes=value.nbytes)
                table.end(move, ValueState.DEVICE, value)
                self._lock.notify_all()
            elif is_sent or stored.weight > table.host_limit:
                stored.remember(host)
                table.cancel(move)
            else:
                table.end(move, ValueState.HOST, value)
        return Found(stored, host.sent() if is_sent and isinstance(host, OnHost) else value)

    def _wait_for(self, stored: StoredValue) -> None:
        """Wait until the state of a value that moves changes. The caller holds the lock."""
        try:
            stored.is_awaited = stored.is_at_device()
            self._settled.wait()
        except BaseException:
            stored.is_awaited = False  # other readers look again, and set it again
            raise

    def _copy_to_device(self, host: OnHost) -> object:
        """Return the complete copy of a value on the device."""
        with record_function("come to the device"):
            return self._copies.waited(partial(host.on, self.device))

    def _find_at_once(self, stored: StoredValue, *, is_sent: bool) -> Any:
        """Return a value that need not move, or `_ELSEWHERE`. The caller holds the lock."""
        if stored.is_copied():
            return _ELSEWHERE
        if stored.is_at_device():
            self._table.note_use(stored)
            value = self._table.on_device[stored.key]
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
        The call reads what was brought only while the key names it.
        """
        keys = list(keys)
        brought: dict[Key, Found] = {}
        others: list[tuple[Key, StoredValue]] = []
        with self._metrics.counted(), self._mutex:
            for key in keys:
                if (stored := self._table.values.get(key)) is None:
                    continue
                value = self._find_at_once(stored, is_sent=is_sent)
                if value is _ELSEWHERE:
                    others.append((key, stored))
                else:
                    brought[key] = Found(stored, value)
                del value
        if others:
            find = partial(self._find, is_sent=is_sent)
            await asyncio.wrap_future(self._thread.submit(bring, others, find, brought))
        token = CALL.set(Call(brought, is_sent))
        try:
            self._sends.update([id(brought)] if is_sent else [])
            return await call()
        finally:
            self._sends.discard(id(brought))
            brought.clear()
            CALL.reset(token)

    async def storing(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Await a call that receives values for this store, and has them until it ends."""
        calls = {object()}

        def arrive() -> None:
            with self._mutex:
                self._arrivals |= calls

        token = STORING.set(arrive)
        try:
            return await call()
        finally:
            STORING.reset(token)
            with self._mutex:  # a thread may still deserialise what a cancelled call received
                self._arrivals -= calls
                calls.clear()

    def __setitem__(self, key: Key, value: Any) -> None:
        form = FORMS.get(type(value))
        is_on_device = form is not None and form.device_of(value) == self.device
        weight = 0 if is_on_device else safe_sizeof(value)
        left: list[Any] = []
        try:
            with self._mutex:
                if is_on_device:
                    self._table.add_to_device(key, value, left)
                    self._lock.notify_all()
                else:
                    self._table.add_to_host(key, value, weight, left)
        finally:
            self._release(left)
        if self._table.excess_bytes() > 0:
            with suppress(RuntimeError):  # of a closed store, whose thread has ended
                self._thread.submit(self._evictions.evict_excess)

    def evict(self) -> int:
        """Write the value of the host that was not used for longest to disk.

        Returns its size in bytes, or -1 where none could be written. The event loop, on which
        dask's memory monitor calls this, writes no file: a thread writes values for as long as the
        monitor takes until it looks again, and -1 ends its look.
        """
        if not self._is_on_loop():
            return self._evictions.evict_one()
        if not self._is_relieving:
            try:
                self._is_relieving = True
                self._thread.submit(self._relieve)
            except BaseException as error:
                self._is_relieving = False
                if not isinstance(error, RuntimeError):  # of a closed store, whose thread has ended
                    raise
        return -1

    def _relieve(self) -> None:
        try:
            end = time.monotonic() + _MONITOR_S
            while self._evictions.evict_one() != -1 and time.monotonic() < end:
                pass
        finally:
            self._is_relieving = False

    def __delitem__(self, key: Key) -> None:
        if not self._drop(key):
            raise KeyError(key)

    def _drop(self, key: Key, expected: StoredValue | None = None) -> bool:
        """Drop the value of a key, or only the expected one; return whether there was one."""
        left: list[Any] = []
        try:
            with self._mutex:
                stored = self._table.values.get(key)
                if is_there := stored is not None and expected in (None, stored):
                    self._table.drop(key, left)
        finally:
            self._release(left)
        return is_there

    def _release(self, left: list[Any]) -> None:
        """Wake the reads of a value that was dropped, and release what is left over."""
        with self._mutex:
            self._settled.notify_all()
        self._evictions.release(left)

    def __contains__(self, key: object) -> bool:
        with self._mutex:
            return key in self._table.values

    def __iter__(self) -> Iterator[Key]:
        with self._mutex:
            return iter(list(self._table.values))

    def __len__(self) -> int:
        return len(self._table.values)

    def pop(self, key: Key, *default: object) -> object:
        """Delete a value and return it, or the default if there is none."""
        while True:
            try:
                stored, value = self._find(key)
            except KeyError:
                if default:
                    return default[0]
                raise
            if self._drop(key, stored):
                return value

    def popitem(self) -> tuple[Key, object]:
        """Delete a value and return it with its key; `KeyError` if there was none at a moment."""
        while True:
            with self._mutex:
                if not self._table.values:
                    message = "the store is empty"
                    raise KeyError(message)
                key = next(iter(self._table.values))
            with suppress(KeyError):  # deleted meanwhile
                return key, self.pop(key)

    def setdefault(self, key: Key, default: object = None) -> object:
        """Return the value of a key, or store the default if there is none."""
        while True:
            with suppress(KeyError):
                return self._find(key).value
            with self._mutex:
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
        with self._mutex:
            return {
                "on_device": len(table.on_device),
                "on_device_bytes": sum(value.nbytes for value in table.on_device.values()),
                "on_host": len(table.on_host),
                "on_disk": len(table.on_disk),
                "spilled_bytes": table.spilled.disk,
                **self.moved,
            }

    # Distributed and its dashboard read these names of stores that can spill.

    @property
    def fast(self) -> bool:
        """Whether the host has values that could be written to disk."""
        return bool(self._table.on_host)

    @property
    def memory(self) -> dict[Key, object]:
        """The values on the host at this moment."""
        with self._mutex:
            return {key: stored.host for key, stored in self._table.on_host.items()}

    @property
    def disk(self) -> dict[Key, SpilledSize]:
        """The keys of the values on disk at this moment, and their sizes."""
        with self._mutex:
            on_disk = self._table.on_disk
            return {key: cast("SpilledFile", it.file).size for key, it in on_disk.items()}

    @property
    def spilled_total(self) -> SpilledSize:
        """The bytes of the values on disk: in memory before, and in files."""
        return self._table.spilled

    @property
    def cumulative_metrics(self) -> dict[tuple[str, str], float]:
        """What was read and written since the start."""
        return self._metrics.copy()
