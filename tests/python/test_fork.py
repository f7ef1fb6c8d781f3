"""Forked and spawned children: questions are answered, work is refused with the advice to spawn.

Method: each parent is a process of its own, since a fork is about what the parent did before.
Children leave by `os._exit`, so that they do not run the exit of the parent's interpreter.
"""

from collections.abc import Callable

import pytest

from processes import output_of

BAD_FORK = (
    "RuntimeError: Cannot re-initialize accelrt in forked subprocess. To use accelrt with "
    "multiprocessing, you must use the 'spawn' start method"
)

# A parent that initialised the runtime, and is idle or not, and a child that evaluates.
IN_CHILD = """
    import os, sys, warnings
    import accelrt
    from accelrt import accelerator, cpu
    from children import ask, outcome

    warnings.simplefilter("ignore")  # Python 3.12 warns of forks beside threads
    stream = accelrt.Stream("cpu:1")
    event = stream.record_event(accelrt.Event(enable_timing=True))
    stream.synchronize()
    child = os.fork()
    if child == 0:
        print({expression})
        del stream, event
        sys.stdout.flush()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    stream.record_event(event)  # the parent goes on
    stream.synchronize()
"""


def in_child(expression: str) -> str:
    return output_of(IN_CHILD.format(expression=expression), ACCELRT_CPU_DEVICES="2").strip()


@pytest.mark.parametrize(
    "call",
    [
        "accelrt.Stream",
        "lambda: accelrt.Stream(dedicated=True)",
        "lambda: accelrt.Stream(0, 0, 0)",
        "stream.synchronize",
        "stream.record_event",
        "lambda: stream.wait_event(event)",
        "lambda: stream.wait_stream(stream)",
        "event.record",
        "event.wait",
        "event.synchronize",
        "lambda: event.elapsed_time(event)",
        "accelerator.synchronize",
        "accelerator.current_stream",
        "lambda: accelerator.set_stream(stream)",
        "cpu.init",
        "cpu.synchronize",
        "stream.__enter__",
    ],
)
def test_work_in_the_child_of_an_initialised_parent_raises(call: Callable[[], object]) -> None:
    assert in_child(f"outcome({call})") == BAD_FORK


def test_a_child_may_ask_and_is_not_initialised() -> None:
    assert in_child("ask()") == str(
        {
            "is_available": "True",
            "device_count": "2",
            "current_accelerator": "device(type='cpu')",
            "current_device_index": "0",
            "is_initialized": "False",
            "cpu.is_available": "True",
            "cpu.device_count": "2",
            "cpu.current_device": "0",
        }
    )


def test_a_child_may_ask_what_it_inherited() -> None:
    asked = "stream.query(), event.query(), stream.device_index, str(event.device)"
    assert in_child(asked) == "True True 1 cpu:1"


def test_a_refused_enter_leaves_the_device_as_it_was() -> None:
    asked = "outcome(stream.__enter__), accelerator.current_device_index()"
    assert in_child(asked) == f"{BAD_FORK} 0"


def test_a_fork_inside_a_context_leaves_it_in_the_child() -> None:
    code = """
        import os
        import accelrt

        with accelrt.Stream("cpu:1"), accelrt.device("cpu:0"), accelrt.accelerator.device_index(1):
            child = os.fork()
        if child == 0:
            print(accelrt.accelerator.current_device_index(), flush=True)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        print(accelrt.accelerator.current_device_index())
    """
    assert output_of(code, ACCELRT_CPU_DEVICES="2", PYTHONWARNINGS="ignore") == "0\n0\n"


@pytest.mark.parametrize("before", ["", "accelrt.cpu.device_count(); accelrt.Event().query()"])
def test_the_child_of_a_parent_that_never_initialised_works(before: str) -> None:
    code = f"""
        import os
        import accelrt
        from children import work

        {before}
        child = os.fork()
        if child == 0:
            print(work(), accelrt.cpu.is_initialized(), flush=True)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        print(accelrt.cpu.is_initialized(), work())
    """
    expected = "done: True True True\nFalse done: True True\n"
    assert output_of(code, ACCELRT_CPU_DEVICES="2") == expected


def test_a_child_that_exits_by_the_interpreter_says_nothing() -> None:
    code = """
        import os, sys
        import accelrt

        stream = accelrt.Stream()
        stream.record_event()
        if os.fork() == 0:
            sys.exit(0)
        print(os.waitstatus_to_exitcode(os.wait()[1]))
    """
    assert output_of(code, PYTHONWARNINGS="ignore") == "0\n"


MULTIPROCESSING = """
    import multiprocessing
    import accelrt
    import children

    if __name__ == "__main__":
        {before}
        with multiprocessing.get_context("{method}").Pool(2) as pool:
            print(*(pool.apply(children.{function}) for _ in range(2)), sep="\\n")
"""


@pytest.mark.parametrize(
    ("method", "before", "function", "expected"),
    [
        ("fork", "children.work()", "use", BAD_FORK),
        ("fork", "accelrt.accelerator.device_count()", "work", "done: True True"),
        ("spawn", "children.work()", "work", "done: True True"),
        ("forkserver", "children.work()", "work", "done: True True"),
    ],
)
def test_multiprocessing_works_with_spawn_and_says_so_with_fork(
    method: str, before: str, function: Callable[..., object], expected: str
) -> None:
    code = MULTIPROCESSING.format(method=method, before=before, function=function)
    answers = output_of(code, ACCELRT_CPU_DEVICES="2", PYTHONWARNINGS="ignore")
    assert answers.splitlines() == [expected] * 2
