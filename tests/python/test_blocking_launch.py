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


def test_workers_that_end_leave_no_stack() -> None:
    # Goal: a worker that a blocking function had started leaves nothing when it ends. Method: a
    # hundred of them, one behind the other; each has a stack of 8 MiB, of which C libraries cache
    # some.
    program = """
        import ctypes, os, accelrt
        from pathlib import Path

        libc, (reading, writing) = ctypes.CDLL(None), os.pipe()
        blocked, other = accelrt.Stream(dedicated=True), accelrt.Stream(dedicated=True)
        byte = ctypes.create_string_buffer(1)

        def mebibytes():
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            return pages * os.sysconf("SC_PAGE_SIZE") >> 20

        def start_workers(count):
            started = lambda: accelrt._core.counters()["num_spare_workers"]
            enough = started() + count
            while started() < enough:
                blocked.launch(libc.read, reading, byte, 1, blocking=True)
                other.launch(libc.write, writing, byte, 1, blocking=True)
                blocked.synchronize()
                other.synchronize()

        start_workers(10)
        before = mebibytes()
        start_workers(100)
        print(mebibytes() - before < 400)
    """
    assert output_of(program, ACCELRT_CPU_THREADS="1") == "True\n"


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
