"""Sizes in bytes, as the command line takes them, and counts as it shows them."""

import argparse

from accelrt import _core

_MOST_BYTES = (1 << 63) - 1


def size_argument(text: str) -> int:
    """Return the bytes of a text: a number, or one with a unit, as 256M or 8GiB."""
    count = _core.parse_bytes(text)
    if count is None or not 0 < count <= _MOST_BYTES:
        message = f"{text!r} is not a number of bytes of at least 1, as 16777216, 256M or 8GiB"
        raise argparse.ArgumentTypeError(message)
    return count


def counted(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> counted(1, "record"), counted(2, "record")
    ('1 record', '2 records')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"
