"""NumPy's arrays in pinned host memory, inside of a `with`."""

import contextlib
from contextvars import ContextVar

from accelrt import _core

# As NumPy keeps the handler itself: one stack for each context.
_outside: ContextVar[tuple[object, ...]] = ContextVar("_outside", default=())


class numpy_memory(contextlib.ContextDecorator):  # noqa: N801  a function for its users
    """Takes the memory of new NumPy arrays from the cache of pinned host memory, inside a `with`.

    Also a decorator. It is for arrays that are made in this context, in Python's sense: other
    threads enter one of their own. An array keeps its memory after the scope, and frees it where
    it dies, on any thread; `host_memory_stats` counts it. What is not there raises: ImportError
    without NumPy, RuntimeError when NumPy is older than 1.22.

    >>> import accelrt, numpy
    >>> def active():
    ...     return accelrt.accelerator.host_memory_stats()["active_bytes.current"]
    >>> before = active()
    >>> with accelrt.numpy_memory():
    ...     array = numpy.ones(1000)
    >>> active() - before
    8192
    >>> del array
    >>> active() - before
    0
    """

    def __enter__(self) -> None:
        """Make accelrt's handler the one of this context."""
        _outside.set((*_outside.get(), _core.exchange_numpy_handler()))

    def __exit__(self, *_: object) -> None:
        """Make the handler from before the one of this context again."""
        if not (outside := _outside.get()):
            message = "numpy_memory was not entered in this context"
            raise RuntimeError(message)
        _core.exchange_numpy_handler(outside[-1])
        _outside.set(outside[:-1])
