"""`accelrt.Stream`: pools, finding a stream again, priorities, ordering, comparison.

Method: streams are idle or wait for events of others; what needs a task that runs is elsewhere.
"""

import ctypes
import gc
import pickle
import re
import weakref
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import accelrt
from gates import Gate, write
from kinds import KIND, TYPE, default_stream, host_cores, several_devices


@several_devices
def test_the_default_stream_is_id_0_and_shared() -> None:
    first, second = default_stream(1), default_stream(1)
    assert first == second
    assert accelrt.accelerator.current_stream(f"{KIND}:1") == first
    assert (first.stream_id, first.device_index, first.device_type) == (0, 1, TYPE)


@several_devices
def test_a_new_stream_is_on_the_current_device() -> None:
    accelrt.accelerator.set_device_index(2)
    assert accelrt.Stream().device == accelrt.device(f"{KIND}:2")
    assert accelrt.Stream(KIND).device == accelrt.device(f"{KIND}:2")
    assert accelrt.Stream(f"{KIND}:1").device == accelrt.device(f"{KIND}:1")
    assert accelrt.Stream(1).device == accelrt.device(f"{KIND}:1")
    assert accelrt.Stream(device=accelrt.device(f"{KIND}:0")).device_index == 0


@several_devices
@pytest.mark.parametrize("priority", [-1, 0, 1])
def test_request_33_of_a_priority_is_the_first_stream_again(priority: int) -> None:
    streams = [accelrt.Stream(f"{KIND}:2", priority=priority) for _ in range(33)]
    assert len(set(streams)) == 32
    assert streams[32] == streams[0]
    assert {stream.priority for stream in streams} == {priority}
    assert 0 not in {stream.stream_id for stream in streams}


def test_a_dedicated_stream_is_given_to_nobody_else() -> None:
    own = accelrt.Stream(dedicated=True)
    assert own not in [accelrt.Stream() for _ in range(64)]
    assert own != accelrt.Stream(dedicated=True)


def test_a_dedicated_stream_ends_with_its_last_handle_and_its_id_is_never_reused() -> None:
    own = accelrt.Stream(dedicated=True)
    stream_id = own.stream_id
    again = accelrt.Stream(stream_id, own.device_index, own.device_type)
    assert again == own
    own.synchronize()
    del own, again
    gc.collect()
    with pytest.raises(RuntimeError, match=f"no stream with id {stream_id}"):
        accelrt.Stream(stream_id, 0, TYPE)
    assert accelrt.Stream(dedicated=True).stream_id > stream_id


def test_a_dedicated_stream_ends_its_work_when_its_last_handle_is_gone() -> None:
    own, text = accelrt.Stream(dedicated=True), ctypes.create_string_buffer(4)
    gate = Gate(own)
    write(own, text, ord("a"), 3)
    event = own.record_event()
    del own
    gc.collect()
    gate.open()
    event.synchronize()
    assert text.value == b"aaa"


def test_a_stream_with_work_is_not_done() -> None:
    stream = accelrt.Stream(dedicated=True)
    assert stream.query()
    gate = Gate(stream)
    assert not stream.query()
    stream.wait_stream(stream)
    gate.open()
    stream.synchronize()
    assert stream.query()


@several_devices
def test_three_numbers_find_a_stream_again() -> None:
    stream = accelrt.Stream(f"{KIND}:1", priority=-1)
    again = accelrt.Stream(stream.stream_id, stream.device_index, stream.device_type)
    named = accelrt.Stream(
        stream_id=stream.stream_id,
        device_index=stream.device_index,
        device_type=stream.device_type,
    )
    assert again == named == stream
    assert again.priority == -1


def test_an_unknown_stream_id_fails_at_once() -> None:
    with pytest.raises(
        RuntimeError, match=f"Device {KIND}:0 has no stream with id 1000000: ids are"
    ):
        accelrt.Stream(1_000_000, 0, TYPE)
    with pytest.raises(
        RuntimeError, match=f"Device {KIND}:0 has no stream with id -1: .* negative"
    ):
        accelrt.Stream(-1, 0, TYPE)


