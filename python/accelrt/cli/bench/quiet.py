"""Quiet moments: a measurement counts if the machine ran at full speed before and after it.

Where others use the other half of a processor's core, whatever executes many instructions at a
time runs at half its speed, for milliseconds or for hours. A pulse, a loop of the interpreter that
waits for nothing, tells whether it is so now. It knows nothing of what is measured, and what is
ours and the peers' is taken again by the same rule.

The speed changes within milliseconds, so a loop is measured in blocks of some 100 us, each between
two pulses of its own.
"""

import time
from collections.abc import Callable
from typing import ClassVar

#: A moment is quiet when its pulse is within this factor of the best one seen. At full speed it is
#: mostly from 1.1 to 1.2 times the best, at the slow one from 1.5 on; between is next to nothing.
_QUIET_FACTOR = 1.3

#: How long the best pulse is looked for before the first repetition.
_FIRST_LOOK_S = 1.0

#: Between two looks while the machine is slow.
_BETWEEN_LOOKS_S = 5e-4

#: Rounds of a pulse, and of how many the least is taken: what interrupts one is not the
#: machine's speed. Some 25 us in all.
_PULSE_ROUNDS, _PULSES = 400, 4


class Patience:
    """The time that one row's repetitions may spend on waiting and on discarded blocks."""

    #: How many seconds each thing has: as the command line says.
    SECONDS: ClassVar[float] = 3.0

    def __init__(self, seconds: float | None = None) -> None:
        """Have all of them left, or so many."""
        self.left_s = self.SECONDS if seconds is None else seconds


class Watch:
    """Measures one repetition."""

    def __init__(self, patience: Patience) -> None:
        """Begin a repetition of what has this patience."""
        self._patience = patience
        #: True when all that counts was taken in quiet moments.
        self.was_quiet = True
        #: What every block took, those included that were taken again.
        self.blocks_taken: list[float] = []

    def once(self, thing: Callable[[], float]) -> float:
        """Measure in a quiet moment while there is patience, and then as it comes."""
        while True:
            was_quiet = self._wait()
            began = time.perf_counter()
            value = thing()
            is_quiet = was_quiet and _is_quiet()
            self.blocks_taken.append(value)
            if is_quiet or self._patience.left_s <= 0:
                self.was_quiet = self.was_quiet and is_quiet
                return value
            self._patience.left_s -= time.perf_counter() - began

    def blocks(self, blocks: int, rounds: int, ns_of: Callable[[int], float]) -> float:
        """Return the mean of so many blocks; for each, `ns_of` is asked for this many rounds."""
        return sum(self.once(lambda: ns_of(rounds)) for _ in range(blocks)) / blocks

    def _wait(self) -> bool:
        """Return True when a quiet moment came."""
        began = time.perf_counter()
        while not (is_now := _is_quiet()):
            if time.perf_counter() - began >= self._patience.left_s:
                break
            time.sleep(_BETWEEN_LOOKS_S)
        self._patience.left_s -= time.perf_counter() - began
        return is_now


class _Best:
    """The shortest pulse that this process has measured."""

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
