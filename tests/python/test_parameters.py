"""Flags and integers of the face: what is given and what is allowed is said by name.

Method: each parameter is given what it is not; integers of other makers count by `__index__`.
"""

import ctypes
import operator
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import accelrt
import capsules
from kinds import KIND, TYPE, several_devices

# Wrong types on purpose.
untyped: Any = accelrt

FLAGS = [
    ("enable_timing", lambda wrong: untyped.Event(enable_timing=wrong)),
    ("blocking", lambda wrong: untyped.Event(blocking=wrong)),
    ("interprocess", lambda wrong: untyped.Event(interprocess=wrong)),
    ("dedicated", lambda wrong: untyped.Stream(dedicated=wrong)),
    ("check", lambda wrong: untyped.Stream().launch(1, check=wrong)),
    ("non_blocking", lambda wrong: untyped.zeros(1).copy_(b"a", non_blocking=wrong)),
    ("non_blocking", lambda wrong: untyped.zeros(1).copy_to(bytearray(1), wrong)),
    ("copy", lambda wrong: untyped.zeros(1).__dlpack__(copy=wrong)),
    ("copy", lambda wrong: untyped.zeros(1).view("int8").__dlpack__(copy=wrong)),
    ("check_available", untyped.accelerator.current_accelerator),
]


@pytest.mark.parametrize("wrong", [1, "yes", 0.0])
@pytest.mark.parametrize(("name", "call"), FLAGS)
def test_a_flag_is_true_or_false_and_is_named(
    name: str, call: Callable[[object], object], wrong: object
) -> None:
    expected = f"^{name} must be True or False, not {type(wrong).__name__}$"
    with pytest.raises(TypeError, match=expected):
        call(wrong)


def test_a_flag_of_numpy_is_one() -> None:
    start, end = (untyped.Event(enable_timing=np.True_) for _ in range(2))
    start.record()
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) >= 0
    assert untyped.zeros(1).copy_(b"a", non_blocking=np.False_).nbytes == 1


INTEGERS = [
    ("nbytes", untyped.empty),
    ("nbytes", untyped.zeros),
    ("nbytes", untyped.empty_pinned),
    ("nbytes", untyped.empty_shared),
    ("alignment", lambda wrong: untyped.empty(1, alignment=wrong)),
    ("alignment", lambda wrong: untyped.zeros(1, alignment=wrong)),
    ("byte", lambda wrong: untyped.zeros(1).fill_(wrong)),
    ("priority", lambda wrong: untyped.Stream(priority=wrong)),
    ("index", lambda wrong: untyped.device("cpu", wrong)),
    ("stream_id", lambda wrong: untyped.Stream(wrong, 0, 0)),
    ("device_index", lambda wrong: untyped.Stream(0, wrong, 0)),
    ("device_type", lambda wrong: untyped.Stream(0, 0, wrong)),
    ("an extent of a shape", lambda wrong: untyped.zeros(1).view("int8", (wrong,))),
]


@pytest.mark.parametrize("wrong", [True, np.True_, 1.0, "1", np.float32(1)])
@pytest.mark.parametrize(("name", "call"), INTEGERS)
def test_an_integer_is_no_bool_and_is_named(
    name: str, call: Callable[[object], object], wrong: object
) -> None:
    expected = f"^{name} must be an integer, not {type(wrong).__name__}$"
    with pytest.raises(TypeError, match=expected):
        call(wrong)


@several_devices
@pytest.mark.parametrize("make", [np.int64, np.uint8, np.array])
def test_an_integer_of_numpy_is_one_wherever_a_number_is_taken(make: Any) -> None:
    one, zero, own = make(1), make(0), untyped.get_device_module(KIND)
    assert untyped.device(KIND, one) == untyped.device(one) == accelrt.device(f"{KIND}:1")
    assert untyped.Stream(one).device_index == 1
    assert untyped.Stream(zero, one, make(TYPE)).device_index == 1
    assert untyped.Stream(priority=one).priority == 1
    assert untyped.Event(one).device == accelrt.device(KIND)
    assert untyped.zeros(one, device=one, alignment=one).fill_(one).nbytes == 1
    assert untyped.zeros(2).view("int8", (one, 2)).shape == (1, 2)
    assert untyped.zeros(1).view("int8", one).shape == (1,)
    assert len(untyped.zeros(2)[zero:one]) == 1
    with untyped.accelerator.device_index(one), own.device(one):
        assert accelrt.accelerator.current_device_index() == 1
    for module in (untyped.accelerator, own):
        module.synchronize(one)
        assert module.current_stream(one).device_index == 1
    untyped.accelerator.set_device_index(one)
    own.set_device(zero)
    assert accelrt.accelerator.current_device_index() == 0


@pytest.mark.parametrize("name", ["max_version", "dl_device"])
@pytest.mark.parametrize("wrong", [1, (1,), "10"])
def test_a_pair_of_dlpack_is_named(name: str, wrong: object) -> None:
    expected = f"^{name} must be a tuple of two integers or None, not {type(wrong).__name__}$"
    for memory in (accelrt.zeros(4), accelrt.zeros(4).view("int8")):
        with pytest.raises(TypeError, match=expected):
            memory.__dlpack__(**{name: wrong})  # type: ignore[arg-type]


def test_numbers_of_any_size_are_a_pair_of_dlpack() -> None:
    buffer = accelrt.zeros(4)
    assert capsules.name(buffer.__dlpack__(max_version=(2**40, 0))) == b"dltensor_versioned"
    assert capsules.name(buffer.__dlpack__(max_version=(-(2**70), 2**70))) == b"dltensor"
    with pytest.raises(BufferError, match="on no other device"):
        buffer.__dlpack__(dl_device=(2**40, 0))


def test_interrupt_does_not_change_a_dtype() -> None:
    """A signal that arrives while a text is read is the program's: it is not dropped.

    All calls are made by functions in C, so that the signal is pending inside of the second one.
    """

    class InterruptedByTestError(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise InterruptedByTestError

    raise_signal = partial(ctypes.PyDLL(None)["raise"], int(signal.SIGUSR1))
    view = partial(accelrt.zeros(4).view, "int16")
    outcome: list[Any] = []
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(InterruptedByTestError):
            outcome.extend(map(operator.call, (raise_signal, view)))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert [getattr(it, "dtype", it) for it in outcome] in ([], [0, "int16"])


def test_a_level_is_formatted_for_its_error_only() -> None:
    """Formatting runs signal handlers, whose exceptions would be dropped there."""
    formatted = []

    class Level(int):
        def __str__(self) -> str:
            formatted.append(int(self))
            return super().__repr__()

    accelrt.verbose(Level(1))
    assert formatted == []
    with pytest.raises(ValueError, match="is 0 to 1, not 5"):
        accelrt.verbose(Level(5))
    assert formatted == [5]
