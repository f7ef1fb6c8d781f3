"""oneMKL: its version, its verbose mode with a line per call, and its allocator.

All libraries of the process are searched for oneMKL's functions, including a library that contains
oneMKL, as `libtorch_cpu.so`. If none has them, oneMKL is loaded by name, from the folder of wheels,
or from the file that `ACCELRT_MKL_LIBRARY` names.

>>> import accelrt
>>> with accelrt.backends.mkl.verbose(accelrt.backends.mkl.VERBOSE_OFF):
...     pass  # oneMKL prints no lines here
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
    """Return True when the process has oneMKL or can load it; loads oneMKL."""
    return _core.has_verbose_library("mkl")


def version() -> str:
    """Return the version of oneMKL, as 2026.0.2; RuntimeError when oneMKL is missing.

    The copy of oneMKL inside torch does not report a version: "unknown".
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

    "accelrt" is the cache of pinned host memory; `host_memory_stats` counts it. "mimalloc" is
    loaded by name. "system" is the allocator that oneMKL had before: the C library's, unless the
    program registered another. The change applies to every copy of oneMKL in the process and to all
    threads. Memory that a previous allocator gave returns to that allocator.

    The first call must precede oneMKL's first allocation, which reads the function pointers. Later
    calls may change the allocator at any time. Each call runs a GEMM of a few ms and checks which
    allocator served it; on failure the allocator is unchanged and RuntimeError has the reason.
    """
    return _core.use_mkl_allocator(name)


class verbose(VerboseContext):  # noqa: N801  torch's name
    """Sets oneMKL's verbose mode inside a `with`, for all threads; restores the previous level.

    `enable` is `VERBOSE_OFF`, `VERBOSE_ON`, or 2, which times calls on GPUs as well. The
    previous level is that of the enclosing scope, or of `MKL_VERBOSE` outside all scopes. oneMKL
    cannot be queried, so a level that other code sets is not restored. RuntimeError when oneMKL is
    missing or refuses the level; `VERBOSE_OFF` never fails.

    With `capture`, oneMKL's lines are collected and not printed; `with … as log` has `log.records`,
    `log.table(sort_by="total")`, `log.to_json()` and `log.lines`; see docs/verbose.md.
    """

    def __init__(self, enable: int, *, capture: bool = False) -> None:
        """Store the level for the `with`."""
        super().__init__("mkl", "enable", enable, capture=capture)
