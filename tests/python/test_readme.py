"""Goal: the Python example of README.md is right, each time.

Method: it is taken out of the file and run many times in one process, where streams of the
pools and memory are used again.
"""

import re
from pathlib import Path

import pytest

from kinds import host_cores

README = Path(__file__).parents[2] / "README.md"
REPEATS = 2000


@host_cores
def test_the_example_prints_what_it_copied_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    program = compile(example, str(README), "exec")
    for _ in range(REPEATS):
        exec(program, {})  # noqa: S102  our own words
        there, copied = capsys.readouterr().out.splitlines()
        assert there == "the bytes are there"
        assert re.fullmatch(r"b'\\x00\\x01\\x02\\x03' \d+\.\d{3} ms", copied)
