"""Goal: each Python example runs and finds its own result right.

Method: it runs in a process of its own, as a reader would run it. Rust's are tests of their own.
"""

import textwrap
from pathlib import Path

import pytest

from kinds import host_cores
from processes import run

FOLDER = Path(__file__).parents[2] / "examples"
# What needs torch is run by the tests of bridges/torch, and clusters are by test_dask.py.
ELSEWHERE = {*FOLDER.glob("torch_*.py"), FOLDER / "out_of_core.py"}
EXAMPLES = sorted(set(FOLDER.glob("*.py")) - ELSEWHERE)


def test_there_are_examples() -> None:
    assert EXAMPLES


@host_cores
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_checks_its_result(example: Path) -> None:
    ended = run("-W", "error", str(example))
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    assert "checked" in ended.stdout


def test_an_option_that_an_example_does_not_know_is_refused() -> None:
    (example,) = [path for path in EXAMPLES if path.stem == "missing_overlap"]
    for wrong in ("--wait-for-every-write", "--waits"):
        ended = run(str(example), wrong)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert f"unrecognized arguments: {wrong}" in ended.stderr


@host_cores
@pytest.mark.parametrize(("size", "ends"), [(0, "0 chunks"), (2, "1 chunks"), (3, "inside of")])
def test_the_ring_takes_whole_samples_of_any_number(size: int, ends: str) -> None:
    code = """
        import io, sys
        from ring_buffer import Ring

        source, target = bytes(range(int(sys.argv[1]))), io.BytesIO()
        try:
            print(Ring().run(io.BufferedReader(io.BytesIO(source)), target), "chunks")
            assert target.getvalue() == source[::-1]
        except ValueError as error:
            print(error)
    """
    found = f"import sys; sys.path.insert(0, {str(EXAMPLES[0].parent)!r})\n"
    ended = run("-c", found + textwrap.dedent(code), str(size))
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    assert ends in ended.stdout, ended
