"""Waits for memory that others give back."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

# How long others have, and how often one looks.
PATIENCE_S, LOOK_S = 1.0, 0.01


def wait_for_others(
    told: threading.Condition, is_there: Callable[[], bool], goes_on: Callable[[], bool]
) -> bool:
    """Return whether something is there within a second, or while something else goes on.

    Circles are collected first, as those of an actor's errors, which may have memory.
    """
    gc.collect()
    end = time.monotonic() + PATIENCE_S  # behind the collection, which holds up all others
    while True:
        is_last = time.monotonic() >= end and not goes_on()
        if is_there():
            return True
        if is_last:
            return False
        with told:
            told.wait(LOOK_S)
