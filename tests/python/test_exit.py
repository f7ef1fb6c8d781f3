"""The end of the interpreter: nothing hangs, nothing is printed when nothing is lost.

Method: processes of their own that end with streams and events in every state.
"""

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
