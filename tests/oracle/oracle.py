"""Compares accelrt's policy `torch` with PyTorch's own compiled allocator: `make oracle`.

Programs at random, each kind in turn, and those of `programs/`; on the pinned release and the
newest one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import built
import wheels
from differences import Difference, Known, before_failure, difference, known
from generator import KINDS, is_sound, program
from shrinker import shrink
from sides import Sides

PROGRAMS = Path(__file__).parent / "programs"
BATCH = 40
MOST_EXAMPLES = 3


@dataclass
class Tally:
    """What the programs of a kind came to."""

    programs: int = 0
    operations: int = 0
    explained: Counter[str] = field(default_factory=Counter)
    unexplained: list[tuple[str, Difference]] = field(default_factory=list)


def committed() -> dict[str, list[str]]:
    """Read the programs that are kept, by name."""
    files = sorted(PROGRAMS.glob("*.program"))
    return {
        path.stem: [line for line in path.read_text().splitlines() if not line.startswith("#")]
        for path in files
    }


def made(kind: str, first: int) -> Iterator[tuple[str, list[str]]]:
    """Make programs of a kind, from a seed on, without an end."""
    seed = first
    while True:
        yield f"{kind} {seed}", program(kind, seed)
        seed += 1


def compare(
    sides: Sides, kind: str, programs: dict[str, list[str]], expected: Known, tally: Tally
) -> None:
    """Run programs of a kind on both sides and count what differs."""
    real, ours = sides.run(programs)
    for name, lines in programs.items():
        tally.programs += 1
        tally.operations += len(lines)
        theirs, mine = real[name], ours[name]
        failure = expected.failure(kind, theirs)
        if failure is not None:
            theirs, mine = before_failure(theirs, mine)
        found = difference(theirs, mine)
        if found is None:
            reason = failure.reason if failure else None
        else:
            reason = expected.reason(kind, found)
        if reason:
            tally.explained[reason] += 1
        elif found:
            tally.unexplained.append((name, found))


def row(kind: str, tally: Tally) -> str:
    """Write a line of the table, and examples of what is not explained."""
    explained, wrong = sum(tally.explained.values()), len(tally.unexplained)
    text = f"{kind:26}{tally.programs:9}{tally.operations:12}{explained:11}{wrong:13}"
    for name, found in tally.unexplained[:MOST_EXAMPLES]:
        text += f"\n  {name}: {found.what}\n    PyTorch: {found.real}\n    accelrt: {found.ours}"
    return text


def compare_all(sides: Sides, kinds: list[str], operations: int, first: int) -> bool:
    """Compare programs of each kind, as many steps in all; true when nothing is unexplained."""
    expected = known()
    print(f"{'kind':26}{'programs':>9}{'operations':>12}{'explained':>11}{'unexplained':>13}")
    total = Tally()
    tallies: dict[str, Tally] = {"committed": Tally()}
    for name, lines in committed().items():
        compare(sides, name, {name: lines}, expected, tallies["committed"])
    print(row("committed", tallies["committed"]), flush=True)
    for kind in kinds:
        tally = tallies[kind] = Tally()
        programs = made(kind, first)
        while tally.operations < operations / len(kinds):
            left = operations / len(kinds) - tally.operations
            count = min(BATCH, max(1, round(left / 510)))
            compare(sides, kind, dict(islice(programs, count)), expected, tally)
        print(row(kind, tally), flush=True)
    for tally in tallies.values():
        total.programs += tally.programs
        total.operations += tally.operations
        total.explained += tally.explained
        total.unexplained += tally.unexplained
    print(row("all", Tally(total.programs, total.operations, total.explained)).rstrip("0 "), end="")
    print(f"{len(total.unexplained):13}")
    for reason, count in total.explained.items():
        print(f"  {count} programs: {reason}")
    return not total.unexplained


def shrink_one(sides: Sides, name: str) -> None:
    """Print the smallest program found that differs as one of the generator's."""
    kind, seed = name.split()

    def found(lines: list[str]) -> Difference | None:
        real, ours = sides.run({name: lines})
        return difference(real[name], ours[name])

    lines = program(kind, int(seed))
    first = found(lines)
    if first is None:
        print(f"{name}: no difference")
        return
    what = first.what.split()[0]

    def differs(lines: list[str]) -> bool:
        now = found(lines) if is_sound(lines) else None
        return now is not None and now.what.split()[0] == what

    small = shrink(lines, differs)
    real, ours = sides.run({name: small})
    print("\n".join(small), f"\n# {difference(real[name], ours[name])}")
    for title, said in (("PyTorch", real[name]), ("accelrt", ours[name])):
        print(f"# --- {title}", *[line for line in said if "statistic" not in line], sep="\n# ")


def versions(root: Path) -> Iterator[str]:
    """Name the pinned release and the newest one: without a registry, that brought last."""
    yield wheels.PINNED
    try:
        newest = wheels.newest()
    except wheels.MissingError as reason:
        print(f"oracle: the newest release is not known: {reason}")
        newest = [wheels.PINNED, *wheels.known(root)][-1]
    if newest != wheels.PINNED:
        yield newest


def available(root: Path) -> list[tuple[str, Path]]:
    """Bring and build what can be had of each release; say of the others why it cannot."""
    drivers = []
    for version in versions(root):
        folder = root / version
        try:
            wheels.fetch(version, folder)
            drivers.append((version, built.build_driver(folder)))
        except (wheels.MissingError, OSError, subprocess.CalledProcessError) as reason:
            print(f"oracle: not available: torch {version}: {reason}")
            if os.environ.get("ORACLE_REQUIRED") == "1":
                raise
    return drivers


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, required=True, help="keeps the parts of wheels")
    parser.add_argument("--target", type=Path, required=True, help="cargo's folder for the peer")
    parser.add_argument("--operations", type=int, default=100_000, help="of each release")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--shrink", metavar="'KIND SEED'", help="cuts one program down instead")
    arguments = parser.parse_args()
    drivers = available(arguments.cache)
    if not drivers:
        return 0
    peer = built.build_peer(arguments.target)
    all_same = True
    for version, driver in drivers:
        sides = Sides(driver, peer)
        if arguments.shrink:
            shrink_one(sides, arguments.shrink)
            return 0
        begun = time.monotonic()
        print(f"torch {version}")
        all_same &= compare_all(sides, arguments.kinds, arguments.operations, arguments.first_seed)
        print(f"  {time.monotonic() - begun:.0f} s")
    return 0 if all_same else 1


if __name__ == "__main__":
    sys.exit(main())
