"""What a failure carries, whichever way it was received.

Goal: each attribute, note and cause of an error is the same for every sort of failure, whether it
is received from its own stream, through other streams and events, through a synchronise of the
device, or as a copy. Method: a table of failures and a table of receipts, all pairs.
"""

import copy
import marshal
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest

import accelrt
from accelrt import _failures
from gates import libc
from kinds import KIND, host_cores, module

NOTE_ON_STATUS = "check=True takes what the function returns for a status: 0 is success"
TASKS_BEFORE = 2
TASKS_AFTER = 3


class DivisionError(ArithmeticError):
    """An exception with an attribute and a note."""

    def __init__(self, text: str) -> None:
        """Keep the text twice."""
        super().__init__(text)
        self.text = text


def divide() -> None:
    """Fail."""
    error = DivisionError("by zero")
    error.add_note("a note of the task")
    raise error


@dataclass
class Failure:
    """A sort of failure: the task, and what every error about it carries."""

    enqueue: Callable[[accelrt.Stream], object]
    text: str
    notes: list[str]
    cause: type[BaseException] | None
    cause_text: str = ""
    cause_notes: tuple[str, ...] = ()


def status(stream: accelrt.Stream) -> None:
    """Enqueue a native function that returns 7."""
    stream.launch(libc.abs, -7, check=True)


FAILURES = {
    "status": Failure(
        status, r"the native function abs at 0x[0-9a-f]+ returned status 7", [NOTE_ON_STATUS], None
    ),
    "exception": Failure(
        lambda stream: stream.launch_host(divide),
        r"a task returned an error: .*by zero",
        [],
        DivisionError,
        "by zero",
        ("a note of the task",),
    ),
}


@dataclass
class Received:
    """An error, the stream that it must name, and the failed task's ticket and skipped tasks."""

    error: accelrt.StreamError
    stream: accelrt.Stream
    place: tuple[int, int]
    is_inherited: bool


def raised(call: Callable[[], object]) -> accelrt.StreamError:
    with pytest.raises(accelrt.StreamError) as caught:
        call()
    return caught.value


def work(stream: accelrt.Stream, count: int) -> None:
    for _ in range(count):
        stream.launch_host(int)


def stream() -> accelrt.Stream:
    return accelrt.Stream(f"{KIND}:0", dedicated=True)


DIRECT = (TASKS_BEFORE + 1, TASKS_AFTER)


def through_own_stream(failed: accelrt.Stream) -> Received:
    return Received(raised(failed.synchronize), failed, DIRECT, is_inherited=False)


def through_event(failed: accelrt.Stream) -> Received:
    error = raised(failed.record_event().synchronize)
    return Received(error, failed, DIRECT, is_inherited=False)


def heir_of(failed: accelrt.Stream) -> accelrt.Stream:
    heir = stream()
    heir.wait_event(failed.record_event())
    work(heir, TASKS_AFTER)
    return heir


def through_second_stream(failed: accelrt.Stream) -> Received:
    heir = stream()
    work(heir, TASKS_BEFORE)
    heir.wait_stream(failed)
    work(heir, TASKS_AFTER)
    return Received(raised(heir.synchronize), heir, DIRECT, is_inherited=True)


def through_event_of_second_stream(failed: accelrt.Stream) -> Received:
    heir = heir_of(failed)
    error = raised(heir.record_event().synchronize)
    return Received(error, heir, (1, TASKS_AFTER), is_inherited=True)


def through_third_stream(failed: accelrt.Stream) -> Received:
    third = heir_of(heir_of(failed))
    return Received(raised(third.synchronize), third, (1, TASKS_AFTER), is_inherited=True)


def through_device(failed: accelrt.Stream) -> Received:
    error = raised(lambda: module.synchronize(0))
    return Received(error, failed, DIRECT, is_inherited=False)


