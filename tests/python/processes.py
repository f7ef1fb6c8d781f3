"""Python processes of their own, for what a process can do once."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from contextlib import suppress
from pathlib import Path

import pytest

# A limit for hangs, below that of a test, whose end would not show the threads of the process.
LIMIT_SECONDS = int(os.environ.get("TEST_LIMIT_SECONDS", "100"))


def run(*arguments: str, **settings: str) -> "subprocess.CompletedProcess[str]":
    """Run an interpreter with these settings, and none of the others but the kinds from outside."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ACCELRT_") or name == "ACCELRT_KINDS"
    }
    environment["PYTHONPATH"] = str(Path(__file__).parent)
    environment["PYTHONFAULTHANDLER"] = "1"
    child = subprocess.Popen(  # noqa: S603  the interpreter of this test
        [sys.executable, *arguments],
        env=environment | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with child:
        try:
            output, errors = child.communicate(timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            pytest.fail(what_hangs(child))
        except BaseException:
            child.kill()
            raise
    return subprocess.CompletedProcess(child.args, child.returncode, output, errors)


def what_hangs(child: "subprocess.Popen[str]") -> str:
    """End a process that hangs; return what it printed, its threads and their Python stacks."""
    threads = [
        f"{(task / 'comm').read_text().strip()}: {(task / 'wchan').read_text()}"
        for task in sorted(Path(f"/proc/{child.pid}/task").iterdir())
    ]
    child.send_signal(signal.SIGABRT)
    try:
        output, errors = child.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        child.kill()
        output, errors = child.communicate()
    told = (f"{child.args!r} hangs: no end after {LIMIT_SECONDS} s", *threads, output, errors)
    return "\n".join(told)


def output_of(code: str, **settings: str) -> str:
    """Return what code prints; it must end well and with nothing on standard error."""
    ended = run("-c", textwrap.dedent(code), **settings)
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    return ended.stdout


def thread_name() -> str:
    """Return the system's name of the calling thread."""
    return Path(f"/proc/self/task/{threading.get_native_id()}/comm").read_text().strip()


def threads_named(name: str) -> int:
    """Return how many threads of this process have a name."""
    count = 0
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
            count += (task / "comm").read_text().strip() == name
    return count
