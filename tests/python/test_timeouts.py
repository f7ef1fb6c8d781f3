"""Goal: a wait with a limit ends at it, and changes nothing but the time.

Method: `Blocked` is behind a gate, so that every limit passes; the gate is opened afterwards.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import accelrt
from kinds import host_cores, module
from waits import Blocked, interrupt, while_waiting

# Any: wrong types are passed as well.
Wait = Callable[[Blocked, Any], None]

WAITS: dict[str, Wait] = {
    "Stream": lambda it, timeout: it.stream.synchronize(timeout=timeout),
    "Stream by position": lambda it, timeout: it.stream.synchronize(timeout),
    "Event": lambda it, timeout: it.event.synchronize(timeout=timeout),
    "accelerator": lambda it, timeout: accelrt.accelerator.synchronize(
        it.stream.device, timeout=timeout
    ),
    "module": lambda it, timeout: module.synchronize(it.stream.device, timeout=timeout),
}
ANY_WAIT = pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
LONG = 60


@ANY_WAIT
def test_a_limit_raises_timeout_error_and_the_work_goes_on(wait: Wait) -> None:
    blocked = Blocked()
    for timeout in (0, 0.001, 1e-3):
        with pytest.raises(TimeoutError, match="the work is not done and goes on"):
            wait(blocked, timeout)
    assert not blocked.event.query()
    blocked.gate.open()
    wait(blocked, LONG)
    blocked.check()


@ANY_WAIT
@pytest.mark.parametrize("timeout", [None, float("inf"), 1e300, 10**400, True])
def test_what_is_no_limit_and_what_is_a_number_are_taken(wait: Wait, timeout: float | None) -> None:
    blocked = Blocked()
    blocked.gate.open()
    blocked.stream.synchronize()
    wait(blocked, timeout)


@ANY_WAIT
@pytest.mark.parametrize("timeout", [-1, -1e-9, float("nan"), float("-inf"), -(10**400)])
def test_a_limit_before_now_is_refused(wait: Wait, timeout: float) -> None:
    blocked = Blocked()
    blocked.gate.open()  # without the refusal the wait ends
    with pytest.raises(ValueError, match="timeout must be 0 seconds or more, not"):
        wait(blocked, timeout)
    blocked.check()


@ANY_WAIT
def test_what_is_no_number_is_refused(wait: Wait) -> None:
    blocked = Blocked()
    with pytest.raises(TypeError, match="timeout must be a number of seconds or None, not str"):
        wait(blocked, "1")
    blocked.gate.open()
    blocked.check()


@ANY_WAIT
def test_ctrl_c_ends_a_wait_with_a_limit(wait: Wait) -> None:
    blocked = Blocked()
    with pytest.raises(KeyboardInterrupt):
        while_waiting(lambda: wait(blocked, LONG), interrupt)
    blocked.gate.open()
    blocked.check()


@ANY_WAIT
def test_other_threads_run_during_a_wait_with_a_limit(wait: Wait) -> None:
    blocked = Blocked()
    while_waiting(lambda: wait(blocked, LONG), blocked.gate.open)
    blocked.check()


@host_cores
def test_the_error_of_a_stream_outlives_a_wait_that_ended_at_its_limit() -> None:
    blocked = Blocked()
    stream = accelrt.Stream(blocked.stream.device, dedicated=True)

    def fail() -> None:
        message = "kept"
        raise ArithmeticError(message)

    stream.launch_host(fail)
    stream.wait_stream(blocked.stream)
    with pytest.raises(TimeoutError):
        stream.synchronize(timeout=0.01)
    blocked.gate.open()
    with pytest.raises(accelrt.StreamError, match="kept"):
        stream.synchronize(timeout=LONG)
    stream.synchronize(timeout=LONG)
    blocked.check()


@host_cores
def test_a_limit_ends_while_a_callable_sleeps() -> None:
    # The callable needs the GIL, which the wait has left; it sleeps far longer than the limit.
    stream, woken = accelrt.Stream(dedicated=True), threading.Event()
    stream.launch_host(woken.wait, LONG)
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        stream.synchronize(timeout=0.01)
    assert time.monotonic() - began < LONG / 2
    woken.set()
    stream.synchronize()
