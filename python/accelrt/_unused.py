"""Which values a dictionary alone has."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_Key = TypeVar("_Key")

# `sys.getrefcount` of a value that is in use nowhere but in its dictionary.
_HELD = [object()]
_UNUSED = sys.getrefcount(_HELD[0])


def unused(values: Mapping[_Key, object]) -> Iterator[_Key]:
    """Yield, in order, the keys of values that only `values` has, may be under several keys."""
    keys_of: Counter[int] | None = None
    for key in values:
        others = sys.getrefcount(values[key]) - _UNUSED
        if others > 0:
            keys_of = keys_of or Counter(map(id, values.values()))
            others -= keys_of[id(values[key])] - 1
        if others <= 0:
            yield key
