"""Goal: each Python example runs and finds its own result right.

Method: it runs in a process of its own, as a reader would run it. Rust's are tests of their own.
"""

from pathlib import Path

import pytest

from kinds import host_cores
from processes import run

EXAMPLES = sorted(Path(__file__).parents[2].glob("examples/*.py"))


def test_there_are_examples() -> None:
    assert EXAMPLES


@host_cores
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_checks_its_result(example: Path) -> None:
    ended = run("-W", "error", str(example))
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    assert "checked" in ended.stdout
