"""NumPy's own tests, in accelrt's memory and without it: every test has to end the same way.

    suite.py FOLDER [TESTS...]

Each run is a process of its own; their outcomes stand in FOLDER. Without tests it takes all of
NumPy's but those of stubs and of compilers, which run other programs on files of text.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TypedDict

import numpy as np

HERE = Path(__file__).parent
PACKAGE = Path(np.__file__).parent
# Mypy over NumPy's stubs, and Fortran compilers over sources.
OTHER_PROGRAMS = ("typing/tests", "f2py/tests", "distutils/tests")


class Line(TypedDict):
    """What is noted of a test."""

    test: str
    phases: dict[str, str]
    requests: int


def run(tests: list[str], outcomes: Path, *options: str) -> dict[str, Line]:
    """Run tests in a process of their own; what came of each."""
    command = [sys.executable, "-m", "pytest", "-c", str(HERE / "pytest.ini")]
    # NumPy's folder as the root: the names of tests begin there.
    command += ["--rootdir", str(PACKAGE.parent), "-p", "numpy_outcomes"]
    command += ["--outcomes", str(outcomes), *options]
    command += [f"--ignore={PACKAGE / folder}" for folder in OTHER_PROGRAMS]
    command += tests or [str(PACKAGE)]
    # Tests of huge arrays look how much memory is free, which is not the same at each look.
    environment = os.environ | {"PYTHONPATH": str(HERE), "NPY_AVAILABLE_MEM": "1 GB"}
    with outcomes.with_suffix(".txt").open("w") as output:
        # Some of NumPy's tests fail on some machines: the exit status says nothing.
        ended = subprocess.run(
            command, cwd=HERE, env=environment, stdout=output, stderr=output, check=False
        )
    status = ended.returncode
    lines: list[Line] = [json.loads(line) for line in outcomes.read_text().splitlines()]
    if status not in (0, 1):
        tail = "".join(outcomes.with_suffix(".txt").open().readlines()[-30:])
        last = lines[-1]["test"] if lines else "none"
        sys.exit(f"{tail}\n{outcomes}: pytest ended with {status}, its last test was {last}")
    return {line["test"]: line for line in lines}


def compare(without: dict[str, Line], within: dict[str, Line]) -> list[str]:
    """Return what differs, test by test."""
    different = []
    for name in sorted(without.keys() | within.keys()):
        one, other = without.get(name), within.get(name)
        phases = [line["phases"] if line else None for line in (one, other)]
        if phases[0] != phases[1]:
            different.append(f"{name}: {phases[0]} without, {phases[1]} within")
    return different


def report(without: dict[str, Line], within: dict[str, Line]) -> None:
    """Print how many tests ended how, and how many arrays came from the cache."""

    def end(line: Line) -> str:
        phases = line["phases"]
        return phases.get("call", phases.get("setup", "not run"))

    ends = Counter(end(line) for line in within.values())
    taking = [line["requests"] for line in within.values() if line["requests"] > 0]
    stray = sum(line["requests"] for line in without.values())
    print(f"{len(within)} tests:", ", ".join(f"{n} {end}" for end, n in ends.most_common()))
    print(f"{len(taking)} tests took {sum(taking)} times memory from the host cache")
    if stray:
        sys.exit(f"outside of the scope {stray} requests were served by the host cache")
    if len(taking) < len(within) // 2:
        sys.exit("fewer than half of the tests had memory of the host cache")


def main() -> None:
    """Run both, and compare."""
    folder, tests = Path(sys.argv[1]).resolve(), [str(PACKAGE / test) for test in sys.argv[2:]]
    folder.mkdir(parents=True, exist_ok=True)
    without = run(tests, folder / "without.jsonl")
    within = run(tests, folder / "within.jsonl", "--numpy-memory")
    different = compare(without, within)
    for line in different:
        print(line)
    report(without, within)
    if different:
        sys.exit(f"{len(different)} tests end differently in accelrt's memory")


main()