@pytest.mark.parametrize("name", ["stream_id", "device_index", "device_type"])
@pytest.mark.parametrize("number", [2**70, -(2**70), 2**63 - 1])
def test_a_number_beyond_64_bits_is_told_as_it_was_given(name: str, number: int) -> None:
    numbers = {"stream_id": 0, "device_index": 0, "device_type": TYPE, name: number}
    with pytest.raises(RuntimeError, match=f"{name} must be a number of 64 bits, not {number}$"):
        accelrt.Stream(**numbers)


def test_an_unknown_device_type_fails_with_torchs_text_and_what_is_allowed() -> None:
    expected = "Expected isValidDeviceType(device_type) to be true, but got false."
    with pytest.raises(RuntimeError, match=f"^{re.escape(expected)} .*99.* 0 for cpu"):
        accelrt.Stream(7, 0, 99)


def test_a_kind_that_is_not_there_says_why() -> None:
    makes: tuple[Callable[[], object], ...] = (
        lambda: accelrt.Stream(0, 0, 1),
        lambda: accelrt.Stream("cuda"),
    )
    for make in makes:
        with pytest.raises(RuntimeError, match=r"No cuda device is available: .*cuda"):
            make()


@several_devices
def test_a_device_that_does_not_exist_says_which_do() -> None:
    expected = f"Device {KIND}:7 does not exist: there are 3 {KIND} devices, indices 0 to 2"
    makes: tuple[Callable[[], object], ...] = (
        lambda: accelrt.Stream(f"{KIND}:7"),
        lambda: default_stream(7),
    )
    for make in makes:
        with pytest.raises(RuntimeError, match=f"^{expected}$"):
            make()


@several_devices
def test_priorities_are_those_of_xpu() -> None:
    assert accelrt.Stream.priority_range() == (1, -1)
    assert accelrt.Stream.priority_range(f"{KIND}:1") == (1, -1)
    assert accelrt.Stream().priority == 0


@pytest.mark.parametrize("priority", [-2, 2, 2**40, -(2**70)])
@pytest.mark.parametrize("dedicated", [False, True])
def test_priority_out_of_range_is_clamped(priority: int, dedicated: bool) -> None:  # noqa: FBT001
    least, greatest = accelrt.Stream.priority_range()
    stream = accelrt.Stream(priority=priority, dedicated=dedicated)
    assert stream.priority == (greatest if priority < 0 else least)


@host_cores
def test_a_stream_has_no_native_handle_on_the_cpu() -> None:
    expected = "^Backend doesn't support getting stream native handle.$"
    with pytest.raises(RuntimeError, match=expected):
        _ = accelrt.Stream().native_handle


def test_an_idle_stream_is_done() -> None:
    stream = accelrt.Stream()
    assert stream.query()
    assert not stream.is_capturing()
    stream.synchronize()
    stream.synchronize()


@several_devices
def test_streams_wait_for_each_other_without_a_thread_that_waits() -> None:
    streams = [accelrt.Stream(index) for index in (0, 1, 2, 0)]
    for earlier, later in pairwise(streams):
        later.wait_stream(earlier)
        later.wait_event(earlier.record_event())
    streams[0].wait_stream(streams[-1])
    for stream in streams:
        stream.synchronize()
        assert stream.query()


@several_devices
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.booleans()), max_size=60),
)
@pytest.mark.accelrt_unordered
def test_any_order_of_waits_among_streams_ends(steps: list[tuple[int, int, bool]]) -> None:
    streams = [accelrt.Stream(index % 3, priority=index % 3 - 1) for index in range(6)]
    events = [accelrt.Event() for _ in range(6)]
    for waiting, other, is_stream in steps:
        if is_stream:
            streams[waiting].wait_stream(streams[other])
        else:
            streams[waiting].wait_event(events[other])
            # An event stays with its first device.
            owner = events[waiting].device.index
            stream = streams[other]
            if owner in (None, stream.device_index):
                events[waiting].record(stream)
    for stream in streams:
        stream.synchronize()
    assert all(stream.query() for stream in streams)
    assert all(event.query() for event in events)


