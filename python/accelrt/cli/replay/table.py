"""The figures of replays, as records and as a table."""

import json
from collections.abc import Sequence
from typing import TypedDict

from accelrt import _core
from accelrt.cli.terminal import PLAIN, Style


class Record(TypedDict):
    """One replay; `--json` writes these without their last value, which the table shows."""

    trace: str
    policy: str
    config: str
    granularity: int
    events: int | None
    peak_live_bytes: int | None
    peak_reserved_bytes: int | None
    ratio: float | None
    page_operations: int | None
    ns_per_event: float | None
    failed_at: int | None
    error: str | None


def record(trace: str, policy: str, config: str, figures: _core.ReplayFigures) -> Record:
    """Return the record of one replay."""
    live = figures.peak_live_bytes
    return Record(
        trace=trace,
        policy=policy,
        config=config,
        granularity=figures.granularity_bytes,
        events=figures.events,
        peak_live_bytes=live,
        peak_reserved_bytes=figures.peak_reserved_bytes,
        ratio=round(figures.peak_reserved_bytes / live, 4) if live else None,
        page_operations=figures.page_operations,
        ns_per_event=round(figures.ns_per_event, 1),
        failed_at=figures.failed_at,
        error=None,
    )


def failure(trace: str, policy: str, config: str, granularity_bytes: int, reason: str) -> Record:
    """Return the record of one replay that has no figures, and why."""
    return Record(
        trace=trace,
        policy=policy,
        config=config,
        granularity=granularity_bytes,
        events=None,
        peak_live_bytes=None,
        peak_reserved_bytes=None,
        ratio=None,
        page_operations=None,
        ns_per_event=None,
        failed_at=None,
        error=reason,
    )


def to_json(records: Sequence[Record]) -> str:
    """Return the records as a JSON array."""
    kept = [{key: row[key] for key in row if key != "error"} for row in map(dict, records)]
    return json.dumps(kept, indent=1) + "\n"


_HEAD = (
    *("trace", "policy", "events", "peak live MiB", "peak reserved MiB", "reserved/live"),
    *("page ops", "ns/event", "failed at"),
)


def text(records: Sequence[Record], style: Style = PLAIN) -> str:
    """Return a table with a line for each record; colours show where memory or a replay failed."""
    head, *lines = aligned([_HEAD, *map(_row, records)], names=2).splitlines()
    marks = [
        style.bad if it["error"] is not None or it["failed_at"] is not None else _unmarked
        for it in records
    ]
    shown = [style.bold(head), *(mark(line) for mark, line in zip(marks, lines, strict=True))]
    return "".join(f"{line}\n" for line in shown)


def _unmarked(text: str) -> str:
    return text


def aligned(rows: Sequence[Sequence[str]], *, names: int) -> str:
    """Return rows as lines: the first `names` columns are words, and the others are numbers."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def line(row: Sequence[str]) -> str:
        cells = list(zip(row, widths, strict=True))
        words = (cell.ljust(width) for cell, width in cells[:names])
        numbers = (cell.rjust(width) for cell, width in cells[names:])
        return "  ".join((*words, *numbers)).rstrip()

    return "".join(f"{line(row)}\n" for row in rows)


def mebibytes(count: int | None) -> str:
    """Return bytes in MiB, as the tables show them."""
    return _cell(None if count is None else count / 2**20, "{:.2f}")


def _row(record: Record) -> tuple[str, ...]:
    return (
        record["trace"],
        record["policy"],
        _cell(record["events"], "{}"),
        mebibytes(record["peak_live_bytes"]),
        mebibytes(record["peak_reserved_bytes"]),
        _cell(record["ratio"], "{:.4f}"),
        _cell(record["page_operations"], "{}"),
        _cell(record["ns_per_event"], "{:.0f}"),
        _cell(record["failed_at"], "event {}") if record["error"] is None else record["error"],
    )


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
