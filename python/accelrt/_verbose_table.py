"""Formats a table of calls by name: count, durations and share."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from accelrt._verbose_records import Record

ORDERS = ("total", "calls", "mean", "max", "name")
_HEAD = ("library", "name", "calls", "total ms", "share", "mean ms", "max ms")


@dataclass(slots=True)
class _Row:
    library: str
    name: str
    calls: int = 0
    total_ms: float = 0.0
    max_ms: float = 0.0

    def add(self, ms: float) -> None:
        self.calls += 1
        self.total_ms += ms
        self.max_ms = max(self.max_ms, ms)

    def cells(self, whole_ms: float) -> tuple[str, ...]:
        share = self.total_ms / whole_ms if whole_ms else 0.0
        times = (self.total_ms / self.calls, self.max_ms)
        shown = (f"{time:.3f}" for time in times)
        return (
            *(self.library, self.name, str(self.calls)),
            *(f"{self.total_ms:.3f}", f"{share:.1%}", *shown),
        )


def check_order(sort_by: str) -> None:
    """Raise for an unknown sort order."""
    if sort_by not in ORDERS:
        message = f"sort_by must be one of {', '.join(ORDERS)}, not {sort_by!r}"
        raise ValueError(message)


def text(records: Iterable[Record], sort_by: str) -> str:
    """Return a table with a row per library and name, and a line of totals."""
    check_order(sort_by)
    rows: dict[tuple[str, str], _Row] = {}
    for record in records:
        key = record.library, record.name
        rows.setdefault(key, _Row(*key)).add(record.ms)
    whole_ms = sum(row.total_ms for row in rows.values())
    lines = [_HEAD, *(row.cells(whole_ms) for row in sorted(rows.values(), key=_keys[sort_by]))]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = "  ".join("-" * width for width in widths)
    calls = sum(row.calls for row in rows.values())
    shown = [_line(line, widths) for line in lines]
    whole = f"{calls} call{'' if calls == 1 else 's'}, {whole_ms:.3f} ms"
    return "\n".join((rule, shown[0], rule, *shown[1:], rule, whole)) + "\n"


# Ties are sorted by name, so the same calls give the same table.
_keys = {
    "total": lambda row: (-row.total_ms, row.name),
    "calls": lambda row: (-row.calls, row.name),
    "mean": lambda row: (-row.total_ms / row.calls, row.name),
    "max": lambda row: (-row.max_ms, row.name),
    "name": lambda row: (row.name, row.library),
}


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    names = (cell.ljust(width) for cell, width in zip(cells[:2], widths[:2], strict=True))
    numbers = (cell.rjust(width) for cell, width in zip(cells[2:], widths[2:], strict=True))
    return "  ".join((*names, *numbers)).rstrip()
