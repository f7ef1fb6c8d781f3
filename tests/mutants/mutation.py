"""Measure what the tests notice: a seeded sample of cargo-mutants' mutants, one at a time.

    mutation.py [--seed N] [--count N] [--again] [AREA...]

cargo-mutants only says which mutants there are. Each is planted in a copy of the tree and meets the
tests of its area in stages, the cheapest first, until one fails; what is left of the sample then
meets all other tests. A test that runs into the limit has failed as well here. Mutants that do not
compile do not count. Outcomes are kept below the target folder by the mutant and the text of its
file: a run that was interrupted goes on, and `--again` tries the survivors once more. Fails when
less than 90 % of the sample are caught.
"""

import argparse
import hashlib
import json
import random
import re
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass

import run
from run import BUILD_LIMIT_SECONDS, DEBUG, TREE, WORK, Python, copy_tree

# What the tests of an area are, the cheapest first: cargo's targets with a filter, or Python files.
RUST = ["cargo", "test", "--quiet"]
AREAS: dict[str, list[tuple[str, str]]] = {
    "queue": [("--lib", "queue::"), ("--test=engine", ""), ("--test=order", "")],
    "stream": [("--lib", "stream::"), ("--test=engine", ""), ("--test=buffer", "")],
    "event": [("--lib", "event::"), ("--test=engine", ""), ("--test=order", "")],
    "frontier": [("--lib", "frontier"), ("--test=engine", "frontiers"), ("--test=buffer", "")],
    "allocator": [("--lib", "allocator::"), ("--test=allocator", ""), ("--test=buffer", "")],
    "buffer": [("--lib", "buffer::"), ("--test=buffer", "")],
}
FOLDERS = {
    "queue": "queue",
    "stream": "engine/stream",
    "event": "engine/event",
    "frontier": "engine/frontier",
    "allocator": "memory/allocator",
    "buffer": "memory/buffer",
}
# Met by what is left, with the features that the former lack: Python's.
LAST = [
    ("--lib", ""),
    ("--test=native", ""),
    ("--test=order", ""),
    ("--test=faults", ""),
    ("--lib", "loom"),
    ("python", ""),
]
PYTHON_TESTS = ["tests/python", "--ignore=tests/python/test_bench.py", "-x", "-q"]

TEST_LIMIT_SECONDS = 120
OUTCOMES = WORK / "outcomes.jsonl"
LEAST_SHARE = 0.9


