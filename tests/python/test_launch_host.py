"""Goal: Python callables run in stream order, and nothing waits for itself.

Method: callables note what they see; gates that the test holds keep streams where they are. What
concerns the end or a fork of a process runs in a process of its own.
"""

import ctypes
import gc
import os
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import accelrt
from gates import Gate
from kinds import content, host_cores
from processes import output_of, thread_name

libc = ctypes.CDLL(None)


def stream() -> accelrt.Stream:
    return accelrt.Stream(dedicated=True)


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(program)]
    environment = {**os.environ, **environment}
    return subprocess.run(  # noqa: S603  # our own interpreter and programs
        command, capture_output=True, text=True, timeout=60, check=False, env=environment
    )


def test_callables_run_in_stream_order_on_threads_of_their_own() -> None:
    work = stream()
    seen: list[int] = []
    names: set[str] = set()

    def note(number: int) -> None:
        seen.append(number)
        names.add(thread_name())

    for number in range(1000):
        work.launch_host(note, number)
    work.synchronize()
    assert seen == list(range(1000))
    assert names == {"accelrt-python"}


@host_cores
def test_native_tasks_and_callables_take_turns() -> None:
    work, text = stream(), ctypes.create_string_buffer(4)
    seen: list[bytes] = []
    for byte in b"abc":
        work.launch(libc.memset, text, byte, 3)
        work.launch_host(lambda: seen.append(text.value))
    work.synchronize()
    assert seen == [b"aaa", b"bbb", b"ccc"]


def test_events_order_callables_of_two_streams() -> None:
    first, second = stream(), stream()
    seen: list[int] = []
    gate = threading.Event()
    first.launch_host(gate.wait)
    first.launch_host(seen.append, 1)
    second.wait_event(first.record_event())
    second.launch_host(seen.append, 2)
    assert seen == []
    gate.set()
    second.synchronize()
    assert seen == [1, 2]


def test_the_stream_and_its_device_are_current_inside() -> None:
    work = stream()
    seen: list[Any] = []
    work.launch_host(lambda: seen.append(accelrt.accelerator.current_stream()))
    work.synchronize()
    other = stream()
    other.launch_host(lambda: seen.append(accelrt.accelerator.current_stream()))
    other.synchronize()
    assert seen == [work, other]


@pytest.mark.parametrize("what", ["callable", "left", "set"])
def test_a_callable_leaves_nothing_current_behind_it(what: str) -> None:
    """A host thread keeps no stream: a dedicated one ends with its last handle.

    Also one that the callable made current and never left.
    """
    program = f"""
    import accelrt
    own = accelrt.Stream(dedicated=True)
    place = own.stream_id, own.device_index, own.device_type
    what = {what!r}
    calls = dict(callable=int, left=own.__enter__, set=lambda: accelrt.cpu.set_stream(own))
    (own if what == "callable" else accelrt.Stream()).launch_host(calls.pop(what))
    calls.clear()
    accelrt.accelerator.synchronize()
    del own
    while True:
        try:
            accelrt.Stream(*place)
        except RuntimeError as error:
            print(error)
            break
    """
    assert "no stream with id" in output_of(program)


@host_cores
def test_a_host_thread_goes_on_until_nothing_is_ready() -> None:
    """More callables than it runs with one hold of the GIL become ready while one keeps it busy.

    One worker takes streams in their order, so behind the last byte all of them are ready.
    """
    program = """
    import ctypes, os, threading
    import accelrt
    read, write = os.pipe()
    begun, goes_on = threading.Event(), threading.Event()
    seen = []
    streams = [accelrt.Stream(dedicated=True) for _ in range(400)]

    def hold():
        begun.set()
        goes_on.wait()

    streams[0].launch_host(hold)
    begun.wait()
    for number, stream in enumerate(streams[1:]):
        stream.launch_host(seen.append, number)
    last = accelrt.Stream(dedicated=True)
    last.launch(ctypes.CDLL(None).write, write, ctypes.c_char_p(b"x"), 1)
    os.read(read, 1)
    assert seen == []
    goes_on.set()
    accelrt.accelerator.synchronize()
    print(seen == list(range(399)))
    """
    output = output_of(program, ACCELRT_CPU_THREADS="1", ACCELRT_HOST_THREADS="1")
    assert output == "True\n"


def test_an_exception_fails_the_stream_and_is_the_cause() -> None:
    work = stream()
    seen: list[Any] = []

    def fail() -> None:
        message = "no such thing"
        raise KeyError(message)

    work.launch_host(fail)
    work.launch_host(seen.append, 1)
    with pytest.raises(accelrt.StreamError, match="no such thing") as raised:
        work.synchronize()
    assert isinstance(raised.value.__cause__, KeyError)
    assert "in fail" in raised.value.__cause__.__notes__[0]
    work.launch_host(seen.append, 2)
    work.synchronize()
    assert seen == [2]


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_exceptions_that_end_programs_fail_the_stream(kind: type[BaseException]) -> None:
    def fail() -> None:
        raise kind

    work = stream()
    work.launch_host(fail)
    with pytest.raises(accelrt.StreamError) as raised:
        work.synchronize()
    assert isinstance(raised.value.__cause__, kind)


