"""What streams, events and buffers show of themselves: done, pending or failed, at this moment."""

import threading
from collections.abc import Iterator

import pytest

import accelrt
from gates import NATIVE, Gate, fail
from kinds import KIND
from processes import output_of


@pytest.fixture
def work() -> Iterator[accelrt.Stream]:
    """Give a stream of the test's own, and end its error."""
    stream = accelrt.Stream(dedicated=True)
    yield stream
    try:
        stream.synchronize()
    except accelrt.StreamError:
        stream.synchronize()


def _state(thing: object) -> str:
    return repr(thing).rstrip(")").rpartition(", ")[2]


@pytest.mark.accelrt_unordered
def test_what_is_under_way_is_pending_and_then_done(work: accelrt.Stream) -> None:
    buffer = accelrt.zeros(8)
    buffer.stream.synchronize()
    gate = Gate(work)
    with work:
        buffer.fill_(1)
    event = work.record_event()
    assert [_state(thing) for thing in (work, event, buffer)] == ["pending"] * 3
    assert not event.query()  # nobody waited
    gate.open()
    work.synchronize()
    assert [_state(thing) for thing in (work, event, buffer)] == ["done"] * 3
    gate.close()


def test_what_failed_says_so_and_raises_nothing(work: accelrt.Stream) -> None:
    buffer = accelrt.zeros(8)
    buffer.stream.synchronize()
    fail(work, 3)
    with work:
        buffer.fill_(1)
    event = work.record_event()
    with pytest.raises(accelrt.StreamError):
        event.synchronize()
    assert [_state(thing) for thing in (work, event, buffer)] == ["failed"] * 3
    with pytest.raises(accelrt.StreamError, match="returned status 3"):
        work.synchronize()
    # The error ended; of the record it is part for ever.
    assert [_state(thing) for thing in (work, event, buffer)] == ["done", "failed", "done"]
    work.record_event(event)
    event.synchronize()
    assert _state(event) == "done"


def test_a_failed_stream_with_more_to_do_is_failed(work: accelrt.Stream) -> None:
    fail(work, 3)
    failed = work.record_event()
    with pytest.raises(accelrt.StreamError):
        failed.synchronize()
    work.launch_host(int)
    assert _state(work) == "failed"


def test_what_is_released_says_so() -> None:
    buffer = accelrt.zeros(8)
    part = buffer[:4]
    part.release()
    assert _state(buffer) == _state(part) == "released"


def test_what_was_never_used_is_done() -> None:
    assert _state(accelrt.Event()) == "done"
    assert _state(accelrt.Stream(dedicated=True)) == "done"
    assert _state(accelrt.empty(0)) == "done"


@pytest.mark.accelrt_unordered
def test_looking_from_many_threads_holds_nobody_up(work: accelrt.Stream) -> None:
    buffer, event = accelrt.zeros(64), accelrt.Event()
    seen: set[str] = set()

    def look() -> None:
        for _ in range(300):
            seen.update(_state(thing) for thing in (work, event, buffer))

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(300):
        with work:
            buffer.fill_(number % 256)
        event.record(work)
    for thread in threads:
        thread.join()
    work.synchronize()
    assert seen <= {"done", "pending"}


@pytest.mark.skipif(not NATIVE or KIND != "cpu", reason="about the cpu device")
def test_after_the_end_and_in_a_child_they_still_show_themselves() -> None:
    code = """
        import os
        import accelrt
        from gates import Gate
        stream, event = accelrt.Stream(), accelrt.Event()
        buffer = accelrt.zeros(8)
        buffer.stream.synchronize()
        gate = Gate(stream)
        with stream:
            buffer.fill_(1)
        event.record(stream)
        if (child := os.fork()) == 0:
            print(repr(stream).rpartition(" ")[2], repr(event).rpartition(" ")[2], repr(buffer),
                  flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        gate.open()
        stream.synchronize()
        accelrt._core.shut_down()
        print(repr(stream).rpartition(" ")[2], repr(event).rpartition(" ")[2], repr(buffer))
    """
    shown = "accelrt.Buffer(nbytes=8, device='cpu:0', "
    child, ended = output_of(code).splitlines()
    assert child == f"pending pending {shown}of the parent process)"
    assert ended == f"done done {shown}done)"
