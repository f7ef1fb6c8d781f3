"""The table of measurements, as records and as text."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from accelrt.cli.bench.measurement import Measurement
from accelrt.cli.bench.rows import ROWS, Row

Record: TypeAlias = dict[str, str | float | bool | None]

HEADS = ("row", "what", "ours", "least", "all", "p99", "peer", "peer's", "ratio", "quiet")
_UNMEASURED = "it was not asked for"
_RIGHT = frozenset(("ours", "least", "all", "p99", "peer's", "ratio", "quiet"))


def records(measurements: Iterable[Measurement]) -> list[Record]:
    """Return one record for each row, measured or not.

    >>> first, *_ = records([Measurement("Q2", ours=12.0, ours_min=11.0)])
    >>> first["name"], first["what"], first["ours_ns"]
    ('Q2', 'launch from Python, nobody drains', 12.0)
    """
    measured = {measurement.name: measurement for measurement in measurements}
    return [record(row, measured.get(row.name) or unmeasured(row)) for row in ROWS]


def unmeasured(row: Row) -> Measurement:
    """Return the text of a missing measurement."""
    return Measurement(row.name, reason=_UNMEASURED)


def record(row: Row, measured: Measurement) -> Record:
    """Return the record of a row."""
    ours, peer_ns = measured.ours, measured.peer_ns
    is_missing = measured.peer is not None and peer_ns is None
    return {
        "name": row.name,
        "what": row.what,
        "unit": row.unit,
        "ours_ns": ours if row.unit == "ns" else None,
        "ours": ours,
        "ours_min": measured.ours_min,
        "unfiltered": measured.unfiltered,
        "p99": measured.p99,
        "peer": measured.peer,
        "peer_ns": peer_ns,
        "peer_unfiltered": measured.peer_unfiltered,
        "peer_p99": measured.peer_p99,
        "excess_ns": measured.excess_ns,
        "ratio": None if ours is None or not peer_ns else ours / peer_ns,
        "reason": f"{measured.peer} is missing" if is_missing else measured.reason,
        "quiet": measured.quiet,
    }


def text(rows: Sequence[Record]) -> str:
    """Return the table of measurements, and below it the missing ones with the reasons.

    >>> print(text(records([Measurement("Q7", reason="no clock")])).splitlines()[-1])
    not measured: Q7: no clock
    """
    measured = (cells(record) for record in rows if record["ours"] is not None)
    return aligned([HEADS, *measured]) + "".join(_unmeasured(rows))


def _unmeasured(rows: Iterable[Record]) -> Iterator[str]:
    names: dict[str, list[str]] = {}
    for record in rows:
        if record["ours"] is None and record["reason"] != _UNMEASURED:
            names.setdefault(str(record["reason"]), []).append(str(record["name"]))
    for reason, of_it in names.items():
        yield f"not measured: {', '.join(of_it)}: {reason}\n"


def aligned(lines: Sequence[tuple[str, ...]]) -> str:
    """Return cells, of which the first line has the heads, as a table of Markdown."""
    heads = lines[0]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rules = tuple(
        "-" * (width - 1) + ":" if head in _RIGHT else "-" * width
        for head, width in zip(heads, widths, strict=True)
    )
    return "".join(f"{_line(heads, line, widths)}\n" for line in (heads, rules, *lines[1:]))


def _line(heads: Sequence[str], cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (
        cell.rjust(width) if head in _RIGHT else cell.ljust(width)
        for head, cell, width in zip(heads, cells, widths, strict=True)
    )
    return f"| {' | '.join(padded)} |"


def cells(record: Record) -> tuple[str, ...]:
    """Return the cells of a record below `HEADS`."""
    peer = record["peer"]
    is_missing = peer is not None and record["peer_ns"] is None
    return (
        str(record["name"]),
        str(record["what"]),
        _number(record["ours"], str(record["unit"])),
        _number(record["ours_min"], ""),
        _number(record["unfiltered"], ""),
        _number(record["p99"], ""),
        str(peer or ""),
        "missing" if is_missing else _number(record["peer_ns"], str(record["unit"])),
        "" if record["ratio"] is None else f"{record['ratio']:.2f}",
        str(record["quiet"] if record["quiet"] is not None else ""),
    )


def _number(value: str | float | None, unit: str) -> str:
    if value is None:
        return ""
    return f"{value:,.2f}".removesuffix(".00") + (f" {unit}" if unit else "")
