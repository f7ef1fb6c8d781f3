"""Call stacks of a snapshot, each kept once."""

from collections.abc import Hashable
from typing import Any

_MOST_LINE = 1 << 31


class Names:
    """Values and their numbers, in order of appearance."""

    def __init__(self) -> None:
        """Start without any."""
        self._numbers: dict[Hashable, int] = {}

    def number(self, value: Hashable) -> int:
        """Return the number of a value; a new one gets the next."""
        return self._numbers.setdefault(value, len(self._numbers))

    def values(self) -> list[Any]:
        """Return the values by number."""
        return list(self._numbers)


class Stacks:
    """Stacks by number: those of a pickle are shared lists, so most are known by identity."""

    NONE = -1

    def __init__(self) -> None:
        """Start without any."""
        self._frames, self._stacks = Names(), Names()
        # With the lists themselves, so that no other list gets the identity of one of them.
        self._known: dict[int, tuple[object, int]] = {}

    def number(self, frames: object) -> int:
        """Return the number of a stack, innermost frame first; `NONE` for what is no stack."""
        if not isinstance(frames, list) or not frames:
            return self.NONE
        known = self._known.get(id(frames))
        if known is None:
            stack = tuple(self._frame(frame) for frame in frames if isinstance(frame, dict))
            number = self._stacks.number(stack) if stack else self.NONE
            known = self._known[id(frames)] = (frames, number)
        return known[1]

    def head(self) -> dict[str, Any]:
        """Return frames as `[name, file, line]`, and stacks as numbers of frames."""
        return {"frames": self._frames.values(), "stacks": self._stacks.values()}

    def _frame(self, frame: dict[str, Any]) -> int:
        line = frame.get("line")
        where = _text(frame.get("name")), _text(frame.get("filename"))
        is_line = type(line) is int and abs(line) < _MOST_LINE
        return self._frames.number((*where, line if is_line else 0))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
