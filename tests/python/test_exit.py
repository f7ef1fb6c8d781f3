"""The end of the interpreter: nothing hangs, and one line says what is lost, if anything is.

Method: processes of their own that end with streams and events in every state.
"""

import re
import signal
import textwrap

import pytest

from processes import output_of, run


@pytest.mark.parametrize(
    "code",
    [
        "import accelrt",
        "import accelrt; accelrt.accelerator.device_count()",
        "import accelrt; stream = accelrt.Stream()",
        "import accelrt; [accelrt.Stream().record_event() for _ in range(1000)]",
        "import accelrt; stream = accelrt.Stream(dedicated=True); event = stream.record_event()",
        "import accelrt; accelrt.Stream().__enter__()",
    ],
)
def test_an_exit_is_silent(code: str) -> None:
    assert output_of(code) == ""


def test_an_exit_with_events_still_in_flight_ends() -> None:
    code = """
        import accelrt

        streams = [accelrt.Stream(priority=index % 3 - 1) for index in range(9)]
        for _ in range(300):
            for earlier, later in zip(streams, streams[1:]):
                later.wait_stream(earlier)
    """
    assert output_of(code) == ""


def test_an_exit_status_and_a_traceback_pass_through() -> None:
    ended = run("-c", "import accelrt, sys; accelrt.Stream().record_event(); sys.exit(7)")
    assert (ended.returncode, ended.stderr) == (7, "")
    ended = run("-c", "import accelrt; accelrt.Stream(); raise KeyError('lost')")
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == "KeyError: 'lost'"


def test_a_handler_that_runs_before_the_runtime_ends_may_work() -> None:
    code = """
        import atexit
        import accelrt

        stream = accelrt.Stream()

        @atexit.register
        def finish() -> None:
            stream.record_event().synchronize()
            print("finished", stream.query())
    """
    assert output_of(code) == "finished True\n"


def test_a_handler_that_runs_after_the_end_is_told_so_and_may_ask() -> None:
    # Handlers run last in, first out: this one was there before the import.
    code = """
        import atexit

        @atexit.register
        def late() -> None:
            for call in (stream.record_event, accelrt.Stream, event.record):
                try:
                    call()
                except RuntimeError as error:
                    print(error)
            print(stream.query(), event.query(), accelrt.accelerator.device_count())

        import accelrt

        stream = accelrt.Stream()
        event = stream.record_event()
        stream.synchronize()
    """
    expected = "The runtime is shut down: it takes no new work\n" * 3 + "True True 1\n"
    assert output_of(code) == expected


def test_streams_that_outlive_the_modules_are_dropped_quietly() -> None:
    code = """
        import builtins
        import accelrt

        builtins.kept = [accelrt.Stream(dedicated=True), accelrt.Stream().record_event()]
        builtins.kept.append(builtins.kept)
    """
    assert output_of(code) == ""


def test_daemon_threads_do_not_hold_the_exit_up() -> None:
    code = """
        import threading
        import accelrt

        started = threading.Event()

        def work() -> None:
            while True:
                accelrt.Stream().record_event()
                started.set()

        threading.Thread(target=work, daemon=True).start()
        started.wait()
    """
    ended = run("-c", "\n".join(line[8:] for line in code.splitlines()))
    assert ended.returncode == 0, ended
    assert "Fatal" not in ended.stderr


def ended(code: str, **settings: str) -> tuple[int, str, list[str]]:
    """Return the status, the output and the lines on standard error of code."""
    process = run("-c", START + textwrap.dedent(code), **settings)
    return process.returncode, process.stdout, process.stderr.splitlines()


START = """
import accelrt, sys, threading
from gates import Gate, libc

stream = accelrt.Stream(dedicated=True)
"""


def left(tasks: int, threads: int) -> list[str]:
    not_run = f"{tasks} task{'' if tasks == 1 else 's'} not run"
    inside = f"{threads} thread{'' if threads == 1 else 's'} inside a task"
    why = "the exit status does not tell, because handlers of an exit cannot change it"
    return [f"accelrt: exit left {not_run} and {inside}; {why}"]


def test_what_is_queued_runs_before_the_end() -> None:
    code = """
        other = accelrt.Stream()
        for _ in range(500):
            stream.launch(libc.write, 1, b"x", 1)
            other.wait_stream(stream)
            other.launch(libc.write, 1, b"y", 1)
            stream.wait_stream(other)
    """
    assert ended(code) == (0, "xy" * 500, [])


def test_buffers_copies_and_callables_in_flight_are_done_before_the_end() -> None:
    code = """
        target = bytearray(4)
        with stream:
            for byte in b"abcdefgh":
                buffer = accelrt.zeros(4)
                buffer.fill_(byte)
                buffer.copy_to(target, non_blocking=True)
                stream.launch_host(lambda: print(target.decode(), end=" ", flush=True))
                del buffer
    """
    texts = [letter * 4 for letter in "abcdefgh"]
    assert ended(code) == (0, " ".join(texts) + " ", [])


def test_a_native_call_that_does_not_return_is_left_and_what_is_behind_it_counted() -> None:
    code = """
        gate = Gate(stream)
        for _ in range(10):
            stream.launch(libc.write, 1, b"x", 1)
            stream.record_event()
    """
    assert ended(code, ACCELRT_EXIT_MS="20") == (0, "", left(10, 1))


