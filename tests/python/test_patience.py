"""Waits for memory that others give back.

Goal: a request fails only when nothing more can come. Method: the wait on its own.
"""

import gc
import threading
import time
import weakref
from typing import Any

import pytest

from accelrt import _patience
from accelrt._patience import wait_for_others

TOLD = threading.Condition()


def test_circles_are_collected_before_a_request_fails() -> None:
    """Errors of actors are such, with what their calls had."""

    class Circle:
        """What may be referred to weakly."""

    circle: Any = Circle()
    circle.itself, seen = circle, weakref.ref(circle)
    gc.disable()
    try:
        del circle
        assert wait_for_others(TOLD, lambda: seen() is None, lambda: False)
    finally:
        gc.enable()


def test_a_collection_takes_no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds up all others, and takes long in a large process."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[-1])
    monkeypatch.setattr(gc, "collect", lambda: now.append(2 * _patience.PATIENCE_S))
    looks = iter([False, True])
    assert wait_for_others(TOLD, lambda: next(looks), lambda: False)


def test_a_wait_goes_on_as_long_as_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_patience, "PATIENCE_S", 0)
    looks: list[int] = []

    def is_there() -> bool:
        looks.append(len(looks))
        return len(looks) == 5

    assert wait_for_others(TOLD, is_there, lambda: True)
    looks.clear()
    assert not wait_for_others(TOLD, is_there, lambda: len(looks) < 3)
    assert len(looks) == 4, "it looks once more"
