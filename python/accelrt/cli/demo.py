"""`python -m accelrt demo`: streams a file through the accelerator in chunks and checks the result.

Each lane has three streams: one copies chunks in, one runs kernels of ours (a byte histogram and a
transform to floats), one copies the floats out. Events order them; nothing else waits, so
several chunks are in flight. A second, serial run waits after each chunk: the honest yardstick.
"""

import array
import stat
import struct
import sys
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import accelrt
from accelrt import _core
from accelrt.cli import demo_kernels

_FLOAT_BYTES = 4
_HISTOGRAM_BYTES = 256 * 8
_STAGES = ("copy in", "kernels", "copy out")
_BAR_WIDTH = 40


@dataclass
class _Lane:
    """Three streams and the buffers of one chunk in flight."""

    chunk_bytes: int
    copy_in: accelrt.Stream = field(default_factory=accelrt.Stream)
    compute: accelrt.Stream = field(default_factory=accelrt.Stream)
    copy_out: accelrt.Stream = field(default_factory=accelrt.Stream)

    def __post_init__(self) -> None:
        self.source = accelrt.empty(self.chunk_bytes)
        self.floats = accelrt.empty(self.chunk_bytes * _FLOAT_BYTES)
        with self.compute:
            self.histogram = accelrt.zeros(_HISTOGRAM_BYTES)
        self.source.fill_(0)  # touches the pages once, outside the timing
        self.floats.fill_(0)
        self.drained = accelrt.Event()  # of the chunk before: its buffers may be written again


@dataclass
class _Outcome:
    """What a run found and how long it took."""

    seconds: float
    histogram: list[int]
    floats: bytearray
    stage_ms: list[float]


