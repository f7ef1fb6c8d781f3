"""The error of an unusable file, and its one line."""

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
