"""Goal: the demo checks what it did, and the command line says in one line what it cannot do.

Method: the command runs in processes of its own, with files, pipes and limits that a user may give.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from processes import LIMIT_SECONDS, run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file of some chunks and a rest."""
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 1000 + b"rest")
    return path


def demo(*arguments: object, **settings: str) -> "subprocess.CompletedProcess[str]":
    return run("-m", "accelrt", "demo", *map(str, arguments), **settings)


@pytest.mark.parametrize("arguments", [(), ("--streams", 3, "--chunk", 1000), ("--chunk", 1 << 99)])
def test_the_demo_says_that_it_checked(file: Path, arguments: tuple[object, ...]) -> None:
    ended = demo(file, *arguments)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "checked     both runs equal a plain computation" in ended.stdout.splitlines()
    assert "of three streams each" in ended.stdout


def test_more_lanes_than_chunks_are_not_made(file: Path) -> None:
    ended = demo(file, "--streams", 10**12, "--chunk", 100_000)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "lanes       3 of three streams each, chunks of 100000 bytes" in ended.stdout


def one_line(ended: "subprocess.CompletedProcess[str]", expected: str) -> None:
    """Expect wrong use, told in one line."""
    assert (ended.returncode, ended.stdout) == (2, ""), ended
    (line,) = ended.stderr.splitlines()
    assert line.startswith("accelrt demo: ")
    assert expected in line


def test_what_is_no_file_with_content_is_refused(tmp_path: Path) -> None:
    empty, fifo = tmp_path / "empty", tmp_path / "fifo"
    empty.touch()
    os.mkfifo(fifo)
    for path in ("/dev/zero", "/dev/null", fifo, tmp_path):
        one_line(demo(path), f"cannot stream {path}: it is not a regular file")
    one_line(demo(empty), f"cannot stream {empty}: it is empty")
    one_line(demo(tmp_path / "none"), "none: No such file or directory")


def test_what_does_not_fit_is_refused_before_it_is_taken(file: Path, tmp_path: Path) -> None:
    one_line(demo(file, ACCELRT_CPU_MEMORY="1000"), "1000 are free")
    huge = tmp_path / "huge"
    with huge.open("wb") as hole:
        hole.truncate(1 << 43)
    one_line(demo(huge, "--streams", 100_000), "100000 lanes with chunks of 262144 bytes need")


def test_an_empty_name_is_wrong_use() -> None:
    ended = demo("")
    assert ended.returncode == 2
    assert "the name of a file must not be empty" in ended.stderr


def shell(script: str) -> "subprocess.CompletedProcess[str]":
    """Run a script in which $A is the command."""
    return subprocess.run(  # noqa: S603  our own words
        ["/bin/bash", "-c", script],
        env={**os.environ, "A": f"{sys.executable} -m accelrt"},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )


def test_a_reader_that_went_away_is_no_error(file: Path) -> None:
    for command in ("info", f"demo {file}"):
        ended = shell(f"$A {command} | true; echo ${{PIPESTATUS[0]}}")
        # Whether the reader is gone by then is a matter of time.
        assert (ended.stdout in {"141\n", "0\n"}, ended.stderr) == (True, ""), ended
    ended = shell("exec 3> >(true); wait $!; $A info >&3; echo $?")
    assert (ended.stdout, ended.stderr) == ("141\n", "")


def test_an_output_that_takes_nothing_is_told() -> None:
    ended = shell("$A info >/dev/full")
    expected = "accelrt info: cannot write: No space left on device\n"
    assert (ended.returncode, ended.stderr) == (2, expected)
    ended = shell("$A info >&-")
    expected = "accelrt info: the standard output is closed\n"
    assert (ended.returncode, ended.stderr) == (2, expected)


def test_an_interrupt_ends_with_its_status() -> None:
    code = """
        import signal, sys
        from accelrt import cli
        def run(*_arguments, **_names):
            signal.raise_signal(signal.SIGINT)
        cli.demo.run = run
        sys.exit(cli.main(["demo"]))
    """
    ended = run("-c", "\n".join(line[8:] for line in code.splitlines()))
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGINT, "")
