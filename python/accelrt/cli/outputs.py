"""Files that commands read and write, as they are named on the command line."""

import argparse
import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path


def file_argument(text: str) -> Path:
    """Return the path that a text names."""
    if not text:
        message = "the name of a file must not be empty"
        raise argparse.ArgumentTypeError(message)
    return Path(text)


def refusal(outputs: Sequence[Path | None], inputs: Sequence[Path]) -> str | None:
    """Return why an output must not or cannot be written, before anything is done for it.

    >>> refusal([Path("a.json"), Path("a.json")], [Path("a.csv")])
    'a.json is written twice: name another file'
    >>> refusal([Path("no such folder/a.json")], [])
    'cannot write no such folder/a.json: No such file or directory'
    """
    named = [output for output in outputs if output is not None]
    for place, output in enumerate(named):
        if any(_is_same(output, file) for file in inputs):
            return f"{output} is one of the files that are read: name another one to be written"
        if any(_is_same(output, other) for other in named[:place]):
            return f"{output} is written twice: name another file"
        if (number := _obstacle(output)) is not None:
            return f"cannot write {output}: {os.strerror(number)}"
    return None


def _obstacle(output: Path) -> int | None:
    """Return the number of the error that a write certainly ends with."""
    if output.is_dir():
        return errno.EISDIR
    if output.exists():
        return None
    try:
        mode = output.parent.stat().st_mode
    except OSError as error:
        return error.errno
    return None if stat.S_ISDIR(mode) else errno.ENOTDIR


def _is_same(one: Path, other: Path) -> bool:
    try:
        # What is no regular file, as a terminal, may be read and written, and more than once.
        return one.samefile(other) and one.is_file()
    except OSError:  # one of them is not there yet
        return one == other
