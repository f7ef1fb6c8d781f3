"""How buffers and views go between processes and to disk: their bytes, without a copy on the way.

A frame is the memory itself where the host reads it, behind the work that uses it, and else a copy
in pinned memory. What arrives is put on the device of the worker that receives it: deserialisation
has threads of its own, on which no device is current.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dask.sizeof import sizeof
from distributed.protocol.serialize import dask_deserialize, dask_serialize

import accelrt

if TYPE_CHECKING:
    from collections.abc import Sequence

    _Header = dict[str, Any]
    _Device = accelrt.device | None

Value = accelrt.Buffer | accelrt.View


class _Received:
    """Where this process puts what it receives; None: on the current device."""

    device: _Device = None


def receive_on(device: _Device) -> None:
    """Put what this process receives from now on onto a device."""
    _Received.device = device


@dataclass(frozen=True)
class OnHost:
    """What was on a device: pinned memory, and the element type and shape of a view."""

    pinned: accelrt.Buffer
    layout: tuple[str, tuple[int, ...]] | None

    @classmethod
    def of(cls, value: Value) -> OnHost:
        """Enqueue the copy of a value on the current stream of its device."""
        pinned = accelrt.empty_pinned(value.nbytes)
        pinned.copy_(value, non_blocking=True)
        return cls(pinned, layout_of(value))

    def on(self, device: _Device) -> Value:
        """Enqueue the copy to a device, on its current stream."""
        buffer = accelrt.empty(self.pinned.nbytes, device=device)
        buffer.copy_(self.pinned, non_blocking=True)
        return _with_layout(buffer, self.layout)


def layout_of(value: Value) -> tuple[str, tuple[int, ...]] | None:
    """Return the element type and shape of a view; None for a buffer."""
    return (value.dtype, value.shape) if isinstance(value, accelrt.View) else None


def _with_layout(buffer: accelrt.Buffer, layout: tuple[str, tuple[int, ...]] | None) -> Value:
    return buffer if layout is None else buffer.view(layout[0], tuple(layout[1]))


def _frame(value: Value) -> memoryview:
    try:
        return _bytes_of(value)
    except BufferError:  # the host cannot read this device's memory
        pinned = accelrt.empty_pinned(value.nbytes)
        pinned.copy_(value)
        return _bytes_of(pinned)


def _bytes_of(value: Any) -> memoryview:  # noqa: ANN401  what has the buffer protocol
    """Return the memory of a value, behind the work that uses it, without its layout."""
    return memoryview(value).cast("B") if value.nbytes else memoryview(b"")


def _put(buffer: accelrt.Buffer, frames: Sequence[Any]) -> accelrt.Buffer:
    """Copy frames into a buffer, one behind the other: a large one may come in parts."""
    start = 0
    for frame in (memoryview(it) for it in frames):
        if frame.nbytes:
            buffer[start : start + frame.nbytes].copy_(frame)
        start += frame.nbytes
    return buffer


@dask_serialize.register(accelrt.Buffer)
@dask_serialize.register(accelrt.View)
def _serialize(value: Value) -> tuple[_Header, list[memoryview]]:
    return {"nbytes": value.nbytes, "layout": layout_of(value)}, [_frame(value)]


@dask_deserialize.register(accelrt.Buffer)
@dask_deserialize.register(accelrt.View)
def _deserialize(header: _Header, frames: Sequence[Any]) -> Value:
    buffer = accelrt.empty(header["nbytes"], device=_Received.device)
    return _with_layout(_put(buffer, frames), header["layout"])


@dask_serialize.register(OnHost)
def _serialize_on_host(value: OnHost) -> tuple[_Header, list[memoryview]]:
    return {"nbytes": value.pinned.nbytes, "layout": value.layout}, [_bytes_of(value.pinned)]


@dask_deserialize.register(OnHost)
def _deserialize_on_host(header: _Header, frames: Sequence[Any]) -> OnHost:
    return OnHost(_put(accelrt.empty_pinned(header["nbytes"]), frames), header["layout"])


@sizeof.register(accelrt.Buffer)
@sizeof.register(accelrt.View)
def _sizeof(value: Value) -> int:
    return value.nbytes


@sizeof.register(OnHost)
def _sizeof_on_host(value: OnHost) -> int:
    return value.pinned.nbytes
