"""Writes values of the host to disk.

Several threads may do so at the same time, each with another value. None of them holds a lock while
it writes, so that a request for memory waits for no file of another thread.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from distributed.metrics import context_meter
from distributed.utils import RateLimiterFilter

from accelrt.dask.files import Files, FullError, SpilledFile, UnwritableError
from accelrt.dask.frames import OnHost
from accelrt.dask.values import StoredValue, ValueState, ValueTable

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger("distributed.worker.accelrt")
# A full disk refuses each value, and a broken device each copy.
logger.addFilter(RateLimiterFilter("cannot write"))
logger.addFilter(RateLimiterFilter("cannot copy"))


class Moving(threading.local):
    """Whether this thread makes room: a request for memory inside of that cannot wait for it."""

    is_on = False

    @contextmanager
    def on(self) -> Iterator[None]:
        """Note that the body makes room."""
        was_on, self.is_on = self.is_on, True
        try:
            yield
        finally:
            self.is_on = was_on


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
        self, table: ValueTable, settled: threading.Condition, files: Files, metrics: Metrics
    ) -> None:
        """Use the table, under the lock of `settled`."""
        self._table, self._settled, self._files = table, settled, files
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
            with self._settled:
                stored = self._table.find_oldest_on_host(tried)
                if stored is None:
                    return -1
                tried.add(stored)
                if not self._files.has_room(stored.min_file_bytes):
                    continue
                ticket = self._table.begin(stored, ValueState.WRITING)
                host, weight = stored.host, stored.weight
            left: list[Any] = []
            file, is_disk_bad = None, True
            try:
                file, is_disk_bad = self.write(stored, host, weight)
            finally:
                with self._settled:
                    if file is None:
                        self._table.cancel(stored, ticket)
                        if not is_disk_bad:
                            self._table.postpone(stored)
                    else:
                        left = self._table.end(stored, ticket, ValueState.DISK, file)
                    self._settled.notify_all()
            del host
            self.release(left)
            if file is not None:
                return weight
            if is_disk_bad:  # for others too
                return -1

    def write(
        self, stored: StoredValue, host: object, weight: int
    ) -> tuple[SpilledFile | None, bool]:
        """Write a value to a file, or log why not.

        Returns the file, and whether it was the disk that failed, which takes no other value.
        """
        is_pinned = isinstance(host, OnHost)
        try:
            with self._metrics.counted(), self.moving.on():
                return self._files.write(host, weight, is_pinned=is_pinned), False
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

    def release(self, left: list[Any]) -> None:
        """Delete the files that a change of state returned. The caller does not hold the lock."""
        for it in left:
            if isinstance(it, SpilledFile):
                self._files.remove(it)
        left.clear()
