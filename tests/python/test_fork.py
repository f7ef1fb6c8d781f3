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
    from children import ask, in_task, outcome

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


REFUSED_SELECTIONS = {
    "with": "stream.__enter__",
    "with, in an asyncio task": "lambda: in_task(stream.__enter__)",
    "set_stream": "lambda: accelerator.set_stream(stream)",
    "set_stream, in an asyncio task": "lambda: in_task(lambda: accelerator.set_stream(stream))",
}


@pytest.mark.parametrize("way", REFUSED_SELECTIONS)
def test_refused_selection_keeps_the_device(way: str) -> None:
    # Inside a task, `in_task` compares the device too.
    asked = f"outcome({REFUSED_SELECTIONS[way]}), accelerator.current_device_index()"
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


# A parent with work of every sort under way, and a child that evaluates and ends as programs do.
BUSY = """
    import gc, os, sys, threading, warnings
    import accelrt
    import numpy as np
    from children import ask, outcome
    from gates import Gate, libc

    warnings.simplefilter("ignore")
    held, other = accelrt.Stream(dedicated=True), accelrt.Stream("cpu:1")
    buffer, event = accelrt.zeros(64), accelrt.Event(enable_timing=True)
    dropped, lent = accelrt.zeros(64), memoryview(accelrt.zeros(4))
    buffer.stream.synchronize()
    view, gate = buffer.view("int64"), Gate(held)
    with held:
        buffer.fill_(1)
        buffer.copy_(bytearray(b"x" * 64), non_blocking=True)
    held.launch(libc.memset, dropped, 1, 64)
    held.launch(libc.strlen, b"kept")
    held.launch_host(int)
    event.record(held)
    for _ in range(30):
        other.wait_event(event)
        other.launch(libc.abs, 1)

    def wait():
        held.synchronize()
        other.synchronize()

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    child = os.fork()
    if child == 0:
        print({expression})
        del held, other, buffer, event, dropped, view, lent, gate
        gc.collect()
        sys.exit(0)  # through the end of the interpreter
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    gate.open()
    for thread in threads:
        thread.join()
    assert bytes(buffer) == b"x" * 64 and event.query() and other.query()
    print("went on")
"""


def in_busy_child(expression: str) -> str:
    code = BUSY.format(expression=expression)
    output = output_of(code, ACCELRT_CPU_DEVICES="2", ACCELRT_STREAM_TASKS="64")
    *answers, last = output.splitlines()
    assert last == "went on"
    return "\n".join(answers)


WORK = [
    "held.synchronize()",
    "held.launch(libc.abs, 1)",
    "held.launch_host(int)",
    "[other.launch(libc.abs, 1) for _ in range(100)]",
    "accelrt.empty(4)",
    "accelrt.zeros(4)",
    "accelrt.empty_pinned(4)",
    "accelrt.empty_shared(4)",
    "buffer.copy_(bytes(64))",
    "buffer.copy_(buffer, non_blocking=True)",
    "buffer.copy_to(bytearray(64))",
    "buffer.fill_(1)",
    "buffer.release()",
    "buffer.record_stream(held)",
    "memoryview(buffer)",
    "np.asarray(buffer)",
    "view.__array_interface__",
    "view.__dlpack__()",
    "accelrt.as_buffer(b'ab').__dlpack__(copy=True)",
    "event.elapsed_time(event)",
]


def test_manual_seed_in_a_child_skips_devices() -> None:
    program = """
        import os, threading, warnings
        import accelrt

        warnings.simplefilter("ignore")  # Python 3.12 warns of forks beside threads
        accelrt.manual_seed(1)
        accelrt.zeros(8).stream.synchronize()
        expected = accelrt.Generator("cpu").manual_seed(5).random_raw(3)
        ends = threading.Event()

        def seed_on():
            while not ends.is_set():
                accelrt.manual_seed(2)

        thread = threading.Thread(target=seed_on)
        thread.start()
        for number in range(50):  # a lock that the thread holds is held in the child
            child = os.fork()
            if child == 0:
                made = accelrt.manual_seed(5)
                assert (made.initial_seed(), made.random_raw(3)) == (5, expected)
                assert accelrt.seed() != accelrt.seed()
                try:
                    accelrt.cpu.default_generator()
                except RuntimeError:
                    os._exit(0)
                os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        ends.set()
        thread.join()
        assert accelrt.manual_seed(3).initial_seed() == accelrt.initial_seed() == 3
        print("done")
    """
    assert output_of(program) == "done\n"


def test_work_in_the_child_of_a_busy_parent_raises_and_the_parent_goes_on() -> None:
    calls = ", ".join(f"lambda: {work}" for work in WORK)
    answers = in_busy_child(f"*(outcome(call) for call in [{calls}]), sep=chr(10)").splitlines()
    assert dict(zip(WORK, answers, strict=True)) == dict.fromkeys(WORK, BAD_FORK)


def test_the_child_of_a_busy_parent_may_ask_and_see_what_it_inherited() -> None:
    asked = (
        "ask()['device_count'], held.query(), event.query(), other.device_index, buffer.nbytes, "
        "len(buffer[3:5]), bytes(lent), view.shape, held == held, repr(other.device)"
    )
    expected = r"2 False False 1 64 2 b'\x00\x00\x00\x00' (8,) True device(type='cpu', index=1)"
    assert in_busy_child(asked) == expected


def test_a_child_of_a_child_works_no_more_than_its_parent() -> None:
    code = """
        import os, sys
        import accelrt
        from children import use

        accelrt.Stream().record_event()
        for _ in range(2):
            if child := os.fork():
                sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(use())
    """
    assert output_of(code, PYTHONWARNINGS="ignore") == BAD_FORK + "\n"


def test_a_fork_by_a_thread_is_a_fork() -> None:
    code = """
        import os, threading
        import accelrt
        from children import use

        stream = accelrt.Stream()
        stream.record_event()

        def fork():
            if child := os.fork():
                print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            else:
                print(use(), flush=True)
                os._exit(0)

        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
        stream.synchronize()
    """
    assert output_of(code, PYTHONWARNINGS="ignore") == f"{BAD_FORK}\n0\n"


def test_a_child_may_become_another_program_that_works() -> None:
    code = """
        import os, sys
        import accelrt

        accelrt.Stream().record_event()
        if child := os.fork():
            sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        os.execv(sys.executable, [sys.executable, "-c", "import children; print(children.work())"])
    """
    settings = {"ACCELRT_CPU_DEVICES": "2", "PYTHONWARNINGS": "ignore"}
    assert output_of(code, **settings) == "done: True True\n"


def test_a_pool_of_the_parent_is_refused_in_the_child() -> None:
    code = """
        import os
        import accelrt
        from children import outcome

        pool = accelrt.accelerator.MemPool()
        if child := os.fork():
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        else:
            print(outcome(pool.snapshot), flush=True)
            print(outcome(pool._pool.enter), flush=True)
            os._exit(0)
    """
    expected = f"{BAD_FORK}\n{BAD_FORK}\n0\n"
    assert output_of(code, PYTHONWARNINGS="ignore") == expected


@pytest.mark.parametrize("end", ["return", "sys.exit(4)", "raise ValueError"])
def test_a_callable_that_forks_ends_its_child(end: str) -> None:
    code = f"""
        import os, signal, sys
        import accelrt

        def fork():
            if child := os.fork():
                print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            else:
                signal.alarm(20)  # a hang is told by its signal
                {end}

        stream = accelrt.Stream()
        stream.launch_host(fork)
        stream.synchronize()
    """
    assert output_of(code, PYTHONWARNINGS="ignore") == "0\n"
