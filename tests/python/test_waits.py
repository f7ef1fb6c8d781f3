"""Goal: every wait leaves the GIL, Ctrl-C ends it, and no work needs the GIL to go on.

Method: `waits` lists them. A gate keeps each from ending, and the thread that opens it or presses
Ctrl-C can only run when the wait has left the GIL. A wait that keeps it would hang, so a watchdog
that needs no GIL ends the process then.
"""

import ctypes
import faulthandler
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

import accelrt
from gates import libc
from kinds import host_cores
from processes import LIMIT_SECONDS, output_of
from waits import SIZE, WAITS, Blocked, interrupt, nobody_gives_the_gil_up, while_waiting

ANY_WAIT = pytest.mark.parametrize("name", WAITS)
# NumPy clears what the buffer protocol raises and asks for the array interface.
ONCE = pytest.mark.parametrize("name", [name for name in WAITS if "numpy.asarray" not in name])


@pytest.fixture(autouse=True)
def watchdog() -> Iterator[None]:
    faulthandler.dump_traceback_later(LIMIT_SECONDS, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@ANY_WAIT
def test_other_threads_run_during_a_wait(name: str) -> None:
    blocked = Blocked()
    while_waiting(lambda: WAITS[name](blocked), blocked.gate.open)
    blocked.check()


@ONCE
def test_ctrl_c_ends_a_wait_and_the_work_goes_on(name: str) -> None:
    blocked = Blocked()
    with pytest.raises(KeyboardInterrupt):
        while_waiting(lambda: WAITS[name](blocked), interrupt)
    assert not blocked.event.query()
    blocked.gate.open()
    blocked.check()


@ANY_WAIT
def test_a_signal_whose_handler_returns_ends_no_wait(name: str) -> None:
    blocked = Blocked()
    handled: list[int] = []

    def handle(number: int, _frame: FrameType | None) -> None:
        handled.append(number)
        blocked.gate.open()  # without it the wait would not end

    before = signal.signal(signal.SIGINT, handle)
    try:
        while_waiting(lambda: WAITS[name](blocked), interrupt)
    finally:
        signal.signal(signal.SIGINT, before)
    assert handled == [signal.SIGINT]
    blocked.check()


@host_cores
@pytest.mark.parametrize("name", ["numpy.asarray", "numpy.asarray of a buffer"])
def test_numpy_asks_twice_and_takes_ctrl_c_twice(name: str) -> None:
    blocked, handled = Blocked(), threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        handled.set()
        signal.default_int_handler(number, frame)

    def interrupt_twice() -> None:
        interrupt()
        handled.wait()
        interrupt()

    before = signal.signal(signal.SIGINT, handle)
    try:
        with pytest.raises(KeyboardInterrupt):
            while_waiting(lambda: WAITS[name](blocked), interrupt_twice)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not blocked.event.query()
    blocked.gate.open()
    blocked.check()


def test_a_wait_that_was_interrupted_may_be_taken_up_again() -> None:
    blocked = Blocked()
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            while_waiting(blocked.stream.synchronize, interrupt)
    blocked.gate.open()
    blocked.check()


def test_an_interrupted_synchronize_leaves_the_error_to_the_next_one() -> None:
    code = """
        import accelrt
        from gates import Gate, libc
        from waits import interrupt, while_waiting

        stream = accelrt.Stream(dedicated=True)
        gate = Gate(stream)
        stream.launch(libc.abs, 5, check=True)
        try:
            while_waiting(stream.synchronize, interrupt)
        except KeyboardInterrupt:
            print("interrupted")
        gate.open()
        try:
            stream.synchronize()
        except accelrt.StreamError as error:
            print(error.__class__.__name__, str(error).endswith("returned status 5"))
        stream.synchronize()
    """
    assert output_of(code) == "interrupted\nStreamError True\n"


ENQUEUES = {
    "launch": "stream.launch(libc.abs, 1)",
    "launch with an argument to keep": "stream.launch(libc.strlen, b'kept')",
    "launch_host": "stream.launch_host(int)",
    "record_event": "stream.record_event(event)",
    "Event.record": "event.record()",
    "wait_event": "stream.wait_event(done)",
    "wait_stream by another one": "accelrt.Stream().wait_stream(stream)",
    "fill_": "buffer.fill_(1)",
    "copy_": "buffer.copy_(bytes(64), non_blocking=True)",
    "copy_to": "buffer.copy_to(target, non_blocking=True)",
    "copy_ of a buffer": "buffer[:32].copy_(buffer[32:], non_blocking=True)",
    "zeros": "accelrt.zeros(8)",
}

HELD_BACK = """
    import accelrt, sys
    from gates import Gate, libc
    from waits import interrupt, while_waiting

    buffer, target, done = accelrt.zeros(64), bytearray(64), accelrt.Event()
    buffer.stream.record_event(done)
    buffer.stream.synchronize()
    for name, text in {enqueues}.items():
        enqueue = eval(f"lambda: {{text}}")
        stream, event, seen = accelrt.Stream(dedicated=True), accelrt.Event(), []
        gate = Gate(stream)
        stream.launch_host(len, seen)  # which needs the GIL

        def many():
            for _ in range(1000):
                enqueue()

        with stream:
            try:
                while_waiting(many, interrupt)
            except KeyboardInterrupt:
                print(name, stream.query(), end=" ", flush=True)
            while_waiting(many, gate.open)
        stream.synchronize()
        print(stream.query())
"""


def test_an_enqueue_that_is_held_back_leaves_the_gil_and_can_be_interrupted() -> None:
    code = HELD_BACK.format(enqueues=ENQUEUES)
    shown = output_of(code, ACCELRT_STREAM_TASKS="64")
    assert shown.splitlines() == [f"{name} False True" for name in ENQUEUES]


def test_an_allocation_that_waits_for_a_free_leaves_the_gil_and_can_be_interrupted() -> None:
    code = """
        import accelrt
        from gates import Gate, libc
        from waits import interrupt, while_waiting

        size = 20 << 20
        buffer, stream = accelrt.zeros(size), accelrt.Stream(dedicated=True)
        buffer.stream.synchronize()
        gate = Gate(stream)
        stream.launch(libc.memset, buffer, 1, size)
        del buffer
        try:
            while_waiting(lambda: accelrt.empty(size), interrupt)
        except KeyboardInterrupt:
            print("interrupted", stream.query())
        print(while_waiting(lambda: accelrt.empty(size), gate.open))
    """
    expected = "interrupted False\naccelrt.Buffer(nbytes=20971520, device='cpu:0', done)\n"
    assert output_of(code, ACCELRT_CPU_MEMORY="30000000") == expected


@host_cores
def test_a_chain_of_work_ends_while_a_thread_holds_the_gil_in_a_native_call() -> None:
    # A function of PyDLL waits, with the GIL held, for a byte that only the end of the work writes.
    blocked, later = Blocked(), accelrt.Stream("cpu:2", dedicated=True)
    read, write = os.pipe()
    byte, target = ctypes.create_string_buffer(1), bytearray(SIZE)
    with blocked.stream:
        blocked.other.copy_(blocked.buffer, non_blocking=True)
        blocked.other[:8].fill_(9)
        blocked.other.copy_to(target, non_blocking=True)
    later.wait_stream(blocked.stream)
    later.launch(libc.write, write, b"!", 1)
    blocked.gate.open()
    assert ctypes.PyDLL(None).read(read, byte, 1) == 1
    assert target == b"\x09" * 8 + b"\x07" * (SIZE - 8)
    later.synchronize()
    blocked.check()


@host_cores
def test_work_ends_while_a_thread_never_gives_the_gil_up() -> None:
    blocked = Blocked()
    first = (ctypes.c_uint8 * SIZE).from_address(blocked.other.data_ptr())
    with blocked.stream, nobody_gives_the_gil_up():
        blocked.other.copy_(blocked.buffer, non_blocking=True)
        blocked.gate.open()
        while first[SIZE - 1] != 7:
            pass
    blocked.check()


@host_cores
def test_a_buffer_goes_while_a_thread_never_gives_the_gil_up() -> None:
    blocked = Blocked()
    home, address = blocked.buffer.stream, blocked.buffer.data_ptr()
    with home:
        blocked.buffer = accelrt.empty(SIZE, device="cpu:1")
    assert blocked.buffer.data_ptr() != address  # both are there
    others = [blocked.buffer]  # or they would be had again and again
    with home, nobody_gives_the_gil_up():
        blocked.gate.open()
        while others[-1].data_ptr() != address:
            others.append(accelrt.empty(SIZE, device="cpu:1"))