def run(file: Path | None, *, lane_count: int, chunk_bytes: int) -> int:
    """Run the job and print what it found; return the exit status."""
    path = file or _interpreter()
    try:
        total_bytes = _size_of(path)
        chunk_bytes = min(chunk_bytes, total_bytes)
        # More lanes than chunks would only take memory.
        lane_count = min(lane_count, -(-total_bytes // chunk_bytes))
        _check_memory(total_bytes, lane_count, chunk_bytes)
        content = path.read_bytes()
    except _UnusableError as error:
        sys.stderr.write(f"accelrt demo: {error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"accelrt demo: cannot read {path}: {error.strerror}\n")
        return 2
    kernels = demo_kernels.for_accelerator()
    overlapped = _stream_through(content, kernels, lane_count, chunk_bytes, is_serial=False)
    serial = _stream_through(content, kernels, 1, chunk_bytes, is_serial=True)
    problems = [*_problems(content, overlapped), *_problems(content, serial)]
    _report(path, content, overlapped, serial)
    lanes = f"{lane_count} of three streams each, chunks of {chunk_bytes} bytes"
    outcome = "WRONG" if problems else "both runs equal a plain computation"
    sys.stdout.write(f"lanes       {lanes}\nchecked     {outcome}\n")
    for problem in problems:
        sys.stderr.write(f"accelrt demo: {problem}\n")
    return 1 if problems else 0


class _UnusableError(Exception):
    """A file that is not streamed, and why."""


def _size_of(path: Path) -> int:
    """Return the size of a file whose end is known before it is read."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        message = f"cannot stream {path}: it is not a regular file"
        raise _UnusableError(message)
    if not status.st_size:
        message = f"cannot stream {path}: it is empty"
        raise _UnusableError(message)
    return status.st_size


def _check_memory(total_bytes: int, lane_count: int, chunk_bytes: int) -> None:
    """Refuse what would take all memory before it does."""
    device = accelrt.accelerator.current_stream().device
    free_bytes, _ = accelrt.accelerator.get_memory_info(device)
    needed_bytes = lane_count * (chunk_bytes * (1 + _FLOAT_BYTES) + _HISTOGRAM_BYTES)
    if device.type == "cpu":  # the content, its floats, and those they are compared with
        needed_bytes += total_bytes * (1 + 2 * _FLOAT_BYTES)
    if needed_bytes > free_bytes:
        sizes = f"{lane_count} lanes with chunks of {chunk_bytes} bytes"
        message = f"{sizes} need {needed_bytes} bytes for this file; {free_bytes} are free"
        raise _UnusableError(message)


def _interpreter() -> Path:
    """Return the interpreter's shared library where it has one, else its executable."""
    folder, name = (sysconfig.get_config_var(name) for name in ("LIBDIR", "LDLIBRARY"))
    library = Path(folder or "", name or "")
    return library if library.suffix == ".so" and library.is_file() else Path(sys.executable)


def _stream_through(
    content: bytes,
    kernels: demo_kernels.Kernels,
    lane_count: int,
    chunk_bytes: int,
    *,
    is_serial: bool,
) -> _Outcome:
    lanes = [_Lane(chunk_bytes) for _ in range(lane_count)]
    floats = bytearray(len(content) * _FLOAT_BYTES)
    events: list[list[accelrt.Event]] = []
    accelrt.accelerator.synchronize()
    started = time.perf_counter()
    for number, chunk in enumerate(_chunks(len(content), chunk_bytes)):
        lane = lanes[number % lane_count]
        events.append(_enqueue(lane, kernels, content, floats, chunk))
        if is_serial:
            accelrt.accelerator.synchronize()
        _show_progress(chunk.stop, len(content), is_serial=is_serial)
    accelrt.accelerator.synchronize()
    seconds = time.perf_counter() - started
    _show_progress(None, len(content), is_serial=is_serial)
    histograms = [_read_histogram(lane) for lane in lanes]
    stage_ms = [sum(marks[i].elapsed_time(marks[i + 1]) for marks in events) for i in range(3)]
    return _Outcome(
        seconds, [sum(column) for column in zip(*histograms, strict=True)], floats, stage_ms
    )


def _read_histogram(lane: _Lane) -> tuple[int, ...]:
    target = bytearray(_HISTOGRAM_BYTES)
    lane.histogram.copy_to(target)
    return struct.unpack("256Q", target)


def _chunks(total_bytes: int, chunk_bytes: int) -> Iterator[slice]:
    for start in range(0, total_bytes, chunk_bytes):
        yield slice(start, min(start + chunk_bytes, total_bytes))


def _enqueue(
    lane: _Lane, kernels: demo_kernels.Kernels, content: bytes, floats: bytearray, chunk: slice
) -> list[accelrt.Event]:
    """Enqueue one chunk; return the events before, between and after its three stages."""
    count = chunk.stop - chunk.start
    marks = [accelrt.Event(enable_timing=True) for _ in range(len(_STAGES) + 1)]
    with lane.copy_in as stream:
        stream.wait_event(lane.drained)
        marks[0].record()
        lane.source[:count].copy_(memoryview(content)[chunk], non_blocking=True)
        marks[1].record()
    lane.compute.wait_event(marks[1])
    kernels.histogram(lane.compute, lane.source, count, lane.histogram)
    kernels.floats(lane.compute, lane.source, count, lane.floats)
    marks[2].record(lane.compute)
    with lane.copy_out as stream:
        stream.wait_event(marks[2])
        target = memoryview(floats)[chunk.start * _FLOAT_BYTES : chunk.stop * _FLOAT_BYTES]
        lane.floats[: count * _FLOAT_BYTES].copy_to(target, non_blocking=True)
        marks[3].record()
        lane.drained.record()
    return marks


def _problems(content: bytes, outcome: _Outcome) -> Iterator[str]:
    """Compare with a plain computation."""
    expected = [content.count(bytes([value])) for value in range(256)]
    if outcome.histogram != expected:
        yield f"the histogram is wrong: {sum(outcome.histogram)} of {len(content)} bytes counted"
    table = [value / 128 - 1 for value in range(256)]
    plain = array.array("f", map(table.__getitem__, content)).tobytes()
    if outcome.floats != plain:
        place = next(i for i in range(len(plain)) if outcome.floats[i] != plain[i])
        yield f"the floats are wrong from number {place // _FLOAT_BYTES} on"


def _show_progress(done: int | None, total: int, *, is_serial: bool) -> None:
    if not sys.stderr.isatty():
        return
    name = "serial" if is_serial else "overlapped"
    filled = _BAR_WIDTH * (done or 0) // max(total, 1)
    bar = "#" * filled + "." * (_BAR_WIDTH - filled)
    sys.stderr.write("\r\x1b[K" if done is None else f"\r{name:<10} [{bar}]")
    sys.stderr.flush()


def _report(path: Path, content: bytes, overlapped: _Outcome, serial: _Outcome) -> None:
    device = accelrt.accelerator.current_stream().device
    name = accelrt.get_device_module(device).get_device_name(device)
    megabytes = len(content) / 1e6
    stages = "  ".join(
        f"{stage} {ms:.2f} ms" for stage, ms in zip(_STAGES, overlapped.stage_ms, strict=True)
    )
    counters = "  ".join(f"{key[4:]} {value}" for key, value in _core.counters().items())

    def speed(seconds: float) -> str:
        return f"{megabytes / seconds:.0f} MB/s in {seconds * 1e3:.1f} ms"

    lines = [
        f"device      {device} ({name})",
        f"file        {path} ({len(content)} bytes)",
        f"overlapped  {speed(overlapped.seconds)}",
        f"serial      {speed(serial.seconds)}",
        f"stages      {stages}",
        f"counters    {counters}",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
