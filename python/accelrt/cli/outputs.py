"""Files that a command writes, beside those that it reads."""

from collections.abc import Sequence
from pathlib import Path


def misplaced(outputs: Sequence[Path | None], inputs: Sequence[Path]) -> str | None:
    """Return why an output must not be written: it is an input, or another output, by any name.

    >>> misplaced([Path("a.json"), Path("a.json")], [Path("a.csv")])
    'a.json is written twice: name another file'
    """
    named = [output for output in outputs if output is not None]
    for place, output in enumerate(named):
        if any(_is_same(output, file) for file in inputs):
            return f"{output} is one of the files that are read: name another one to be written"
        if any(_is_same(output, other) for other in named[:place]):
            return f"{output} is written twice: name another file"
    return None


def _is_same(one: Path, other: Path) -> bool:
    try:
        # What is no regular file, as a terminal, may be read and written, and more than once.
        return one.samefile(other) and one.is_file()
    except OSError:  # one of them is not there yet
        return one == other
