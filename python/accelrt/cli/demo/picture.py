"""A timeline as text: a line for this thread and one for each stream."""

from collections.abc import Sequence

from accelrt.cli.demo.job import HOST_ROW, Span
from accelrt.cli.demo.lane import STAGES

_WIDTH = 64


def lines(spans: Sequence[Span]) -> list[str]:
    """Return a line for each row of the spans; each digit is the last one of a chunk's number."""
    start_ms = min(span.start_ms for span in spans)
    column_ms = max((max(span.end_ms for span in spans) - start_ms) / _WIDTH, 1e-9)
    rows = {row: [" "] * _WIDTH for row in sorted({span.row for span in spans}, key=_place)}
    for span in spans:
        first = int((span.start_ms - start_ms) / column_ms)
        last = max(int((span.end_ms - start_ms) / column_ms), first + 1)
        for column in range(first, min(last, _WIDTH)):
            rows[span.row][column] = str(span.chunk % 10)
    return [f"  {row:<12}|{''.join(columns)}|" for row, columns in rows.items()]


def _place(row: str) -> tuple[int, int]:
    """Order this thread before the streams, and those as a chunk meets them."""
    if row == HOST_ROW:
        return 0, 0
    lane, _, stage = row.partition(" ")
    return int(lane), STAGES.index(stage)
