"""Goal: a wait that is cancelled or times out receives no failure and ends none.

Method: a stream fails while the wait is pending, more is enqueued, and the wait is given up.
"""

import asyncio
import threading
from collections.abc import Callable

import pytest

import accelrt
from accelrt import accelerator
from gates import Gate
from kinds import KIND, host_cores


def failure_of(call: Callable[[], object]) -> accelrt.StreamError:
    """Return the failure that a call raises."""
    with pytest.raises(accelrt.StreamError) as raised:
        call()
    return raised.value


def raise_value_error(text: str) -> None:
    raise ValueError(text)


async def give_up_await(stream: accelrt.Stream, meanwhile: Callable[[], object]) -> None:
    """Cancel an `await stream` while the event loop is busy and the stream has failed."""

    async def wait() -> None:
        await stream

    begin = threading.Event()
    stream.launch_host(begin.wait)
    stream.launch_host(raise_value_error, "first")
    waiting = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    begin.set()
    while not stream.query():
        pass
    meanwhile()
    waiting.cancel()
    await asyncio.wait([waiting])


def give_up_device(stream: accelrt.Stream, meanwhile: Callable[[], object], limit_s: float) -> bool:
    """Let a synchronise of the device time out because of another stream.

    Return whether the act came before the limit.
    """
    slow = accelrt.Stream(stream.device, dedicated=True)
    stream.launch_host(raise_value_error, "first")
    while not stream.query():
        pass
    gate = Gate(slow)
    acted = threading.Event()

    def act() -> None:
        meanwhile()
        acted.set()

    thread = threading.Timer(limit_s / 4, act)
    thread.start()
    with pytest.raises(TimeoutError):
        accelerator.synchronize(stream.device, timeout=limit_s)
    was_in_time = acted.is_set()
    thread.join()
    gate.open()
    slow.synchronize()
    gate.close()
    return was_in_time


def given_up(how: str, meanwhile: Callable[[accelrt.Stream], object]) -> accelrt.Stream:
    """Return a failed stream whose failure a wait did not receive; act before that wait ends."""
    stream = accelrt.Stream(f"{KIND}:0", dedicated=True)
    if how == "await":
        asyncio.run(give_up_await(stream, lambda: meanwhile(stream)))
        return stream
    for limit_s in (0.4, 2, 10):  # longer on a busy machine
        if give_up_device(stream, lambda: meanwhile(stream), limit_s):
            return stream
        with pytest.raises(accelrt.StreamError):
            stream.synchronize()
    pytest.fail("nothing was done before a limit of ten seconds")


GIVE_UPS = pytest.mark.parametrize("how", ["await", "device"])


@host_cores
@GIVE_UPS
def test_wait_that_is_given_up_lets_no_later_task_run(how: str) -> None:
    ran: list[int] = []
    stream = given_up(how, lambda stream: stream.launch_host(ran.append, 1))
    error = failure_of(stream.synchronize)
    assert "first" in str(error)
    assert error.skipped == 1
    assert ran == []


@host_cores
@GIVE_UPS
def test_wait_that_is_given_up_loses_no_failure(how: str) -> None:
    def fail_again(stream: accelrt.Stream) -> None:
        stream.launch_host(raise_value_error, "second")

    assert "first" in str(failure_of(given_up(how, fail_again).synchronize))


@host_cores
@GIVE_UPS
def test_wait_that_is_given_up_validates_no_skipped_write(how: str) -> None:
    buffer = accelrt.zeros(4, device=f"{KIND}:0")
    accelerator.synchronize(f"{KIND}:0")

    def fill(stream: accelrt.Stream) -> None:
        with stream:
            buffer.fill_(7)

    stream = given_up(how, fill)
    assert "first" in str(failure_of(lambda: bytes(buffer)))
    stream.synchronize()
