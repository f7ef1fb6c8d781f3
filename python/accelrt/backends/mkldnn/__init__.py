"""oneDNN, torch's mkldnn: its presence and its verbose mode.

All libraries of the process are searched, whatever their file names; the oneDNN inside torch
hides its functions. If there is none, one is loaded by name, from the folder
of wheels, or from the file that `ACCELRT_DNNL_LIBRARY` names.

>>> import accelrt
>>> with accelrt.backends.mkldnn.verbose(accelrt.backends.mkldnn.VERBOSE_OFF):
...     pass  # silent here, whatever the level outside
"""

from typing import Final

from accelrt import _core
from accelrt._verbose import VerboseContext

__all__ = [
    "VERBOSE_OFF",
    "VERBOSE_ON",
    "VERBOSE_ON_CREATION",
    "is_available",
    "verbose",
    "version",
]

VERBOSE_OFF: Final = 0
VERBOSE_ON: Final = 1
VERBOSE_ON_CREATION: Final = 2


def is_available() -> bool:
    """Return True when oneDNN is in the process or can be loaded; loads it."""
    return _core.has_verbose_library("mkldnn")


def version() -> str:
    """Return the version of oneDNN, as 3.2.0; RuntimeError when there is none."""
    return _core.verbose_library_version("mkldnn")


class verbose(VerboseContext):  # noqa: N801  torch's name
    """Sets oneDNN's verbose level inside a `with`, for all threads; restores the previous level.

    `VERBOSE_ON` prints a line per execution of a primitive, `VERBOSE_ON_CREATION` per creation as
    well. The previous level is the enclosing scope's, at last that of
    `ONEDNN_VERBOSE`: oneDNN cannot be queried, so a level set by other code is unknown.
    RuntimeError when no oneDNN is found or it refuses; `VERBOSE_OFF` never fails.

    With `capture`, its lines are captured, not printed, and `with … as log` has `log.records`,
    `log.table(sort_by="total")`, `log.to_json()` and `log.lines`; see docs/verbose.md.
    """

    def __init__(self, level: int, *, capture: bool = False) -> None:
        """Store the level for the `with`."""
        super().__init__("mkldnn", "level", level, capture=capture)
