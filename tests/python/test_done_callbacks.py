"""Goal: an event calls its callbacks when its record is done, on a thread of the pool.

Method: a gate keeps the record from being done; the callbacks tell of themselves.
"""

import gc
import queue
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable
from types import SimpleNamespace

import pytest

import accelrt
from gates import Gate, fail
from kinds import KIND
from processes import output_of, run, thread_name

LONG = 60.0  # far beyond what any of this takes


def stream() -> accelrt.Stream:
    return accelrt.Stream(f"{KIND}:0", dedicated=True)


def test_callbacks_are_called_with_the_event_when_its_record_is_done() -> None:
    work, called = stream(), queue.Queue[tuple[accelrt.Event, str]]()
    gate = Gate(work)
    event = work.record_event()
    for _ in range(3):
        event.add_done_callback(lambda event: called.put((event, thread_name())))
    assert called.empty()
    gate.open()
    for _ in range(3):
        given, thread = called.get(timeout=LONG)
        assert (given is event, thread, event.query()) == (True, "accelrt-python", True)
    work.synchronize()
    gate.close()


def test_a_callback_of_a_done_event_is_called_by_the_pool_too() -> None:
    called = queue.Queue[str]()
    work = stream()
    event = work.record_event()
    work.synchronize()
    for it in (event, accelrt.Event()):  # the other one was never recorded
        it.add_done_callback(lambda _event: called.put(thread_name()))
        assert called.get(timeout=LONG) == "accelrt-python"


def test_a_callback_is_of_the_latest_record_when_it_was_added() -> None:
    work, called = stream(), queue.Queue[int]()
    event = work.record_event()
    work.synchronize()
    gate = Gate(work)
    event.add_done_callback(lambda _event: called.put(1))
    work.record_event(event)
    event.add_done_callback(lambda _event: called.put(2))
    assert called.get(timeout=LONG) == 1
    assert called.empty()
    gate.open()
    assert called.get(timeout=LONG) == 2
    work.synchronize()
    gate.close()


def test_a_callback_of_a_failed_record_is_called_and_sees_the_failure() -> None:
    work, called = stream(), queue.Queue[object]()
    fail(work, 9)
    event = work.record_event()

    def note(event: accelrt.Event) -> None:
        try:
            event.synchronize()
        except accelrt.StreamError as error:
            called.put(str(error))

    event.add_done_callback(note)
    assert "status 9" in str(called.get(timeout=LONG))
    with pytest.raises(accelrt.StreamError):
        work.synchronize()


def test_a_failure_that_only_a_callback_waited_for_is_told_of_at_the_end() -> None:
    program = """
        import threading, accelrt

        work, called = accelrt.Stream(), threading.Event()

        def fail():
            raise ArithmeticError("not seen")

        work.launch_host(fail)
        work.record_event().add_done_callback(lambda event: called.set())
        called.wait()
    """
    ended = run("-c", textwrap.dedent(program))
    assert "no call has received: " in ended.stderr, ended
    assert "not seen" in ended.stderr, ended


def test_what_a_callback_raises_goes_to_the_hook_and_holds_no_other_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raised, called = queue.Queue[tuple[str, object]](), queue.Queue[int]()

    def keep(unraisable: SimpleNamespace) -> None:
        raised.put((str(unraisable.exc_value), unraisable.object))

    monkeypatch.setattr(sys, "unraisablehook", keep)
    work = stream()
    gate = Gate(work)
    event = work.record_event()

    def explode(_event: accelrt.Event) -> None:
        message = "a callback that raises"
        raise ArithmeticError(message)

    event.add_done_callback(explode)
    event.add_done_callback(lambda _event: called.put(1))
    gate.open()
    assert called.get(timeout=LONG) == 1
    assert raised.get(timeout=LONG) == ("a callback that raises", explode)
    work.synchronize()
    gate.close()


