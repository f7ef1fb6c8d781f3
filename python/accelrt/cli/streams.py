"""Standard output and standard error of the commands: any text can be written to them."""

import contextlib
import io
import sys
from collections.abc import Callable
from typing import TextIO


def escape() -> Callable[[], None]:
    """Make both streams write backslash escapes for characters that they cannot encode.

    Names of files, kernels and threads may contain any character, also halves of surrogate pairs.
    Returns a function that restores the previous behaviour, for a command that runs a script.
    """
    changed: list[tuple[io.TextIOWrapper, str]] = []
    for stream in (sys.stdout, sys.stderr):
        # A stream that a program has put in place of these is left unchanged.
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(ValueError):  # it is closed or detached
                changed.append((stream, stream.errors or "strict"))
                stream.reconfigure(errors="backslashreplace")

    def restore() -> None:
        for stream, errors in changed:
            with contextlib.suppress(ValueError):
                stream.reconfigure(errors=errors)

    return restore


def is_usable(stream: TextIO | None) -> bool:
    """Return False for a stream that is missing, closed or detached, as a script may leave it."""
    try:
        return stream is not None and not stream.closed
    except ValueError:  # it is detached
        return False
    except AttributeError:  # a replacement that cannot be closed
        return True


def report(text: str, stream: TextIO | None = None) -> None:
    """Write a text to a stream, or to the current standard error if that stream was ended."""
    for candidate in (stream, sys.stderr):
        if candidate is not None and is_usable(candidate):
            encoding = getattr(candidate, "encoding", None) or "utf-8"
            candidate.write(text.encode(encoding, "backslashreplace").decode(encoding))
            return


def refuse(command: str, reason: str, status: int = 2) -> int:
    """Write why a command ends early, in one line; return the exit status."""
    with contextlib.suppress(OSError):  # standard error takes nothing
        report(f"accelrt {command}: {reason}\n")
    return status


def settle() -> None:
    """Flush standard output, and leave out streams that a script has detached or closed.

    The interpreter ends with a status of its own when it cannot flush one.
    """
    if not is_usable(sys.stderr):
        sys.stderr = None
    if not is_usable(sys.stdout):
        sys.stdout = None
    elif hasattr(sys.stdout, "flush"):
        sys.stdout.flush()
