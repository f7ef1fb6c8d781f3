"""Captures and the ends and children of processes: nothing printed is lost, nobody hangs.

Method: as in `test_verbose_capture`. A child that was forked inherits the pipe and not the thread
that reads it; one that became another program inherits descriptor 1 alone.
"""

import textwrap

import pytest

from test_verbose_capture import CALL, prints, run

# What a child that was forked does, and its parent's look at how it ended.
FORK = """
import warnings
warnings.simplefilter("ignore")  # Python 3.12 warns of forks beside threads

def fork(work):
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            sys.stdout.flush()
            os._exit(0)
    return child

def wait(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


def forking(body: str) -> str:
    """Return a body with the functions above."""
    return FORK + textwrap.dedent(body)


def test_what_a_forked_child_prints_passes_on_and_its_calls_are_collected() -> None:
    body = """
        def work():
            call("of_the_child")
            print("text of the child")

        with mkldnn.verbose(1, capture=True) as log:
            call("before")
            print("first", flush=True)
            assert wait(fork(work)) == 0
            call("after")
        print(names(log))
    """
    assert prints(forking(body)) == ["first", "text of the child", "before of_the_child after"]


def test_a_child_that_outlives_the_capture_goes_on_printing() -> None:
    body = """
        reader, writer = os.pipe()

        def work():
            os.read(reader, 1)
            os.write(1, b"late\\n")
            call("late")

        with mkldnn.verbose(1, capture=True) as log:
            child = fork(work)
            call("mine")
        os.write(1, b"the capture is over\\n")
        os.write(writer, b"x")
        assert wait(child) == 0
        with mkldnn.verbose(1, capture=True) as last:
            pass
        print(names(log), "|", names(last))
        sys.stdout.flush()
        while len(os.listdir("/proc/self/task")) > 1:  # the reader of the child's pipe ends with it
            os.sched_yield()
    """
    first, *rest = prints(forking(body))
    assert first == "the capture is over"
    assert sorted(rest) == sorted(["late", CALL.format("late", "0.5").strip(), "mine | "])


def test_a_child_that_leaves_the_scope_prints_where_it_should() -> None:
    body = """
        with mkldnn.verbose(1, capture=True) as log:
            call("before")
            os.write(1, b"inside\\n")
            assert len(log.lines) == 1  # and so it has passed on, too
            child = os.fork()
        if child == 0:
            os.write(1, b"out of the scope\\n")
            say(len(log.records), len(log.lines))
            os._exit(0)
        assert wait(child) == 0
        call("silent")
        os.write(1, (names(log) + "\\n").encode())
    """
    ended = run(forking(body))
    assert (ended.returncode, ended.stderr) == (0, "0 0\n")
    assert ended.stdout == "inside\nout of the scope\nbefore\n"


@pytest.mark.parametrize("parent", ["capturing", "done"])
def test_a_child_may_capture_itself(parent: str) -> None:
    body = f"""
        def work():
            call("for_the_parent")
            with mkldnn.verbose(1, capture=True) as log:
                os.write(1, b"text in the child\\n")
                call("own")
            os.write(1, (names(log) + "\\n").encode())

        with mkldnn.verbose(1, capture=True) as log:
            call("first")
            if {parent!r} == "capturing":
                assert wait(fork(work)) == 0
        if {parent!r} == "done":
            assert wait(fork(work)) == 0
        print(names(log))
    """
    collected = "first for_the_parent" if parent == "capturing" else "first"
    assert prints(forking(body)) == ["text in the child", "own", collected]


def test_a_child_that_outlives_the_process_is_not_blocked() -> None:
    # Nobody reads what it prints any more: its writes are refused, as behind any pipe.
    body = """
        reader, writer = os.pipe()

        def work():
            os.close(writer)
            os.read(reader, 1)  # until the parent is gone
            try:
                for _ in range(1000):
                    os.write(1, b"x" * 1000)
            except BrokenPipeError:
                say("refused")

        with mkldnn.verbose(1, capture=True) as log:
            fork(work)
            os.write(1, b"done\\n")
    """
    ended = run(forking(body))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "refused\n")


def test_another_program_inherits_the_capture() -> None:
    body = f"""
        import subprocess
        line = {CALL!r}.format("of_the_program", "1").strip()
        with mkldnn.verbose(1, capture=True) as log:
            subprocess.run(["/bin/sh", "-c", "echo text; echo " + line], check=True)
            subprocess.run(["/bin/echo", "more"], check=True)
            listed = subprocess.run(["/bin/ls", "/proc/self/fd"], capture_output=True, check=True)
        print(names(log), len(listed.stdout.split()))
    """
    # Of its own it has 0 to 2 and the folder that it lists.
    assert prints(body) == ["text", "more", "of_the_program 4"]


def test_a_program_that_goes_on_after_the_capture_keeps_its_output() -> None:
    body = """
        import subprocess
        with mkldnn.verbose(1, capture=True):
            child = subprocess.Popen(["/bin/sh", "-c", "read word; echo $word"],
                                     stdin=subprocess.PIPE)
        os.write(1, b"over\\n")
        child.communicate(b"late\\n")
        while len(os.listdir("/proc/self/task")) > 1:  # what it printed was read by then
            os.sched_yield()
    """
    assert prints(body) == ["over", "late"]


def test_children_of_multiprocessing_are_watched() -> None:
    body = """
        import multiprocessing
        with mkldnn.verbose(1, capture=True) as log:
            processes = [
                multiprocessing.get_context("fork").Process(target=call, args=(f"of_{number}",))
                for number in range(3)
            ]
            for process in processes:
                process.start()
            for process in processes:
                process.join()
        print(sorted(names(log).split()))
    """
    assert prints(forking(body)) == ["['of_0', 'of_1', 'of_2']"]


@pytest.mark.parametrize(
    ("end", "status"),
    [("sys.exit(3)", 3), ("raise KeyboardInterrupt", -2), ("1 / 0", 1), ("", 0)],
)
def test_an_exit_inside_of_a_capture_prints_everything(end: str, status: int) -> None:
    body = f"""
        with mkldnn.verbose(1, capture=True) as log:
            call()
            print("of Python")
            library.print_later(b"of C\\n")
            os.write(1, b"bare\\n")
            {end or "pass"}
    """
    ended = run(body)
    assert ended.returncode == status
    assert sorted(ended.stdout.splitlines()) == ["bare", "of C", "of Python"]


def test_an_exit_with_a_capture_that_nobody_ends_prints_everything() -> None:
    body = """
        scope = mkldnn.verbose(1, capture=True)
        outer, inner = scope.__enter__(), scope.__enter__()
        print("of Python")
        library.print_later(b"of C, which is flushed last\\n")
        os.write(1, b"bare\\n")
        call()
    """
    ended = run(body)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert sorted(ended.stdout.splitlines()) == ["bare", "of C, which is flushed last", "of Python"]


def test_a_forked_child_that_exits_with_the_parents_capture_open_prints_everything() -> None:
    body = """
        scope = mkldnn.verbose(1, capture=True)
        log = scope.__enter__()
        child = os.fork()
        if child == 0:
            print("of the child")
            library.print_later(b"of its C\\n")
            sys.exit(0)
        assert wait(child) == 0
        call()
        say(names(log))
    """
    ended = run(forking(body))
    assert (ended.returncode, ended.stderr) == (0, "matmul\n")
    assert sorted(ended.stdout.splitlines()) == ["of its C", "of the child"]


def test_a_capture_that_is_dropped_has_ended() -> None:
    body = """
        before = descriptors()
        mkldnn.verbose(1, capture=True).__enter__()
        print(before == descriptors(), library.level_now())
    """
    assert prints(body) == ["True 0"]
