"""Counts the instructions of hot paths, and compares them with those that were accepted.

Usage: python benches/counts.py BENCH FILE [--accept]

Each path runs under callgrind with two counts of rounds; the difference is what its rounds cost,
whatever the start of the program costs. Nothing here depends on time, and no thread but the
measuring one works; what is left is the layout of the heap, some 2 %.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

_TOLERANCE = 0.03
_ROUNDS = 20_000
_RUNS = 3
_PATHS = (
    "enqueue",
    "round_trip",
    "record",
    "query",
    "wait",
    "copy",
    "alloc_hit",
    "alloc_miss",
    "grow",
    "remote_free",
    "empty",
    "logged",
    "recorded",
)
_PYTHON_PATHS = ("python_launch", "python_launch_two")
_HOW_TO_GET = "valgrind is not installed: apt-get install valgrind, or make peers"

# The only worker reads from a pipe throughout; the program ends without waiting for it. What is
# counted stands in a function: outside of one Python looks its names up in dictionaries.
_LAUNCHES = """\
import ctypes, itertools, os, sys
import accelrt
library = ctypes.CDLL(None)
stream, place, (held, _) = accelrt.Stream(), ctypes.create_string_buffer(1), os.pipe()
library.read.argtypes = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t
nothing, difference = library["__errno_location"], library["difftime"]
nothing.argtypes, difference.argtypes = (), (ctypes.c_long, ctypes.c_long)
stream.launch(library.read, held, ctypes.addressof(place), 1)

def python_launch(rounds, launch):
    for _ in rounds:
        launch(nothing)

def python_launch_two(rounds, launch):
    for _ in rounds:
        launch(difference, 1, 2)

globals()[sys.argv[1]](itertools.repeat(None, int(sys.argv[2])), stream.launch)
os._exit(0)
"""

# The memory is free from the second round on.
_BUFFERS = """\
import itertools, os, sys
import accelrt
empty = accelrt.empty
for _ in itertools.repeat(None, int(sys.argv[1])):
    empty(512)
os._exit(0)
"""


def main(arguments: Sequence[str]) -> int:
    """Compare, or write down; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bench", type=Path, help="the optimised hot paths")
    parser.add_argument("file", type=Path, help="the accepted counts")
    parser.add_argument("--accept", action="store_true", help="write what is counted to the file")
    given = parser.parse_args(arguments)
    if shutil.which("valgrind") is None:
        sys.stderr.write(f"{_HOW_TO_GET}\n")
        return 1
    counted = dict(_count(given.bench))
    if given.accept:
        given.file.write_text(_text(counted))
        sys.stdout.write(given.file.read_text())
        return 0
    text = given.file.read_text()
    status = _compare(_accepted(text), counted)
    if _versions() not in text:
        sys.stdout.write(f"Not judged: the file is not of {_versions()}\n")
        return 0
    return status


def _count(bench: Path) -> Iterator[tuple[str, float]]:
    """Yield each path with its instructions a round."""
    for path in _PATHS:
        # Outside the function other threads come to their rest, at their own pace.
        toggle = f"--toggle-collect=*counted_{path}*"
        yield path, _per_round([toggle], [str(bench), path])
    for path in _PYTHON_PATHS:
        yield path, _per_round([], [sys.executable, "-c", _LAUNCHES, path])
    yield "python_empty", _per_round([], [sys.executable, "-c", _BUFFERS])


def _per_round(options: Sequence[str], program: Sequence[str]) -> float:
    once, twice = (_least(options, [*program, str(_ROUNDS * n)]) for n in (1, 2))
    return (twice - once) / _ROUNDS


def _least(options: Sequence[str], program: Sequence[str]) -> int:
    """Return the least of several runs: the layout of the heap varies between them."""
    return min(_instructions(options, program) for _ in range(_RUNS))


def _instructions(options: Sequence[str], program: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "callgrind.out")
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={output}", *options]
        # Hashes and the number of workers are the same in each run.
        environment = os.environ | {"PYTHONHASHSEED": "0", "ACCELRT_CPU_THREADS": "1"}
        ended = subprocess.run(
            [*valgrind, *program], check=False, capture_output=True, text=True, env=environment
        )
        if ended.returncode != 0:
            sys.exit(f"{program[0]} failed under callgrind:\n{ended.stderr}")
        total = re.search(r"^(?:summary|totals): (\d+)$", output.read_text(), re.MULTILINE)
        if total is None:
            sys.exit("callgrind wrote no total")
        return int(total[1])


def _compare(accepted: dict[str, float], counted: dict[str, float]) -> int:
    worst = 0
    for path, count in counted.items():
        before = accepted.get(path)
        if before is None:
            sys.stdout.write(f"{path:<20}{count:>10.1f}  not in the file\n")
            worst = 1
            continue
        change = count / before - 1
        is_same = abs(change) <= _TOLERANCE
        verdict = "" if is_same else f"  differs by more than {_TOLERANCE:.0%}"
        sys.stdout.write(f"{path:<20}{count:>10.1f}{before:>10.1f}{change:>+8.1%}{verdict}\n")
        worst |= not is_same
    if worst:
        sys.stdout.write("If that is meant: make counts-accept\n")
    return worst


def _accepted(text: str) -> dict[str, float]:
    lines = (line.split() for line in text.splitlines() if line and not line.startswith("#"))
    return {path: float(count) for path, count in lines}


def _text(counted: dict[str, float]) -> str:
    heads = (
        "# Instructions a round of the hot paths: written by `make counts-accept`, compared by",
        f"# `make counts` ({_TOLERANCE:.0%} either way). {_versions()}.",
    )
    return "\n".join(
        (*heads, *(f"{path:<20}{count:>10.1f}" for path, count in counted.items()), "")
    )


def _versions() -> str:
    def first_line(*command: str) -> str:
        run = subprocess.run(command, check=True, capture_output=True, text=True)
        return run.stdout.splitlines()[0]

    version = f"Python {sys.version.split()[0]}"
    return "; ".join(
        (first_line("rustc", "--version"), version, first_line("valgrind", "--version"))
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
