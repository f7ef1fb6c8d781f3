"""Captures: whose line goes where, in which order, and what is left behind.

Method: processes of their own, whose descriptor 1 is a pipe or a file of this test, with a fake
library that prints what it is told, beside Python, C and bare writes.
"""

import os
import select
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from accelrt.backends import mkldnn
from fake_math import BUFFERED, HEAD, fake_mkl, fake_onednn, watched
from processes import LIMIT_SECONDS

# One call as oneDNN prints it.
CALL = "onednn_verbose,exec,cpu,{},jit,undef,src dst,,,64x64,{}\n"
LIBRARY = f"library, other = load({str(fake_onednn())!r}), load({str(fake_mkl())!r})\n"
HELPERS = f"""
{LIBRARY}
def call(name="matmul", ms="0.5"):
    library.print_line({CALL!r}.format(name, ms).encode())

def descriptors():
    return sorted(os.listdir("/proc/self/fd"))

def names(log):
    return " ".join(record.name for record in log.records)

def say(*values):
    os.write(2, (" ".join(map(str, values)) + chr(10)).encode())
"""


def prints(body: str, **settings: str) -> list[str]:
    """Return the lines that come out of descriptor 1; nothing may come out of 2."""
    return watched(HELPERS + textwrap.dedent(body), **settings)


def run(
    body: str, *, stdout: int | None = subprocess.PIPE, redirection: str = "", **settings: str
) -> "subprocess.CompletedProcess[str]":
    """Run a body with descriptor 1 as given; 2 is for what it says of itself."""
    code = HEAD + HELPERS + textwrap.dedent(body)
    command = [sys.executable, "-c", code]
    if redirection:
        command = ["/bin/sh", "-c", f'exec "$0" "$@" {redirection}', *command]
    environment = os.environ | BUFFERED | {"PYTHONPATH": str(Path(__file__).parent)} | settings
    return subprocess.run(  # noqa: S603  the interpreter of this test
        command,
        env=environment,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )


def test_capture_descriptors_are_not_inherited() -> None:
    body = """
        def numbers():
            return {int(name) for name in os.listdir("/proc/self/fd")}
        before = numbers()
        with mkldnn.verbose(1, capture=True):
            added = sorted(numbers() - before)
            inherited = [number for number in added if os.path.exists(f"/proc/self/fd/{number}")
                and os.get_inheritable(number)]
        print(len(added) > 0, inherited, os.get_inheritable(1))
    """
    assert prints(body) == ["True [] True"]


def test_lines_of_the_library_are_kept_and_the_rest_passes_in_order() -> None:
    body = """
        print("before")
        with mkldnn.verbose(1, capture=True) as log:
            print("of Python")
            sys.stdout.flush()
            call("matmul", "0.25")
            library.print_later(b"of C\\n")
            library.print_later(b"still in a buffer\\n")
            call("conv", "1.5")
            os.write(1, b"bare\\n")
            library.print_later(b"kept by C until the end\\n")
            print("kept by Python until the end")
        print("after")
        print(names(log), [record.ms for record in log.records])
    """
    assert prints(body) == [
        *("before", "of Python", "of C", "still in a buffer", "bare"),
        *("kept by Python until the end", "kept by C until the end", "after"),
        "matmul conv [0.25, 1.5]",
    ]


