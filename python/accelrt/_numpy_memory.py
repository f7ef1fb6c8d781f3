"""Allocates NumPy's arrays in pinned host memory, inside a `with`."""

import contextlib
from contextvars import ContextVar

from accelrt import _core

# A stack per context, because NumPy has one handler per context.
_outside: ContextVar[tuple[object, ...]] = ContextVar("_outside", default=())


class numpy_memory(contextlib.ContextDecorator):  # noqa: N801  a function for its users
    """Takes the memory of new NumPy arrays from the cache of pinned host memory, inside a `with`.

    Also a decorator. Applies to arrays created in this context (`contextvars`); other threads have
    other contexts. An array keeps its memory after the `with`, and any thread may drop the array.
    `host_memory_stats` counts the memory. ImportError without NumPy, RuntimeError when NumPy is
    older than 1.22.

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
        """Install accelrt's handler in this context."""
        _outside.set((*_outside.get(), _core.exchange_numpy_handler()))

    def __exit__(self, *_: object) -> None:
        """Restore the previous handler of this context."""
        if not (outside := _outside.get()):
            message = "numpy_memory was not entered in this context"
            raise RuntimeError(message)
        _core.exchange_numpy_handler(outside[-1])
        _outside.set(outside[:-1])
