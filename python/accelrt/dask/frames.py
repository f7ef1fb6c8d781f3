"""How buffers and views go between processes and to disk: their bytes, without a copy on the way.

A frame is the memory itself where the host reads it, behind the work that uses it, and else a copy
in pinned memory. What arrives is put on the device of the worker that receives it, which
deserialises on threads of its own, on which no device is current.
"""

from __future__ import annotations

import copyreg
import threading
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self

from dask.sizeof import sizeof
from distributed.protocol.serialize import dask_deserialize, dask_serialize
from distributed.protocol.utils import address_of_memoryview

import accelrt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    _Header = dict[str, Any]
    _Layout = tuple[str, tuple[int, ...]] | None

Value = accelrt.Buffer | accelrt.View


class Receiving(threading.local):
    """Where this process puts what it receives, and whether this thread does so at the moment.

    Device and stream are the current ones; a worker's are the class's.
    """

    device: accelrt.device | None = None
    stream: AbstractContextManager[object] = nullcontext()
    is_on = False


RECEIVING = Receiving()
# Whether what the running coroutine receives goes to the worker's store; a task's client has none.
IS_STORED = ContextVar("is_stored", default=False)


@dataclass(frozen=True)
class OnHost:
    """What was on a device, or has no room there: pinned memory, and type and shape of a view."""

    pinned: accelrt.Buffer
    layout: _Layout

    @staticmethod
    def device_of(value: Any) -> accelrt.device | None:
        """Return the device that a value can leave."""
        device: accelrt.device = value.device
        return device

    @classmethod
    def of(cls, value: Any) -> Self:
        """Enqueue the copy of a value on the current stream of its device."""
        pinned = accelrt.empty_pinned(value.nbytes)
        pinned.copy_(value, non_blocking=True)
        return cls(pinned, _layout_of(value))

    def on(self, device: accelrt.device) -> Any:
        """Enqueue the copy to a device, on its current stream."""
        buffer = accelrt.empty(self.pinned.nbytes, device=device)
        buffer.copy_(self.pinned, non_blocking=True)
        return _with_layout(buffer, self.layout)

    def sent(self) -> OnHost:
        """Return the same on its way to another worker."""
        return Sent(self.pinned, self.layout)

    @staticmethod
    def sending(value: Any) -> OnHost:
        """Return a value of a device on its way to another worker."""
        return Sent(value, _layout_of(value))


class Sent(OnHost):
    """A value on its way to another worker's store: there it is on the device, or has no room.

    Buffers inside of other values do not come so: what uses those knows no store.
    """


# How the values are on the host that stand on devices; the bridge to torch adds its tensors.
FORMS: dict[type, type[OnHost]] = {accelrt.Buffer: OnHost, accelrt.View: OnHost}


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
        with RECEIVING.stream:
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


@contextmanager
def receiving() -> Iterator[accelrt.device | None]:
    """Have requests that find no room fail at once, where this thread is the event loop's."""
    RECEIVING.is_on = True
    try:
        yield RECEIVING.device
    finally:
        RECEIVING.is_on = False


def _received(header: _Header, frames: Sequence[Any]) -> Value | OnHost:
    try:
        with receiving() as device:
            buffer = accelrt.empty(header["nbytes"], device=device)
    except accelrt.OutOfMemoryError:
        if RECEIVING.device is None:  # no worker, which stores it
            raise
        return on_host(OnHost, header, frames)
    return _with_layout(_put(buffer, frames), header["layout"])


@dask_deserialize.register((accelrt.Buffer, accelrt.View))
def _deserialize(header: _Header, frames: Sequence[Any]) -> Value:
    """Return a value in pinned memory where the device has no room for it."""
    found = _received(header, frames)
    return _with_layout(found.pinned, found.layout) if isinstance(found, OnHost) else found


@dask_deserialize.register(Sent)
def _deserialize_sent(header: _Header, frames: Sequence[Any]) -> Value | OnHost:
    return (_received if IS_STORED.get() else _deserialize)(header, frames)


def _reduce(value: Value) -> tuple[Any, ...]:  # for pickles: such inside of a user's objects
    header, frames = _serialize(value)
    return _deserialize, (header, [bytes(frame) for frame in frames])


def on_host(form: type[OnHost], header: _Header, frames: Sequence[Any]) -> OnHost:
    """Return what has arrived, in pinned memory."""
    return form(_put(accelrt.empty_pinned(header["nbytes"]), frames), header["layout"])


def from_file(form: type[OnHost], header: _Header, frames: Sequence[Any]) -> OnHost:
    """Return what was read into pinned memory where it is."""
    whole = memoryview(frames[0]).obj if header["nbytes"] and len(frames) == 1 else None
    if not isinstance(whole, accelrt.Buffer):
        return on_host(form, header, frames)
    start = address_of_memoryview(frames[0]) - whole.data_ptr()
    return form(whole[start : start + header["nbytes"]], header["layout"])


dask_deserialize.register(OnHost, partial(from_file, OnHost))
copyreg.pickle(accelrt.Buffer, _reduce)
copyreg.pickle(accelrt.View, _reduce)

sizeof.register((accelrt.Buffer, accelrt.View), attrgetter("nbytes"))
sizeof.register(OnHost, attrgetter("pinned.nbytes"))
