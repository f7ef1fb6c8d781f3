"""The kernels of the demo: native functions where streams run on the host, else OpenCL C."""

from typing import Protocol

import accelrt
from accelrt import _core

_GROUPS = 64  # of work-items: as many counts of their own, added up behind them
_GROUP = 64
_VALUES = 256

_TEXT = """
kernel void byte_histogram(global const uchar* bytes, ulong count, global uint* partial) {
    local uint own[256];
    size_t here = get_local_id(0), width = get_local_size(0);
    for (size_t value = here; value < 256; value += width) own[value] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (ulong i = get_global_id(0); i < count; i += get_global_size(0))
        atomic_inc(&own[bytes[i]]);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (size_t value = here; value < 256; value += width)
        partial[get_group_id(0) * 256 + value] = own[value];
}
kernel void add_up(global const uint* partial, uint groups, global ulong* counts) {
    size_t value = get_global_id(0);
    ulong sum = 0;
    for (uint group = 0; group < groups; group++) sum += partial[group * 256 + value];
    counts[value] += sum;
}
kernel void bytes_to_floats(global const uchar* bytes, global float* floats) {
    size_t i = get_global_id(0);
    floats[i] = bytes[i] * (1.0f / 128) - 1;
}
"""


class Kernels(Protocol):
    """What the demo computes with a chunk, each as tasks of a stream."""

    def histogram(
        self, stream: accelrt.Stream, source: accelrt.Buffer, count: int, counts: accelrt.Buffer
    ) -> None:
        """Add how often each byte value occurs to 256 numbers."""

    def floats(
        self, stream: accelrt.Stream, source: accelrt.Buffer, count: int, floats: accelrt.Buffer
    ) -> None:
        """Write each byte as a float, from -1 up to 1."""


class _Native:
    """Functions of ours that workers call."""

    def histogram(
        self, stream: accelrt.Stream, source: accelrt.Buffer, count: int, counts: accelrt.Buffer
    ) -> None:
        stream.launch(_core.kernel_address("byte_histogram"), source, count, counts)

    def floats(
        self, stream: accelrt.Stream, source: accelrt.Buffer, count: int, floats: accelrt.Buffer
    ) -> None:
        stream.launch(_core.kernel_address("bytes_to_floats"), source, count, floats)


class _Compiled:
    """Kernels that the device runs."""

    def __init__(self) -> None:
        program = accelrt.xpu.Program(_TEXT)
        self._count = program.kernel("byte_histogram")
        self._add_up = program.kernel("add_up")
        self._floats = program.kernel("bytes_to_floats")

    def histogram(
        self, stream: accelrt.Stream, source: accelrt.Buffer, count: int, counts: accelrt.Buffer
    ) -> None:
        items = _GROUPS * _GROUP
        with stream:
            partial = accelrt.empty(_GROUPS * _VALUES * 4)  # freed behind the launches
        stream.launch(self._count, source, count, partial, global_size=items, local_size=_GROUP)
        stream.launch(self._add_up, partial, _GROUPS, counts, global_size=_VALUES)

    def floats(
        self, stream: accelrt.Stream, source: accelrt.Buffer, count: int, floats: accelrt.Buffer
    ) -> None:
        stream.launch(self._floats, source, floats, global_size=count)


def for_accelerator() -> Kernels:
    """Return the kernels for the current accelerator; compiles where that is needed."""
    return _Native() if _core.current_accelerator().type == "cpu" else _Compiled()
