"""Goal: a native function that blocks delays its own stream alone, if its launch says so.

Method: functions that read from pipes, each of which is written behind another one's read; fewer
workers than functions, in a process of its own.
"""

import ctypes

import pytest

import accelrt
from kinds import KIND
from processes import output_of

pytestmark = pytest.mark.skipif(KIND != "cpu", reason="native functions are tasks of host kinds")

CHAIN = """
    import ctypes, os, accelrt

    libc = ctypes.CDLL(None)
    streams = [accelrt.Stream(dedicated=True) for _ in range(8)]
    pipes = [os.pipe() for _ in streams]
    byte = ctypes.create_string_buffer(1)
    for place, stream in enumerate(streams):
        stream.launch(libc.read, pipes[place][0], byte, 1, blocking=True)
        if place:
            stream.launch_host(os.write, pipes[place - 1][1], b"x")
    os.write(pipes[-1][1], b"x")  # of the stream that the workers come to last
    for stream in streams:
        stream.synchronize()
    print(accelrt._core.counters()["num_spare_workers"] > 0)
"""


def test_more_blocking_functions_than_workers_wait_for_each_other() -> None:
    assert output_of(CHAIN, ACCELRT_CPU_THREADS="2") == "True\n"


def test_a_blocking_function_is_checked_and_takes_many_arguments_and_buffers() -> None:
    libc, work = ctypes.CDLL(None), accelrt.Stream()
    with work:
        buffer = accelrt.zeros(8)
        work.launch(libc.memset, buffer, 7, 8, blocking=True)
        assert bytes(buffer) == b"\x07" * 8
    text = ctypes.create_string_buffer(32)
    work.launch(libc.snprintf, text, 32, b"%d %d %d %d", 1, 2, 3, 4, blocking=True)
    work.synchronize()
    assert text.value == b"1 2 3 4"
    work.launch(libc.abs, 5, blocking=True, check=True)
    with pytest.raises(accelrt.StreamError, match="returned status 5"):
        work.synchronize()


def test_what_is_no_flag_is_refused() -> None:
    with pytest.raises(TypeError, match="blocking"):
        accelrt.Stream().launch(ctypes.CDLL(None).abs, 1, blocking=2)  # type: ignore[arg-type]