@several_devices
def test_record_event_returns_the_event_it_recorded() -> None:
    stream = accelrt.Stream(f"{KIND}:1")
    event = accelrt.Event(enable_timing=True)
    assert stream.record_event(event) is event
    assert event.device == accelrt.device(f"{KIND}:1")


def test_record_event_makes_an_event_without_timing() -> None:
    stream = accelrt.Stream()
    first, second = stream.record_event(), stream.record_event()
    stream.synchronize()
    with pytest.raises(ValueError, match="enable_timing=True"):
        first.elapsed_time(second)


def test_record_event_refuses_what_is_no_event() -> None:
    with pytest.raises(RuntimeError, match=r"^expected event to be an accelrt\.Event object$"):
        accelrt.Stream().record_event(3)  # type: ignore[arg-type]


def test_waits_refuse_what_is_neither_event_nor_stream() -> None:
    stream = accelrt.Stream()
    with pytest.raises(TypeError, match=r"^event must be an accelrt\.Event, not int$"):
        stream.wait_event(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^event must be an accelrt\.Event, not NoneType$"):
        stream.wait_event(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^stream must be an accelrt\.Stream, not Event$"):
        stream.wait_stream(accelrt.Event())  # type: ignore[arg-type]


@several_devices
def test_equality_and_hash_go_by_id_and_device() -> None:
    stream = accelrt.Stream(f"{KIND}:1")
    again = accelrt.Stream(stream.stream_id, 1, TYPE)
    assert stream == again
    assert not stream != again  # noqa: SIM202  both operators are tested
    assert hash(stream) == hash(again)
    assert stream is not again
    assert default_stream(0) != default_stream(1)


def test_comparisons_with_others_follow_pythons_rules() -> None:
    stream = accelrt.Stream()
    assert stream != None  # noqa: E711  the comparison itself is tested
    assert (stream == 3) is False
    assert stream.__eq__(3) is NotImplemented
    with pytest.raises(TypeError):
        _ = stream < accelrt.Stream()  # type: ignore[operator]


@several_devices
def test_a_stream_shows_itself() -> None:
    text = repr(default_stream(1))
    assert text == f"accelrt.Stream device_type={KIND}, device_index=1, stream_id=0, done"


def test_a_stream_cannot_be_pickled() -> None:
    with pytest.raises(TypeError, match=r"^cannot pickle 'accelrt\.Stream' object$"):
        pickle.dumps(accelrt.Stream())


def test_a_stream_can_be_referred_to_weakly_and_has_no_dictionary() -> None:
    stream = accelrt.Stream()
    assert weakref.ref(stream)() is stream
    with pytest.raises(AttributeError):
        stream.colour = "blue"  # type: ignore[attr-defined]


@several_devices
def test_a_subclass_has_its_own_attributes_and_stays_a_stream() -> None:
    class Named(accelrt.Stream):
        name = "none"

    named = Named(f"{KIND}:1", priority=1)
    named.name = "copies"
    accelrt.Stream().wait_stream(named)
    assert (named.name, named.priority) == ("copies", 1)
    with named as entered:
        assert entered is named
        assert accelrt.accelerator.current_stream() == named


def test_the_numbers_of_a_stream_are_read_only() -> None:
    for name in ("stream_id", "device_index", "device_type", "device", "priority"):
        with pytest.raises(AttributeError):
            setattr(accelrt.Stream(), name, 1)


@several_devices
def test_set_stream_switches_the_device_too() -> None:
    stream = accelrt.Stream(f"{KIND}:2")
    accelrt.accelerator.set_stream(stream)
    assert accelrt.accelerator.current_device_index() == 2
    assert accelrt.accelerator.current_stream() == stream
    assert accelrt.accelerator.current_stream(0) == default_stream(0)
