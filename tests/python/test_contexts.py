"""Devices and streams as context managers: nesting, reuse of one object, errors, threads.

Method: every context leaves what was before, on the way out of any nesting.
"""

import itertools
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import accelrt
from accelrt import accelerator
from kinds import KIND, TYPE, default_stream, module, several_devices

Make = Callable[[], AbstractContextManager[object]]
# Contexts of device 1, made when it is known to be there.
MAKES: list[Make] = [
    lambda: accelrt.Stream(f"{KIND}:1"),
    lambda: accelrt.device(f"{KIND}:1"),
    lambda: accelerator.device_index(1),
]


def current() -> tuple[int, accelrt.Stream]:
    """Return the current device and its current stream."""
    return accelerator.current_device_index(), accelerator.current_stream()


@several_devices
def test_device_index_switches_and_restores() -> None:
    with accelerator.device_index(1) as entered:
        assert entered is None
        assert accelerator.current_device_index() == 1
    assert accelerator.current_device_index() == 0


@several_devices
def test_device_index_of_none_changes_nothing() -> None:
    accelerator.set_device_index(2)
    with accelerator.device_index(None) as entered:
        assert entered is None
        assert accelerator.current_device_index() == 2
        accelerator.set_device_index(1)
    assert accelerator.current_device_index() == 1


@several_devices
def test_one_device_index_nests_in_itself() -> None:
    context = accelerator.device_index(1)
    with context:
        accelerator.set_device_index(2)
        with context:
            assert accelerator.current_device_index() == 1
        assert accelerator.current_device_index() == 2
    assert accelerator.current_device_index() == 0


def test_device_index_checks_existence_when_it_is_entered() -> None:
    context = accelerator.device_index(7)
    with pytest.raises(RuntimeError, match=f"{KIND}:7 does not exist"), context:
        pass
    assert accelerator.current_device_index() == 0
    with pytest.raises(RuntimeError, match=r"^Device context stack is empty\.$"):
        context.__exit__(None, None, None)


@pytest.mark.parametrize("wrong", [1.5, True, b"cpu"])
def test_device_index_refuses_other_types(wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"^device must be .*, not {type(wrong).__name__}$"):
        accelerator.device_index(wrong)


@several_devices
def test_a_device_is_current_inside_its_context() -> None:
    device = accelrt.device(f"{KIND}:1")
    with device as entered:
        assert entered is device
        assert accelerator.current_device_index() == 1
        assert accelrt.Stream().device == device
    assert accelerator.current_device_index() == 0


@several_devices
def test_a_device_without_index_changes_nothing() -> None:
    accelerator.set_device_index(2)
    with accelrt.device(KIND):
        assert accelerator.current_device_index() == 2
    assert accelerator.current_device_index() == 2


@several_devices
def test_the_innermost_context_decides_whichever_it_is() -> None:
    # Method: every kind of context inside and around every other; each names another device.
    makes: list[Callable[[int], AbstractContextManager[object]]] = [
        lambda index: accelrt.device(KIND, index),
        accelerator.device_index,
        module.device,
        accelrt.Stream,
        lambda index: module.stream(accelrt.Stream(index)),
        lambda index: module.device_of(accelrt.Stream(index)),
    ]

    def used() -> set[int | None]:
        stream = accelrt.Stream()
        return {stream.device_index, accelrt.empty(1).device.index, stream.device.index}

    for outer, inner in itertools.product(makes, repeat=2):
        before = current()
        with outer(1):
            assert used() == {1}
            between = current()
            with inner(2):
                assert used() == {2}
                with accelrt.device(KIND), accelerator.device_index(None), module.device(None):
                    assert used() == {2}
            assert (used(), current()) == ({1}, between)
        assert (used(), current()) == ({0}, before)


@several_devices
def test_what_is_set_inside_a_context_counts_until_its_end() -> None:
    with accelrt.device(f"{KIND}:1"):
        accelerator.set_device_index(2)
        assert accelrt.Stream().device_index == 2
    assert accelrt.Stream().device_index == 0


@several_devices
def test_one_device_nests_in_itself() -> None:
    one, two = accelrt.device(f"{KIND}:1"), accelrt.device(f"{KIND}:2")
    with one, two, one:
        assert accelerator.current_device_index() == 1
        with two:
            assert accelerator.current_device_index() == 2
        assert accelerator.current_device_index() == 1
    assert accelerator.current_device_index() == 0


@several_devices
def test_the_contexts_of_a_kind_are_those_of_the_accelerator() -> None:
    with module.device(2):
        assert module.current_device() == 2
        with module.device(None), module.device(f"{KIND}:1"):
            assert module.current_device() == 1
        assert module.current_device() == 2
    with module.device_of(accelrt.Stream(f"{KIND}:1")):
        assert module.current_device() == 1
    with module.device_of(object()):
        assert module.current_device() == 0