def test_a_failure_reaches_streams_that_wait_for_its_event() -> None:
    first, second = stream(), stream()
    first.launch_host(lambda: 1 / 0)
    second.wait_event(first.record_event())
    with pytest.raises(accelrt.StreamError) as raised:
        second.synchronize()
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    with pytest.raises(accelrt.StreamError):
        first.synchronize()


def test_waiting_inside_a_callable_raises() -> None:
    work, other, gate = stream(), stream(), threading.Event()
    messages: list[str] = []

    def attempt(wait: Callable[[], object]) -> None:
        try:
            wait()
        except RuntimeError as error:
            messages.append(str(error))

    work.launch_host(lambda: None)
    work.synchronize()
    work.launch_host(gate.wait)
    other.launch_host(lambda: None)
    event = other.record_event()
    for wait in (work.synchronize, other.synchronize, accelrt.accelerator.synchronize):
        work.launch_host(attempt, wait)
    work.launch_host(lambda: attempt(work.record_event().synchronize))
    gate.set()
    work.synchronize()
    other.synchronize()
    event.synchronize()
    # `other` is ready and needs no gate, so it may be done by its turn.
    assert len(messages) >= 3
    assert all("cannot wait for unfinished work" in message for message in messages)


def inside(work: accelrt.Stream, call: Callable[[], object]) -> object:
    """Return what a call returns in a callable, or the text of what it raises."""
    outcome: list[object] = []

    def attempt() -> None:
        try:
            outcome.append(call())
        except RuntimeError as error:
            outcome.append(str(error))

    work.launch_host(attempt)
    work.synchronize()
    return outcome.pop()


REFUSAL = (
    "a callable of launch_host cannot wait for unfinished work, which may need the threads that "
    "callables run on: order the callable behind the work, by wait_stream or wait_event"
)


@host_cores
def test_finished_work_is_waited_for_inside_a_callable() -> None:
    work, other = stream(), stream()
    with work:
        own = accelrt.zeros(2)
    with other:
        foreign = accelrt.zeros(2)
        pinned = accelrt.empty_pinned(2).fill_(7)
    work.wait_stream(other)
    other.launch_host(int)
    other.synchronize()
    assert inside(work, lambda: bytes(own)) == b"\0\0"
    assert inside(work, lambda: bytes(foreign)) == b"\0\0"
    assert inside(work, lambda: bytes(pinned)) == b"\7\7"
    assert inside(work, lambda: bytes(memoryview(foreign)[:1])) == b"\0"
    assert inside(work, lambda: memoryview(own.view("uint16")).tolist()) == [0]
    assert inside(work, lambda: accelrt.empty(4).release()) is None
    assert inside(work, lambda: len(bytes(accelrt.empty(3)))) == 3
    assert inside(work, other.synchronize) is None


@host_cores
def test_unfinished_work_is_not_waited_for_inside_a_callable() -> None:
    work, other = stream(), stream()
    with work:
        own = accelrt.zeros(2)
    with other:
        foreign = accelrt.zeros(2)
    other.synchronize()
    gate = Gate(other)
    with other:
        foreign.fill_(1)
    for wait in (
        lambda: bytes(foreign),
        other.synchronize,
        accelrt.accelerator.synchronize,
        lambda: (own.fill_(1), bytes(own)),
    ):
        assert inside(work, wait) == REFUSAL
    gate.open()
    other.synchronize()
    gate.close()
    assert inside(work, lambda: bytes(foreign)) == b"\1\1"


def test_a_copy_that_a_callable_may_not_wait_for_is_not_made() -> None:
    work = stream()
    with work:
        buffer = accelrt.zeros(2)
    assert inside(work, lambda: buffer.copy_(b"ab")) == REFUSAL
    assert inside(work, lambda: buffer.view("uint8").__dlpack__(copy=True)) == REFUSAL
    assert content(buffer) == b"\0\0"
    inside(work, lambda: buffer.copy_(b"ab", non_blocking=True))
    work.synchronize()  # the copy stands behind the callable
    assert content(buffer) == b"ab"


def test_a_finished_failure_is_raised_inside_a_callable() -> None:
    work, other = stream(), stream()
    other.launch_host(lambda: 1 / 0)
    while not other.query():
        inside(work, int)
    assert "division by zero" in str(inside(work, other.synchronize))


def test_enqueueing_inside_a_callable_is_fine() -> None:
    work = stream()
    seen: list[Any] = []

    def again(count: int) -> None:
        seen.append(count)
        if count:
            work.launch_host(again, count - 1)

    work.launch_host(again, 5)
    for _ in range(6):
        work.synchronize()
    assert seen == [5, 4, 3, 2, 1, 0]


