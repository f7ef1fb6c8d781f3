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
def test_host_access_receives_and_bytes_stay_failed(
    use: Callable[[accelrt.Buffer], object],
) -> None:
    buffer, stream, text = accelrt.zeros(8), failing(16), ctypes.create_string_buffer(4)
    stream.launch(libc.memset, buffer, 1, 8)  # skipped
    assert str(failure_of(lambda: use(buffer))).endswith("status 16")
    write(stream, text, ord("a"), 3)
    stream.record_event().synchronize()
    assert text.value == b"aaa"  # the failure ended for later tasks
    assert str(failure_of(lambda: use(buffer))).endswith("status 16")
    stream.synchronize()
    use(buffer)
    assert bytes(buffer) == bytes(8)


@host_cores
def test_reads_do_not_validate_skipped_writes() -> None:
    buffer, stream = accelrt.zeros(8), failing(16)
    stream.launch(libc.memset, buffer, 1, 8)  # skipped
    failure_of(lambda: bytes(buffer))
    with stream:
        buffer.clone()
        buffer.copy_to(bytearray(8))
    stream.launch(libc.memchr, accelrt.reads(buffer), 1, 8)
    buffer.record_stream(stream)  # the work may only read
    failure_of(lambda: bytes(buffer))


@host_cores
def test_bytes_are_valid_after_a_later_write() -> None:
    buffer, stream = accelrt.zeros(8), failing(16)
    stream.launch(libc.memset, buffer, 1, 8)  # skipped
    failure_of(lambda: bytes(buffer))
    stream.launch(libc.memset, buffer, 2, 8)
    assert bytes(buffer) == b"\x02" * 8


def test_blocking_copy_receives_and_ends_the_failure() -> None:
    stream, out = failing(17), bytearray(8)
    buffer = accelrt.zeros(8)
    buffer.stream.synchronize()
    with stream:
        buffer.copy_(b"x" * 8, non_blocking=True)
        buffer.copy_to(out, non_blocking=True)
        assert str(failure_of(lambda: buffer.copy_(b"y" * 8))).endswith("status 17")
        out.append(0)  # given back
        del out[8]
        buffer.copy_(b"z" * 8)
        buffer.copy_to(out)
    stream.synchronize()
    assert [content(buffer), bytes(out)] == [b"z" * 8] * 2


@host_cores
def test_a_use_before_the_failure_is_no_failed_one() -> None:
    buffer, stream = accelrt.zeros(8), accelrt.Stream(dedicated=True)
    stream.wait_stream(buffer.stream)  # which fills it
    stream.launch(libc.memset, buffer, 1, 8)
    fail(stream, 18)
    assert bytes(buffer) == b"\x01" * 8
    failure_of(stream.synchronize)


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


class Kept:
    """A value that a frame holds."""


def handled(stream: accelrt.Stream, alive: list[weakref.ref[object]]) -> None:
    """Run a callable that fails, and receive the exception through its handle."""
    kept = Kept()
    alive.append(weakref.ref(kept))
    with pytest.raises(ValueError, match="none"):
        stream.launch_host(int, "none").result()


def test_received_failure_keeps_nothing_alive() -> None:
    alive: list[weakref.ref[object]] = []
    pooled = accelrt.Stream()
    for _ in range(40):
        handled(accelrt.Stream(dedicated=True), alive)
        handled(pooled, alive)
    gc.collect()
    assert [value() for value in alive] == [None] * 80
    accelerator.synchronize()


def test_unreceived_failure_keeps_no_frame() -> None:
    alive: list[weakref.ref[object]] = []

    def fails() -> None:
        kept = Kept()
        alive.append(weakref.ref(kept))
        message = "not received"
        raise ValueError(message)

    stream = accelrt.Stream(dedicated=True)
    stream.launch_host(fails)
    event = stream.record_event()
    with pytest.raises(accelrt.StreamError):
        event.synchronize()
    gc.collect()
    assert alive[0]() is None
    cause = failure_of(stream.synchronize).__cause__
    assert isinstance(cause, ValueError)
    assert str(cause) == "not received"
    assert "in fails" in cause.__notes__[0]


def test_receipt_ends_the_failure_for_later_tasks() -> None:
    stream = accelrt.Stream(dedicated=True)
    gate = Gate(stream)
    first = stream.launch_host(int, "none")
    skipped = stream.launch_host(int, "1")
    behind = accelrt.Stream(dedicated=True)
    behind.wait_stream(stream)
    gate.open()
    for _ in range(2):
        with pytest.raises(ValueError, match="none"):
            first.result()
        assert stream.launch_host(int, "2").result() == 2
        error = skipped.exception()  # every receiver gets the failure
        assert isinstance(error, accelrt.StreamError)
        assert isinstance(error.__cause__, ValueError)
    stream.synchronize()
    failure_of(behind.synchronize)  # its wait was enqueued before the end


def test_raised_exception_does_not_grow() -> None:
    def depth(error: BaseException | None) -> int:
        frames, trace = 0, error.__traceback__ if error else None
        while trace is not None:
            frames, trace = frames + 1, trace.tb_next
        return frames

    call = accelrt.Stream(dedicated=True).launch_host(lambda: int("none"))
    depths = set()
    for _ in range(3):
        with pytest.raises(ValueError, match="none") as raised:
            call.result()
        depths.add(depth(raised.value))
    assert len(depths) == 1


@pytest.mark.parametrize("observe", ["query", "done", "callback", "timeout", "event"])
def test_observation_receives_nothing(observe: str) -> None:
    stream = accelrt.Stream(dedicated=True)
    gate = Gate(stream)
    call = stream.launch_host(int, "none")
    event = stream.record_event()
    if observe == "timeout":
        with pytest.raises(TimeoutError):
            call.result(timeout=0.001)
    if observe == "callback":
        with ThreadPoolExecutor(1) as pool:
            called = pool.submit(lambda: None)
            event.add_done_callback(lambda _: called.result())
    gate.open()
    while not (event.query() and call.done()):
        time.sleep(0)  # idle
    if observe == "event":
        failure_of(event.synchronize)
    skipped = stream.launch_host(int)
    stream.record_event().query()
    assert str(failure_of(stream.synchronize)).endswith("'none'")
    assert isinstance(skipped.exception(), accelrt.StreamError)


def test_pooled_stream_hides_failures_of_earlier_holders() -> None:
    def holders(count: int) -> list[accelrt.Stream]:
        return [accelrt.Stream(priority=-1) for _ in range(count)]

    streams = {holder.stream_id: holder for holder in holders(32)}
    older = accelrt.Stream(priority=-1)
    older.launch_host(int, "none")
    newer = next(stream for stream in holders(32) if stream == older)
    assert newer.stream_id in streams
    assert newer.launch_host(int, "1").result() == 1
    newer.synchronize()
    assert "failed" not in repr(newer)
    assert str(failure_of(older.synchronize)).endswith("'none'")
    older.synchronize()
    newer.synchronize()
