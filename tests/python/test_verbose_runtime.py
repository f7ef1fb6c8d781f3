"""The lines of this runtime itself: which actions are told, when, and with what.

Method: captures in processes of their own, on the kind that the suite runs on.
"""

import os
import textwrap

from kinds import KIND, host_cores
from processes import output_of

HEAD = """
import threading
import accelrt
from children import outcome

def told(log):
    return [(record.fields["stream"], record.name, int(record.fields["bytes"]))
            for record in log.records]
"""
SETTINGS = {"ACCELRT_ACCELERATOR": KIND} | {
    name: os.environ[name] for name in ("ACCELRT_OPENCL_LIBRARY",) if name in os.environ
}


def prints(body: str, **settings: str) -> list[str]:
    return output_of(HEAD + textwrap.dedent(body), **SETTINGS, **settings).splitlines()


def test_each_action_is_one_line_in_the_order_of_its_stream() -> None:
    body = """
        one, two, go_on = accelrt.Stream(), accelrt.Stream(), threading.Event()
        buffer = accelrt.zeros(4096)
        accelrt.accelerator.synchronize()
        with accelrt.verbose(1, capture=True) as log, one:
            buffer.fill_(1)
            buffer[:100].copy_(bytes(100))
            one.launch_host(go_on.wait)  # so that the event is pending when it is waited for
            two.wait_event(one.record_event())
            go_on.set()
            one.synchronize()
            two.synchronize()
        first = [(what, count) for stream, what, count in told(log) if stream == str(one.stream_id)]
        print(first)
        print([what for stream, what, _ in told(log) if stream == str(two.stream_id)])
        print({record.fields["kind"] for record in log.records}, log.records[0].fields["device"])
        print(all(0 <= record.ms < 60_000 for record in log.records))
    """
    actions = [("fill", 4096), ("copy", 100), ("deferred", 0), ("record", 0)]
    assert prints(body) == [str(actions), "['wait']", str({KIND}) + " 0", "True"]


def test_nothing_is_told_before_behind_and_inside_of_off() -> None:
    body = """
        buffer = accelrt.zeros(4096)
        buffer.stream.synchronize()
        with accelrt.verbose(1, capture=True) as log:
            with accelrt.verbose(0):
                buffer.fill_(1)
                buffer.stream.synchronize()
            buffer[:8].fill_(2)
            buffer.stream.synchronize()
        buffer.fill_(3)
        buffer.stream.synchronize()
        print([what[1:] for what in told(log)])
    """
    assert prints(body) == ["[('fill', 8)]"]


def test_lines_are_printed_without_a_capture() -> None:
    body = """
        with accelrt.verbose(1):
            accelrt.zeros(64).stream.synchronize()
    """
    (line,) = prints(body)
    word, kind, device, stream, what, count, ms = line.split(",")
    assert (word, kind, device, what, count) == ("accelrt_verbose", KIND, "0", "fill", "64")
    assert (stream, len(ms.split(".")[1])) == ("0", 6)


@host_cores
def test_a_wait_takes_as_long_as_its_stream_waited() -> None:
    # What is waited for ends when the test says so, after the other stream was seen to wait.
    body = """
        from gates import Gate
        held, waiting = accelrt.Stream(dedicated=True), accelrt.Stream(dedicated=True)
        gate = Gate(held)
        with accelrt.verbose(1, capture=True) as log:
            event = held.record_event()
            waiting.wait_event(event)
            waiting.record_event()
            print(waiting.query(), told(log))
            gate.open()
            waiting.synchronize()
            held.synchronize()
        names = [record.name for record in log.records
                 if record.fields["stream"] == str(waiting.stream_id)]
        print(names, sum(record.name == "launch" for record in log.records) <= 1)
    """
    assert prints(body) == ["False []", "['wait', 'record'] True"]


@host_cores
def test_what_is_skipped_on_a_failed_stream_is_not_told() -> None:
    body = """
        stream = accelrt.Stream(dedicated=True)
        with accelrt.verbose(1, capture=True) as log:
            def fail():
                raise ValueError
            stream.launch_host(fail)
            stream.launch_host(int)
            print(outcome(stream.synchronize).split(":")[0])
            stream.launch_host(int)
            stream.synchronize()
        print([what[1] for what in told(log)])
    """
    assert prints(body) == ["StreamError", "['deferred', 'deferred']"]


def test_threads_print_whole_lines() -> None:
    body = """
        def work():
            stream = accelrt.Stream(dedicated=True)
            for _ in range(100):
                stream.record_event()
            stream.synchronize()

        threads = [threading.Thread(target=work) for _ in range(4)]
        with accelrt.verbose(1, capture=True) as log:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        print(len(log.lines), sum(record.name == "record" for record in log.records))
    """
    assert prints(body) == ["400 400"]


def test_an_exit_while_verbose_prints_what_is_finished_then() -> None:
    body = """
        scope = accelrt.verbose(1)
        scope.__enter__()
        accelrt.zeros(64)
    """
    (line,) = prints(body)
    assert ",fill,64," in line


def test_levels_that_there_are_not_and_settings_that_are_malformed() -> None:
    body = """
        print(outcome(lambda: accelrt.verbose(2)))
        print(outcome(lambda: accelrt.verbose(None)))
    """
    assert prints(body) == [
        "ValueError: a verbose level of accelrt is 0 to 1, not 2",
        "TypeError: level must be an integer, not NoneType",
    ]
    body = """
        print(outcome(accelrt.verbose(1, capture=True).__enter__))
        with accelrt.verbose(0):
            print("went on")
    """
    refusal, last = prints(body, ACCELRT_EXIT_MS="soon")
    assert refusal.startswith('ValueError: ACCELRT_EXIT_MS="soon" is not valid')
    assert last == "went on"


def test_a_child_of_a_watched_parent_says_nothing() -> None:
    body = """
        import os, warnings
        warnings.simplefilter("ignore")
        accelrt.zeros(64).stream.synchronize()
        with accelrt.verbose(1, capture=True) as log:
            child = os.fork()
            if child == 0:
                answer = outcome(accelrt.Stream)
                os._exit(0 if answer.startswith("RuntimeError: Cannot re-init") else 1)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(told(log))
    """
    assert prints(body) == ["0", "[]"]


@host_cores
def test_a_task_that_outlasts_its_scope_is_printed_nowhere() -> None:
    body = """
        import os, time
        from gates import Gate, libc

        stream = accelrt.Stream()
        begun, announce = os.pipe()
        with accelrt.verbose(1, capture=True):
            stream.launch(libc.write, announce, b"x", 1)
            gate = Gate(stream)
            os.read(begun, 1)
            time.sleep(0.1)  # by then a worker is inside of the next task
        gate.open()
        stream.synchronize()
        print("nothing else")
    """
    assert prints(body) == ["nothing else"]
