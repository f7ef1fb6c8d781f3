"""Goal: the handle of a callable has its outcome, and waits for it as other waits do.

Method: callables that return, raise, sleep behind an event, are skipped, or are left by the end.
"""

import contextlib
import gc
import threading
import typing
import weakref
from collections.abc import Callable

import pytest

import accelrt
from kinds import KIND
from processes import output_of
from waits import interrupt, while_waiting

LONG = 60.0  # far beyond what any of this takes


def stream() -> accelrt.Stream:
    return accelrt.Stream(f"{KIND}:0", dedicated=True)


def fail(text: str) -> None:
    raise ArithmeticError(text)


def test_a_handle_has_what_the_callable_returned() -> None:
    work = stream()
    calls = [work.launch_host(pow, 2, number) for number in range(100)]
    assert [call.result() for call in calls] == [2**number for number in range(100)]
    assert all(call.done() and call.exception() is None for call in calls)


def test_handle_receives_what_the_callable_raised() -> None:
    work = stream()
    call = work.launch_host(fail, "no such number")
    with pytest.raises(ArithmeticError, match="no such number") as raised:
        call.result()
    assert call.exception() is raised.value
    work.synchronize()  # the receipt has ended the failure


def test_stream_raises_the_exception_that_a_handle_keeps() -> None:
    work = stream()
    call = work.launch_host(fail, "no such number")
    with pytest.raises(accelrt.StreamError, match="no such number") as failed:
        work.synchronize()
    assert failed.value.__cause__ is call.exception()


def test_a_callable_that_was_skipped_raises_the_failure_of_its_stream() -> None:
    work = stream()
    first = work.launch_host(fail, "the first")
    skipped = work.launch_host(int)
    assert isinstance(first.exception(LONG), ArithmeticError)
    with pytest.raises(accelrt.StreamError, match="the first"):
        skipped.result(LONG)
    work.synchronize()
    assert skipped.done()
    assert "the first" in str(skipped.exception())  # every receiver gets the failure
    assert work.launch_host(int).result() == 0


def test_a_handle_waits_up_to_its_limit() -> None:
    work, goes_on = stream(), threading.Event()
    call = work.launch_host(goes_on.wait, LONG)
    assert not call.done()
    for wait in (call.result, call.exception):
        for timeout in (0, 0.001):
            with pytest.raises(TimeoutError, match="the work is not done and goes on"):
                wait(timeout=timeout)
    with pytest.raises(ValueError, match="timeout must be 0 seconds or more, not -1"):
        call.result(-1)
    assert "pending" in repr(call)
    while_waiting(lambda: call.result(LONG), goes_on.set)
    assert call.result(timeout=0) is True
    assert "done" in repr(call)


def test_waits_for_a_handle_that_ended_at_their_limit_leave_nothing() -> None:
    program = """
    import accelrt, contextlib, threading
    from pathlib import Path

    goes_on = threading.Event()
    call = accelrt.Stream().launch_host(goes_on.wait)

    def wait_often(count):
        for _ in range(count):
            with contextlib.suppress(TimeoutError):
                call.result(timeout=0)

    def pages():
        return int(Path("/proc/self/statm").read_text().split()[1])

    wait_often(1_000)
    before = pages()
    wait_often(20_000)
    print(pages() - before < 150)
    goes_on.set()
    """
    assert output_of(program) == "True\n"


def test_ctrl_c_ends_a_wait_for_a_handle_and_the_callable_goes_on() -> None:
    work, goes_on = stream(), threading.Event()
    call = work.launch_host(goes_on.wait, LONG)
    with pytest.raises(KeyboardInterrupt):
        while_waiting(call.result, interrupt)
    assert not call.done()
    goes_on.set()
    assert call.result() is True


def test_many_threads_wait_for_one_handle() -> None:
    work, goes_on = stream(), threading.Event()
    call = work.launch_host(lambda: goes_on.wait(LONG) and 7)
    seen: list[object] = []
    threads = [threading.Thread(target=lambda: seen.append(call.result(LONG))) for _ in range(8)]
    for thread in threads:
        thread.start()
    goes_on.set()
    for thread in threads:
        thread.join()
    assert seen == [7] * 8


def test_inside_a_callable_a_handle_is_waited_for_only_when_it_is_done() -> None:
    work, other, goes_on = stream(), stream(), threading.Event()
    pending, done = other.launch_host(goes_on.wait, LONG), stream().launch_host(int)
    assert done.result() == 0
    assert work.launch_host(done.result).result() == 0
    refused = work.launch_host(pending.result)
    with pytest.raises(RuntimeError, match="cannot wait for unfinished work"):
        refused.result()
    work.synchronize()
    goes_on.set()
    assert pending.result() is True


class Value:
    """An object that tells when it goes."""


