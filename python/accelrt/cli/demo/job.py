"""Runs over a file: chunks by turns in lanes, read and checked here while the device computes."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import accelrt
from accelrt.cli.demo.lane import STAGES, Chunk, Lane

HOST_ROW = "this thread"

# Of so many chunks in the middle of a run the times are kept, for the picture.
_PICTURED_CHUNKS = 8


@dataclass(frozen=True)
class Span:
    """What was done with a chunk, from when to when: milliseconds since the run began."""

    row: str
    chunk: int
    start_ms: float
    end_ms: float


@dataclass
class Outcome:
    """How long a run took, and what in it."""

    seconds: float = 0.0
    host_ms: float = 0.0
    stages_ms: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    spans: list[Span] = field(default_factory=list)


class FileChangedError(Exception):
    """A file that is shorter than it was."""


@dataclass(frozen=True)
class Job:
    """The file, the size of its pieces, and the listener for progress."""

    path: Path
    total_bytes: int
    chunk_bytes: int
    show_progress: Callable[[int], None]

    @property
    def chunk_count(self) -> int:
        """How many chunks the file has."""
        return -(-self.total_bytes // self.chunk_bytes)

    def run(self, lanes: list[Lane], *, is_serial: bool = False) -> Outcome:
        """Take the file through the lanes; serially a chunk ends before the next one begins."""
        run = _Run(self)
        with self.path.open("rb", buffering=0) as file:
            run.begin()
            for chunk in self._chunks():
                lane = lanes[chunk.number % len(lanes)]
                run.finish(lane)
                run.start(lane, chunk, file.fileno())
                if is_serial:
                    run.finish(lane)
            for lane in sorted(lanes, key=lambda lane: lane.chunk.number if lane.chunk else 0):
                run.finish(lane)
            return run.end()

    def _chunks(self) -> Iterator[Chunk]:
        for number in range(self.chunk_count):
            start = number * self.chunk_bytes
            yield Chunk(number, start, min(self.chunk_bytes, self.total_bytes - start))


class _Run:
    """The clocks of a run, and what they showed."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._outcome = Outcome()
        first = max(0, (job.chunk_count - _PICTURED_CHUNKS) // 2)
        self._pictured = range(first, first + _PICTURED_CHUNKS)

    def begin(self) -> None:
        """Start both clocks: events read the device's."""
        self._origin = accelrt.Event(enable_timing=True)
        self._origin.record()
        self._origin.synchronize()
        self._started = time.perf_counter()

    def end(self) -> Outcome:
        self._outcome.seconds = time.perf_counter() - self._started
        return self._outcome

    def start(self, lane: Lane, chunk: Chunk, file: int) -> None:
        """Read a chunk and enqueue what is to be done with it."""
        with self._on_host(chunk):
            self._read(lane, chunk, file)
        lane.enqueue(chunk)

    def finish(self, lane: Lane) -> None:
        """Wait for the chunk that is in the lane, if one is, and check it."""
        chunk = lane.chunk
        if chunk is None:
            return
        lane.wait()
        with self._on_host(chunk):
            lane.check(chunk)
        for stage, row, start_ms, end_ms in lane.stages(self._origin):
            self._outcome.stages_ms[stage] += end_ms - start_ms
            self._picture(Span(row, chunk.number, start_ms, end_ms))
        lane.chunk = None
        self._job.show_progress(chunk.start + chunk.nbytes)

    def _read(self, lane: Lane, chunk: Chunk, file: int) -> None:
        done = 0
        while done < chunk.nbytes:
            count = os.preadv(file, [lane.content[done : chunk.nbytes]], chunk.start + done)
            if not count:
                job = self._job
                message = f"{job.path} ended at {chunk.start + done} of {job.total_bytes} bytes"
                raise FileChangedError(message)
            done += count

    @contextmanager
    def _on_host(self, chunk: Chunk) -> Iterator[None]:
        start_ms = self._now_ms()
        yield
        span = Span(HOST_ROW, chunk.number, start_ms, self._now_ms())
        self._outcome.host_ms += span.end_ms - span.start_ms
        self._picture(span)

    def _now_ms(self) -> float:
        return (time.perf_counter() - self._started) * 1e3

    def _picture(self, span: Span) -> None:
        if span.chunk in self._pictured:
            self._outcome.spans.append(span)
