"""Verbose scopes: the `verbose` classes of the backends' modules are made of this."""

import sys
import warnings
from pathlib import Path
from types import TracebackType
from typing import Self

from accelrt import _core


def folders() -> list[Path]:
    """Return where wheels put shared libraries, which the loader does not know."""
    return [Path(sys.prefix, "lib")]


class VerboseContext:
    """A verbose level of one library, in the whole process, inside a `with`.

    One object may be entered again, also inside of itself and by several threads.
    """

    def __init__(self, library: str, name: str, level: int) -> None:
        """Keep the level for the `with`."""
        self._library = library
        self._level = _core.verbose_level(library, name, level)
        self._open: list[_core.VerboseScope] = []

    def __enter__(self) -> Self:
        _warn_once(self._library)
        self._open.append(_core.VerboseScope(self._library, self._level, folders()))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._open:
            message = "a verbose scope was left that had not been entered"
            raise RuntimeError(message)
        self._open.pop().leave()


_warned: set[str] = set()


def _warn_once(library: str) -> None:
    """Tell of a level of the environment that is lost when a scope ends."""
    lost = _core.VerboseScope.lost_by_restoring(library)
    if lost is not None and library not in _warned:
        _warned.add(library)
        warnings.warn(lost, RuntimeWarning, stacklevel=3)
