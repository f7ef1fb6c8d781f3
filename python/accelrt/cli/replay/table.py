"""The figures of replays, as records and as a table."""

from collections.abc import Sequence
from typing import TypedDict

from accelrt import _core


class Record(TypedDict):
    """One replay; `--json` writes these."""

    trace: str
    policy: str
    config: str
    granularity: int
    events: int
    peak_live_bytes: int
    peak_reserved_bytes: int
    ratio: float | None
    page_operations: int
    ns_per_event: float
    failed_at: int | None


def record(
    trace: str, policy: str, config: str, granularity_bytes: int, figures: _core.ReplayFigures
) -> Record:
    """Return the record of one replay."""
    live = figures.peak_live_bytes
    return Record(
        trace=trace,
        policy=policy,
        config=config,
        granularity=granularity_bytes,
        events=figures.events,
        peak_live_bytes=live,
        peak_reserved_bytes=figures.peak_reserved_bytes,
        ratio=round(figures.peak_reserved_bytes / live, 4) if live else None,
        page_operations=figures.page_operations,
        ns_per_event=round(figures.ns_per_event, 1),
        failed_at=figures.failed_at,
    )


_HEAD = (
    *("trace", "policy", "events", "peak live MiB", "peak reserved MiB", "reserved/live"),
    *("page ops", "ns/event", "failed at"),
)


def text(records: Sequence[Record]) -> str:
    """Return a table with a line for each record."""
    rows = [_HEAD, *map(_row, records)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join(f"{_line(row, widths)}\n" for row in rows)


def _row(record: Record) -> tuple[str, ...]:
    return (
        record["trace"],
        record["policy"],
        str(record["events"]),
        f"{record['peak_live_bytes'] / 2**20:.2f}",
        f"{record['peak_reserved_bytes'] / 2**20:.2f}",
        "-" if record["ratio"] is None else f"{record['ratio']:.4f}",
        str(record["page_operations"]),
        f"{record['ns_per_event']:.0f}",
        "-" if record["failed_at"] is None else f"event {record['failed_at']}",
    )


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    names = (cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True))
    numbers = (cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True))
    return "  ".join((*names, *numbers)).rstrip()