def test_a_handle_keeps_the_result_and_no_handle_keeps_none() -> None:
    work = stream()
    call = work.launch_host(Value)
    work.synchronize()
    value = call.result()
    alive = weakref.ref(value)
    del value
    gc.collect()
    assert alive() is call.result()
    del call
    seen: list[weakref.ref[Value]] = []

    def make() -> Value:
        value = Value()
        seen.append(weakref.ref(value))
        return value

    work.launch_host(make)
    work.synchronize()
    work.launch_host(int).result()  # a call of ours drops what other threads have released
    gc.collect()
    assert [alive(), seen[0]()] == [None, None]


def test_the_collector_frees_a_handle_whose_outcome_refers_to_it() -> None:
    # An exception refers to the frames that it passed, and so to their handles.
    work = stream()
    alive: list[weakref.ref[Value]] = []

    def make(callable: Callable[[], object]) -> None:
        value = Value()
        alive.append(weakref.ref(value))
        call = work.launch_host(callable)
        call.exception()
        with contextlib.suppress(ArithmeticError):
            returned = call.result()
            assert isinstance(returned, list)
            returned += [call, value]
        with contextlib.suppress(accelrt.StreamError):
            work.synchronize()

    make(list)
    make(lambda: fail("seen in this frame"))
    work.launch_host(int).result()  # drops what other threads have released
    gc.collect()
    assert [value() for value in alive] == [None, None]


def test_a_handle_is_annotated_with_the_type_of_its_result() -> None:
    call: accelrt.HostCall[int] = stream().launch_host(len, "abc")
    assert call.result() == 3
    assert typing.get_origin(accelrt.HostCall[int]) is accelrt.HostCall


def test_a_handle_in_a_forked_child_is_pending_and_refuses_to_wait() -> None:
    program = """
    import accelrt, os
    call = accelrt.Stream().launch_host(int)
    call.result()
    child = os.fork()
    if child == 0:
        try:
            call.result()
        except RuntimeError as error:
            os._exit(7 if "spawn" in str(error) and not call.done() else 1)
        os._exit(2)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), call.result())
    """
    assert output_of(program) == "7 0\n"


def test_a_callable_that_the_end_cancels_is_done_and_was_not_called() -> None:
    program = """
    import accelrt, threading
    from accelrt import _core
    begun, goes_on = threading.Event(), threading.Event()

    def call():
        begun.set()
        goes_on.wait()

    work = accelrt.Stream()
    work.launch_host(call)
    begun.wait()
    cancelled = work.launch_host(int)
    import os
    stderr = os.dup(2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what the end says of the tasks
    _core.shut_down()
    os.dup2(stderr, 2)
    goes_on.set()
    try:
        cancelled.result(60)
    except RuntimeError as error:
        print(str(error)[:27])
    """
    assert output_of(program, ACCELRT_EXIT_MS="0") == "the callable was not called\n"


ENQUEUED = """
    import accelrt

    def explode():
        raise ArithmeticError("it explodes")

    def enqueue(work):
        return work.launch_host(explode)

    work = accelrt.Stream()
    call = enqueue(work)
    try:
        work.synchronize()
    except accelrt.StreamError as error:
        print(getattr(error.__cause__, "__notes__", None))
    print(getattr(call.exception(), "__notes__", None))
"""


def test_an_exception_says_where_its_callable_was_enqueued_if_tracebacks_are_on() -> None:
    [of_cause, note] = output_of(ENQUEUED, ACCELRT_TRACEBACKS="1").splitlines()
    assert note == of_cause == "['The callable was enqueued by enqueue in <string>:8']"
    for setting in ("", "0"):
        assert output_of(ENQUEUED, ACCELRT_TRACEBACKS=setting) == "None\nNone\n"


# A thread begins in a lambda, so that no frame of a named function is below it.
ENQUEUED_BY_LAMBDAS = """
    import _thread, time
    import accelrt

    def explode():
        raise ArithmeticError("it explodes")

    class Model:
        def step(self):
            return lambda: calls.append(accelrt.Stream().launch_host(explode))

    def of_lambda():
        return (lambda: lambda: calls.append(accelrt.Stream().launch_host(explode)))()

    def outer():
        def inner():
            return lambda: calls.append(accelrt.Stream().launch_host(explode))
        return inner()

    def of_generator():
        return next(
            lambda: calls.append(accelrt.Stream().launch_host(explode)) for _ in range(1)
        )

    of_module = lambda: calls.append(accelrt.Stream().launch_host(explode))
    nested = (lambda: lambda: calls.append(accelrt.Stream().launch_host(explode)))()

    for enqueue in Model().step(), of_lambda(), outer(), of_generator(), of_module, nested:
        calls = []
        _thread.start_new_thread(enqueue, ())
        while not calls:
            time.sleep(0.001)
        [note] = calls[0].exception().__notes__
        print(note.removeprefix("The callable was enqueued by ").split(" in ")[0])
"""


def test_lambdas_that_enqueue_count_as_functions() -> None:
    names = output_of(ENQUEUED_BY_LAMBDAS, ACCELRT_TRACEBACKS="1").splitlines()
    functions = ["Model.step", "of_lambda", "outer.<locals>.inner", "of_generator"]
    assert names == [*functions, "<module>", "<module>"]
