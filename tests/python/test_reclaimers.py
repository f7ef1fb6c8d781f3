"""Reclaimers: what a program can spare serves its next request.

Goal: `register_reclaimer` is asked before a request fails, and only for its kind. Method: stores of
buffers under a limit of the device's memory.
"""

import gc
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import accelrt
from accelrt._memory import fraction_of
from kinds import KIND, module

MIB = 1 << 20
PIECE = 10 * MIB
PIECES = 6


@pytest.fixture
def store() -> Iterator[list[accelrt.Buffer]]:
    """Limit the current device to 60 MiB, which six buffers fill."""
    gc.collect()
    accelrt.accelerator.synchronize()
    accelrt.accelerator.empty_cache()
    used = accelrt.accelerator.memory_reserved()
    total = accelrt.accelerator.get_memory_info()[1]
    fraction = fraction_of(used + PIECES * PIECE, total)
    accelrt.accelerator.set_per_process_memory_fraction(fraction)
    yield [accelrt.empty(PIECE) for _ in range(PIECES)]
    accelrt.accelerator.set_per_process_memory_fraction(1.0)


def test_a_reclaimer_drops_what_the_request_needs(store: list[accelrt.Buffer]) -> None:
    asked, lacked = [], []

    def spare(device: accelrt.device, requested: int, lacking: int) -> bool:
        asked.append((device.type, requested, 0 < lacking <= requested))
        lacked.append(lacking)
        store.pop()
        return True

    with accelrt.accelerator.register_reclaimer(spare):
        buffer = accelrt.empty(2 * PIECE + 1)
    assert asked == [(KIND, 2 * PIECE + 1, True)] * 3
    assert lacked[-1] <= PIECE + 1, "what it has freed is lacking no more"
    assert (len(store), buffer.nbytes) == (3, 2 * PIECE + 1)
    with pytest.raises(accelrt.OutOfMemoryError):  # it was removed
        accelrt.empty(2 * PIECE)


def test_without_anything_to_spare_the_error_is_raised(store: list[accelrt.Buffer]) -> None:
    answers = iter([0, None, ""])
    for _ in range(3):
        handle = accelrt.accelerator.register_reclaimer(lambda *_asked: next(answers))
        with pytest.raises(accelrt.OutOfMemoryError, match="out of memory"):
            accelrt.empty(PIECE)
        handle.remove()
    assert next(answers, "none is left") == "none is left"
    assert len(store) == PIECES


def test_an_exception_of_a_reclaimer_is_reported_and_the_next_one_is_asked(
    store: list[accelrt.Buffer], monkeypatch: pytest.MonkeyPatch
) -> None:
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda it: reported.append(str(it.exc_value)))

    def fails(*_asked: object) -> None:
        raise LookupError("nothing here")  # noqa: EM101, TRY003  as short as a user's

    with (
        accelrt.accelerator.register_reclaimer(fails),
        accelrt.accelerator.register_reclaimer(lambda *_asked: store.pop() is not None),
    ):
        accelrt.empty(PIECE)
    assert (reported, len(store)) == (["nothing here"], PIECES - 1)


def test_a_reclaimer_is_asked_on_the_thread_of_the_request(store: list[accelrt.Buffer]) -> None:
    threads = []

    def spare(*_asked: object) -> bool:
        threads.append(threading.current_thread())
        return bool(store and store.pop())

    with accelrt.accelerator.register_reclaimer(spare):
        thread = threading.Thread(target=lambda: accelrt.empty(PIECE))
        thread.start()
        thread.join()
    assert threads == [thread]


# A kind without devices, such as xpu on most machines, can be registered for as well.
OTHERS = [other for other in (accelrt.cpu, accelrt.xpu) if other is not module]


@pytest.mark.parametrize("other", OTHERS, ids=lambda other: other.__name__)
def test_other_kinds_are_not_called(other: Any, store: list[accelrt.Buffer]) -> None:
    called: list[str] = []
    with (
        other.register_reclaimer(lambda *_: called.append("reclaimer of another kind")),
        other.register_oom_observer(lambda *_: called.append("observer of another kind")),
        module.register_reclaimer(lambda *_: called.append("reclaimer")),
        module.register_oom_observer(lambda *_: called.append("observer")),
        pytest.raises(accelrt.OutOfMemoryError),
    ):
        accelrt.empty(PIECE)
    assert (called, len(store)) == (["reclaimer", "observer"], PIECES)


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match="reclaimer must be callable, not int"):
        module.register_reclaimer(3)
