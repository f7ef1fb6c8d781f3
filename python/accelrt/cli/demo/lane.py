"""One chunk in flight: three streams, the buffers between them, and what each stage took."""

import struct
import zlib
from dataclasses import dataclass
from typing import cast

import accelrt
from accelrt.cli.demo import kernels

STAGES = ("copy in", "compute", "copy out")


@dataclass(frozen=True)
class Chunk:
    """A part of the file."""

    number: int
    start: int
    nbytes: int


class WrongResultError(Exception):
    """The result differs from that of a plain computation."""


class Lane:
    """Takes chunk after chunk through the device; its buffers are all the memory that it needs."""

    def __init__(self, number: int, chunk_bytes: int, computing: kernels.Kernels) -> None:
        """Take the memory, on the current device and the host."""
        self._number, self._kernels = number, computing
        self._copy_in, self._compute, self._copy_out = (accelrt.Stream() for _ in STAGES)
        checksum_bytes = kernels.CHECKSUM_BYTES * kernels.page_count(chunk_bytes)
        self._source, self._found = accelrt.empty(chunk_bytes), accelrt.empty(chunk_bytes)
        self._checksums = accelrt.empty(checksum_bytes)
        on_host = [accelrt.empty_pinned(n) for n in (chunk_bytes, chunk_bytes, checksum_bytes)]
        for buffer in (self._source, self._found, self._checksums, *on_host):
            buffer.fill_(0)  # touches the pages once, outside the timing
        accelrt.accelerator.synchronize()
        views = [memoryview(cast("bytes", buffer)) for buffer in on_host]
        self.content, self._found_here, self._checksums_here = views
        self._marks = [accelrt.Event(enable_timing=True) for _ in range(len(STAGES) + 1)]
        self.chunk: Chunk | None = None

    @staticmethod
    def nbytes(chunk_bytes: int) -> tuple[int, int]:
        """Return a lane's bytes of device memory and of host memory."""
        checksum_bytes = kernels.CHECKSUM_BYTES * kernels.page_count(chunk_bytes)
        return 2 * chunk_bytes + checksum_bytes, 2 * chunk_bytes + checksum_bytes

    def enqueue(self, chunk: Chunk) -> None:
        """Start a chunk whose bytes stand in `content`; waits for nothing."""
        self.chunk, count = chunk, chunk.nbytes
        in_device, computed = self._marks[1], self._marks[2]
        with self._copy_in:
            self._marks[0].record()
            self._source[:count].copy_(self.content[:count], non_blocking=True)
            in_device.record()
        self._compute.wait_event(in_device)
        self._kernels.checksums(self._compute, self._source, count, self._checksums)
        self._kernels.look_up(self._compute, self._source, count, self._found)
        computed.record(self._compute)
        with self._copy_out as stream:
            stream.wait_event(computed)
            self._found[:count].copy_to(self._found_here[:count], non_blocking=True)
            self._checksums.copy_to(self._checksums_here, non_blocking=True)
            self._marks[3].record()

    def wait(self) -> None:
        """Wait until the chunk is back."""
        self._marks[3].synchronize()

    def stages(self, origin: accelrt.Event) -> list[tuple[str, str, float, float]]:
        """Return for each stage its name, its stream's, and when it began and ended.

        Milliseconds since `origin`, of the chunk that is back.
        """
        times = [origin.elapsed_time(mark) for mark in self._marks]
        rows = [f"{self._number} {stage}" for stage in STAGES]
        return list(zip(STAGES, rows, times[:-1], times[1:], strict=True))

    def check(self, chunk: Chunk) -> None:
        """Compare every byte and checksum that came back with those of Python and zlib."""
        content = bytes(self.content[: chunk.nbytes])
        if bytes(self._found_here[: chunk.nbytes]) != content.translate(kernels.TABLE):
            message = f"chunk {chunk.number} came back with wrong bytes"
            raise WrongResultError(message)
        starts = range(0, len(content), kernels.PAGE_BYTES)
        expected = [zlib.crc32(content[i : i + kernels.PAGE_BYTES]) for i in starts]
        found = list(struct.unpack_from(f"{len(expected)}I", self._checksums_here))
        if found != expected:
            page = next(i for i in range(len(expected)) if found[i] != expected[i])
            sums = f"{found[page]:08x} instead of {expected[page]:08x}"
            message = f"chunk {chunk.number} came back with checksum {sums} for page {page}"
            raise WrongResultError(message)
