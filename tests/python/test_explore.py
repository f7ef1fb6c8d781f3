"""`python -m accelrt explore`: what it says of the run that fails, and how that is repeated.

Method: programs that end by the seed of their schedule, which they read from their environment.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from processes import run

if TYPE_CHECKING:
    from pathlib import Path

SEEDED = """
import os, sys
from pathlib import Path

schedule = os.environ["ACCELRT_CPU_SCHEDULE"]
if "ACCELRT_PROFILE" in os.environ:
    Path(sys.argv[1]).write_text(schedule)
print(*range(20), sep="\\n", file=sys.stderr)
sys.exit(schedule.startswith("seed:2,"))
"""


def test_the_timeline_is_of_the_seed_that_failed(tmp_path: Path) -> None:
    script, told = tmp_path / "program.py", tmp_path / "told"
    script.write_text(SEEDED)
    ended = run("-m", "accelrt", "explore", str(script), str(told))
    assert ended.stdout.startswith("seed 2 fails, exit status 1\n")
    assert told.read_text().startswith("seed:2,")


def test_the_last_lines_of_what_a_run_says_are_shown(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(SEEDED)
    ended = run("-m", "accelrt", "explore", str(script), str(tmp_path / "told"))
    shown = [line.strip() for line in ended.stdout.splitlines() if line.startswith("  ")]
    assert shown == [str(number) for number in range(8, 20)]


def test_the_line_that_repeats_a_run_has_its_arguments_and_its_time(tmp_path: Path) -> None:
    script = tmp_path / "a program.py"
    script.write_text("import sys\nsys.exit(sys.argv[1:] == ['a b', '--n=3'])")
    given = ("--timeout", "50", str(script), "a b", "--n=3")
    ended = run("-m", "accelrt", "explore", *given)
    assert ended.returncode == 1
    (line,) = [line for line in ended.stdout.splitlines() if line.startswith("again: ")]
    python, *again = shlex.split(line.removeprefix("again: "))
    assert (python, again[-5:]) == ("python", [*given[1:2], "--seed", "0", *given[2:]][-5:])
    repeated = run(*again)
    assert repeated.stdout == ended.stdout
