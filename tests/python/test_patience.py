"""Waits for memory that others give back.

Goal: a request fails only when nothing more can come. Method: the wait on its own.
"""

import gc
import threading
import weakref
from collections.abc import Callable
from functools import partial
from itertools import count
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
        assert wait_for_others(TOLD.wait, lambda: seen() is None, lambda: False)
    finally:
        gc.enable()


def test_nothing_is_collected_for_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection takes as long as a program has objects."""
    monkeypatch.setattr(gc, "collect", None)
    assert wait_for_others(TOLD.wait, lambda: True, lambda: False)


class Told:
    """Waits for nothing, and says what it is given to say."""

    def __init__(self, *, is_told: bool) -> None:
        self._is_told = is_told

    def wait(self, timeout: float) -> bool:
        assert timeout == _patience.LOOK_S
        return self._is_told


def looks_until(end: int) -> Callable[[], bool]:
    looks = count(1)
    return lambda: next(looks) >= end


def test_patience_is_looks_and_not_time() -> None:
    """Time passes while another thread collects, in which nobody gets on."""
    last = _patience.LOOKS + 2  # one is behind the last wait, one before the first
    assert wait_for_others(Told(is_told=False).wait, looks_until(last), lambda: False)
    assert not wait_for_others(Told(is_told=False).wait, looks_until(last + 1), lambda: False)


def test_what_is_told_takes_no_patience() -> None:
    assert wait_for_others(
        Told(is_told=True).wait, looks_until(10 * _patience.LOOKS), lambda: False
    )


@pytest.mark.parametrize("looks", [0, 1, 7])
def test_a_wait_goes_on_as_long_as_others_do_and_begins_behind_them(
    monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    monkeypatch.setattr(_patience, "LOOKS", looks)
    last = 4 + max(looks, 1)
    for is_there_at, is_had in ((last, True), (last + 1, False)):
        goes_on = partial(next, map((3).__gt__, count()))  # for three looks
        is_there = looks_until(is_there_at)
        assert wait_for_others(Told(is_told=False).wait, is_there, goes_on) == is_had
