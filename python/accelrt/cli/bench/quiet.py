"""Quiet moments: a repetition counts when the machine had its full speed before and after it.

Where others use the other half of a processor's core, whatever executes many instructions at a
time runs at half its speed, for milliseconds or for hours. A pulse, a loop of the interpreter that
waits for nothing, tells whether it is so now. It knows nothing of what is measured, and ours and
the peers' repetitions are taken again by the same rule.
"""

import time
from collections.abc import Callable
from typing import ClassVar

#: A moment is quiet when its pulse is within this factor of the best one seen.
_QUIET_FACTOR = 1.2

#: How long the best pulse is looked for before the first repetition.
_FIRST_LOOK_S = 1.0

#: Between two looks while the machine is slow.
_BETWEEN_LOOKS_S = 2e-3

#: Rounds of a pulse, and of how many the least is taken: what interrupts one is not the
#: machine's speed. Some 60 us in all.
_PULSE_ROUNDS, _PULSES = 1_000, 4


class Patience:
    """What the repetitions of one row may spend on waiting and on those that do not count."""

    #: How many seconds each row has: as the command line says.
    SECONDS: ClassVar[float] = 3.0

    def __init__(self) -> None:
        """Have all of them left."""
        self._left_s = self.SECONDS

    def measure(self, thing: Callable[[], float]) -> tuple[float, bool]:
        """Measure in a quiet moment while there is patience, and then as it comes.

        Whether the moment was quiet is the second result.
        """
        while True:
            began = time.perf_counter()
            was_quiet = self._wait()
            value = thing()
            is_quiet = was_quiet and _is_quiet()
            if is_quiet or self._left_s <= 0:
                return value, is_quiet
            self._left_s -= time.perf_counter() - began

    def _wait(self) -> bool:
        """Return True when a quiet moment came."""
        end = time.perf_counter() + self._left_s
        while not _is_quiet():
            if time.perf_counter() >= end:
                return False
            time.sleep(_BETWEEN_LOOKS_S)
        return True


class _Best:
    """The least pulse that this process has seen."""

    _only: ClassVar["_Best | None"] = None

    @classmethod
    def only(cls) -> "_Best":
        if cls._only is None:
            cls._only = cls()
        return cls._only

    def __init__(self) -> None:
        end = time.perf_counter() + _FIRST_LOOK_S
        self._ns = _pulse_ns()
        while time.perf_counter() < end:
            self._ns = min(self._ns, _pulse_ns())
            time.sleep(_BETWEEN_LOOKS_S)

    def is_near(self, pulse_ns: int) -> bool:
        is_near = pulse_ns <= self._ns * _QUIET_FACTOR
        self._ns = min(self._ns, pulse_ns)
        return is_near


def _is_quiet() -> bool:
    return _Best.only().is_near(_pulse_ns())


def _pulse_ns() -> int:
    return min(_loop_ns() for _ in range(_PULSES))


def _loop_ns() -> int:
    began = time.perf_counter_ns()
    for _ in range(_PULSE_ROUNDS):
        pass
    return time.perf_counter_ns() - began
