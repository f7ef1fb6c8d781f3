"""Goal: a failure reaches whoever depends on it, once where it is ended, and nobody else.

Method: checked native functions and callables fail; what was skipped shows in memory.
"""

import ctypes
import gc
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import accelrt
from accelrt import accelerator
from accelrt._failures import fade
from gates import NATIVE, Gate, fail, libc, write
from kinds import KIND, content, host_cores, module, several_devices

# How the failure of a task begins.
WHAT = "the native function" if NATIVE else "a task returned an error"


def failing(status: int, device: str = f"{KIND}:0") -> accelrt.Stream:
    """Return a stream on which a native function returned a status."""
    stream = accelrt.Stream(device, dedicated=True)
    fail(stream, status)
    return stream


def failure_of(call: Callable[[], object]) -> accelrt.StreamError:
    """Return the failure that a call raises."""
    with pytest.raises(accelrt.StreamError) as raised:
        call()
    return raised.value


def test_a_failure_names_its_stream_and_what_failed() -> None:
    stream = failing(3)
    error = failure_of(stream.synchronize)
    assert str(error).startswith(f"Stream {stream.stream_id} on {KIND}:0 failed: {WHAT}")
    assert str(error).endswith("returned status 3")
    assert error.errors == [error]
    assert (error.__cause__ is None) == NATIVE


@several_devices
def test_tasks_behind_a_failure_are_skipped_until_it_is_raised() -> None:
    stream, text = failing(1), ctypes.create_string_buffer(4)
    before = accelrt._core.counters()["num_skipped_tasks"]
    for _ in range(3):
        write(stream, text, ord("a"), 3)
    failure_of(stream.synchronize)
    assert text.value == b""
    assert accelrt._core.counters()["num_skipped_tasks"] >= before + 3
    assert stream.query()
    write(stream, text, ord("b"), 3)
    stream.synchronize()
    assert text.value == b"bbb"


def test_the_first_failure_of_a_stream_is_the_one_that_is_raised() -> None:
    stream = failing(1)
    fail(stream, 2)
    assert str(failure_of(stream.synchronize)).endswith("status 1")
    stream.synchronize()


def test_an_event_of_a_failed_stream_is_done_and_failed_until_it_is_recorded_again() -> None:
    stream, (start, end) = failing(4), (accelrt.Event(enable_timing=True) for _ in range(2))
    start.record(accelrt.Stream())
    end.record(stream)
    for _ in range(2):
        assert str(failure_of(end.synchronize)).endswith("status 4")
    start.synchronize()
    for first, second in ((start, end), (end, start)):
        assert str(failure_of(lambda: first.elapsed_time(second))).endswith("status 4")  # noqa: B023
    assert end.query()
    failure_of(stream.synchronize)
    failure_of(end.synchronize)  # still: what was recorded did fail
    stream.record_event(end)
    end.synchronize()
    assert start.elapsed_time(end) >= 0


def test_the_wait_for_an_event_ends_no_failure() -> None:
    stream = failing(5)
    failure_of(stream.record_event().synchronize)
    failure_of(stream.record_event().synchronize)
    failure_of(stream.synchronize)
    stream.record_event().synchronize()


@several_devices
@pytest.mark.parametrize("device", [f"{KIND}:0", f"{KIND}:2"])
def test_a_failure_goes_through_events_to_the_streams_that_wait(device: str) -> None:
    first, second, third = failing(6), accelrt.Stream(device), accelrt.Stream(f"{KIND}:1")
    text = ctypes.create_string_buffer(4)
    second.wait_event(first.record_event())
    third.wait_stream(second)
    write(third, text, 1, 3)
    error = failure_of(third.synchronize)
    inherited = f"Stream {third.stream_id} on {KIND}:1 failed: it waited for an event of a failed"
    assert str(error).startswith(inherited)
    origin = f"Stream {first.stream_id} on {KIND}:0 failed: {WHAT}"
    assert origin in str(error)
    assert text.value == b""
    third.synchronize()  # each stream has to be synchronised with
    failure_of(second.synchronize)
    failure_of(first.synchronize)


@several_devices
def test_an_inherited_failure_has_the_original_cause() -> None:
    first, second = accelrt.Stream(dedicated=True), accelrt.Stream(f"{KIND}:1")
    first.launch_host(int, "none")
    second.wait_event(first.record_event())
    assert isinstance(failure_of(second.synchronize).__cause__, ValueError)
    assert isinstance(failure_of(first.synchronize).__cause__, ValueError)


def test_an_event_of_a_failure_that_was_raised_fails_who_waits_for_it_later() -> None:
    stream = failing(7)
    event = stream.record_event()
    failure_of(stream.synchronize)
    later = accelrt.Stream()
    event.wait(later)
    assert str(failure_of(later.synchronize)).endswith("status 7")


def test_an_event_recorded_before_the_failure_is_well() -> None:
    stream = accelrt.Stream(dedicated=True)
    gate, event = Gate(stream), stream.record_event()
    fail(stream, 1)
    later = accelrt.Stream()
    later.wait_event(event)
    gate.open()
    later.synchronize()
    event.synchronize()
    failure_of(stream.synchronize)
    event.synchronize()


