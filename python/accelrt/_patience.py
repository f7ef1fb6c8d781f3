"""Waits for memory that others give back."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# How often one looks in vain before one gives up, and how long others have in between. Looks are
# counted, and not time: others get on with nothing while another thread collects, or on a machine
# that has no time for this process.
LOOKS, LOOK_S = 100, 0.01


def wait_for_others(
    wait: Callable[[float], bool], is_there: Callable[[], bool], goes_on: Callable[[], bool]
) -> bool:
    """Return whether something is there within a second behind what goes on, and what is told.

    `wait` waits for at most the given seconds, and returns whether it was notified.
    Circles are collected before a wait, as those of an actor's errors, which may have memory.
    """
    if is_there():
        return True
    gc.collect()
    looks_left = LOOKS
    while True:
        if does_go_on := goes_on():  # asked before the look: what has ended is there
            looks_left = LOOKS
        if is_there():
            return True
        if looks_left <= 0 and not does_go_on:
            return False
        if not wait(LOOK_S):
            looks_left -= 1