@several_devices
def test_a_stream_switches_device_and_stream_and_restores_both() -> None:
    before = current()
    stream = accelrt.Stream(f"{KIND}:2")
    with stream as entered:
        assert entered is stream
        assert current() == (2, stream)
    assert current() == before
    assert accelerator.current_stream(2) == default_stream(2)


@several_devices
def test_one_stream_nests_in_itself_and_around_others() -> None:
    first, second = accelrt.Stream(f"{KIND}:0"), accelrt.Stream(f"{KIND}:1")
    with first, first, second:
        assert current() == (1, second)
        with first:
            assert current() == (0, first)
        assert current() == (1, second)
    assert current() == (0, default_stream(0))


@several_devices
def test_another_handle_of_the_stream_nests_too() -> None:
    stream = accelrt.Stream(f"{KIND}:1")
    again = accelrt.Stream(stream.stream_id, 1, TYPE)
    with stream, again:
        assert current() == (1, stream)
    assert current() == (0, default_stream(0))


@several_devices
def test_stream_contexts_of_a_kind_take_none() -> None:
    stream = accelrt.Stream(f"{KIND}:1")
    with module.stream(stream) as entered:
        assert entered is None
        assert current() == (1, stream)
        with module.stream(None), module.StreamContext(None):
            assert current() == (1, stream)
    assert accelerator.current_device_index() == 0


def test_stream_contexts_of_a_kind_refuse_what_is_no_stream() -> None:
    expected = r"^stream must be an accelrt\.Stream or None, not int$"
    with pytest.raises(TypeError, match=expected):
        module.stream(3)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (accelrt.Stream, "Stream"),
        (lambda: accelrt.device(f"{KIND}:0"), "Device"),
        (lambda: accelrt.device(KIND), "Device"),
        (lambda: accelerator.device_index(0), "Device"),
        (lambda: accelerator.device_index(None), "Device"),
    ],
)
def test_an_exit_without_an_enter_raises(make: Make, name: str) -> None:
    context = make()
    for _ in range(2):
        with pytest.raises(RuntimeError, match=rf"^{name} context stack is empty\.$"):
            context.__exit__(None, None, None)
        with context:
            pass


@several_devices
@pytest.mark.parametrize(
    "make",
    [
        *MAKES,
        lambda: module.stream(accelrt.Stream(f"{KIND}:1")),
        lambda: module.device(1),
    ],
)
def test_an_exception_inside_passes_through_and_all_is_restored(make: Make) -> None:
    before, context = current(), make()
    error = KeyError("inside")

    def fail() -> None:
        with context, context:
            assert accelerator.current_device_index() == 1
            raise error

    with pytest.raises(KeyError) as raised:
        fail()
    assert raised.value is error
    assert current() == before


@several_devices
@pytest.mark.parametrize("make", MAKES)
def test_an_object_entered_by_two_threads_keeps_their_states_apart(make: Make) -> None:
    # Method: both threads are inside at once, and leave in the order they came.
    context, both_inside, first_left = make(), threading.Barrier(2), threading.Event()
    ends = {}

    def visit(name: str, start: int) -> None:
        accelerator.set_device_index(start)
        with context:
            both_inside.wait()
            if name == "second":
                first_left.wait()
        ends[name] = accelerator.current_device_index()
        first_left.set()

    threads = [threading.Thread(target=visit, args=pair) for pair in [("first", 0), ("second", 2)]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ends == {"first": 0, "second": 2}


@several_devices
def test_a_context_entered_by_one_thread_is_not_left_by_another() -> None:
    stream, device = accelrt.Stream(), accelrt.device(f"{KIND}:1")
    index = accelerator.device_index(1)
    errors = []

    def leave() -> None:
        for context in (stream, device, index):
            with pytest.raises(RuntimeError, match="context stack is empty") as raised:
                context.__exit__(None, None, None)
            errors.append(raised.value)

    with stream, device, index:
        thread = threading.Thread(target=leave)
        thread.start()
        thread.join()
        assert accelerator.current_device_index() == 1
    assert len(errors) == 3


@several_devices
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=12))
def test_any_nesting_restores_what_was_before(steps: list[tuple[int, int]]) -> None:
    streams = [accelrt.Stream(index) for index in range(3)]
    devices = [accelrt.device(KIND, index) for index in range(3)]
    indices = [accelerator.device_index(index) for index in range(3)]
    contexts: list[list[Any]] = [
        streams,
        devices,
        indices,
        [module.stream(stream) for stream in streams],
    ]

    def nest(remaining: list[tuple[int, int]]) -> None:
        before = current()
        if remaining:
            (kind, index), *inner = remaining
            with contexts[kind][index]:
                assert accelerator.current_device_index() == index
                nest(inner)
        assert current() == before

    nest(steps)


def test_the_device_of_an_object_of_another_kind_is_left_alone() -> None:
    other = accelrt.cpu if KIND == "xpu" else accelrt.xpu
    before = accelerator.current_device_index()
    with other.device_of(accelrt.empty(1, device=KIND)):
        assert accelerator.current_device_index() == before
    assert accelerator.current_device_index() == before
