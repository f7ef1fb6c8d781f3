#!/usr/bin/env python3
"""Run a binary of Rust tests; when a test hangs, print the stacks of all threads and end it.

    watch.py BINARY [ARGUMENT...]

The Makefile names this file as cargo's runner. libtest has no time limit. It only prints which
tests have been running for a minute, or, with one test thread, which test begins. A test hangs
after HANG_TEST_S seconds (120); longer tests are listed in `longer.toml`. A slow build, such as one
with a sanitizer, sets a larger HANG_TEST_S, which scales the listed times too. HANG_S limits the
whole binary, for hangs outside of tests. The exit status of a hang is 124.
"""

import ctypes
import os
import re
import select
import signal
import subprocess
import sys
import time
import tomllib
from contextlib import suppress
from pathlib import Path

from stacks import family, print_stacks

HANG_STATUS = 124
DEFAULT_TEST_S = 120.0
TEST_S = float(os.environ.get("HANG_TEST_S", DEFAULT_TEST_S))
BINARY_S = float(os.environ.get("HANG_S", "1800"))
# A process that was stopped did not run meanwhile, so one look counts as a second at most.
LOOK_S = 1.0

BEGIN = re.compile(r"test (?P<name>.+?)(?: - should panic)? \.\.\. ")
RESULT = re.compile(r"(?:ok|FAILED|ignored(?:, .*)?|bench: .*)$")
SLOW = re.compile(r"test (?P<name>.+?) has been running for over (?P<seconds>\d+) seconds")
SUMMARY = re.compile(r"test result: ")


class Running:
    """The tests that run, and for how many seconds, by what libtest prints."""

    def __init__(self) -> None:
        """Start before the first line."""
        self.seconds: dict[str, float] = {}
        self.is_over = False
        self._one: str | None = None  # the test that runs, with one thread
        self._rest = ""

    def read(self, text: str) -> None:
        """Take what was printed."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._read_line(line)
        if begin := BEGIN.match(self._rest):
            self._begin(begin["name"])
            self._rest = ""

    def _read_line(self, line: str) -> None:
        if slow := SLOW.search(line):
            self.seconds.setdefault(slow["name"], float(slow["seconds"]))
        elif begin := BEGIN.search(line):
            if RESULT.match(line, begin.end()):
                self.seconds.pop(begin["name"], None)
            else:
                self._begin(begin["name"])  # the test itself has printed the rest
        elif RESULT.match(line) and self._one:
            self.seconds.pop(self._one, None)
            self._one = None
        elif SUMMARY.match(line):
            self.seconds.clear()
            self.is_over = True

    def _begin(self, name: str) -> None:
        if self._one:
            self.seconds.pop(self._one, None)
        self._one = name
        self.seconds[name] = 0.0

    def add(self, seconds: float) -> None:
        """So much time has passed."""
        for name in self.seconds:
            self.seconds[name] += seconds


class Limits:
    """How long each test of a binary may run."""

    def __init__(self, suite: str, longer: Path) -> None:
        """Read the table of longer tests."""
        table = tomllib.loads(longer.read_text())
        scale = TEST_S / DEFAULT_TEST_S
        self._suite = suite
        self._longer: dict[str, float] = {
            it["name"]: 60 * it["minutes"] * scale for it in table["test"]
        }

    def of(self, test: str) -> float:
        """Return the seconds of a test."""
        return self._longer.get(f"{self._suite}::{test}", TEST_S)

    def hanging(self, running: Running) -> list[str]:
        """Return what hangs, a line each."""
        return [
            f"{self._suite}::{name} hangs: it runs for {seconds:.0f} s, the limit is {limit:.0f} s"
            for name, seconds in running.seconds.items()
            if seconds >= (limit := self.of(name))
        ]


def suite_of(binary: str) -> str:
    """Return the name of a binary that cargo has built, without its digest."""
    return re.sub(r"-[0-9a-f]{16}$", "", Path(binary).name)


def prepare_child() -> None:
    """In the child: it ends with this process, and debuggers may attach to it."""
    libc = ctypes.CDLL(None)
    pr_set_pdeathsig, pr_set_ptracer, anyone = 1, 0x59616D61, ctypes.c_ulong(-1)
    libc.prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
    libc.prctl(pr_set_ptracer, anyone, 0, 0, 0)


def run(command: list[str]) -> int:
    """Run the tests; return the exit status."""
    # Dots instead of names say nothing about a test.
    is_terse = any(it in ("-q", "--quiet", "--format=terse") for it in command)
    limits = Limits(suite_of(command[0]), Path(__file__).with_name("longer.toml"))
    pipe, output = os.pipe()
    child = subprocess.Popen(  # noqa: S603  what cargo has built
        command,
        stdout=output,
        close_fds=False,
        preexec_fn=prepare_child,  # noqa: PLW1509  there is no other thread
    )
    os.close(output)
    os.set_blocking(pipe, False)
    running, total, since_end, seen = Running(), 0.0, 0.0, time.monotonic()
    while child.poll() is None:
        select.select([pipe], [], [], LOOK_S)
        running.read(forward(pipe))
        now = time.monotonic()
        passed, seen = min(now - seen, LOOK_S), now
        total += passed
        running.add(passed)
        since_end += passed if running.is_over else 0.0
        hangs = [] if is_terse else limits.hanging(running)
        if since_end >= TEST_S:
            hangs.append(f"{suite_of(command[0])} does not end after its last test")
        if total >= BINARY_S:
            hangs.append(f"{suite_of(command[0])} does not end within {BINARY_S:.0f} s")
        if hangs:
            end(child, hangs)
            return HANG_STATUS
    forward(pipe)
    if child.returncode < 0:
        name = signal.Signals(-child.returncode).name
        print(f"{command[0]}: ended by {name}", file=sys.stderr)
        return 128 - child.returncode
    return child.returncode


def forward(pipe: int) -> str:
    """Print what is there to read; return it. At the end of the output it waits a moment."""
    chunks = []
    try:
        while chunk := os.read(pipe, 65536):
            chunks.append(chunk)
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
        time.sleep(0.01)  # nothing else will wait: the pipe is always ready now
    except BlockingIOError:
        pass
    return b"".join(chunks).decode(errors="replace")


def end(child: "subprocess.Popen[bytes]", hangs: list[str]) -> None:
    """Print what hangs and all stacks, and kill the child with what it has started."""
    for line in hangs:
        print(f"watchdog: {line}", file=sys.stderr, flush=True)
    processes = family(child.pid)
    for process in processes:
        print_stacks(process)
    print("watchdog: list a longer test in tests/watchdog/longer.toml", file=sys.stderr)
    for process in reversed(processes):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    child.wait()


if __name__ == "__main__":
    try:
        sys.exit(run(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