@dataclass(frozen=True)
class Mutant:
    """One change of one place in the product."""

    name: str
    file: str
    start: tuple[int, int]
    end: tuple[int, int]
    replacement: str

    def planted(self) -> str:
        """Return the text of its file with the change in it."""
        lines = (TREE / self.file).read_text().splitlines(keepends=True)
        (first, begin), (last, end) = self.start, self.end
        before, behind = lines[first - 1][: begin - 1], lines[last - 1][end - 1 :]
        lines[first - 1 : last] = [before + self.replacement + behind]
        return "".join(lines)

    def digest(self) -> str:
        """Tell this mutant of this text from others."""
        return hashlib.sha256((self.name + self.planted()).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant."""

    digest: str
    name: str
    # caught, left (by the tests of its area), survived or unviable
    how: str
    # The stage that noticed, and the first test that failed there.
    by: str
    seconds: int


def mutants(area: str) -> list[Mutant]:
    """Return the mutants of an area, in the order of their places."""
    files = [f"src/{FOLDERS[area]}.rs", f"src/{FOLDERS[area]}/**"]
    command = ["cargo", "mutants", "--list", "--json", "--no-config"]
    command += [part for file in files for part in ("--file", file)]
    # Modules of tests that are files of their own.
    command += ["--exclude", "src/**/*tests.rs", "--exclude", "src/**/tests/**"]
    try:
        listed = subprocess.run(command, cwd=TREE, check=True, capture_output=True, text=True)  # noqa: S603
    except subprocess.CalledProcessError as error:
        sys.exit(f"cargo-mutants is needed: cargo install --locked cargo-mutants\n{error.stderr}")
    found = [
        Mutant(
            name=entry["name"],
            file=entry["file"],
            start=(entry["span"]["start"]["line"], entry["span"]["start"]["column"]),
            end=(entry["span"]["end"]["line"], entry["span"]["end"]["column"]),
            replacement=entry["replacement"],
        )
        for entry in json.loads(listed.stdout)
    ]
    return sorted(found, key=lambda mutant: (mutant.file, mutant.start, mutant.name))


def first_failure(output: str) -> str:
    """Return the name of a test that failed, or the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for line in lines:
        if line.startswith(("FAILED ", "ERROR ")):
            return line.split()[1]
        if line.startswith("---- ") and line.endswith(" stdout ----"):
            return line.removeprefix("---- ").removesuffix(" stdout ----")
    return lines[-1] if lines else ""


def stage_fails(target: str, tests: str) -> str | None:
    """Build and run one stage; what failed, or `None`. One that cannot be built is an error."""
    if target == "python":
        python = Python()
        built = python.build()
        if built.status != 0:
            raise run.DefectError(built.output)
        command = [str(run.python_of_the_tree()), "-m", "pytest", "-p", "no:cacheprovider"]
        ended = run.run(
            [*command, *PYTHON_TESTS], {"TEST_LIMIT_SECONDS": "60"}, 5 * TEST_LIMIT_SECONDS
        )
    else:
        is_loom = tests == "loom"
        command = [*RUST, target, *(["--release"] if is_loom else [])]
        settings = {"CARGO_TARGET_DIR": str(WORK / ("loom" if is_loom else "debug"))}
        settings |= run.LOOM if is_loom else DEBUG
        settings["ACCELRT_TEST_PROGRAMS"] = "200"
        built = run.run([*command, "--no-run"], settings, BUILD_LIMIT_SECONDS)
        if built.status != 0:
            raise run.DefectError(built.output)
        limit = TEST_LIMIT_SECONDS * (5 if target == "--test=faults" or is_loom else 1)
        ended = run.run([*command, "--", *tests.split()], settings, limit)
    if ended.status == 0:
        return None
    what = "the limit" if ended.status is None else first_failure(ended.output)
    return f"{target} {tests}: {what}"


def judge(mutant: Mutant, stages: list[tuple[str, str]], otherwise: str) -> Outcome:
    """Plant a mutant, and run stages until one fails; when none does it is `otherwise`."""
    file, started = TREE / mutant.file, time.monotonic()
    before = file.read_text()
    how, by = otherwise, ""
    file.write_text(mutant.planted())
    try:
        for target, tests in stages:
            failure = stage_fails(target, tests)
            if failure is not None:
                how, by = "caught", failure
                break
    except run.DefectError:
        how = "unviable"
    finally:
        file.write_text(before)
    outcome = Outcome(mutant.digest(), mutant.name, how, by, round(time.monotonic() - started))
    with OUTCOMES.open("a") as log:
        log.write(json.dumps(asdict(outcome)) + "\n")
    return outcome


def known(*, without_survivors: bool) -> dict[str, Outcome]:
    """Return the outcomes of earlier runs by digest."""
    if not OUTCOMES.exists():
        return {}
    outcomes = [Outcome(**json.loads(line)) for line in OUTCOMES.read_text().splitlines()]
    return {
        outcome.digest: outcome
        for outcome in outcomes
        if not (without_survivors and outcome.how in {"left", "survived"})
    }


def sample(areas: list[str], seed: int) -> list[tuple[str, Mutant]]:
    """Return all mutants of the areas in the seed's order, which keeps when other places change."""
    seen: Counter[str] = Counter()
    keyed: list[tuple[str, str, Mutant]] = []
    for area in areas:
        for mutant in mutants(area):
            what = re.sub(r":\d+:\d+:", ":", mutant.name, count=1)
            seen[what] += 1
            key = hashlib.sha256(f"{seed} {what} {seen[what]}".encode()).hexdigest()
            keyed.append((key, area, mutant))
    return [(area, mutant) for _, area, mutant in sorted(keyed, key=lambda entry: entry[0])]


def tell(outcome: Outcome) -> None:
    """Print a line."""
    print(f"{outcome.how:8} {outcome.seconds:4} s  {outcome.name}  {outcome.by}", flush=True)


def main() -> int:
    """Do what the head of this file says; the process's status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("areas", nargs="*", metavar="AREA", default=[])
    asked = parser.parse_args()
    areas = asked.areas or list(AREAS)
    copy_tree()
    chosen = sample(areas, asked.seed)
    print(
        f"{asked.count} of {len(chosen)} mutants of {', '.join(areas)}, seed {asked.seed}",
        flush=True,
    )
    before = known(without_survivors=asked.again)
    counted: dict[Mutant, Outcome] = {}
    for area, mutant in chosen:
        if len(counted) >= asked.count:
            break
        outcome = before.get(mutant.digest()) or judge(mutant, AREAS[area], "left")
        if outcome.how != "unviable":
            counted[mutant] = outcome
        tell(outcome)
    for mutant in [mutant for mutant, outcome in counted.items() if outcome.how == "left"]:
        counted[mutant] = judge(mutant, LAST, "survived")
        tell(counted[mutant])
    survivors = [outcome for outcome in counted.values() if outcome.how == "survived"]
    caught = len(counted) - len(survivors)
    print(f"{caught} of {len(counted)} caught; seed {asked.seed}")
    for outcome in survivors:
        print(f"  survives: {outcome.name}")
    return 0 if caught >= LEAST_SHARE * len(counted) else 1


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
