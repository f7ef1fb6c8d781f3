"""Goal: the times that the demo reports are the sums of all spans of a run, not only some of them.

Method: a run over random chunks, with a clock and lanes whose times are known; the model sums the
same times. The picture of known spans is compared as a whole.
"""

from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from accelrt.cli.demo import job, picture
from accelrt.cli.demo.job import HOST_ROW, Span
from accelrt.cli.demo.lane import STAGES, Chunk, Lane
from accelrt.cli.terminal import Style

# Whole numbers, whose sums are exact; many more chunks than the picture shows.
DURATIONS = st.lists(st.integers(0, 1000), min_size=2 + len(STAGES), max_size=2 + len(STAGES))
CHUNKS = st.lists(DURATIONS, min_size=1, max_size=30)


class FakeLane:
    """A lane whose chunk is back at once, and whose stages took given times."""

    def __init__(self, stages_ms: dict[int, list[int]]) -> None:
        self.chunk: Chunk | None = None
        self._stages_ms = stages_ms

    def enqueue(self, chunk: Chunk) -> None:
        self.chunk = chunk

    def wait(self) -> None: ...

    def check(self, chunk: Chunk) -> None: ...

    def stages(self, _origin: object) -> list[tuple[str, str, float, float]]:
        assert self.chunk is not None
        rows, start_ms = [], 10.0 * self.chunk.number
        for stage, took_ms in zip(STAGES, self._stages_ms[self.chunk.number], strict=True):
            rows.append((stage, f"1 {stage}", start_ms, start_ms + took_ms))
            start_ms += took_ms
        return rows


@given(durations=CHUNKS)
def test_times_are_the_sums_of_all_spans(durations: list[list[int]]) -> None:
    """Each chunk is read in the first time, checked in the second, and has stages of the others."""
    lane = FakeLane({number: stages for number, (_, _, *stages) in enumerate(durations)})
    run = job._Run(job.Job(Path("file"), len(durations), 1, lambda _: None))
    run.begin()
    # Between two spans the clock goes on, which belongs to none of them.
    times_ms: list[float] = [0.0]
    for read_ms, check_ms, *_ in durations:
        for took_ms in (read_ms, check_ms):
            times_ms += [times_ms[-1] + 7, times_ms[-1] + 7 + took_ms]
    clock = iter(times_ms[1:])
    with patch.object(run, "_now_ms", lambda: next(clock)), patch.object(run, "_read"):
        for number in range(len(durations)):
            run.start(cast("Lane", lane), Chunk(number, number, 1), 0)
            run.finish(cast("Lane", lane))
    outcome = run.end()
    assert next(clock, None) is None
    assert outcome.host_ms == sum(read + check for read, check, *_ in durations)
    for place, stage in enumerate(STAGES, start=2):
        assert outcome.stages_ms[stage] == sum(took[place] for took in durations)
    check_picture(outcome, durations)


def check_picture(outcome: job.Outcome, durations: list[list[int]]) -> None:
    """Assert that the picture shows up to 8 consecutive chunks with the expected times."""
    pictured = sorted({span.chunk for span in outcome.spans})
    assert pictured == list(range(pictured[0], pictured[0] + min(8, len(durations))))
    for number in pictured:
        spans = [span for span in outcome.spans if span.chunk == number]
        took: list[Any] = [span.end_ms - span.start_ms for span in spans]
        assert took == durations[number]
        assert [span.row for span in spans[:2]] == [job.HOST_ROW] * 2


def test_picture_whole_text() -> None:
    """A column is a millisecond here; a short span has one, and the later span of two is shown."""
    spans = [
        Span("10 copy in", 19, 140, 164),
        Span("2 copy out", 13, 163.5, 163.5),
        Span("2 compute", 3, 110, 120),
        Span("2 compute", 14, 119.5, 120.5),
        Span(HOST_ROW, 3, 100, 101.5),
        Span("2 copy in", 3, 101, 110),
    ]
    expected = [
        (HOST_ROW, None, "3" + 63 * " "),
        ("2 copy in", "36", " " + 9 * "3" + 54 * " "),
        ("2 compute", "35", 10 * " " + 9 * "3" + "4" + 44 * " "),
        ("2 copy out", "34", 63 * " " + "3"),
        ("10 copy in", "36", 40 * " " + 24 * "9"),
    ]
    colored = [
        f"  {row:<12}|\x1b[{code}m{digits}\x1b[0m|" if code else f"  {row:<12}|{digits}|"
        for row, code, digits in expected
    ]
    assert picture.lines(spans, Style(is_colored=True)) == colored
    assert picture.lines(spans) == [f"  {row:<12}|{digits}|" for row, _, digits in expected]


@given(
    count=st.integers(1, 9),
    lane_count=st.integers(1, 4),
    last_bytes=st.integers(1, 10),
    is_serial=st.booleans(),
)
def test_chunks_are_finished_in_order(
    *, count: int, lane_count: int, last_bytes: int, is_serial: bool
) -> None:
    total_bytes, progress = 10 * (count - 1) + last_bytes, list[int]()
    lanes = [FakeLane({number: [0, 0, 0] for number in range(count)}) for _ in range(lane_count)]
    work = job.Job(Path(__file__), total_bytes, 10, progress.append)
    with patch.object(job._Run, "_read"):
        work.run(cast("list[Lane]", lanes), is_serial=is_serial)
    assert progress == [*range(10, total_bytes, 10), total_bytes]
