"""`python -m accelrt demo`: streams a file through the accelerator in chunks and checks the result.

Each chunk is copied in, computed with and copied out, by a stream each; events order the three. A
few chunks are in flight at a time: some are copied or computed with while this thread reads and
checks others. The first run ends each chunk before it begins the next; that is the yardstick.
"""

import stat
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import accelrt
from accelrt.cli import streams, terminal
from accelrt.cli.demo import kernels, picture, verdict
from accelrt.cli.demo.job import FileChangedError, Job, Outcome
from accelrt.cli.demo.lane import Lane, WrongResultError
from accelrt.cli.terminal import Style

LEAST_CHUNK_BYTES = 4 << 10
MOST_CHUNK_BYTES = 1 << 30

_EACH_CHUNK = "copied in; a checksum of each page, each byte looked up; copied out; checked"


def run(file: Path | None, *, lane_count: int, chunk_bytes: int) -> int:
    """Run the job and print what it found; return the exit status."""
    path = file or _interpreter()
    try:
        total_bytes = _size_of(path)
        _check_chunk(chunk_bytes)
        chunk_bytes = min(chunk_bytes, total_bytes)
        # More lanes than chunks would only take memory.
        lane_count = min(lane_count, -(-total_bytes // chunk_bytes))
        _check_memory(lane_count, chunk_bytes)
        report = _demonstrate(path, total_bytes, lane_count, chunk_bytes)
    except (_UnusableError, FileChangedError) as error:
        return streams.refuse("demo", str(error))
    except OSError as error:
        return streams.refuse("demo", f"cannot read {path}: {error.strerror}")
    except WrongResultError as error:
        wrong = Style.of(sys.stderr).bad("WRONG")
        return streams.refuse("demo", f"{wrong}: {error}", 1)
    sys.stdout.write(report)
    return 0


class _UnusableError(Exception):
    """A file or a size that is not streamed, and why."""


def _demonstrate(path: Path, total_bytes: int, lane_count: int, chunk_bytes: int) -> str:
    computing = kernels.for_accelerator()
    lanes = [Lane(number, chunk_bytes, computing) for number in range(1, lane_count + 1)]
    # A chunk in each lane that does not count: afterwards memory, workers and code are there.
    some_bytes = min(total_bytes, lane_count * chunk_bytes)
    Job(path, some_bytes, chunk_bytes, lambda _done: None).run(lanes)
    outcomes: list[Outcome] = []
    for name, used in (("one by one", lanes[:1]), ("overlapped", lanes)):
        job = Job(path, total_bytes, chunk_bytes, _progress(name, total_bytes))
        outcomes.append(job.run(used, is_serial=not outcomes))
        terminal.wipe()
    return _report(job, lane_count, *outcomes)


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


def _check_chunk(chunk_bytes: int) -> None:
    """Refuse chunks that cost more to hand over than to compute, and ones that are no parts."""
    if not LEAST_CHUNK_BYTES <= chunk_bytes <= MOST_CHUNK_BYTES:
        message = (
            f"a chunk of {chunk_bytes} bytes makes no sense here: give --chunk from "
            f"{LEAST_CHUNK_BYTES} (4 KiB) to {MOST_CHUNK_BYTES} (1 GiB)"
        )
        raise _UnusableError(message)


def _check_memory(lane_count: int, chunk_bytes: int) -> None:
    """Refuse what would take all memory before it does."""
    device = accelrt.accelerator.current_stream().device
    free_bytes, _ = accelrt.accelerator.get_memory_info(device)
    on_device_bytes, on_host_bytes = Lane.nbytes(chunk_bytes)
    needed_bytes = lane_count * on_device_bytes
    if device.type == "cpu":  # one memory for both
        needed_bytes += lane_count * on_host_bytes
    if needed_bytes > free_bytes:
        sizes = f"{lane_count} chunks of {chunk_bytes} bytes in flight"
        message = f"{sizes} need {needed_bytes} bytes; {free_bytes} are free"
        raise _UnusableError(message)


def _interpreter() -> Path:
    """Return the interpreter's shared library where it has one, else its executable."""
    folder, name = (sysconfig.get_config_var(name) for name in ("LIBDIR", "LDLIBRARY"))
    library = Path(folder or "", name or "")
    return library if library.suffix == ".so" and library.is_file() else Path(sys.executable)


def _progress(name: str, total_bytes: int) -> Callable[[int], None]:
    """Return what shows how much of the file has been streamed and checked, on a terminal."""
    if not terminal.shows_progress():
        return lambda _done_bytes: None
    shown = -1

    def show(done_bytes: int) -> None:
        nonlocal shown
        percent = 100 * done_bytes // total_bytes
        if percent != shown:
            shown = percent
            terminal.bar(name, done_bytes / total_bytes, f" {percent} % checked")

    return show


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _report(job: Job, lane_count: int, serial: Outcome, overlapped: Outcome) -> str:
    device = accelrt.accelerator.current_stream().device
    name = accelrt.get_device_module(device).get_device_name(device)
    megabytes = job.total_bytes / 1e6
    buffers_mb = lane_count * sum(Lane.nbytes(job.chunk_bytes)) / 1e6
    gain = serial.seconds / overlapped.seconds

    def speed(outcome: Outcome) -> str:
        return f"{outcome.seconds * 1e3:8.1f} ms {megabytes / outcome.seconds:8.0f} MB/s"

    style = Style.of(sys.stdout)
    size = f"{_count(job.total_bytes, 'byte')} in {_count(job.chunk_count, 'chunk')}"
    won = f"Overlap made it {gain:.2f} times as fast"
    reasons = verdict.lines(job, lane_count, serial, overlapped)
    won = style.doubtful(won) if reasons else style.good(won)
    ending = [f"{won}, in {buffers_mb:.1f} MB for a file of any size.", *reasons]
    if job.chunk_count == 1:
        ending = ["Nothing overlaps with one chunk: take a larger file, or a smaller --chunk."]
    checked = "every byte and checksum of both runs, with Python's and zlib's"
    lines = [
        f"{style.faint('device')}      {device} ({name})",
        f"{style.faint('file')}        {job.path}: {size}",
        f"{style.faint('each chunk')}  {_EACH_CHUNK}",
        "",
        "what ran when, for some chunks of the overlapped run (a digit is a chunk's last one):",
        *picture.lines(overlapped.spans, style),
        "",
        f"{style.faint('one by one')}  {speed(serial)}",
        f"{style.faint('overlapped')}  {style.bold(speed(overlapped))}",
        f"{style.good('checked')}     {checked}",
        "",
        *ending,
    ]
    return "\n".join(lines) + "\n"
