"""The error of an unusable file, its one line, and what a file looks like."""

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from accelrt import _core


class TraceError(Exception):
    """A file that cannot be replayed or shown, and why."""


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Raise what goes wrong while a file is read as a `TraceError` that names it."""
    try:
        yield
    except _core.TableError as error:  # it names the file
        raise TraceError(str(error)) from error
    except (TraceError, ValueError) as error:
        message = f"cannot read {path}: {error}"
        raise TraceError(message) from error
    except OSError as error:
        message = f"cannot read {path}: {error.strerror}"
        raise TraceError(message) from error
    except RecursionError as error:
        message = f"cannot read {path}: it is nested too deeply"
        raise TraceError(message) from error


def expect_file(path: Path) -> None:
    """Raise when a path is not there or a folder: it has no kind then, whatever its ending."""
    if stat.S_ISDIR(path.stat().st_mode):
        message = "it is a folder"
        raise TraceError(message)


def resemblance(content: bytes, but: str) -> str:
    """Return what a file looks like by its beginning, if not like what its ending says (`but`).

    >>> resemblance(b'{"traceEvents": []}', but="a pickle")
    ': it looks like JSON, and a name that ends in .json says so'
    >>> resemblance(b"anything", but="a pickle")
    ''
    """
    if content.startswith(b"\x80"):
        looks = "a pickle", ".pickle"
    elif content.startswith(b"\x1f\x8b"):
        return ": it is packed by gzip, and only profiles are read so: unpack it first"
    elif content.lstrip()[:1] in {b"{", b"["}:
        looks = "JSON", ".json"
    else:
        looks = but, ""
    if looks[0] == but:
        return ""
    return f": it looks like {looks[0]}, and a name that ends in {looks[1]} says so"
