"""Failures of streams, as errors of the calls of a worker: its tasks, and methods of its actors.

All calls of a worker share the default stream of its device, on several threads and on the event
loop. The worker does not know which call enqueued the failed work, or later work that was skipped.
So a failure of that stream fails every call that is running when the failure ends. A call may fail
because of another one, but no call succeeds although its work failed.

1. A call is registered while it runs (`_Use`).
2. At its end it waits for an event of the stream, which raises a failure and does not end it. So
   each call that ends receives the failure, until a call ends it on the stream.
3. A call that has received a failure ends it by a synchronise, and passes it on to all calls that
   are registered at that moment. It takes the lock before the synchronise.
4. A call whose event did not fail takes the lock too, and checks whether it was passed a failure:
   another call may have ended a failure between the skipped work and this event.
"""

from __future__ import annotations

import asyncio
import copy
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from distributed.core import error_message
from distributed.protocol import pickle

import accelrt
from accelrt._failures import add_note, text_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

_Result = TypeVar("_Result")

_SHARED = "Calls of a worker share this stream: another one may have enqueued the failed work."


class _Use:
    """A call that may enqueue work on the default stream, and a failure that it was passed."""

    failure: Exception | None = None


class DefaultStream:
    """The default stream of a worker's device: gives each failure to all calls that run."""

    def __init__(self, device: accelrt.device) -> None:
        """Take the device of a worker."""
        self._stream = accelrt.get_device_module(device).default_stream(device)
        self._lock = threading.Lock()  # see the head of the file
        self._running: set[_Use] = set()

    def begin(self) -> _Use:
        """Register a call, from before its first work."""
        use = _Use()
        self._running.add(use)
        return use

    def end(self, use: _Use) -> Exception | None:
        """Wait for the work of a call; return the failure that the call receives, or None."""
        return self._end(use, failure_of(lambda: self._stream.record_event().synchronize()))

    async def awaited(
        self, call: Callable[[], Awaitable[_Result]]
    ) -> tuple[_Result, Exception | None]:
        """Await a call on the event loop and its work; return its result, and its failure or None.

        The failure of a call that is cancelled is left to the next one.
        """
        use = self.begin()
        try:
            result, failure = await call(), None
            try:
                await self._stream.record_event()
            except Exception as error:  # noqa: BLE001  the caller raises it
                failure = _without_frames(error)
            # A thread waits for the lock. If it is free, no failure is being passed on.
            if failure is not None or self._lock.locked() or use.failure is not None:
                failure = await asyncio.to_thread(self._end, use, failure)
            return result, failure
        finally:
            self._running.discard(use)

    def _end(self, use: _Use, failure: Exception | None) -> Exception | None:
        """End the registration of a call, which has received a failure by its event, or None."""
        with self._lock:
            self._running.discard(use)
            if failure is not None:
                ended = failure_of(self._stream.synchronize)
                if ended is None and use.failure is None:  # ended by a call of the program
                    ended = failure
                for other in self._running.copy() if ended is not None else ():
                    other.failure = other.failure or ended
            failure = _copied(failure or use.failure)
        if failure is not None:
            add_note(failure, _SHARED)
        return failure


def failure_of(wait: Callable[[], object]) -> Exception | None:
    """Wait, and return what the wait raises, without frames, or None."""
    try:
        wait()
    except Exception as error:  # noqa: BLE001  the caller raises it
        return _without_frames(error)
    return None


def add_failures(error: BaseException, failures: Iterable[BaseException]) -> None:
    """Add failures of streams to the notes of a call's first error."""
    for failure in failures:
        add_note(error, f"Another failure of the same call: {text_of(failure)}")


def add_failures_to_message(message: Any, failures: Iterable[Exception]) -> Any:
    """Return the error of one of dask's messages with the failures in its notes."""
    error = pickle.loads(message.data)
    add_failures(error, failures)
    return error_message(error)["exception"]


def _without_frames(error: Exception) -> Exception:
    error.__traceback__ = None
    return error


def _copied(failure: Exception | None) -> Exception | None:
    """Return a copy for one of several threads, each of which adds its frames and notes."""
    if failure is None:
        return None
    copied = copy.copy(failure)
    copied.__cause__ = failure.__cause__
    return copied
