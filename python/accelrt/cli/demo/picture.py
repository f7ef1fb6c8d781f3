"""A timeline as text: a line for this thread and one for each stream."""

from collections.abc import Sequence

from accelrt.cli.demo.job import HOST_ROW, Span
from accelrt.cli.demo.lane import STAGES
from accelrt.cli.terminal import PLAIN, Style

_WIDTH = 64


def lines(spans: Sequence[Span], style: Style = PLAIN) -> list[str]:
    """Return a line for each row of the spans; each digit is the last one of a chunk's number.

    Stages have colours of their own.
    """
    start_ms = min(span.start_ms for span in spans)
    column_ms = max((max(span.end_ms for span in spans) - start_ms) / _WIDTH, 1e-9)
    rows = {row: [" "] * _WIDTH for row in sorted({span.row for span in spans}, key=_place)}
    for span in spans:
        first = int((span.start_ms - start_ms) / column_ms)
        last = max(int((span.end_ms - start_ms) / column_ms), first + 1)
        for column in range(first, min(last, _WIDTH)):
            rows[span.row][column] = str(span.chunk % 10)
    return [
        f"  {row:<12}|{_colored(row, ''.join(columns), style)}|" for row, columns in rows.items()
    ]


def _colored(row: str, digits: str, style: Style) -> str:
    return digits if row == HOST_ROW else style.part(_place(row)[1], digits)


def _place(row: str) -> tuple[int, int]:
    """Order this thread before the streams, and those as a chunk meets them."""
    if row == HOST_ROW:
        return 0, 0
    lane, _, stage = row.partition(" ")
    return int(lane), STAGES.index(stage)
