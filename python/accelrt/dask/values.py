"""The state of each value of a store, and all changes of it.

A key names one `StoredValue` at a time; a write makes a new one. One thread at a time moves a
value between states:

| state | valid copy | next state |
|---|---|---|
| DEVICE | device | LEAVING: a request lacks memory |
| LEAVING | device | PLACING: the copy is complete; DEVICE: it failed, or a read waits for it |
| PLACING | device | HOST; DISK: the host is full; DEVICE: neither takes it, or a read takes over |
| HOST | host | WRITING: the host is full; COMING: a read needs it on the device |
| WRITING | host | DISK; HOST: the write failed; COMING: a read takes over |
| DISK | file | READING: a read, or a message to another worker; COMING |
| READING | file | HOST; DISK: too large for the host, sent, or the read failed |
| COMING | host or file | DEVICE; HOST or DISK: the copy failed |
| DROPPED | none | none: the key was deleted, or names a newer value |

1. The store's lock is held for every method here. None copies, waits, or reads or writes a file.
2. `begin` returns a ticket, with which the thread ends its move after the work without the lock.
3. Deletes and writes never wait for a move: they invalidate its ticket, and the thread discards its
   result. So does a read that takes over from a write, or from a value that looks for a place.
4. The valid copy stays in place until the move has ended. A move between device and host ends when
   its copy is complete, not when it is enqueued. A move that fails changes nothing.
5. A read of a value in LEAVING, READING or COMING waits until the state changes, and then starts
   again. So nobody else uses memory while it is copied, and receives the failure of the copy. A
   value that a read waits for stays on the device.
6. Copies and files that are left over are returned, and released without the lock. A file that is
   read at that moment is left to its reader.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from distributed.spill import SpilledSize

from accelrt.dask.frames import OnHost

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from dask.typing import Key

    from accelrt.dask.files import SpilledFile


class ValueState(Enum):
    """Where a value is, and where it moves; the module's table describes each."""

    DEVICE = 1
    LEAVING = 2
    PLACING = 3
    HOST = 4
    WRITING = 5
    DISK = 6
    READING = 7
    COMING = 8
    DROPPED = 9


_AT_DEVICE = {ValueState.DEVICE, ValueState.LEAVING, ValueState.PLACING}
_COPIED = {ValueState.LEAVING, ValueState.COMING}
_AWAITED = _COPIED | {ValueState.READING}


def _never() -> None:
    return None


@dataclass(eq=False, slots=True)
class StoredValue:
    """A value of a key. Its copy on the device is in `ValueTable.on_device` only."""

    key: Key
    state: ValueState = ValueState.DROPPED
    ticket: int = 0
    host: object = None
    weight: int = 0  # of the copy on the host, in bytes
    file: SpilledFile | None = None
    is_of_device: bool = False  # so reads bring it there
    find_used: Callable[[], object] = _never  # what the host had, while someone uses it
    is_reported: bool = False  # as one that cannot be serialized
    is_awaited: bool = False  # by a read, until its copy off the device has ended
    min_file_bytes: int = 0  # the size of a file that has exceeded the limit of all files

    def is_at_device(self) -> bool:
        """Return whether the valid copy is the device's."""
        return self.state in _AT_DEVICE

    def is_at_host(self) -> bool:
        """Return whether the valid copy is the host's."""
        return not self.is_at_device() and self.file is None

    def is_copied(self) -> bool:
        """Return whether its memory is being copied."""
        return self.state in _COPIED

    def blocks_reads(self) -> bool:
        """Return whether a read must wait until the state changes."""
        return self.state in _AWAITED

    def remember(self, copy: object) -> None:
        """Keep a weak reference to a copy on the host: while it is used, no file is read."""
        try:
            self.find_used = weakref.ref(copy)
        except TypeError:  # of bytes and the like
            self.find_used = _never


