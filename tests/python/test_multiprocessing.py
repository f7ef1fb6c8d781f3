"""Children of multiprocessing finish what is queued, however they were started.

Method: a child returns while its first callable waits for the end of the child to begin. What
stands behind it runs during that end, and the last one writes what it saw.
"""

from pathlib import Path

import pytest

from processes import output_of

COUNT = 5000

# `first` and `second` are imports; the target takes the path and the count.
PARENT = """
    {first}
    {second}

    if __name__ == "__main__":
        child = multiprocessing.get_context("{method}").Process(target={target}, args={arguments})
        child.start()
        child.join()
        print(child.exitcode)
"""

IMPORTED_IN_TARGET = """def leave(*arguments):
        import children
        children.leave_queued(*arguments)
"""


def check(tmp_path: Path, method: str, first: str, second: str, target: str) -> None:
    path = tmp_path / "seen"
    arguments = (str(path), COUNT)
    code = PARENT.format(
        method=method, first=first, second=second, target=target, arguments=arguments
    )
    settings = {"ACCELRT_EXIT_MS": "60000", "PYTHONWARNINGS": "ignore"}
    assert output_of(code, **settings) == "0\n"
    assert path.read_text() == str(COUNT)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize(
    "imports", [("children", "multiprocessing"), ("multiprocessing", "children")]
)
def test_a_child_finishes_what_is_queued(
    tmp_path: Path, method: str, imports: tuple[str, str]
) -> None:
    first, second = (f"import {name}" for name in imports)
    check(tmp_path, method, first, second, "children.leave_queued")


def test_a_child_that_imports_accelrt_itself_finishes_what_is_queued(tmp_path: Path) -> None:
    check(tmp_path, "fork", "import multiprocessing", IMPORTED_IN_TARGET, "leave")


def test_importing_accelrt_does_not_import_multiprocessing() -> None:
    code = "import sys, accelrt; print('multiprocessing' in sys.modules)"
    assert output_of(code) == "False\n"
