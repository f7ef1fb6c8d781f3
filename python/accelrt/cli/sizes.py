"""Sizes in bytes, counts and times, as the command line takes and shows them."""

import argparse
import math

from accelrt import _core

_MOST_BYTES = (1 << 63) - 1


def size_argument(text: str) -> int:
    """Return the bytes of a text: a number, or one with a unit, as 256M or 8GiB."""
    count = _core.parse_bytes(text)
    if count is None or not 0 < count <= _MOST_BYTES:
        message = f"{text!r} is not a number of bytes of at least 1, as 16777216, 256M or 8GiB"
        raise argparse.ArgumentTypeError(message)
    return count


def count_argument(text: str) -> int:
    """Return a whole number of at least 1."""
    count = int(text) if text.isascii() and text.isdigit() else 0
    if count < 1:
        message = f"{text!r} is not a whole number of at least 1"
        raise argparse.ArgumentTypeError(message)
    return count


def seconds_argument(text: str) -> float:
    """Return a finite number of seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        message = f"{text!r} is not a number of seconds"
        raise argparse.ArgumentTypeError(message)
    return seconds


def counted(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> counted(1, "record"), counted(2, "record")
    ('1 record', '2 records')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"