def test_a_callback_enqueues_work_and_does_not_wait_for_it() -> None:
    work, other, outcome = stream(), stream(), queue.Queue[object]()
    gate = Gate(other)

    def act(event: accelrt.Event) -> None:
        other.wait_event(event)
        other.launch_host(outcome.put, "enqueued")
        try:
            other.synchronize()
        except RuntimeError as error:
            outcome.put(str(error))

    work.record_event().add_done_callback(act)
    assert "cannot wait for unfinished work" in str(outcome.get(timeout=LONG))
    gate.open()
    assert outcome.get(timeout=LONG) == "enqueued"
    other.synchronize()
    gate.close()


def test_a_callback_enqueues_beyond_the_limit_of_a_stream() -> None:
    # A wait for room would not end: the tasks that make it need the thread of the callback.
    program = """
        import accelrt

        work, other, seen = accelrt.Stream(), accelrt.Stream(dedicated=True), []

        def enqueue_many(_event):
            for number in range(1_000):
                other.launch_host(seen.append, number)

        work.record_event().add_done_callback(enqueue_many)
        while len(seen) < 1_000:
            work.launch_host(int).result()
        other.synchronize()
        print(seen == list(range(1_000)))
    """
    assert output_of(program, ACCELRT_STREAM_TASKS="64") == "True\n"


def test_a_callback_leaves_no_state_to_the_next_one() -> None:
    work, current = stream(), queue.Queue[bool]()

    def enter(_event: accelrt.Event) -> None:
        work.__enter__()

    def note(_event: accelrt.Event) -> None:
        current.put(accelrt.accelerator.current_stream() == work)

    event = work.record_event()
    work.synchronize()
    for _ in range(3):
        event.add_done_callback(enter)
        event.add_done_callback(note)
        assert current.get(timeout=LONG) is False


def test_a_callback_and_its_event_are_dropped_after_the_call() -> None:
    work, called = stream(), threading.Event()

    class Callback:
        def __call__(self, _event: accelrt.Event) -> None:
            called.set()

    callback = Callback()
    event = work.record_event()
    kept: list[Callable[[], object]] = [weakref.ref(callback), weakref.ref(event)]
    event.add_done_callback(callback)
    del callback, event
    assert called.wait(LONG)
    work.launch_host(int)  # behind the callback, on the same thread or another one
    work.synchronize()
    while [it() for it in kept] != [None, None]:
        gc.collect()


def test_many_callbacks_of_pending_events_are_all_called() -> None:
    works, called = [stream() for _ in range(4)], queue.Queue[int]()

    def note(number: int) -> Callable[[accelrt.Event], None]:
        return lambda _event: called.put(number)

    for number in range(2_000):
        work = works[number % 4]
        work.launch_host(int)
        work.record_event().add_done_callback(note(number))
    assert sorted(called.get(timeout=LONG) for _ in range(2_000)) == list(range(2_000))


def test_what_is_no_callable_is_refused() -> None:
    with pytest.raises(TypeError, match="callback must be callable, not int"):
        accelrt.Event().add_done_callback(3)  # type: ignore[arg-type]


def test_a_forked_child_adds_none_and_its_parents_are_not_called_there() -> None:
    program = """
        import os, time, accelrt

        work, called = accelrt.Stream(), []
        work.launch_host(time.sleep, 0.1)
        event = work.record_event()
        event.add_done_callback(called.append)
        child = os.fork()
        if child == 0:
            try:
                event.add_done_callback(called.append)
            except RuntimeError as error:
                assert "forked" in str(error), error
                os._exit(len(called))
            os._exit(99)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        work.synchronize()
        while not called:
            time.sleep(0.001)
    """
    assert output_of(program) == "0\n"


def test_a_program_ends_with_callbacks_of_pending_events() -> None:
    program = """
        import time, accelrt

        work = accelrt.Stream()
        work.launch_host(time.sleep, 0.1)
        event = work.record_event()
        for _ in range(100):
            event.add_done_callback(lambda event: event.query())
    """
    assert output_of(program) == ""
