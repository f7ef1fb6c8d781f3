"""The table with the goals: measurements judged by them, as records and as text."""

from collections.abc import Iterable, Sequence

from accelrt.cli.bench import table
from accelrt.cli.bench.measurement import Measurement
from accelrt.cli.bench.table import Record
from goals import GOALS, Goal

_HEADS = (*table.HEADS[:-1], "goal", "met", table.HEADS[-1])


def records(measurements: Iterable[Measurement]) -> list[Record]:
    """Return one record for each goal, measured or not.

    >>> first, *_ = records([Measurement("Q1", ours=12.0, ours_min=11.0)])
    >>> first["name"], first["ours_ns"], first["goal"], first["met"]
    ('Q1', 12.0, '≤ 15 ns', True)
    """
    measured = {measurement.name: measurement for measurement in measurements}
    return [_record(goal, measured.get(goal.row.name)) for goal in GOALS]


def _record(goal: Goal, measured: Measurement | None) -> Record:
    judged = measured or table.unmeasured(goal.row)
    return {
        **table.record(goal.row, judged),
        "goal": str(goal) or None,
        "met": goal.is_met(judged),
    }


def text(rows: Sequence[Record]) -> str:
    """Return the table, aligned, as Markdown has it."""
    return table.aligned([_HEADS, *(_cells(record) for record in rows)])


def _cells(record: Record) -> tuple[str, ...]:
    *measured, quiet = table.cells(record)
    return *measured, str(record["goal"] or ""), _verdict(record), quiet


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
