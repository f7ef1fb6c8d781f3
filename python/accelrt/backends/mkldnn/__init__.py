"""oneDNN, torch's mkldnn: its version and its verbose mode.

All libraries of the process are searched for oneDNN's functions; torch does not export those of the
copy inside it. If none has them, oneDNN is loaded by name, from the folder of wheels, or from the
file that `ACCELRT_DNNL_LIBRARY` names.

>>> import accelrt
>>> with accelrt.backends.mkldnn.verbose(accelrt.backends.mkldnn.VERBOSE_OFF):
...     pass  # oneDNN prints no lines here
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
    """Return True when the process has oneDNN or can load it; loads oneDNN."""
    return _core.has_verbose_library("mkldnn")


def version() -> str:
    """Return the version of oneDNN, as 3.2.0; RuntimeError when oneDNN is missing."""
    return _core.verbose_library_version("mkldnn")


class verbose(VerboseContext):  # noqa: N801  torch's name
    """Sets oneDNN's verbose level inside a `with`, for all threads; restores the previous level.

    `VERBOSE_ON` prints a line per execution of a primitive, `VERBOSE_ON_CREATION` also per
    creation. The previous level is that of the enclosing scope, or of `ONEDNN_VERBOSE` outside all
    scopes. oneDNN cannot be queried, so a level that other code sets is not restored. RuntimeError
    when oneDNN is missing or refuses the level; `VERBOSE_OFF` never fails.

    With `capture`, oneDNN's lines are collected and not printed; `with … as log` has `log.records`,
    `log.table(sort_by="total")`, `log.to_json()` and `log.lines`; see docs/verbose.md.
    """

    def __init__(self, level: int, *, capture: bool = False) -> None:
        """Store the level for the `with`."""
        super().__init__("mkldnn", "level", level, capture=capture)
