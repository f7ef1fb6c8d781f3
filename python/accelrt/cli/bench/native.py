"""Native functions that every C library has and that do next to nothing."""

import ctypes
from typing import Any

_LIBRARY = ctypes.CDLL(None)


def without_arguments() -> Any:  # noqa: ANN401  # ctypes has no public type for it
    """Return a function that returns an address."""
    function = _LIBRARY["__errno_location"]
    function.argtypes = ()
    return function


def with_two_arguments() -> Any:  # noqa: ANN401  # as above
    """Return a function that subtracts one time from another; calls of it are checked for two."""
    function = _LIBRARY["difftime"]
    function.argtypes = (ctypes.c_long, ctypes.c_long)
    return function


def sleep_with_gil(seconds: float) -> None:
    """Sleep while no other thread of Python can run."""
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))
