"""How buffers and views go between processes and to disk: their bytes, without a copy on the way.

A frame is the memory itself where the host reads it, behind the work that uses it, and else a copy
in pinned memory. What arrives is put on the device of the worker that receives it, which
deserialises on threads of its own, on which no device is current.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dask.sizeof import sizeof
from distributed.protocol.serialize import dask_deserialize, dask_serialize
from distributed.protocol.utils import address_of_memoryview

import accelrt

if TYPE_CHECKING:
    from collections.abc import Sequence

    _Header = dict[str, Any]
    _Layout = tuple[str, tuple[int, ...]] | None

Value = accelrt.Buffer | accelrt.View


class Receiving(threading.local):
    """Where this process puts what it receives, and whether this thread does so at the moment."""

    device: accelrt.device | None = None  # the current one; a worker's is the class's
    is_on = False


RECEIVING = Receiving()


@dataclass(frozen=True)
class OnHost:
    """What was on a device, or has no room there: pinned memory, and type and shape of a view."""

    pinned: accelrt.Buffer
    layout: _Layout

    @classmethod
    def of(cls, value: Value) -> OnHost:
        """Enqueue the copy of a value on the current stream of its device."""
        pinned = accelrt.empty_pinned(value.nbytes)
        pinned.copy_(value, non_blocking=True)
        return cls(pinned, _layout_of(value))

    def on(self, device: accelrt.device) -> Value:
        """Enqueue the copy to a device, on its current stream."""
        buffer = accelrt.empty(self.pinned.nbytes, device=device)
        buffer.copy_(self.pinned, non_blocking=True)
        return _with_layout(buffer, self.layout)


class Sent(OnHost):
    """The same on its way to another process, where it becomes a buffer or a view."""


def _layout_of(value: Value) -> _Layout:
    return (value.dtype, value.shape) if isinstance(value, accelrt.View) else None


def _with_layout(buffer: accelrt.Buffer, layout: _Layout) -> Value:
    return buffer if layout is None else buffer.view(layout[0], tuple(layout[1]))


def _frames(value: Any) -> list[memoryview]:  # what has the buffer protocol
    """Return the memory of a value, behind the work that uses it, without its layout."""
    try:
        return [memoryview(value).cast("B") if value.nbytes else memoryview(b"")]
    except BufferError:  # the host cannot read this device's memory
        return _frames(accelrt.empty_pinned(value.nbytes).copy_(value))


def _put(buffer: accelrt.Buffer, frames: Sequence[Any]) -> accelrt.Buffer:
    """Copy frames into a buffer, one behind the other: a large one may come in parts."""
    start = 0
    for frame in (memoryview(it) for it in frames):
        if frame.nbytes:
            buffer[start : start + frame.nbytes].copy_(frame)
        start += frame.nbytes
    return buffer


@dask_serialize.register((accelrt.Buffer, accelrt.View))
def _serialize(value: Value) -> tuple[_Header, list[memoryview]]:
    return {"nbytes": value.nbytes, "layout": _layout_of(value)}, _frames(value)


@dask_serialize.register(OnHost)
def _serialize_on_host(value: OnHost) -> tuple[_Header, list[memoryview]]:
    return {"nbytes": value.pinned.nbytes, "layout": value.layout}, _frames(value.pinned)


@dask_deserialize.register((accelrt.Buffer, accelrt.View, Sent))
def _deserialize(header: _Header, frames: Sequence[Any]) -> Value | OnHost:
    RECEIVING.is_on = True
    try:
        buffer = accelrt.empty(header["nbytes"], device=RECEIVING.device)
    except accelrt.OutOfMemoryError:
        if RECEIVING.device is None:  # no worker, which stores it
            raise
        return _on_host(header, frames)
    finally:
        RECEIVING.is_on = False
    return _with_layout(_put(buffer, frames), header["layout"])


def _on_host(header: _Header, frames: Sequence[Any]) -> OnHost:
    return OnHost(_put(accelrt.empty_pinned(header["nbytes"]), frames), header["layout"])


@dask_deserialize.register(OnHost)
def _deserialize_on_host(header: _Header, frames: Sequence[Any]) -> OnHost:
    """Return what was read from a file into pinned memory where it is, and else a copy there."""
    whole = memoryview(frames[0]).obj if len(frames) == 1 else None
    if not isinstance(whole, accelrt.Buffer):
        return _on_host(header, frames)
    start = address_of_memoryview(frames[0]) - whole.data_ptr()
    return OnHost(whole[start : start + header["nbytes"]], header["layout"])


@sizeof.register((accelrt.Buffer, accelrt.View))
def _sizeof(value: Value) -> int:
    return value.nbytes


@sizeof.register(OnHost)
def _sizeof_on_host(value: OnHost) -> int:
    return value.pinned.nbytes
