"""The streams on which values move between device and host."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

import accelrt
from accelrt import _core

if TYPE_CHECKING:
    from collections.abc import Callable

_Copy = TypeVar("_Copy")

# Between two looks at a copy that a callable of a stream needs.
_LOOK_S = 0.0002


class Copies:
    """Gives each move a stream, which no other move uses until its copy has ended.

    So a copy waits for no other one, and receives the failures of its own stream only.
    """

    def __init__(self, device: accelrt.device) -> None:
        """Make no stream yet."""
        self._device = device
        self._idle: list[accelrt.Stream] = []

    def waited(self, copy: Callable[[], _Copy]) -> _Copy:
        """Make a stream current, copy, and wait for what was enqueued on it; return the copy.

        Raises the failure of a copy. The wait has received it, so that it has ended on the stream.
        No context manager: an interrupt inside of its `__enter__` would leave the stream current.
        """
        try:
            stream = self._idle.pop()
        except IndexError:
            stream = accelrt.Stream(self._device, dedicated=True)
        try:
            with stream:
                return copy()
        finally:
            self._wait(stream)

    def _wait(self, stream: accelrt.Stream) -> None:
        """Wait for a copy; inside a callable, where no wait is allowed, by looking at it.

        The copy needs no callable: all work on its memory has ended before.
        """
        while _core.must_not_wait() and not stream.query():
            time.sleep(_LOOK_S)
        try:
            stream.synchronize()
        except accelrt.StreamError:
            self._idle.append(stream)
            raise
        self._idle.append(stream)
