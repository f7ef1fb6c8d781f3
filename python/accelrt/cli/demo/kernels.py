"""The demo's computations: native functions on the host's cores, else OpenCL C."""

from typing import Protocol

import accelrt
from accelrt import _core

PAGE_BYTES = 4096  # what one checksum is of; `kernels.rs` has the same
CHECKSUM_BYTES = 4

# Brightens bytes as if they were pixels: gamma 2.
TABLE = bytes(round((value * 255) ** 0.5) for value in range(256))

_POLYNOMIAL = 0xEDB88320  # of CRC-32 as zlib has it, reflected (ISO 3309)

_TEXT = """
constant uint remainders[256] = {%s};
kernel void crc32_pages(global const uchar* bytes, ulong count, global uint* checksums) {
    ulong start = get_global_id(0) * %dUL, end = min(start + %dUL, count);
    uint remainder = ~0u;
    for (ulong i = start; i < end; i++)
        remainder = (remainder >> 8) ^ remainders[(remainder ^ bytes[i]) & 255];
    checksums[get_global_id(0)] = ~remainder;
}
kernel void look_up_bytes(
    global const uchar* bytes, global const uchar* table, global uchar* found
) {
    size_t i = get_global_id(0);
    found[i] = table[bytes[i]];
}
"""


def page_count(byte_count: int) -> int:
    """Return how many pages these bytes have; the last may be shorter."""
    return -(-byte_count // PAGE_BYTES)


class Kernels(Protocol):
    """Tasks of a stream."""

    def checksums(
        self, stream: accelrt.Stream, source: accelrt.Buffer, count: int, sums: accelrt.Buffer
    ) -> None:
        """Write the CRC-32 of each page of `count` bytes."""

    def look_up(
        self, stream: accelrt.Stream, source: accelrt.Buffer, count: int, found: accelrt.Buffer
    ) -> None:
        """Write the entry of `TABLE` for each of `count` bytes."""


class _Native:
    """accelrt's native functions, which workers call."""

    def __init__(self) -> None:
        self._checksums = _core.kernel_address("crc32_pages")
        self._look_up = _core.kernel_address("look_up_bytes")
        self._table = _on_device(TABLE)

    def checksums(
        self, stream: accelrt.Stream, source: accelrt.Buffer, count: int, sums: accelrt.Buffer
    ) -> None:
        stream.launch(self._checksums, accelrt.reads(source), count, accelrt.writes(sums))

    def look_up(
        self, stream: accelrt.Stream, source: accelrt.Buffer, count: int, found: accelrt.Buffer
    ) -> None:
        read, table = accelrt.reads(source), accelrt.reads(self._table)
        stream.launch(self._look_up, read, count, table, accelrt.writes(found))


class _Compiled:
    """Kernels that the device runs."""

    def __init__(self) -> None:
        remainders = ",".join(map(hex, map(_remainder, range(256))))
        program = accelrt.xpu.Program(_TEXT % (remainders, PAGE_BYTES, PAGE_BYTES))
        self._checksums = program.kernel("crc32_pages")
        self._look_up = program.kernel("look_up_bytes")
        self._table = _on_device(TABLE)

    def checksums(
        self, stream: accelrt.Stream, source: accelrt.Buffer, count: int, sums: accelrt.Buffer
    ) -> None:
        stream.launch(self._checksums, source, count, sums, global_size=page_count(count))

    def look_up(
        self, stream: accelrt.Stream, source: accelrt.Buffer, count: int, found: accelrt.Buffer
    ) -> None:
        stream.launch(self._look_up, source, self._table, found, global_size=count)


def for_accelerator() -> Kernels:
    """Return the kernels for the current accelerator; compiles where that is needed."""
    return _Native() if _core.current_accelerator().type == "cpu" else _Compiled()


def _on_device(content: bytes) -> accelrt.Buffer:
    return accelrt.empty(len(content)).copy_(content)


def _remainder(value: int) -> int:
    """Return the change of a remainder by a byte."""
    for _ in range(8):
        value = (value >> 1) ^ (_POLYNOMIAL * (value & 1))
    return value
