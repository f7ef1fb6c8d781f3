"""Files that are there as a whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def whole_file(path: str | bytes | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for its content, which stands there when the `with` has ended without an error.

    A link stays, and what it leads to is written; a pipe or a device is written as it is. An
    `OSError` names the path as it was given.
    """
    name = os.fsdecode(path)
    with _naming(name):
        mode = _mode(name)
        if mode is not None and not stat.S_ISREG(mode):
            with open(name, "wb") as file:  # noqa: PTH123  a folder is refused with this name
                yield file
            return
        target = os.path.realpath(name)
        folder, last = os.path.split(target)
        handle, beside = tempfile.mkstemp(dir=folder, prefix=f".{last}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        with _naming(name):
            os.chmod(beside, _permissions(mode))  # noqa: PTH101
            os.replace(beside, target)  # noqa: PTH105
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)  # noqa: PTH108
        raise


@contextlib.contextmanager
def _naming(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # which may name a file that no program asked for
        raise OSError(error.errno, error.strerror, name) from None


def _mode(name: str) -> int | None:
    if not name:
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    try:
        return os.stat(name).st_mode  # noqa: PTH116  a NUL is a ValueError, as of `open`
    except FileNotFoundError:
        return None


def _permissions(mode: int | None) -> int:
    """Return those of the file that was there, else those that `open` gives."""
    if mode is not None:
        return stat.S_IMODE(mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
