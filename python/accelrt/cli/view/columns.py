"""Columns of numbers and a head, packed for a page: one compressed piece for each view.

The layout, which `page/load.js` reads: the length of the head in four bytes, the head as JSON with
the place of each column in it, spaces up to a multiple of eight, then the columns one after
another, each at a multiple of eight, in little-endian order.
"""

import gzip
import json
import struct
import sys
from array import array
from collections.abc import Iterable
from itertools import accumulate, chain, pairwise
from typing import Any

_ALIGNMENT = 8
# Higher levels save some percent and take several times as long.
_LEVEL = 5
# What a page reads: names of JavaScript's typed arrays.
_TYPES = {
    "B": "Uint8Array",
    "H": "Uint16Array",
    "i": "Int32Array",
    "I": "Uint32Array",
    "d": "Float64Array",
}
_MOST_STEP = (1 << 32) - 1


class Columns:
    """The columns of a view, by name."""

    def __init__(self) -> None:
        """Start without any."""
        self._columns: dict[str, tuple[str, array[Any]]] = {}

    def add(self, name: str, values: "array[Any]") -> None:
        """Add a column as it is."""
        self._columns[name] = (_TYPES[values.typecode], values)

    def add_rising(self, name: str, values: Iterable[float]) -> None:
        """Add numbers that never fall, as whole steps from one to the next: these pack well.

        One that falls stays where the one before was.
        """
        rising = list(accumulate((int(value) for value in values), max))
        steps = [after - before for before, after in pairwise(chain((0,), rising))]
        if all(step <= _MOST_STEP for step in steps):
            self._columns[name] = ("steps", array("I", steps))
        else:
            self.add(name, array("d", rising))

    def __getitem__(self, name: str) -> "array[Any]":
        """Return what was added under a name; of rising numbers the steps."""
        return self._columns[name][1]

    def packed(self, head: dict[str, Any]) -> bytes:
        """Return the columns and the head as one compressed piece."""
        places, content, offset = {}, [], 0
        for name, (kind, values) in self._columns.items():
            if sys.byteorder == "big":
                values = values[:]  # noqa: PLW2901  a copy to be turned round
                values.byteswap()
            part = _padded(values.tobytes())
            places[name] = [kind, offset, len(values)]
            content.append(part)
            offset += len(part)
        text = json.dumps({**head, "columns": places}, separators=(",", ":")).encode()
        text += b" " * (-(4 + len(text)) % _ALIGNMENT)
        whole = b"".join((struct.pack("<I", len(text)), text, *content))
        return gzip.compress(whole, _LEVEL, mtime=0)


def _padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % _ALIGNMENT)
