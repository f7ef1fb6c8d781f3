"""The end of a process finishes queued work, also in children of multiprocessing.

Forked children leave by `os._exit` and run no `atexit` handler, only multiprocessing's own
finalizers. The hook is installed only if the program imports multiprocessing.
"""

from __future__ import annotations

import atexit
import os
import sys

from accelrt import _core

TYPE_CHECKING = False  # as `typing` has it, whose import would be half of ours
if TYPE_CHECKING:
    from types import ModuleType

# After all other finalizers, which may still wait for streams.
_EXIT_PRIORITY = -1000

# Installed once: forked children inherit the hook and this flag.
_watched: set[ModuleType] = set()


def finish_at_exit() -> None:
    """Make the end of this process, and of those forked from it, finish queued work."""
    atexit.register(_core.shut_down)
    _watch_children()
    os.register_at_fork(before=_watch_children)  # it may be imported by then
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        _finish_at_finalizers(_core)  # this is a child, and past the hook of its start


def _watch_children() -> None:
    util = sys.modules.get("multiprocessing.util")
    if util is not None and util not in _watched:
        _watched.add(util)
        # A finalizer itself would not be inherited.
        util.register_after_fork(_core, _finish_at_finalizers)


def _finish_at_finalizers(_: object) -> None:
    util = sys.modules["multiprocessing.util"]
    util.Finalize(None, _core.shut_down, exitpriority=_EXIT_PRIORITY)