@several_devices
@pytest.mark.parametrize("wait", [accelerator.synchronize, module.synchronize])
def test_a_device_raises_the_failures_of_all_its_streams_and_ends_them(
    wait: Callable[[int], None],
) -> None:
    streams = [failing(status, f"{KIND}:1") for status in (11, 12)]
    streams.append(accelrt.Stream(f"{KIND}:1", dedicated=True))
    streams[2].launch_host(int, "none")
    other = failing(13, f"{KIND}:2")
    error = failure_of(lambda: wait(1))
    assert str(error).startswith("3 streams failed; the first: Stream ")
    texts = [str(each) for each in error.errors]
    assert len(texts) == 3
    for stream, end in zip(streams, ("status 11", "status 12", "'none'"), strict=True):
        assert any(f"Stream {stream.stream_id} on {KIND}:1" in t and t.endswith(end) for t in texts)
    causes = {type(each.__cause__) for each in error.errors if each.__cause__}
    assert causes == {ValueError} | (set() if NATIVE else {ArithmeticError})
    wait(1)
    for stream in streams:
        stream.synchronize()
    failure_of(other.synchronize)


@several_devices
def test_a_device_with_one_failure_raises_that_one() -> None:
    stream = failing(14, f"{KIND}:1")
    error = failure_of(lambda: accelerator.synchronize(1))
    assert str(error).startswith(f"Stream {stream.stream_id} on {KIND}:1 failed")
    assert error.errors == [error]


def test_every_thread_that_waits_for_a_failed_event_is_told() -> None:
    stream = accelrt.Stream(dedicated=True)
    gate = Gate(stream)
    fail(stream, 15)
    event = stream.record_event()
    with ThreadPoolExecutor(3) as pool:
        waits = [pool.submit(event.synchronize) for _ in range(2)]
        gate.open()
        for wait in waits:
            assert str(failure_of(wait.result)).endswith("status 15")
    failure_of(stream.synchronize)


USES: list[Callable[[accelrt.Buffer], object]] = [
    bytes,
    memoryview,
    lambda buffer: memoryview(buffer.view("int16")),
    lambda buffer: buffer[2:3].__dlpack__(),
    lambda buffer: buffer.view("int16").__array_interface__,
]


@host_cores
@pytest.mark.parametrize("use", USES)
@pytest.mark.accelrt_unordered
def test_the_host_is_told_that_bytes_failed_and_ends_nothing(
    use: Callable[[accelrt.Buffer], object],
) -> None:
    buffer, stream = accelrt.zeros(8), failing(16)
    stream.launch(libc.memset, buffer, 1, 8)
    for _ in range(2):
        assert str(failure_of(lambda: use(buffer))).endswith("status 16")
    failure_of(stream.synchronize)
    use(buffer)
    assert bytes(buffer) == bytes(8)


def test_copies_on_a_failed_stream_are_skipped_and_blocking_ones_raise() -> None:
    stream, out = failing(17), bytearray(8)
    buffer = accelrt.zeros(8)
    buffer.stream.synchronize()
    with stream:
        buffer.copy_(b"x" * 8, non_blocking=True)
        buffer.copy_to(out, non_blocking=True)
        for copy in (lambda: buffer.copy_(b"y" * 8), lambda: buffer.copy_to(out)):
            assert str(failure_of(copy)).endswith("status 17")
    out.append(0)  # given back
    failure_of(stream.synchronize)
    assert [content(buffer), bytes(out)] == [bytes(8), bytes(9)]


@host_cores
def test_a_use_before_the_failure_is_no_failed_one() -> None:
    buffer, stream = accelrt.zeros(8), accelrt.Stream(dedicated=True)
    stream.wait_stream(buffer.stream)  # which fills it
    stream.launch(libc.memset, buffer, 1, 8)
    fail(stream, 18)
    assert bytes(buffer) == b"\x01" * 8
    failure_of(stream.synchronize)


def test_what_led_to_a_failure_and_what_is_grouped_in_it_holds_no_frames_either() -> None:
    def raised(error: Exception) -> Exception:
        try:
            raise error
        except type(error):
            return error

    members = [raised(ValueError(number)) for number in range(2)]
    group = raised(ExceptionGroup("several", members))
    cause, context = raised(KeyError("cause")), raised(KeyError("context"))
    members[0].__cause__, members[1].__context__ = cause, context
    every = [group, *members, cause, context]
    assert all(error.__traceback__ is not None for error in every)
    fade(group)
    assert [error.__traceback__ for error in every] == [None] * 5
    assert all("in raised" in error.__notes__[0] for error in every)


def test_errors_of_streams_that_are_gone_are_bounded_and_hold_no_frames() -> None:
    locals_of_tasks: list[weakref.ref[object]] = []

    class Local:
        """What a frame holds."""

    def fails() -> None:
        local = Local()
        locals_of_tasks.append(weakref.ref(local))
        raise ValueError(len(locals_of_tasks))

    for _ in range(40):
        stream = accelrt.Stream(dedicated=True)
        stream.launch_host(fails)
        event = stream.record_event()
        del stream
        while not event.query():
            pass
        del event
    # A thread of the runtime may hold the last stream for a moment longer.
    deadline = time.monotonic() + 20
    while any(local() is not None for local in locals_of_tasks):
        assert time.monotonic() < deadline, "variables of the tasks are still there"
        accelrt.Stream().query()
        gc.collect()
    error = failure_of(accelerator.synchronize)
    assert "and 24 more that were dropped" in str(error)
    assert len(error.errors) == 16
    causes = [each.__cause__ for each in error.errors]
    assert [str(cause) for cause in causes] == [str(n) for n in range(25, 41)]
    assert all("in fails" in cause.__notes__[0] for cause in causes if cause is not None)
    accelerator.synchronize()