def test_what_passes_on_passes_at_once() -> None:
    # A parent that answers only what it has read would hang if a line were held back.
    code = (
        HEAD
        + HELPERS
        + textwrap.dedent("""
            with mkldnn.verbose(1, capture=True):
                print("Continue? yes or no", end="", flush=True)
                assert input() == "yes"
                os.write(1, b"onednn_is not its word\\n")
                assert input() == "go on"
        """)
    )
    child = subprocess.Popen(  # noqa: S603  the interpreter of this test
        [sys.executable, "-c", code],
        env=os.environ | BUFFERED | {"PYTHONPATH": str(Path(__file__).parent)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        for expected, answer in [
            (b"Continue? yes or no", b"yes\n"),
            (b"onednn_is not its word\n", b"go on\n"),
        ]:
            assert child.stdout.read(len(expected)) == expected
            child.stdin.write(answer)
            child.stdin.flush()
        child.stdin.close()
        assert child.stdout.read() == b""
    assert child.returncode == 0


def test_a_terminal_stays_one_for_c_that_printed_first_inside_of_a_capture() -> None:
    # The C library would take the pipe's word for it and keep lines from then on.
    code = HEAD + textwrap.dedent(f"""
        library = load({str(fake_onednn())!r})
        with mkldnn.verbose(1, capture=True):
            assert not os.isatty(1)
            library.print_later(b"first\\n")
        library.print_later(b"on a terminal\\n")
        assert os.isatty(1) and input() == "seen"
    """)
    mine, terminal = os.openpty()
    child = subprocess.Popen(  # noqa: S603  the interpreter of this test
        [sys.executable, "-c", code],
        env=os.environ | BUFFERED | {"PYTHONPATH": str(Path(__file__).parent)},
        stdin=subprocess.PIPE,
        stdout=terminal,
    )
    with child:
        os.close(terminal)
        shown = b""
        while b"on a terminal" not in shown and select.select([mine], [], [], LIMIT_SECONDS)[0]:
            shown += os.read(mine, 1000)
        child.communicate(b"seen\n")
    os.close(mine)
    assert (child.returncode, shown.splitlines()) == (0, [b"first", b"on a terminal"])


def test_nothing_is_printed_without_a_capture_that_is_asked() -> None:
    body = """
        with mkldnn.verbose(1) as log:
            call()
        print(outcome(lambda: log.records), outcome(log.table))
    """
    refusal = "RuntimeError: nothing was captured: the scope has no capture=True"
    line = CALL.format("matmul", "0.5").strip()
    assert prints(body) == [line, f"{refusal} {refusal}"]


def test_warm_up_silently_watch_one_call_go_on_silently() -> None:
    body = """
        with mkldnn.verbose(mkldnn.VERBOSE_OFF):
            call("warm_up")
            with mkldnn.verbose(mkldnn.VERBOSE_ON, capture=True) as log:
                call("watched")
            call("later")
        call("at_last")
        print(names(log))
    """
    last = CALL.format("at_last", "0.5").strip()
    assert prints(body, ONEDNN_VERBOSE="1") == [last, "watched"]


def test_nested_captures_both_collect_and_tell_parts_apart() -> None:
    body = """
        with mkldnn.verbose(1, capture=True) as whole:
            call("encode")
            with mkldnn.verbose(1, capture=True) as part:
                call("decode")
                print(len(whole.records), len(part.records))
            call("sum")
            with mkldnn.verbose(0, capture=True) as silent:
                call("not_printed")
        print(names(whole), "|", names(part), "|", names(silent))
    """
    assert prints(body) == ["2 1", "encode decode sum | decode | "]


def test_captures_of_two_libraries_keep_each_its_own() -> None:
    body = """
        with mkl.verbose(1, capture=True) as gemms, mkldnn.verbose(1, capture=True) as others:
            call("matmul")
            other.print_line(b"MKL_VERBOSE DGEMM(N,N) 2.5us CNR:OFF NThr:2\\n")
        with mkldnn.verbose(1, capture=True), mkl.verbose(1):
            other.print_line(b"MKL_VERBOSE passes on\\n")
        print(names(gemms), "|", names(others))
    """
    assert prints(body) == ["MKL_VERBOSE passes on", "DGEMM | matmul"]


def test_an_exception_passes_and_the_log_is_whole() -> None:
    body = """
        def fail():
            with mkldnn.verbose(1, capture=True) as log:
                logs.append(log)
                call()
                raise ValueError("mine")

        logs = []
        print(outcome(fail), names(logs[0]))
        print("printed")
    """
    assert prints(body) == ["ValueError: mine matmul", "printed"]


def test_a_library_that_is_not_there_leaves_no_capture() -> None:
    body = """
        before = descriptors()
        print(outcome(mkl.verbose(2, capture=True).__enter__))
        print(before == descriptors(), os.isatty(1))
    """
    setting = {"ACCELRT_MKL_LIBRARY": "/no/such/library.so"}
    refusal, left = prints(body, **setting)
    assert refusal.startswith("RuntimeError: No oneMKL was found")
    assert left == "True False"


def test_a_capture_inside_of_pytests_own_leaves_it_the_rest(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with mkldnn.verbose(0, capture=True) as log:
        sys.stdout.write("of Python\n")
        os.write(1, b"bare\n" + CALL.format("matmul", "2").encode())
    assert capfd.readouterr().out == "of Python\nbare\n"
    assert [record.name for record in log.records] == ["matmul"]


def test_no_descriptor_and_no_thread_is_left_behind() -> None:
    body = """
        def state():
            return descriptors(), os.fstat(1).st_ino

        def threads():
            return len(os.listdir("/proc/self/task"))

        before, alone = state(), threads()
        for _ in range(50):
            with mkldnn.verbose(1, capture=True) as log:
                call()
                with mkldnn.verbose(1, capture=True):
                    pass
            assert names(log) == "matmul"
            assert state() == before, (state(), before)
            while threads() > alone:  # a joined thread is listed until the kernel forgets it
                os.sched_yield()
        print("same")
    """
    assert prints(body) == ["same"]


def test_the_same_object_entered_twice_has_two_logs() -> None:
    body = """
        scope = mkldnn.verbose(1, capture=True)
        with scope as outer:
            call("a")
            with scope as inner:
                call("b")
        print(names(outer), "|", names(inner))
    """
    assert prints(body) == ["a b | b"]


def test_lines_of_all_threads_come_whole() -> None:
    body = """
        def work(number):
            for _ in range(200):
                call(f"thread{number}")
                os.write(1, f"text of {number}\\n".encode())

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        with mkldnn.verbose(1, capture=True) as log:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        counts = {}
        for record in log.records:
            counts[record.name] = counts.get(record.name, 0) + 1
        print(sorted(counts.items()))
    """
    *texts, counts = prints(body)
    assert counts == str([(f"thread{number}", 200) for number in range(4)])
    assert sorted(texts) == sorted(f"text of {number}" for number in range(4) for _ in range(200))


def test_captures_of_threads_overlap_and_wait_for_nothing() -> None:
    body = """
        inside, go_on = threading.Event(), threading.Event()
        logs = {}

        def other():
            with mkldnn.verbose(1, capture=True) as logs["other"]:
                inside.set()
                go_on.wait()
            call("after_other")

        thread = threading.Thread(target=other)
        with mkldnn.verbose(1, capture=True) as logs["mine"]:
            call("first")
            thread.start()
            inside.wait()  # would hang if one capture waited for the other
            call("both")
        go_on.set()
        thread.join()
        with mkldnn.verbose(0, capture=True) as logs["last"]:
            pass
        print(*(f"{name}: {names(log)}" for name, log in sorted(logs.items())), sep=", ")
    """
    assert prints(body) == ["last: , mine: first both, other: both"]


def test_lines_without_an_end_and_parts_of_lines() -> None:
    body = """
        with mkldnn.verbose(1, capture=True) as log:
            os.write(1, b"the beginning")
            call("between")
            os.write(1, b" and the end\\nonednn_verbose,exec")
            os.write(1, b",cpu,in_two,jit,undef,src dst,,,64x64,2\\n")
            os.write(1, b"onednn_verbose,exec,cpu,no_end,jit,undef,src dst,,,64x64,3")
        os.write(1, b"\\n")
        with mkldnn.verbose(1, capture=True):
            os.write(1, b"text without an end")
        print(names(log))
    """
    assert prints(body) == [
        *("the beginning and the end", "", "text without an endbetween in_two no_end"),
    ]


def test_huge_lines_pass_or_are_kept() -> None:
    body = """
        with mkldnn.verbose(1, capture=True) as log:
            os.write(1, b"x" * 3_000_000 + b"\\n")
            descriptors = "src" * 100_000
            library.print_line(
                f"onednn_verbose,exec,cpu,huge,jit,undef,{descriptors},,,64x64,2\\n".encode())
            os.write(1, b"onednn_verbose," + b"y" * 3_000_000 + b"\\n")
        print(names(log), len(log.records[0].line))
    """
    text, mine, last = prints(body)
    assert text == "x" * 3_000_000
    assert mine == "onednn_verbose," + "y" * 3_000_000
    assert last == f"huge {len('onednn_verbose,exec,cpu,huge,jit,undef,,,,64x64,2') + 300_000}"


def test_bytes_of_any_kind_pass_unchanged() -> None:
    body = """
        with mkldnn.verbose(1, capture=True) as log:
            os.write(1, bytes(range(256)))
            library.print_line(b"onednn_verbose,exec,cpu,\\xff\\xfe,jit,undef,s,,,1,2\\n")
        say(ascii(names(log)))
    """
    code = HEAD + HELPERS + textwrap.dedent(body)
    ended = subprocess.run(  # noqa: S603  the interpreter of this test
        [sys.executable, "-c", code],
        env=os.environ | BUFFERED | {"PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        timeout=LIMIT_SECONDS,
        check=True,
    )
    assert ended.stdout == bytes(range(256))
    assert ended.stderr == rb"'\ufffd\ufffd'" + b"\n"


def test_a_closed_standard_output_is_captured_and_closed_again() -> None:
    body = """
        def is_open():
            try:
                os.fstat(1)
            except OSError:
                return False
            return True

        assert sys.stdout is None and not is_open()
        before = descriptors()
        with mkldnn.verbose(1, capture=True) as log:
            os.write(1, b"goes nowhere\\n")
            call()
        say(names(log), is_open(), descriptors() == before)
    """
    ended = run(body, redirection=">&-")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "matmul False True\n")


def test_a_reader_that_has_gone_does_not_hold_the_program_up() -> None:
    body = """
        reader, writer = os.pipe()
        os.dup2(writer, 1)
        os.close(writer)
        os.close(reader)
        with mkldnn.verbose(1, capture=True) as log:
            for _ in range(1000):
                os.write(1, b"x" * 1000 + b"\\n")
            call()
        say(names(log))
        os.dup2(2, 1)
    """
    ended = run(body)
    assert (ended.returncode, ended.stderr) == (0, "matmul\n")


def test_a_reader_in_the_same_process_is_not_waited_for_with_the_gil() -> None:
    body = """
        reader, writer = os.pipe()
        keep = os.dup(1)
        os.dup2(writer, 1)
        os.close(writer)
        seen = []

        def read():
            while part := os.read(reader, 1 << 16):
                seen.append(len(part))

        thread = threading.Thread(target=read)
        thread.start()
        with mkldnn.verbose(1, capture=True) as log:
            os.write(1, b"x" * 1_000_000)
            call()
        os.dup2(keep, 1)
        thread.join()
        say(names(log), sum(seen))
    """
    ended = run(body)
    assert (ended.returncode, ended.stderr) == (0, "matmul 1000000\n")


def test_a_program_that_puts_something_else_in_place_keeps_it(tmp_path: Path) -> None:
    body = f"""
        with mkldnn.verbose(1, capture=True) as outer:
            call("outer")
            saved = os.dup(1)
            file = os.open({str(tmp_path / "file")!r}, os.O_CREAT | os.O_RDWR)
            os.dup2(file, 1)
            os.write(1, b"to the file\\n")
            with mkldnn.verbose(1, capture=True) as inner:
                call("inner")
                os.write(1, b"also\\n")
        os.write(1, b"still\\n")
        os.dup2(saved, 1)  # the pipe again, whose capture is over
        os.write(1, b"goes on from the pipe\\n")
        os.close(saved)
        with mkldnn.verbose(1, capture=True) as last:
            call("last")
        say(names(outer), "|", names(inner), "|", names(last))
        os.dup2(2, 1)
    """
    ended = run(body)
    assert ended.stderr == "outer | inner | last\n"
    assert ended.stdout == "goes on from the pipe\n"
    assert (tmp_path / "file").read_text("ascii") == "to the file\nalso\nstill\n"
