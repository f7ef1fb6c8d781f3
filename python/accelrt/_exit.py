"""Finishes queued work at the end of a process, also of a child of multiprocessing.

Forked children of multiprocessing exit by `os._exit`: they run no `atexit` handler, only
multiprocessing's finalizers. The hook is installed only if the program imports multiprocessing.
"""

from __future__ import annotations

import atexit
import os
import sys

from accelrt import _core

TYPE_CHECKING = False  # not imported: `typing` would double the import time
if TYPE_CHECKING:
    from types import ModuleType

# After all other finalizers, which may still wait for streams.
_EXIT_PRIORITY = -1000

# Installed once: forked children inherit the hook and this flag.
_watched: set[ModuleType] = set()


def finish_at_exit() -> None:
    """Finish queued work at the end of this process and of processes forked from it."""
    atexit.register(_core.shut_down)
    _watch_children()
    os.register_at_fork(before=_watch_children)  # the program may import multiprocessing later
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        _finish_at_finalizers(_core)  # this is a child, whose hooks after the fork have run


def _watch_children() -> None:
    util = sys.modules.get("multiprocessing.util")
    if util is not None and util not in _watched:
        _watched.add(util)
        # A child inherits this hook, but no finalizers.
        util.register_after_fork(_core, _finish_at_finalizers)


def _finish_at_finalizers(_: object) -> None:
    util = sys.modules["multiprocessing.util"]
    util.Finalize(None, _core.shut_down, exitpriority=_EXIT_PRIORITY)
