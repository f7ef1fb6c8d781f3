"""Writes values of the host to disk.

Several threads may do so at the same time, each with another value. None of them holds a lock while
it writes, so that a request for memory waits for no file of another thread.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from distributed.metrics import context_meter
from distributed.utils import RateLimiterFilter

from accelrt.dask.files import Files, FullError, InUseError, SpilledFile, UnwritableError
from accelrt.dask.frames import OnHost, for_file, is_unused
from accelrt.dask.values import Move, StoredValue, ValueState, ValueTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_Result = TypeVar("_Result")

logger = logging.getLogger("distributed.worker.accelrt")
# A full disk refuses each value, and a broken device each copy.
logger.addFilter(RateLimiterFilter("cannot write"))
logger.addFilter(RateLimiterFilter("cannot copy"))


def settled(work: Callable[[], _Result], settle: Callable[[], None]) -> _Result:
    """Return the result of a move's work; settle the move also after an interrupt.

    Settles twice, because an interrupt may end the first call. No context manager: an interrupt
    inside of its `__enter__` or `__exit__` would separate the move from its end.
    """
    try:
        try:
            return work()
        finally:
            settle()
    finally:
        settle()


class Moving(threading.local):
    """Whether this thread makes room: a request for memory inside of that cannot wait for it."""

    is_on = False


class Metrics:
    """What a store has read and written since its start, as dask counts it."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._lock = threading.Lock()
        self._counted: defaultdict[tuple[str, str], float] = defaultdict(float)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count what the body reads and writes."""

        def count(label: Any, value: float, unit: str) -> None:
            with self._lock:
                self._counted[label, unit] += value

        with context_meter.add_callback(count):
            yield

    def copy(self) -> dict[tuple[str, str], float]:
        """Return the numbers of this moment."""
        with self._lock:
            return dict(self._counted)


class Evictions:
    """Moves values from the host to the disk."""

    def __init__(
        self, table: ValueTable, mutex: threading.RLock, files: Files, metrics: Metrics
    ) -> None:
        """Use the table, under its lock."""
        self._table, self._mutex, self._files = table, mutex, files
        self.settled = threading.Condition(mutex)  # notified when a move ends
        self._metrics = metrics
        self.moving = Moving()

    def evict_excess(self) -> None:
        """Write values until the host's limit holds, or no more can be written."""
        while self._table.excess_bytes() > 0 and self.evict_one() != -1:
            pass

    def evict_one(self) -> int:
        """Write the value that was not used for longest and can be written.

        Returns its size in bytes, or -1 where none could be written.
        """
        tried: set[StoredValue] = set()
        while True:
            move = Move()
            written = settled(partial(self._evict, move, tried), partial(self.settle, move))
            if written is not None:
                return written

    def _evict(self, move: Move, tried: set[StoredValue]) -> int | None:
        """Write the next value; return its size, -1 where none can be written, None to go on."""
        with self._mutex:
            stored = self._table.find_oldest_on_host(tried)
            if stored is None:
                return -1
            tried.add(stored)
            has_room = self._files.has_room(stored.min_file_bytes)
            if not (has_room and is_unused(stored.host, references=1)):
                return None
            self._table.begin(move, stored, ValueState.WRITING)
            host, weight = stored.host, stored.weight
        self.note_moving(move)
        file, is_disk_bad = self.write(move, host, weight)
        with self._mutex:
            if file is None or not is_unused(host, references=2):  # used since it was written
                self._table.cancel(move)
                file = None
                if not is_disk_bad:
                    self._table.postpone(stored)
            else:
                self._table.end(move, ValueState.DISK, file)
        if file is not None:
            return weight
        return -1 if is_disk_bad else None  # -1 for others too

    def note_moving(self, move: Move) -> None:
        """Note that this thread makes room, until the move is settled."""
        move.was_moving = self.moving.is_on
        self.moving.is_on = True

    def settle(self, move: Move) -> None:
        """Cancel a move that has begun and not ended, and release what is left over.

        May be called again after an interrupt, or for a move that has not begun.
        """
        if move.was_moving is not None:
            self.moving.is_on = move.was_moving
        if move.stored is not None:
            with self._mutex:
                self._table.cancel(move)
                self.settled.notify_all()
        self.release(move.left)

    def write(self, move: Move, host: object, weight: int) -> tuple[SpilledFile | None, bool]:
        """Write a value to a file, which is left over until the move ends with it; or log why not.

        Returns the file, and whether it was the disk that failed, which takes no other value.
        """
        stored = cast("StoredValue", move.stored)
        host = for_file(host)
        is_pinned = isinstance(host, OnHost)
        try:
            with self._metrics.counted():
                move.left += [file := self._files.write(host, weight, is_pinned=is_pinned)]
        except InUseError:
            return None, False
        except UnwritableError as error:
            if not stored.is_reported:
                stored.is_reported = True
                logger.warning("cannot serialize %r; it is not spilled: %s", stored.key, error)
            return None, False
        except FullError as error:
            stored.min_file_bytes = error.file_bytes
            logger.warning("cannot write %r to disk; it is not spilled: %s", stored.key, error)
            return None, False
        except OSError as error:
            logger.warning("cannot write %r to disk; it is not spilled: %s", stored.key, error)
            return None, True
        else:
            return file, False

    def release(self, left: list[Any]) -> None:
        """Delete the files that a change of state returned. The caller does not hold the lock."""
        while left:
            if isinstance(left[-1], SpilledFile):
                self._files.remove(left[-1])
            left.pop()
