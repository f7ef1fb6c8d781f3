"""A time limit for tests whose waits have none of their own."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def bounded(limit_s: float) -> Iterator[None]:
    """Have the main thread fail where it waits, and again where it then cleans up."""

    def fail(*_signal: object) -> None:
        pytest.fail(f"no end after {limit_s} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, limit_s, limit_s / 4)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
