"""`accelrt.Event`: laziness, recording, waiting, timing and the order of its checks."""

import ctypes
import pickle
import re
import weakref
from typing import Any

import pytest

import accelrt
from gates import Gate, write
from kinds import KIND, host_cores, several_devices


def timed_pair() -> tuple[accelrt.Event, accelrt.Event]:
    return accelrt.Event(enable_timing=True), accelrt.Event(enable_timing=True)


@pytest.mark.accelrt_unordered
def test_an_event_that_was_never_recorded_is_done() -> None:
    event = accelrt.Event()
    assert event.query()
    event.synchronize()
    event.wait()
    accelrt.Stream().wait_event(event)


@several_devices
def test_an_event_has_neither_index_nor_id_before_its_first_record() -> None:
    event = accelrt.Event()
    assert event.device == accelrt.device(KIND)
    assert event.device.index is None
    assert event.event_id == 0
    event.record(accelrt.Stream(f"{KIND}:1"))
    assert event.device == accelrt.device(f"{KIND}:1")
    assert event.event_id != 0


@several_devices
def test_the_index_of_the_device_it_is_made_for_is_not_kept() -> None:
    assert accelrt.Event(f"{KIND}:1").device == accelrt.device(KIND)
    assert accelrt.Event(2).device == accelrt.device(KIND)
    assert accelrt.Event(accelrt.device(f"{KIND}:1")).device.index is None


@several_devices
def test_a_record_goes_to_the_current_stream_of_the_current_device() -> None:
    accelrt.accelerator.set_device_index(2)
    event = accelrt.Event()
    event.record()
    assert event.device == accelrt.device(f"{KIND}:2")


@several_devices
def test_an_event_is_done_after_its_synchronize() -> None:
    event = accelrt.Stream(f"{KIND}:1").record_event()
    event.synchronize()
    assert event.query()


def test_an_event_is_recorded_again_on_its_device_and_keeps_its_id() -> None:
    event = accelrt.Event()
    event.record(accelrt.Stream())
    event_id = event.event_id
    event.record(accelrt.Stream())
    event.synchronize()
    assert event.event_id == event_id


@several_devices
def test_an_event_stays_with_the_device_of_its_first_record() -> None:
    event = accelrt.Stream(f"{KIND}:0").record_event()
    expected = "Event device index 0 does not match recording stream's device index 1."
    with pytest.raises(RuntimeError, match=f"^{re.escape(expected)}$"):
        event.record(accelrt.Stream(f"{KIND}:1"))


@several_devices
def test_a_stream_of_another_device_may_wait() -> None:
    event = accelrt.Stream(f"{KIND}:0").record_event()
    other = accelrt.Stream(f"{KIND}:1")
    event.wait(other)
    other.wait_event(event)
    other.synchronize()
    assert event.query()


def test_an_event_of_another_kind_is_refused_by_a_record() -> None:
    expected = f"Event device type cuda does not match recording stream's device type {KIND}."
    with pytest.raises(RuntimeError, match=f"^{re.escape(expected)}$"):
        accelrt.Event("cuda").record(accelrt.Stream())
    with pytest.raises(RuntimeError, match=f"^{re.escape(expected)}$"):
        accelrt.Stream().record_event(accelrt.Event("cuda"))


@pytest.mark.accelrt_unordered
def test_an_event_of_another_kind_that_was_never_recorded_is_waited_for_at_once() -> None:
    accelrt.Event("cuda").wait(accelrt.Stream())
    accelrt.Stream().wait_event(accelrt.Event("cuda"))


def test_a_kind_that_is_not_there_is_told_at_the_first_use() -> None:
    event = accelrt.Event("cuda")
    with pytest.raises(RuntimeError, match=r"No cuda device is available: .*cuda"):
        event.record()


def test_time_goes_forward_between_records() -> None:
    stream = accelrt.Stream()
    start, end = timed_pair()
    stream.record_event(start)
    stream.record_event(end)
    end.synchronize()
    assert isinstance(start.elapsed_time(end), float)
    assert start.elapsed_time(end) >= 0
    assert end.elapsed_time(start) == -start.elapsed_time(end)
    assert start.elapsed_time(start) == 0


@several_devices
@host_cores
def test_time_is_measured_between_two_devices() -> None:
    start, end = timed_pair()
    accelrt.Stream(f"{KIND}:0").record_event(start)
    start.synchronize()
    accelrt.Stream(f"{KIND}:1").record_event(end)
    end.synchronize()
    assert start.elapsed_time(end) >= 0


@pytest.mark.parametrize("wrong", [3, None, "event", object()])
def test_elapsed_time_refuses_first_what_is_no_event(wrong: Any) -> None:
    with pytest.raises(RuntimeError, match=r"^expected other to be an accelrt\.Event object$"):
        accelrt.Event().elapsed_time(wrong)


def test_elapsed_time_refuses_second_events_of_two_kinds() -> None:
    expected = f"Event device type cuda does not match other's device type {KIND}."
    with pytest.raises(RuntimeError, match=f"^{re.escape(expected)}$"):
        accelrt.Event("cuda").elapsed_time(accelrt.Event(KIND))


@pytest.mark.parametrize(("first", "second"), [(False, False), (True, False), (False, True)])
def test_elapsed_time_refuses_third_events_without_timing(*, first: bool, second: bool) -> None:
    expected = "Both events must be created with argument 'enable_timing=True'."
    start, end = accelrt.Event(enable_timing=first), accelrt.Event(enable_timing=second)
    with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"):
        start.elapsed_time(end)


def test_elapsed_time_refuses_fourth_events_that_were_not_recorded() -> None:
    expected = "^Both events must be recorded before calculating elapsed time.$"
    start, end = timed_pair()
    with pytest.raises(ValueError, match=expected):
        start.elapsed_time(end)
    start.record()
    with pytest.raises(ValueError, match=expected):
        start.elapsed_time(end)
    with pytest.raises(ValueError, match=expected):
        end.elapsed_time(start)


