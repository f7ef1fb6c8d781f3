"""`python -m accelrt explore`: runs a program under one schedule after the other until it fails."""

import argparse
import contextlib
import itertools
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Self

from accelrt.cli import outputs, streams, terminal
from accelrt.cli.replay.errors import naming
from accelrt.cli.sizes import count_argument, counted, seconds_argument
from accelrt.cli.view import page, profile, sources

_STRATEGIES = ("random", "invert", "starve", "pct")
_SHOWN_LINES = 12
_KEPT_BYTES = 1 << 16
_TIMEOUT_SECONDS = 60
_MOST_DEPTH = 1_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "-n",
        type=count_argument,
        default=200,
        metavar="N",
        help="seeds to try, from 0 (default %(default)s)",
    )
    parser.add_argument("--seed", type=_seed, metavar="SEED", help="try this one alone")
    parser.add_argument(
        "--strategy",
        choices=_STRATEGIES,
        default="random",
        help="how the stream that goes next is chosen (default %(default)s)",
    )
    parser.add_argument(
        "--depth",
        type=_depth,
        default=3,
        metavar="D",
        help="of pct: how many orders the bug needs (default %(default)s)",
    )
    parser.add_argument(
        "--timeout",
        type=_timeout,
        default=_TIMEOUT_SECONDS,
        metavar="SECONDS",
        help="a run that takes longer has failed (default %(default)g)",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=outputs.file_argument,
        metavar="OUT",
        help="the timeline of the schedule that failed (default: explore-SEED.html)",
    )
    parser.add_argument("script", type=outputs.file_argument, metavar="SCRIPT")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENT")


def _seed(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 1 << 64):
        message = f"{text!r} is not a whole number from 0 to 2^64 - 1"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def _depth(text: str) -> int:
    if (depth := count_argument(text)) > _MOST_DEPTH:
        message = f"{text!r} is not a whole number of at most {_MOST_DEPTH}"
        raise argparse.ArgumentTypeError(message)
    return depth


def _timeout(text: str) -> float:
    if (seconds := seconds_argument(text)) == 0:
        message = f"{text!r} is not a number of seconds above 0"
        raise argparse.ArgumentTypeError(message)
    return seconds


def run(given: argparse.Namespace) -> int:
    """Look for a seed that fails; return 1 with one, 0 without.

    Raises a `TraceError` for a profile that is damaged.
    """
    if not given.script.exists():
        return _refuse(f"cannot read {given.script}: no such file")
    with naming(given.script):
        given.script.open("rb").close()
    if (reason := outputs.refusal([given.output], [given.script])) is not None:
        return _refuse(reason)
    with tempfile.TemporaryDirectory() as folder, _Programs(given) as programs:
        trace = Path(folder) / "trace.json"
        steps = _count_tasks(programs, trace) if given.strategy == "pct" else 1
        setting = f"strategy:{given.strategy},depth:{given.depth},steps:{max(steps, 1)}"
        seeds = range(given.n) if given.seed is None else [given.seed]
        found = _first_failure(given, seeds, setting)
        if found is None:
            sys.stdout.write(f"{counted(len(seeds), 'seed')}, {given.strategy}: none fails\n")
            return 0
        seed, (status, said) = found
        _say(given, seed, status, said)
        trace.unlink(missing_ok=True)
        programs.run(f"seed:{seed},{setting}", ACCELRT_PROFILE=str(trace))
        _write_page(given, seed, trace)
    return 1


class _Programs:
    """The runs of the program. None outlives the command, however that ends."""

    def __init__(self, given: argparse.Namespace) -> None:
        """Take the program and how long it may run."""
        self._command = [sys.executable, str(given.script), *given.arguments]
        self._timeout = given.timeout
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_over = False

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """End those that run still, and let none begin."""
        with self._lock:
            self._is_over = True
            for process in self._running:
                _end(process)

    def run(self, schedule: str, **variables: str) -> tuple[int | None, str]:
        """Run it once; return its exit status, if it ended, and its last standard error."""
        environment = {**os.environ, "ACCELRT_CPU_SCHEDULE": schedule, **variables}
        # A file: what the program leaves running may keep a pipe open.
        with tempfile.TemporaryFile() as said:
            with self._lock:
                if self._is_over:
                    return None, ""
                process = subprocess.Popen(  # noqa: S603  the user's own program
                    self._command,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                    process_group=0,
                )
                self._running.add(process)
            try:
                status = process.wait(self._timeout)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                with self._lock:
                    _end(process)
                    self._running.discard(process)
            said.seek(max(said.seek(0, os.SEEK_END) - _KEPT_BYTES, 0))
            return status, said.read().decode(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program that has not ended, with the processes that it has started."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _first_failure(
    given: argparse.Namespace, seeds: range | list[int], setting: str
) -> tuple[int, tuple[int | None, str]] | None:
    """Try the seeds, some at a time; return the first of them that fails."""
    num_workers = os.cpu_count() or 1
    tries: deque[tuple[int, Future[tuple[int | None, str]]]] = deque()
    # The programs leave first: what has not begun ends at once.
    with ThreadPoolExecutor(num_workers) as pool, _Programs(given) as programs:

        def begin(some: Iterable[int]) -> None:
            for seed in some:
                tries.append((seed, pool.submit(programs.run, f"seed:{seed},{setting}")))

        left = iter(seeds)
        begin(itertools.islice(left, 2 * num_workers))
        try:
            while tries:
                seed, tried = tries.popleft()
                terminal.bar("explore", (seed - seeds[0]) / len(seeds), f" seed {seed}")
                if (outcome := tried.result())[0] != 0:
                    return seed, outcome
                begin(itertools.islice(left, 1))
        finally:
            terminal.wipe()
    return None


def _count_tasks(programs: _Programs, trace: Path) -> int:
    """Return how many tasks the program has: the bound of pct is about them."""
    programs.run("seed:0", ACCELRT_PROFILE=str(trace))
    if not trace.is_file():
        return 1_000
    with naming(trace):
        events, _ = profile.read(trace)
    return sum(map(_is_task, events))


def _is_task(event: object) -> bool:
    return isinstance(event, dict) and event.get("ph") == "X" and event.get("cat") == "task"


def _say(given: argparse.Namespace, seed: int, status: int | None, said: str) -> None:
    how = f"no end after {given.timeout:g} s" if status is None else f"exit status {status}"
    lines = said.splitlines()[-_SHOWN_LINES:]
    options = f"--strategy {given.strategy} " if given.strategy != "random" else ""
    options += f"--depth {given.depth} " if given.strategy == "pct" else ""
    options += f"--timeout {given.timeout!r} " if given.timeout != _TIMEOUT_SECONDS else ""
    program = shlex.join([str(given.script), *given.arguments])
    sys.stdout.write(
        f"seed {seed} fails, {how}\n"
        + "".join(f"  {line}\n" for line in lines)
        + f"again: python -m accelrt explore {options}--seed {seed} {program}\n"
    )


def _write_page(given: argparse.Namespace, seed: int, trace: Path) -> None:
    if not trace.is_file():
        sys.stdout.write("no timeline: the program ended before its profile was written\n")
        return
    output = given.output or Path(f"explore-{seed}.html")
    views = sources.read(trace, None)
    page.write(output, f"{given.script.name}, seed {seed}", views, compares=False)
    sys.stdout.write(f"{output}: {'; '.join(sources.summary(view) for view in views)}\n")


def _refuse(reason: str) -> int:
    return streams.refuse("explore", reason)