class ValueTable:
    """The values of a store by their keys, and by their places. The caller holds the lock."""

    def __init__(self, host_limit: int) -> None:
        """Make an empty table."""
        self.values: dict[Key, StoredValue] = {}
        # The first is the one that was not used for longest. References to the device's values are
        # counted, so nothing else in the store keeps one.
        self.on_device: OrderedDict[Key, Any] = OrderedDict()
        self.on_host: OrderedDict[Key, StoredValue] = OrderedDict()
        self.on_disk: dict[Key, StoredValue] = {}
        self.host_limit, self.host_bytes = host_limit, 0
        self.writing_bytes = 0  # of `host_bytes`: what is being written to disk
        self.spilled = SpilledSize(0, 0)
        self.vacated = 0  # how often a value was removed from host or disk

    def add_to_device(self, key: Key, value: object) -> list[Any]:
        """Store a value that is on the device; return what is left over of the key's last one."""
        left = self.drop(key)
        self.values[key] = stored = StoredValue(key, is_of_device=True)
        self._place(stored, ValueState.DEVICE, value)
        return left

    def add_to_host(self, key: Key, value: object, weight: int) -> list[Any]:
        """Store a value of the host; return what is left over of the key's last one."""
        left = self.drop(key)
        self.values[key] = stored = StoredValue(key, is_of_device=isinstance(value, OnHost))
        stored.weight = weight
        self._place(stored, ValueState.HOST, value)
        return left

    def drop(self, key: Key) -> list[Any]:
        """Forget the value of a key, in any state; return what is left over."""
        stored = self.values.pop(key, None)
        if stored is None:
            return []
        self.vacated += not stored.is_at_device()
        left = self._displace(stored)
        self._change(stored, ValueState.DROPPED)
        return left

    def begin(self, stored: StoredValue, state: ValueState) -> int:
        """Begin a move, and invalidate the ticket of one that goes on; return the ticket."""
        if stored.file is not None:
            stored.file.is_read = True
        return self._change(stored, state)

    def end(
        self,
        stored: StoredValue,
        ticket: int,
        state: ValueState,
        copy: object,
        read: SpilledFile | None = None,
    ) -> list[Any]:
        """End a move with the new copy, and discard it where the ticket is not valid any more.

        `read` is the file that the move has read. Returns what is left over.
        """
        left = _end_read(read)
        if stored.ticket != ticket:
            return [*left, copy]
        self.vacated += not stored.is_at_device()
        left += self._displace(stored)
        self._place(stored, state, copy)
        return left

    def cancel(
        self, stored: StoredValue, ticket: int, read: SpilledFile | None = None
    ) -> list[Any]:
        """End a move without effect; return what is left over."""
        left = _end_read(read)
        if stored.ticket == ticket:
            elsewhere = ValueState.HOST if stored.file is None else ValueState.DISK
            self._change(stored, ValueState.DEVICE if stored.is_at_device() else elsewhere)
        return left

    def excess_bytes(self) -> int:
        """Return the bytes above the host's limit that no thread writes to disk yet."""
        return self.host_bytes - self.writing_bytes - self.host_limit

    def find_oldest_on_host(self, excluded: Container[StoredValue]) -> StoredValue | None:
        """Return the value to write next, one that no other move has."""
        for stored in self.on_host.values():
            if stored.state is ValueState.HOST and stored not in excluded:
                return stored
        return None

    def note_use(self, stored: StoredValue) -> None:
        """Note that a value was read where it is: it leaves after the others.

        One that looks for a place stays on the device: memory that a reader uses is not free.
        """
        stored.is_awaited = False
        if stored.state is ValueState.PLACING:
            self._change(stored, ValueState.DEVICE)
        if stored.is_at_device():
            self.on_device.move_to_end(stored.key)
        elif stored.weight <= self.host_limit:
            self.on_host.move_to_end(stored.key)

    def postpone(self, stored: StoredValue) -> None:
        """Have the other values of the host tried before one that could not be written."""
        if self.on_host.get(stored.key) is stored:
            self.on_host.move_to_end(stored.key)

    def _change(self, stored: StoredValue, state: ValueState) -> int:
        if stored.state is ValueState.WRITING:
            self.writing_bytes -= stored.weight
        if state is ValueState.WRITING:
            self.writing_bytes += stored.weight
        stored.state = state
        stored.ticket += 1
        return stored.ticket

    def _displace(self, stored: StoredValue) -> list[Any]:
        """Take a value's copy out of its place; return it, or nothing of a file that is read."""
        if stored.is_at_device():
            return [self.on_device.pop(stored.key)]
        if (file := stored.file) is not None:
            del self.on_disk[stored.key]
            self.spilled -= file.size
            stored.file, file.is_dropped = None, True
            return [] if file.is_read else [file]
        del self.on_host[stored.key]
        self.host_bytes -= stored.weight
        left, stored.host = stored.host, None
        return [left]

    def _place(self, stored: StoredValue, state: ValueState, copy: Any) -> None:
        if state is ValueState.DEVICE:
            self.on_device[stored.key] = copy
            stored.find_used = _never
        elif state is ValueState.DISK:
            stored.file = copy
            self.on_disk[stored.key] = stored
            self.spilled += copy.size
        else:
            stored.host = copy
            self.on_host[stored.key] = stored
            if stored.weight > self.host_limit:  # no other one makes room for it
                self.on_host.move_to_end(stored.key, last=False)
            self.host_bytes += stored.weight
            stored.remember(copy)
        self._change(stored, state)


def _end_read(read: SpilledFile | None) -> list[Any]:
    if read is None:
        return []
    read.is_read = False
    return [read] if read.is_dropped else []