def through_device_with_heir(failed: accelrt.Stream) -> Received:
    heir = heir_of(failed)
    error = raised(lambda: module.synchronize(0))
    (part,) = (each for each in error.errors if each.stream_id == heir.stream_id)
    return Received(part, heir, (1, TASKS_AFTER), is_inherited=True)


def through_device_as_first(failed: accelrt.Stream) -> Received:
    heir = heir_of(failed)
    error = raised(lambda: module.synchronize(0))
    assert {each.stream_id for each in error.errors} == {failed.stream_id, heir.stream_id}
    is_heirs = error.stream_id == heir.stream_id
    named = heir if is_heirs else failed
    return Received(error, named, (1, TASKS_AFTER) if is_heirs else DIRECT, is_heirs)


def through_time_limit(failed: accelrt.Stream) -> Received:
    error = raised(lambda: failed.synchronize(timeout=60))
    return Received(error, failed, DIRECT, is_inherited=False)


RECEIPTS = [
    through_own_stream,
    through_event,
    through_second_stream,
    through_event_of_second_stream,
    through_third_stream,
    through_device,
    through_device_with_heir,
    through_device_as_first,
    through_time_limit,
]

WAYS: dict[str, Callable[[accelrt.StreamError], accelrt.StreamError]] = {
    "raised": lambda error: error,
    "pickle": lambda error: pickle.loads(pickle.dumps(error)),  # noqa: S301  our own bytes
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


def check(received: Received, failure: Failure, error: accelrt.StreamError) -> None:
    """Compare every attribute of one error with its expected value, except the cause."""
    assert type(error) is accelrt.StreamError
    named = received.stream
    text = f"Stream {named.stream_id} on {KIND}:0 failed: "
    if received.is_inherited:
        origin = rf"it waited for an event of a failed stream\. Stream \d+ on {KIND}:0 failed: "
        text += origin
    assert re.search(text + failure.text, str(error)), str(error)
    assert (error.device, error.stream_id) == (named.device, named.stream_id)
    assert error.stream == named
    assert (error.ticket, error.skipped) == received.place
    assert getattr(error, "__notes__", []) == failure.notes


def check_cause(failure: Failure, error: accelrt.StreamError) -> None:
    """Compare the cause, which Python does not copy with an error."""
    cause = error.__cause__
    if failure.cause is None:
        assert cause is None
        return
    assert type(cause) is failure.cause
    assert failure.cause_text in str(cause)
    assert set(failure.cause_notes) <= set(cause.__notes__)


@host_cores
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("receive", RECEIPTS)
@pytest.mark.parametrize("sort", FAILURES)
def test_error_is_the_same_however_received(
    sort: str, receive: Callable[[accelrt.Stream], Received], way: str
) -> None:
    failure, failed = FAILURES[sort], stream()
    work(failed, TASKS_BEFORE)
    failure.enqueue(failed)
    work(failed, TASKS_AFTER)
    received = receive(failed)
    check_cause(failure, received.error)
    for each in received.error.errors:
        check_cause(failure, each)
    error = WAYS[way](received.error)
    check(received, failure, error)
    for each in error.errors:
        assert getattr(each, "__notes__", []) == failure.notes
        if each.stream_id == received.stream.stream_id:
            check(received, failure, each)
    clear()


def clear() -> None:
    """End the failures that no call has received."""
    try:
        module.synchronize(0)
    except accelrt.StreamError:
        module.synchronize(0)


def test_long_arguments_are_kept_as_text() -> None:
    most = _failures._MAX_ARGUMENT_BYTES - len(marshal.dumps((b"",)))
    kept = _failures._arguments(ValueError(bytes(most)))
    assert kept is not None
    assert marshal.loads(kept) == (bytes(most),)  # noqa: S302  our own
    assert _failures._arguments(ValueError(bytes(most + 1))) is None
    for plain in ("a", b"a", 1, 0.5, True, None):
        assert _failures._arguments(ValueError(plain, plain)) == marshal.dumps((plain, plain))
    assert _failures._arguments(ValueError(1, [])) is None
