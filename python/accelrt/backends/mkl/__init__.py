"""oneMKL: whether it is there, its verbose mode with a line per call, and its allocator.

All libraries of the process are looked at: any file name, and one inside of another library that
shows its functions, as `libtorch_cpu.so`. When there is none, one is loaded by name, or from where
wheels put it, or the one that `ACCELRT_MKL_LIBRARY` names.

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
    """Return True when a oneMKL is in the process or can be loaded, which this does."""
    return _core.has_verbose_library("mkl")


def version() -> str:
    """Return the version of oneMKL, as 2026.0.2; RuntimeError when there is none.

    The copy inside of torch does not tell: "unknown".
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
    """Have oneMKL get its memory from an allocator; return the name of the one that was.

    "accelrt" is the cache of pinned host memory, and `host_memory_stats` counts it; "mimalloc" is
    loaded by name; "system" is what oneMKL had before, the C library's unless a program registered
    others. In every oneMKL of the process, for all threads; memory goes back to its source.

    oneMKL reads which functions it has once, at its first allocation: call this before. Later
    changes are free. Each call makes a GEMM, a few ms, and sees that it took memory from there;
    otherwise, and when something is missing, nothing has changed and RuntimeError says why.
    """
    return _core.use_mkl_allocator(name)


class verbose(VerboseContext):  # noqa: N801  torch's name
    """Sets oneMKL's verbose mode inside a `with`, for all threads; restores what was.

    `enable` is `VERBOSE_OFF`, `VERBOSE_ON`, or 2, which times calls on GPUs as well. What was
    before is the level of the scope around this one, at last that of `MKL_VERBOSE`: oneMKL cannot
    be asked, so a level that other code has set is not known here. RuntimeError when no oneMKL is
    found or it refuses; `VERBOSE_OFF` never fails.

    With `capture`, its lines are kept instead of printed, and `with … as log` has `log.records`,
    `log.table(sort_by="total")`, `log.to_json()` and `log.lines`; see docs/verbose.md.
    """

    def __init__(self, enable: int, *, capture: bool = False) -> None:
        """Keep the level for the `with`."""
        super().__init__("mkl", "enable", enable, capture=capture)
