"""oneMKL: its presence, its verbose mode with a line per call, and its allocator.

All libraries of the process are searched: any file name, and one inside another library that
exports its functions, as `libtorch_cpu.so`. If there is none, one is loaded by name, from wheels'
folder, or from the file that `ACCELRT_MKL_LIBRARY` names.

>>> import accelrt
>>> with accelrt.backends.mkl.verbose(accelrt.backends.mkl.VERBOSE_OFF):
...     pass  # silent here, whatever the level outside
"""

from typing import Final

from accelrt import _core
from accelrt._verbose import VerboseContext

__all__ = [
    "VERBOSE_OFF",
    "VERBOSE_ON",
    "allocator",
    "is_available",
    "use_allocator",
    "verbose",
    "version",
]

VERBOSE_OFF: Final = 0
VERBOSE_ON: Final = 1


def is_available() -> bool:
    """Return True when oneMKL is in the process or can be loaded; loads it."""
    return _core.has_verbose_library("mkl")


def version() -> str:
    """Return the version of oneMKL, as 2026.0.2; RuntimeError when there is none.

    The copy inside torch does not report it: "unknown".
    """
    return _core.verbose_library_version("mkl")


def allocator() -> str:
    """Return the source of oneMKL's memory: "accelrt", "mimalloc" or "system".

    >>> import accelrt
    >>> accelrt.backends.mkl.allocator()
    'system'
    """
    return _core.mkl_allocator()


def use_allocator(name: str) -> str:
    """Make oneMKL use an allocator; return the name of the previous one.

    "accelrt" is the cache of pinned host memory, and `host_memory_stats` counts it; "mimalloc" is
    loaded by name; "system" is oneMKL's previous one, the C library's unless a program registered
    others. It applies to every oneMKL of the process and all threads; memory returns to its source.

    oneMKL reads its functions once, at its first allocation: call this before. Later
    changes are possible. Each call runs a GEMM of a few ms and checks the source of its memory;
    on failure the allocator is unchanged and RuntimeError has the reason.
    """
    return _core.use_mkl_allocator(name)


class verbose(VerboseContext):  # noqa: N801  torch's name
    """Sets oneMKL's verbose mode inside a `with`, for all threads; restores the previous level.

    `enable` is `VERBOSE_OFF`, `VERBOSE_ON`, or 2, which times calls on GPUs as well. The
    previous level is the enclosing scope's, at last that of `MKL_VERBOSE`: oneMKL cannot
    be queried, so a level set by other code is unknown. RuntimeError when no oneMKL is
    found or it refuses; `VERBOSE_OFF` never fails.

    With `capture`, its lines are captured, not printed, and `with … as log` has `log.records`,
    `log.table(sort_by="total")`, `log.to_json()` and `log.lines`; see docs/verbose.md.
    """

    def __init__(self, enable: int, *, capture: bool = False) -> None:
        """Store the level for the `with`."""
        super().__init__("mkl", "enable", enable, capture=capture)
