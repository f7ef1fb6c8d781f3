"""The table: measurements judged by the goals, as records and as text."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from accelrt.cli.bench.goals import GOALS, NEEDS_THE_SOURCE_TREE, Goal, Measurement

Record: TypeAlias = dict[str, str | float | bool | None]

_HEADS = ("row", "what", "ours", "least", "peer", "peer's", "ratio", "goal", "met", "quiet")
_NOBODY = "nobody measured it"
_NOT_WANTED = (_NOBODY, NEEDS_THE_SOURCE_TREE)
_OF_GOALS = frozenset(("goal", "met"))
_RIGHT = frozenset(("ours", "least", "peer's", "ratio", "quiet"))


def records(measurements: Iterable[Measurement]) -> list[Record]:
    """Return one record for each goal, measured or not.

    >>> first, *_ = records([Measurement("Q1", ours=12.0, ours_min=11.0)])
    >>> first["name"], first["ours_ns"], first["goal"], first["met"]
    ('Q1', 12.0, '≤ 15 ns', True)
    >>> {record["reason"] for record in records([]) if record["name"] == "Q6"}
    {'needs the source tree: make bench'}
    """
    measured = {measurement.name: measurement for measurement in measurements}
    return [_record(goal, measured.get(goal.name)) for goal in GOALS]


def _record(goal: Goal, measured: Measurement | None) -> Record:
    if measured is None:
        reason = NEEDS_THE_SOURCE_TREE if goal.is_for_rust else _NOBODY
        measured = Measurement(goal.name, reason=reason)
    ours, peer_ns = measured.ours, measured.peer_ns
    is_missing = measured.peer is not None and peer_ns is None
    return {
        "name": goal.name,
        "what": goal.what,
        "unit": goal.unit,
        "ours_ns": ours if goal.unit == "ns" else None,
        "ours": ours,
        "ours_min": measured.ours_min,
        "peer": measured.peer,
        "peer_ns": peer_ns,
        "excess_ns": measured.excess_ns,
        "ratio": None if ours is None or not peer_ns else ours / peer_ns,
        "goal": str(goal) or None,
        "met": goal.is_met(measured),
        "reason": f"{measured.peer} is missing" if is_missing else measured.reason,
        "quiet": measured.quiet,
    }


def text(rows: Sequence[Record]) -> str:
    """Return the table with the goals, aligned, as Markdown has them."""
    return _aligned([_HEADS, *(_cells(record) for record in rows)])


def text_without_goals(rows: Sequence[Record]) -> str:
    """Return the table of what was measured, and below it what was not, and why.

    >>> print(text_without_goals(records([Measurement("Q7", reason="no clock")])).splitlines()[-1])
    not measured: Q7: no clock
    """
    measured = [record for record in rows if record["ours"] is not None]
    shown = [place for place, head in enumerate(_HEADS) if head not in _OF_GOALS]
    cells = [_HEADS, *(_cells(record) for record in measured)]
    table = _aligned([tuple(line[place] for place in shown) for line in cells])
    return table + "".join(_unmeasured(rows))


def _unmeasured(rows: Iterable[Record]) -> Iterator[str]:
    names: dict[str, list[str]] = {}
    for record in rows:
        if record["ours"] is None and record["reason"] not in _NOT_WANTED:
            names.setdefault(str(record["reason"]), []).append(str(record["name"]))
    for reason, of_it in names.items():
        yield f"not measured: {', '.join(of_it)}: {reason}\n"


def _aligned(cells: Sequence[tuple[str, ...]]) -> str:
    heads = cells[0]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rules = tuple(
        "-" * (width - 1) + ":" if head in _RIGHT else "-" * width
        for head, width in zip(heads, widths, strict=True)
    )
    lines = (_line(heads, line, widths) for line in (heads, rules, *cells[1:]))
    return "\n".join(lines) + "\n"


def _line(heads: Sequence[str], cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (
        cell.rjust(width) if head in _RIGHT else cell.ljust(width)
        for head, cell, width in zip(heads, cells, widths, strict=True)
    )
    return f"| {' | '.join(padded)} |"


def _cells(record: Record) -> tuple[str, ...]:
    peer = record["peer"]
    is_missing = peer is not None and record["peer_ns"] is None
    return (
        str(record["name"]),
        str(record["what"]),
        _number(record["ours"], str(record["unit"])),
        _number(record["ours_min"], ""),
        str(peer or ""),
        "missing" if is_missing else _number(record["peer_ns"], str(record["unit"])),
        "" if record["ratio"] is None else f"{record['ratio']:.2f}",
        str(record["goal"] or ""),
        _verdict(record),
        str(record["quiet"] if record["quiet"] is not None else ""),
    )


def _verdict(record: Record) -> str:
    if record["met"] is not None:
        verdict = "yes" if record["met"] else "no"
        excess_ns = record["excess_ns"]
        return verdict if excess_ns is None else f"{verdict}: {excess_ns:+.0f} ns"
    if record["reason"] is None:
        return ""
    # That a peer is missing stands in its own column.
    is_ours = record["ours"] is None
    return f"not measured: {record['reason']}" if is_ours else "not measured"


def _number(value: str | float | None, unit: str) -> str:
    if value is None:
        return ""
    return f"{value:,.2f}".removesuffix(".00") + (f" {unit}" if unit else "")