def test_elapsed_time_refuses_fifth_events_that_are_not_done() -> None:
    expected = "^Both events must be completed before calculating elapsed time.$"
    stream = accelrt.Stream(dedicated=True)
    start, end = timed_pair()
    gate = Gate(stream)
    start.record(stream)
    end.record(accelrt.Stream())
    end.synchronize()
    for first, second in ((start, end), (end, start), (start, start)):
        with pytest.raises(RuntimeError, match=expected):
            first.elapsed_time(second)
    gate.open()
    stream.synchronize()
    assert (start.elapsed_time(end), end.elapsed_time(end)) <= (0, 0)


def test_elapsed_time_checks_timing_before_records_and_records_before_their_end() -> None:
    stream = accelrt.Stream(dedicated=True)
    gate, pending = Gate(stream), accelrt.Event(enable_timing=True)
    pending.record(stream)
    with pytest.raises(ValueError, match="enable_timing=True"):
        accelrt.Event().elapsed_time(accelrt.Event(enable_timing=True))
    with pytest.raises(ValueError, match="enable_timing=True"):
        pending.elapsed_time(stream.record_event())
    with pytest.raises(ValueError, match="must be recorded"):
        pending.elapsed_time(accelrt.Event(enable_timing=True))
    gate.open()
    stream.synchronize()


@several_devices
def test_a_wait_stays_with_the_record_that_was_the_latest() -> None:
    held, idle, waiting = (accelrt.Stream(dedicated=True) for _ in range(3))
    gate, event = Gate(held), accelrt.Event()
    event.record(held)
    waiting.wait_event(event)
    event.record(idle)
    idle.synchronize()
    event.synchronize()  # of the later record
    assert event.query()
    assert not waiting.query()
    gate.open()
    waiting.synchronize()


@several_devices
def test_a_later_record_holds_up_nobody_who_waits_already() -> None:
    held, idle, waiting = (accelrt.Stream(dedicated=True) for _ in range(3))
    gate, event = Gate(held), accelrt.Event()
    event.record(idle)
    waiting.wait_event(event)
    event.record(held)
    waiting.synchronize()
    assert not event.query()
    gate.open()
    event.synchronize()


def test_a_wait_before_the_first_record_waits_for_nothing() -> None:
    held, waiting = accelrt.Stream(dedicated=True), accelrt.Stream(dedicated=True)
    gate, event = Gate(held), accelrt.Event()
    event.wait(waiting)
    event.record(held)
    waiting.synchronize()
    gate.open()
    held.synchronize()


def test_a_wait_outlives_its_event() -> None:
    held, waiting = accelrt.Stream(dedicated=True), accelrt.Stream(dedicated=True)
    gate, text = Gate(held), ctypes.create_string_buffer(4)
    write(held, text, ord("a"), 3)
    event = held.record_event()
    waiting.wait_event(event)
    write(waiting, text, ord("b"), 1)
    gone = weakref.ref(event)
    del event
    assert gone() is None
    assert not waiting.query()
    gate.open()
    waiting.synchronize()
    assert text.value == b"baa"


def test_an_event_is_measured_at_its_latest_record() -> None:
    stream, (start, end) = accelrt.Stream(), timed_pair()
    for event in (start, end, start):
        event.record(stream)
    stream.synchronize()
    assert start.elapsed_time(end) <= 0


@pytest.mark.parametrize("wrong", [3, "cpu", accelrt.device(KIND)])
def test_record_and_wait_refuse_what_is_no_stream(wrong: Any) -> None:
    expected = rf"^stream must be an accelrt\.Stream, not {type(wrong).__name__}$"
    for call in (accelrt.Event().record, accelrt.Event().wait):
        with pytest.raises(TypeError, match=expected):
            call(wrong)


def test_events_are_not_shared_between_processes() -> None:
    with pytest.raises(NotImplementedError, match="ipc is not supported"):
        accelrt.Event(interprocess=True).ipc_handle()
    with pytest.raises(NotImplementedError, match="ipc is not supported"):
        accelrt.Event.from_ipc_handle("cpu", b"")
    with pytest.raises(TypeError, match="cannot pickle"):
        pickle.dumps(accelrt.Event())


def test_events_are_equal_by_identity() -> None:
    first, second = accelrt.Event(), accelrt.Event()
    assert first == first  # noqa: PLR0124  the comparison itself is tested
    assert first != second
    assert len({first, second, first}) == 2
    with pytest.raises(TypeError):
        _ = first < second  # type: ignore[operator]


@several_devices
def test_an_event_shows_itself() -> None:
    prefix = f"accelrt.Event device_type={KIND}, device_index=-1, event_flag="
    assert repr(accelrt.Event()) == prefix + "0, event_id=0, done"
    event = accelrt.Event(enable_timing=True)
    assert repr(event) == prefix + "1, event_id=0, done"
    event.record(accelrt.Stream(f"{KIND}:1"))
    event.synchronize()
    shown = f"accelrt.Event device_type={KIND}, device_index=1, event_flag=1, event_id="
    assert repr(event) == f"{shown}{event.event_id:#x}, done"


def test_an_event_can_be_referred_to_weakly_and_subclassed() -> None:
    class Named(accelrt.Event):
        name = "none"

    named = Named(enable_timing=True, blocking=True)
    named.name = "start"
    assert weakref.ref(named)() is named
    assert accelrt.Stream().record_event(named) is named


def test_its_options_are_named() -> None:
    with pytest.raises(TypeError):
        accelrt.Event("cpu", True)  # type: ignore[call-overload]
