"""Run make targets one after the other; print the minutes and the number of tests of each.

    steps.py TARGET...

Stops at the first target that fails. A test filter that matches no test fails its target too.
"""

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field

SUITE = re.compile(r"^\s*(?:Running (?:unittests )?(?P<path>\S+) \(|(?P<doc>Doc-tests) )")
RUST = re.compile(
    r"^test result: \w+\. (?P<passed>\d+) passed; \d+ failed; (?P<skipped>\d+) ignored; "
    r"\d+ measured; (?P<filtered>\d+) filtered out"
)
PYTHON = re.compile(r"^=* ?(?=.*\d+ (?:passed|skipped)).* in [\d.]+s")
COLOURS = re.compile(r"\x1b\[[\d;]*m")


@dataclass
class Count:
    """The tests of one suite in one target."""

    suite: str
    passed: int
    skipped: int


@dataclass
class Target:
    """A target that has run, and the tests that its output names."""

    name: str
    seconds: float = 0.0
    counts: list[Count] = field(default_factory=list)
    unmatched: list[str] = field(default_factory=list)
    suite: str = ""

    def read(self, line: str) -> None:
        """Take the counts from a line of output."""
        line = COLOURS.sub("", line)
        if found := SUITE.match(line):
            self.suite = found["path"] or found["doc"]
        elif found := RUST.match(line):
            passed, skipped = int(found["passed"]), int(found["skipped"])
            if passed == 0 and int(found["filtered"]) > 0:
                self.unmatched.append(self.suite)
            self.counts.append(Count(self.suite, passed, skipped))
        elif PYTHON.match(line):
            numbers = dict.fromkeys(("passed", "skipped"), 0)
            numbers |= {name: int(n) for n, name in re.findall(r"(\d+) (passed|skipped)", line)}
            self.counts.append(Count("pytest", **numbers))


def run(name: str) -> tuple[int, Target]:
    """Run a target, and pass its output on as it comes."""
    target, start, rest = Target(name), time.monotonic(), ""
    make = os.environ.get("MAKE", "make")
    process = subprocess.Popen([make, name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    with process:
        assert process.stdout is not None
        while chunk := os.read(process.stdout.fileno(), 1 << 16):
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
            *lines, rest = (rest + chunk.decode(errors="replace")).split("\n")
            for line in lines:
                target.read(line)
    target.read(rest)
    target.seconds = time.monotonic() - start
    return process.returncode, target


def table(targets: list[Target]) -> str:
    """Return the minutes of each target, and the tests of each suite, as a text."""
    lines = [f"{'target':<28} {'minutes':>7} {'passed':>7} {'skipped':>7}"]
    for target in targets:
        passed = sum(count.passed for count in target.counts)
        skipped = sum(count.skipped for count in target.counts)
        tests = f"{passed:>7} {skipped:>7}" if target.counts else ""
        lines.append(f"{target.name:<28} {target.seconds / 60:>7.1f} {tests}".rstrip())
        if len(target.counts) > 1:
            lines += [f"  {it.suite:<34} {it.passed:>7} {it.skipped:>7}" for it in target.counts]
    total = sum(target.seconds for target in targets)
    lines.append(f"{'all':<28} {total / 60:>7.1f}")
    return "\n".join(lines)


def main(names: list[str]) -> int:
    """Run the targets; return the exit status."""
    targets: list[Target] = []
    status = 0
    for name in names:
        print(f"::: {name}", flush=True)
        status, target = run(name)
        targets.append(target)
        if target.unmatched and status == 0:
            print(f"{name}: the filter matches no test of {', '.join(target.unmatched)}")
            status = 1
        if status != 0:
            print(f"{name} failed with status {status}")
            break
    print(table(targets))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
