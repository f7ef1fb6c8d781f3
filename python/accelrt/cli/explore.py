"""`python -m accelrt explore`: runs a program under one schedule after the other until it fails."""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from accelrt.cli import outputs, terminal
from accelrt.cli.sizes import count_argument, seconds_argument
from accelrt.cli.view import page, sources

_STRATEGIES = ("random", "invert", "starve", "pct")
_SHOWN_LINES = 12
_TIMEOUT_SECONDS = 60


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
        type=count_argument,
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


def _timeout(text: str) -> float:
    if (seconds := seconds_argument(text)) == 0:
        message = f"{text!r} is not a number of seconds above 0"
        raise argparse.ArgumentTypeError(message)
    return seconds


def run(given: argparse.Namespace) -> int:
    """Look for a seed that fails; return 1 with one, 0 without."""
    if not given.script.is_file():
        return _refuse(f"cannot read {given.script}: no such file")
    if (reason := outputs.refusal([given.output], [given.script])) is not None:
        return _refuse(reason)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        steps = _count_tasks(given, trace) if given.strategy == "pct" else 1
        setting = f"strategy:{given.strategy},depth:{given.depth},steps:{max(steps, 1)}"
        seeds = range(given.n) if given.seed is None else [given.seed]
        found = next(_failures(given, seeds, setting), None)
        terminal.wipe()
        if found is None:
            sys.stdout.write(f"{len(seeds)} seeds, {given.strategy}: none fails\n")
            return 0
        seed, (status, said) = found
        _say(given, seed, status, said)
        trace.unlink(missing_ok=True)
        _try(given, f"seed:{seed},{setting}", ACCELRT_PROFILE=str(trace))
        _write_page(given, seed, trace)
    return 1


def _failures(
    given: argparse.Namespace, seeds: range | list[int], setting: str
) -> Iterator[tuple[int, tuple[int | None, str]]]:
    """Try the seeds, some at a time; return in their order those that fail."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        tries = [pool.submit(_try, given, f"seed:{seed},{setting}") for seed in seeds]
        for seed, tried in zip(seeds, tries, strict=True):
            terminal.bar("explore", (seed - seeds[0]) / len(seeds), f" seed {seed}")
            if tried.result()[0] != 0:
                pool.shutdown(wait=False, cancel_futures=True)
                yield seed, tried.result()


def _try(given: argparse.Namespace, schedule: str, **variables: str) -> tuple[int | None, str]:
    """Run the program once; return its exit status, if it ended, and its standard error."""
    command = [sys.executable, str(given.script), *given.arguments]
    environment = {**os.environ, "ACCELRT_CPU_SCHEDULE": schedule, **variables}
    try:
        ended = subprocess.run(  # noqa: S603  the user's own program
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=given.timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        return None, (expired.stderr or b"").decode(errors="replace")
    return ended.returncode, ended.stderr.decode(errors="replace")


def _count_tasks(given: argparse.Namespace, trace: Path) -> int:
    """Return how many tasks the program has: the bound of pct is about them."""
    _try(given, "seed:0", ACCELRT_PROFILE=str(trace))
    if not trace.is_file():
        return 1_000
    events = json.loads(trace.read_bytes())["traceEvents"]
    return sum(event.get("ph") == "X" and event.get("cat") == "task" for event in events)


def _say(given: argparse.Namespace, seed: int, status: int | None, said: str) -> None:
    how = f"no end after {given.timeout:g} s" if status is None else f"exit status {status}"
    lines = said.splitlines()[-_SHOWN_LINES:]
    options = f"--strategy {given.strategy} " if given.strategy != "random" else ""
    options += f"--depth {given.depth} " if given.strategy == "pct" else ""
    options += f"--timeout {given.timeout:g} " if given.timeout != _TIMEOUT_SECONDS else ""
    program = [str(given.script), *given.arguments]
    sys.stdout.write(
        f"seed {seed} fails, {how}\n"
        + "".join(f"  {line}\n" for line in lines)
        + f"again: python -m accelrt explore {options}--seed {seed} {shlex.join(program)}\n"
    )


def _write_page(given: argparse.Namespace, seed: int, trace: Path) -> None:
    if not trace.is_file():
        sys.stdout.write("no timeline: the program ended without its runtime's end\n")
        return
    output = given.output or Path(f"explore-{seed}.html")
    views = sources.read(trace, None)
    page.write(output, f"{given.script.name}, seed {seed}", views, compares=False)
    sys.stdout.write(f"{output}: {'; '.join(sources.summary(view) for view in views)}\n")


def _refuse(reason: str) -> int:
    sys.stderr.write(f"accelrt explore: {reason}\n")
    return 2
