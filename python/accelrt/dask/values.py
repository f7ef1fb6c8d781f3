"""The state of each value of a store, and all changes of it.

A key names one `StoredValue` at a time; a write makes a new one. One thread at a time moves a
value between states:

| state | valid copy | next state |
|---|---|---|
| DEVICE | device | LEAVING: a request lacks memory |
| LEAVING | device | PLACING: the copy is complete; DEVICE: it failed, or a read waits for it |
| PLACING | device | HOST; DISK: the host is full; DEVICE: neither takes it, or a read takes over |
| HOST | host | WRITING: the host is full; COMING: a read needs it on the device |
| WRITING | host | DISK; HOST: the write failed, or a read has the copy; COMING: a read takes over |
| DISK | file | READING: a read, or a message to another worker; COMING |
| READING | file | HOST; DISK: too large for the host, sent, or the read failed |
| COMING | host or file | DEVICE; HOST or DISK: the copy failed |
| DROPPED | none | none: the key was deleted, or names a newer value |

1. The store's lock is held for every method here. None copies, waits, or reads or writes a file.
2. A thread makes a `Move`, begins it, and ends it after the work without the lock. A move is valid
   while its value refers to it.
3. Deletes and writes never wait for a move: they invalidate it, and the thread discards its
   result. So does a read that takes over from a write, or from a value that looks for a place.
4. The valid copy stays in place until the move has ended. A move between device and host ends when
   its copy is complete, not when it is enqueued. A move that fails changes nothing.
5. A read of a value in LEAVING, READING or COMING waits until the state changes, and then starts
   again. So nobody else uses memory while it is copied, and receives the failure of the copy. A
   value that a read waits for stays on the device.
6. Copies and files that are left over are added to a list, and released without the lock. A file
   that is read at that moment is left to its reader.
7. A signal handler may raise between any two calls, for example `KeyboardInterrupt`. So `begin` is
   inside of the `try` whose end cancels the move, and `cancel` may be repeated. A value changes its
   place in statements without a call, which no handler interrupts.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from dataclasses import dataclass, field
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
class Move:
    """A move of a value by one thread: made before it begins, so that an interrupt can end it."""

    stored: StoredValue | None = None  # from `ValueTable.begin` on
    read: SpilledFile | None = None  # the file that it reads
    left: list[Any] = field(default_factory=list)  # what is left over
    was_moving: bool | None = None  # `Moving.is_on` before it

    def is_valid(self) -> bool:
        """Return whether the move has begun, and neither ended nor been invalidated."""
        return self.stored is not None and self.stored.move is self


@dataclass(eq=False, slots=True)
class StoredValue:
    """A value of a key. Its copy on the device is in `ValueTable.on_device` only."""

    key: Key
    state: ValueState = ValueState.DROPPED
    move: Move | None = None
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
        self._writing: set[StoredValue] = set()  # contains those that are written to disk
        self.spilled = SpilledSize(0, 0)
        self.vacated = 0  # how often a value was removed from host or disk

    def add_to_device(self, key: Key, value: object, left: list[Any]) -> None:
        """Store a value that is on the device; what is left over of the last one goes to `left`."""
        self.drop(key, left)
        self._place(StoredValue(key, is_of_device=True), ValueState.DEVICE, value, left)

    def add_to_host(self, key: Key, value: object, weight: int, left: list[Any]) -> None:
        """Store a value of the host; what is left over of the key's last one goes to `left`."""
        self.drop(key, left)
        stored = StoredValue(key, weight=weight, is_of_device=isinstance(value, OnHost))
        self._place(stored, ValueState.HOST, value, left)

    def drop(self, key: Key, left: list[Any]) -> None:
        """Forget the value of a key, in any state; what is left over goes to `left`."""
        if (stored := self.values.get(key)) is not None:
            self._place(stored, ValueState.DROPPED, None, left)

    def begin(self, move: Move, stored: StoredValue, state: ValueState) -> None:
        """Begin a move or its next state, and invalidate another move that goes on."""
        move.stored, move.read = stored, stored.file
        if stored.file is not None:
            stored.file.is_read = True
        self._change(stored, state, move)

    def end(self, move: Move, state: ValueState, copy: object) -> None:
        """End a move with the new copy, and discard it where the move is not valid any more.

        What is left over is added to the move.
        """
        self._end_read(move)
        if move.stored is not None and move.is_valid():
            self._place(move.stored, state, copy, move.left)
        else:
            move.left[:] = [*(it for it in move.left if it is not copy), copy]

    def cancel(self, move: Move) -> None:
        """End a move without effect, unless it has ended. What is left over is added to it."""
        self._end_read(move)
        if (stored := move.stored) is not None and move.is_valid():
            elsewhere = ValueState.HOST if stored.file is None else ValueState.DISK
            self._change(stored, ValueState.DEVICE if stored.is_at_device() else elsewhere)

    def excess_bytes(self) -> int:
        """Return the bytes above the host's limit that no thread writes to disk yet.

        Also without the lock: the tuple is made in one step.
        """
        writing = (it.weight for it in tuple(self._writing) if it.state is ValueState.WRITING)
        return self.host_bytes - sum(writing) - self.host_limit

    def find_oldest_on_host(self, excluded: Container[StoredValue]) -> StoredValue | None:
        """Return the value to write next, one that no other move has."""
        for stored in self.on_host.values():
            if stored.state is ValueState.HOST and stored not in excluded:
                return stored
        return None

    def note_use(self, stored: StoredValue) -> None:
        """Note that a value was read where it is: it leaves after the others.

        One that looks for a place stays on the device: memory that a reader uses is not free. One
        of the host that is being written stays there: the file lacks what the reader writes.
        """
        stored.is_awaited = False
        if stored.state is ValueState.PLACING:
            self._change(stored, ValueState.DEVICE)
        elif stored.state is ValueState.WRITING and not stored.is_of_device:
            self._change(stored, ValueState.HOST)
        if stored.is_at_device():
            self.on_device.move_to_end(stored.key)
        elif stored.weight <= self.host_limit:
            self.on_host.move_to_end(stored.key)

    def postpone(self, stored: StoredValue) -> None:
        """Have the other values of the host tried before one that could not be written."""
        if self.on_host.get(stored.key) is stored:
            self.on_host.move_to_end(stored.key)

    def _change(self, stored: StoredValue, state: ValueState, move: Move | None = None) -> None:
        """Change the state of a value that stays in its place."""
        self._writing.discard(stored)
        if state is ValueState.WRITING:
            self._writing.add(stored)
        stored.move, stored.state = move, state

    def _place(  # noqa: C901, PLR0912  a call in between would separate the changes
        self, stored: StoredValue, state: ValueState, copy: Any, left: list[Any]
    ) -> None:
        """Put a value's copy in its new place, and the last one, unless it is read, in `left`."""
        key, file, weight = stored.key, stored.file, stored.weight
        is_at_device, is_placed = stored.is_at_device(), stored.state is not ValueState.DROPPED
        kept = [it for it in left if it is not copy]
        if is_at_device:
            kept.append(self.on_device[key])
        elif is_placed and not (file is not None and file.is_read):
            kept.append(stored.host if file is None else file)
        spilled = self.spilled if file is None else self.spilled - file.size
        if state is ValueState.DISK:
            spilled += copy.size
        self._writing.discard(stored)
        # No statement calls a function from here to the change of the state: an exception of a
        # signal handler finds the value in one place. See the head of the file.
        if is_at_device:
            del self.on_device[key]
        elif file is not None:
            del self.on_disk[key]
            stored.file, file.is_dropped = None, True
            self.vacated += 1
        elif is_placed:
            del self.on_host[key]
            stored.host = None
            self.host_bytes -= weight
            self.vacated += 1
        if state is ValueState.DROPPED:
            del self.values[key]
        else:
            self.values[key] = stored
        if state is ValueState.DEVICE:
            self.on_device[key] = copy
            stored.find_used = _never
        elif state is ValueState.DISK:
            stored.file = copy
            self.on_disk[key] = stored
        elif state is ValueState.HOST:
            stored.host = copy
            self.on_host[key] = stored
            self.host_bytes += weight
        self.spilled = spilled
        stored.move, stored.state = None, state
        left[:] = kept
        if state is ValueState.HOST:
            stored.remember(copy)
            if weight > self.host_limit:  # no other one makes room for it
                self.on_host.move_to_end(key, last=False)

    def _end_read(self, move: Move) -> None:
        """End the use of the file that a move reads."""
        if (read := move.read) is not None:
            read.is_read = False
            if read.is_dropped:
                move.left += [read]
            move.read = None