def test_a_done_event_may_be_synchronised_with_inside() -> None:
    done, work = accelrt.Event(), stream()
    seen: list[object] = []
    work.launch_host(lambda: seen.append(done.synchronize()))  # type: ignore[func-returns-value]
    work.synchronize()
    assert seen == [None]


class Owner:
    def __call__(self) -> None:
        pass


def test_callables_and_arguments_go_when_they_ran_or_were_skipped() -> None:
    work = stream()
    ran, skipped = Owner(), Owner()
    alive = [weakref.ref(ran), weakref.ref(skipped)]
    work.launch_host(ran)
    work.launch_host(lambda: 1 / 0)
    work.launch_host(skipped)
    work.launch_host(print, skipped)
    del ran, skipped
    with pytest.raises(accelrt.StreamError):
        work.synchronize()
    work.synchronize()
    work.launch_host(int)  # a binding call collects what workers dropped
    work.synchronize()
    gc.collect()
    assert [reference() for reference in alive] == [None, None]


def test_only_callables_are_taken() -> None:
    with pytest.raises(TypeError, match="callable must be callable, not int"):
        stream().launch_host(1)  # type: ignore[arg-type]


def test_many_threads_and_streams_keep_their_orders() -> None:
    def produce(work: accelrt.Stream, seen: list[int]) -> None:
        for number in range(500):
            work.launch_host(seen.append, number)

    streams = [stream() for _ in range(4)]
    lists: list[list[int]] = [[] for _ in streams]
    pairs = zip(streams, lists, strict=True)
    threads = [threading.Thread(target=produce, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for work in streams:
        work.synchronize()
    assert lists == [list(range(500))] * 4


def test_a_stream_at_its_limit_lets_host_threads_have_the_gil() -> None:
    program = """
        import accelrt
        work, seen = accelrt.Stream(), []
        for number in range(5000):
            work.launch_host(seen.append, number)
        def many():
            for number in range(5000):
                work.launch_host(seen.append, number)
        work.launch_host(many)  # held back by nothing: it would wait for itself
        work.synchronize()
        work.synchronize()
        assert len(seen) == 10000, len(seen)
        print("done")
    """
    ended = run(program, ACCELRT_STREAM_TASKS="64")
    assert (ended.stdout, ended.stderr, ended.returncode) == ("done\n", "", 0)


def test_callables_that_are_pending_at_exit_run() -> None:
    # One write for each: a print of another thread may come between a text and its line end.
    program = """
        import accelrt, os
        for number in range(100):
            accelrt.Stream().launch_host(os.write, 1, b"%d\\n" % number)
    """
    ended = run(program)
    assert sorted(map(int, ended.stdout.split())) == list(range(100))
    assert (ended.stderr, ended.returncode) == ("", 0)


def test_a_callable_that_does_not_end_does_not_keep_the_process() -> None:
    program = """
        import accelrt, threading
        work, started = accelrt.Stream(), threading.Event()
        def block():
            started.set()
            threading.Event().wait()
        work.launch_host(block)
        work.launch_host(print, "never")
        started.wait()
    """
    ended = run(program, ACCELRT_EXIT_MS="50")
    assert (ended.stdout, ended.returncode) == ("", 0)
    assert "1 task not run and 1 thread inside a task" in ended.stderr


def test_a_callable_that_outlives_the_interpreter_ends_quietly() -> None:
    # It asks for the GIL again at any time around the end of the interpreter.
    program = """
        import accelrt, threading, time
        work, started = accelrt.Stream(), threading.Event()
        def nap():
            started.set()
            while True:
                time.sleep(0.0005)
        work.launch_host(nap)
        started.wait()
    """
    for _ in range(5):
        assert run(program, ACCELRT_EXIT_MS="10").returncode == 0


def test_a_forked_child_neither_runs_nor_launches() -> None:
    program = """
        import accelrt, os, threading
        work, gate, seen = accelrt.Stream(), threading.Event(), []
        work.launch_host(gate.wait)
        work.launch_host(lambda: seen.append(os.getpid()))
        child = os.fork()
        if child == 0:
            gate.set()
            try:
                work.launch_host(print, "child")
            except RuntimeError as error:
                assert "spawn" in str(error)
                os._exit(7 if not seen else 1)
            os._exit(2)
        _, status = os.waitpid(child, 0)
        gate.set()
        work.synchronize()
        assert seen == [os.getpid()]
        print(os.waitstatus_to_exitcode(status))
    """
    ended = run(program)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("7\n", "", 0)


def test_a_fork_that_ends_normally_ends() -> None:
    program = """
        import accelrt, os
        work = accelrt.Stream()
        work.launch_host(int)
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            print(os.waitstatus_to_exitcode(status))
            work.synchronize()
    """
    ended = run(program)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("0\n", "", 0)
