"""What two runs of a program differ in, of all that is compared."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EXPLAINED = Path(__file__).parent / "explained.toml"
NUMBERS = ("current", "peak", "allocated", "freed")


@dataclass(frozen=True)
class Difference:
    """The first difference of those that say most."""

    what: str
    """`end`, `address`, `bytes`, `calls`, `layout`, or `statistic NAME.NUMBER` for each."""
    real: str
    ours: str

    @property
    def is_of_statistics(self) -> bool:
        """True when addresses, calls and layouts are the same."""
        return self.what.startswith("statistic")


def _first(real: list[str], ours: list[str]) -> tuple[str, str] | None:
    for a, b in zip(real, ours, strict=False):
        if a != b:
            return a, b
    if len(real) == len(ours):
        return None
    rest = (real, ours)[len(real) < len(ours)][min(len(real), len(ours))]
    return (rest, "nothing") if len(real) > len(ours) else ("nothing", rest)


def _statistics(lines: Iterable[str]) -> dict[str, int]:
    """Every number, by device and name."""
    numbers: dict[str, int] = {}
    device = ""
    for line in lines:
        word, *rest = line.split()
        if word == "device":
            device = rest[0]
        elif word == "statistic":
            name, *values = rest
            names = NUMBERS if len(values) > 1 else ("",)
            for part, value in zip(names, values, strict=True):
                numbers[f"{device} {name}{'.' if part else ''}{part}"] = int(value)
    return numbers


def _of_statistics(real: list[str], ours: list[str]) -> Difference | None:
    theirs, mine = _statistics(real), _statistics(ours)
    # A name stands once, whichever device it is of.
    wrong = [name for name, number in theirs.items() if mine.get(name) != number]
    if not wrong:
        return None
    names = sorted({name.split()[1] for name in wrong})
    first = wrong[0]
    return Difference(
        "statistic " + " ".join(names), f"{first} {theirs[first]}", f"{first} {mine.get(first)}"
    )


def before_failure(real: list[str], ours: list[str]) -> tuple[list[str], list[str]]:
    """Return what both said up to the last answer before PyTorch failed."""
    answered = [index for index, line in enumerate(real) if " | " in line]
    count = answered[-1] + 1 if answered else 0
    return real[:count], ours[:count]


def difference(real: list[str], ours: list[str]) -> Difference | None:
    """Find what differs first: ends, addresses, bytes, calls, layouts, statistics."""
    if real == ours and not any(line.startswith("error") for line in real):
        return None
    parts: list[tuple[str, Callable[[str], str | None]]] = [
        ("end", lambda line: line if line.startswith("error") else None),
        ("address", lambda line: line.split(" | ")[0] if " at " in line else None),
        ("bytes", lambda line: line if " at " in line else None),
        ("calls", lambda line: line if line.startswith("call ") else None),
        ("layout", lambda line: line if line.startswith(("segment ", "block ")) else None),
    ]
    for what, part in parts:
        mine = [found for line in ours if (found := part(line)) is not None]
        theirs = [found for line in real if (found := part(line)) is not None]
        if what == "end" and (mine or theirs):
            return Difference(what, "".join(theirs) or "it ended", "".join(mine) or "it ended")
        first = _first(theirs, mine)
        if first is not None:
            return Difference(what, *first)
    return _of_statistics(real, ours)


@dataclass(frozen=True)
class Explanation:
    """A difference that is known, and why it stays."""

    kinds: tuple[str, ...]
    whats: frozenset[str]
    reason: str

    def explains(self, kind: str, found: Difference) -> bool:
        """Tell whether a difference is in nothing but what this names."""
        if kind not in self.kinds:
            return False
        if found.is_of_statistics:
            names = found.what.split()[1:]
            return all(name in self.whats or name.split(".")[0] in self.whats for name in names)
        return found.what in self.whats


@dataclass(frozen=True)
class Failure:
    """A defect of PyTorch's that ends its program; what it answered before is compared."""

    kinds: tuple[str, ...]
    says: str
    reason: str

    def is_that(self, kind: str, real: list[str]) -> bool:
        """Tell whether PyTorch's side ended by this."""
        is_failed = bool(real) and real[-1].startswith("error ")
        return kind in self.kinds and is_failed and self.says in real[-1]


@dataclass(frozen=True)
class Known:
    """What is committed."""

    explanations: list[Explanation]
    failures: list[Failure]

    def failure(self, kind: str, real: list[str]) -> Failure | None:
        """Return the known defect by which PyTorch's side ended."""
        return next((one for one in self.failures if one.is_that(kind, real)), None)

    def reason(self, kind: str, found: Difference) -> str | None:
        """Return why a difference stays, if it is known."""
        reasons = [one.reason for one in self.explanations if one.explains(kind, found)]
        return reasons[0] if reasons else None


def known(path: Path = EXPLAINED) -> Known:
    """Read what is committed."""
    tables: dict[str, list[dict[str, Any]]] = tomllib.loads(path.read_text())
    return Known(
        [
            Explanation(tuple(one["kinds"]), frozenset(one["differs"]), one["reason"])
            for one in tables.get("explained", [])
        ],
        [
            Failure(tuple(one["kinds"]), one["says"], one["reason"])
            for one in tables.get("fails", [])
        ],
    )