def test_streams_that_wait_for_what_does_not_come_are_cancelled() -> None:
    code = """
        gate, other = Gate(stream), accelrt.Stream()
        other.wait_event(stream.record_event())
        other.launch(libc.write, 1, b"x", 1)
        other.launch_host(print, "never")
    """
    assert ended(code, ACCELRT_EXIT_MS="20") == (0, "", left(2, 1))


def test_copies_and_fills_that_did_not_run_are_counted() -> None:
    code = """
        buffer, gate = accelrt.zeros(8), Gate(stream)
        with stream:
            buffer.fill_(1)
            buffer.copy_(bytes(8), non_blocking=True)
            buffer.copy_to(bytearray(8), non_blocking=True)
    """
    assert ended(code, ACCELRT_EXIT_MS="20") == (0, "", left(3, 1))


def test_no_time_for_the_exit_cancels_at_once() -> None:
    code = """
        gate = Gate(stream)
        stream.launch(libc.write, 1, b"x", 1)
        sys.exit(3)
    """
    status, output, lines = ended(code, ACCELRT_EXIT_MS="0")
    # The worker may have begun with the gate or not.
    assert (status, output) == (3, "")
    assert lines in (left(1, 1), left(2, 0))


def test_callables_behind_one_that_does_not_end_are_counted() -> None:
    code = """
        started = threading.Event()

        def block() -> None:
            started.set()
            threading.Event().wait()

        stream.launch_host(block)
        started.wait()
        for _ in range(5):
            accelrt.Stream().launch_host(print, "never")
    """
    settings = {"ACCELRT_EXIT_MS": "20", "ACCELRT_HOST_THREADS": "1"}
    assert ended(code, **settings) == (0, "", left(5, 1))


def test_a_callable_that_is_ready_is_not_begun_behind_the_one_that_the_end_waits_for() -> None:
    # Goal: callables end with the runtime. Method: the one that is under way reads what the end has
    # printed, which is before callables are stopped, and returns when the main thread has begun to
    # wait for it: it sleeps again and again. Another one is ready then.
    code = """
        import os

        started, (report, stderr) = threading.Event(), os.pipe()

        def sleeps() -> int:
            with open(f"/proc/self/task/{os.getpid()}/status") as status:
                lines = dict(line.split(":") for line in status)
            return int(lines["voluntary_ctxt_switches"])

        def call() -> None:
            started.set()
            os.read(report, 1000)
            before = sleeps()
            while sleeps() < before + 5:
                pass
            os.write(1, b"ended")

        stream.launch_host(call)
        started.wait()
        accelrt.Stream().launch_host(os.write, 1, b", and one more began")
        os.dup2(stderr, 2)
    """
    settings = {"ACCELRT_EXIT_MS": "50", "ACCELRT_HOST_THREADS": "1"}
    assert ended(code, **settings) == (0, "ended", [])


def test_errors_that_nobody_saw_are_printed_once_each() -> None:
    code = """
        stream.launch(libc.abs, 3, check=True)
        accelrt.Stream().wait_stream(stream)
        other = accelrt.Stream(dedicated=True)
        other.launch_host(int, "none")
        print(stream.stream_id, other.stream_id)
        del other
        seen = accelrt.Stream()
        seen.launch(libc.abs, 4, check=True)
        try:
            seen.record_event().synchronize()
        except accelrt.StreamError:
            pass
    """
    status, output, lines = ended(code)
    assert (status, len(lines)) == (0, 2), lines
    first, second = output.split()
    unseen = "accelrt: an error that no call has received: Stream "
    starts = [f"{unseen}{first} on cpu:0 failed: the ", f"{unseen}{second} on cpu:0 failed: a task"]
    for start, end in zip(starts, ("returned status 3", "ValueError: .* 'none'"), strict=True):
        assert any(line.startswith(start) and re.search(f"{end}$", line) for line in lines), lines


def test_exit_reports_at_most_16_errors() -> None:
    code = """
        streams = [accelrt.Stream(dedicated=True) for _ in range(20)]
        for each in streams:
            each.launch_host(int, "first line\\nsecond line")
        received = accelrt.Stream(dedicated=True)
        received.launch_host(int, "none").exception()
        for each in streams:
            while not each.query():
                pass
    """
    status, _, lines = ended(code)
    assert (status, len(lines)) == (0, 17), lines
    assert all("no call has received: Stream " in line for line in lines[:16]), lines
    assert lines[16] == "accelrt: and 4 more errors"


def test_exit_omits_failures_received_late() -> None:
    code = """
        calls = [accelrt.Stream().launch_host(int, "none") for _ in range(1_000)]
        source = accelrt.Stream(dedicated=True)
        calls.append(source.launch_host(int, "none"))
        first = accelrt.Stream()
        for _ in range(20):
            first.wait_stream(source)
            while accelrt.Stream() != first:
                pass
        while not all(call.done() for call in calls):
            pass
        print(len([call.exception() for call in calls]))
    """
    assert ended(code) == (0, "1001\n", [])


def test_an_interrupted_program_ends_with_its_traceback_and_drains() -> None:
    code = """
        from waits import interrupt, while_waiting

        gate = Gate(stream)
        stream.launch(libc.write, 1, b"x", 1)
        try:
            while_waiting(stream.synchronize, interrupt)
        finally:
            gate.open()
    """
    status, output, lines = ended(code)
    assert (status, output, lines[-1]) == (-signal.SIGINT, "x", "KeyboardInterrupt")
