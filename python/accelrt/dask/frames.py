"""How buffers and views go between processes and to disk: their bytes, without a copy on the way.

A frame is the memory itself where the host reads it, behind the work that uses it, and else a copy
in pinned memory. What arrives is put on the device of the worker that receives it, which
deserialises on threads of its own, on which no device is current.
"""

from __future__ import annotations

import copyreg
import sys
import threading
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self, TypeVar

from dask.sizeof import sizeof
from distributed.protocol.serialize import dask_deserialize, dask_serialize
from distributed.protocol.utils import address_of_memoryview

import accelrt
from accelrt import _core

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    _Header = dict[str, Any]
    _Frames = Sequence[Any]
    _Layout = tuple[str, tuple[int, ...]] | None

Value = accelrt.Buffer | accelrt.View
_Memory = TypeVar("_Memory")

# The kinds of memory that a store counts as the host's.
_HOST_KINDS = ("pinned", "shared")

# Told by the running coroutine's messages that one may have come to the device, for the worker's
# store. A task's client has none.
STORING: ContextVar[Callable[[], None] | None] = ContextVar("storing", default=None)


class Receiving(threading.local):
    """Where this process puts what it receives, and whether this thread does so at the moment.

    Device and stream are the current ones; a worker's are the class's. Requests of `allocate` that
    find no room fail at once, where the thread is the event loop's.
    """

    device: accelrt.device | None = None
    stream: AbstractContextManager[object] = nullcontext()
    is_on = False

    def allocate(self, request: Callable[[accelrt.device | None], _Memory]) -> _Memory:
        """Request memory on the device for what is received."""
        if (arrive := STORING.get()) is not None:
            arrive()
        try:  # no context manager: an interrupt inside of its `__exit__` would leave `is_on` set
            self.is_on = True
            return request(self.device)
        finally:
            self.is_on = False


RECEIVING = Receiving()


@dataclass(frozen=True)
class OnHost:
    """What was on a device, or has no room there: pinned memory, and type and shape of a view."""

    pinned: accelrt.Buffer
    layout: _Layout

    @staticmethod
    def device_of(value: Value) -> accelrt.device | None:
        """Return the device that a value can leave, or None.

        Pinned and shared memory are not part of the memory whose shortage moves values.
        """
        return None if _core.memory_kind(value) in _HOST_KINDS else value.device

    @staticmethod
    def work_state(value: Any) -> str:
        """Return "done" for a value that no queued work uses, and whose last work did not fail.

        A copy is not ordered after other work on the value, so only such values leave the device.
        """
        return _core.work_state(value)

    @staticmethod
    def is_only_holder(value: Any) -> bool:
        """Return whether no slice, view or export of a value keeps its memory from coming free.

        False for memory of other libraries, which is not the allocator's.
        """
        return _core.is_only_holder(value)

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


@dataclass(frozen=True)
class InFile(OnHost):
    """A value in pinned or shared memory, in a file: it is read into memory of the same kind."""

    shared_on: str | None = None  # the device, for shared memory


# How the values are on the host that stand on devices; the bridge to torch adds its tensors.
FORMS: dict[type, type[OnHost]] = {accelrt.Buffer: OnHost, accelrt.View: OnHost}


def is_unused(value: Any, references: int) -> bool:
    """Return whether a value of the host may go to a file, apart from buffers inside of it.

    Queued work may write to a buffer later, and others may write through its slices and views, or
    when they have read it: the caller has `references` references to it.
    """
    if (form := FORMS.get(type(value))) is None:
        return True
    is_read = sys.getrefcount(value) > references + 2  # of this function and of the count
    return not is_read and form.work_state(value) == "done" and form.is_only_holder(value)


@dataclass
class Writing:
    """The serialization of a value to a file, which must not wait for queued work."""

    is_in_use: bool = False  # by queued or failed work, of a buffer inside of it


WRITING: ContextVar[Writing | None] = ContextVar("WRITING", default=None)


def _refuse_in_use(value: Value) -> None:
    writing = WRITING.get()
    if writing is not None and FORMS[type(value)].work_state(value) != "done":
        writing.is_in_use = True
        message = "queued or failed work uses a buffer inside of it"
        raise BufferError(message)


def for_file(value: Any) -> Any:
    """Return the object to serialize for a value of the host."""
    kind = _core.memory_kind(value) if isinstance(value, Value) else None
    if kind not in _HOST_KINDS:
        return value
    return InFile(value, _layout_of(value), str(value.device) if kind == "shared" else None)


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


def _put(buffer: accelrt.Buffer, frames: _Frames) -> accelrt.Buffer:
    """Copy frames into a buffer, one behind the other: a large one may come in parts."""
    start = 0
    for frame in (memoryview(it) for it in frames):
        with RECEIVING.stream:
            buffer[start : start + frame.nbytes].copy_(frame)
        start += frame.nbytes
    return buffer


@dask_serialize.register((accelrt.Buffer, accelrt.View, OnHost))
def _serialize(value: Value | OnHost) -> tuple[_Header, list[memoryview]]:
    if not isinstance(value, OnHost):
        _refuse_in_use(value)
        value = OnHost.sending(value)
    form = value
    return {"nbytes": form.pinned.nbytes, "layout": form.layout}, _frames(form.pinned)


@dask_serialize.register(InFile)
def _serialize_to_file(form: InFile) -> tuple[_Header, list[memoryview]]:
    header, frames = _serialize(form)
    return {**header, "shared_on": form.shared_on}, frames


def _deserialize(header: _Header, frames: _Frames, *, is_stored: bool = False) -> Value | OnHost:
    """Return a value in pinned memory where the device has no room for it."""
    try:
        buffer = RECEIVING.allocate(lambda it: accelrt.empty(header["nbytes"], device=it))
    except accelrt.OutOfMemoryError:
        if RECEIVING.device is None:  # no worker, which stores it
            raise
        host = on_host(OnHost, header, frames)
        return host if is_stored else _with_layout(host.pinned, host.layout)
    return _with_layout(_put(buffer, frames), header["layout"])


@dask_deserialize.register(Sent)
def _deserialize_sent(header: _Header, frames: _Frames) -> Value | OnHost:
    return _deserialize(header, frames, is_stored=STORING.get() is not None)


def _reduce(value: Value) -> tuple[Any, ...]:  # for pickles: such inside of a user's objects
    header, frames = _serialize(value)
    return _deserialize, (header, [bytes(frame) for frame in frames])


def on_host(form: type[OnHost], header: _Header, frames: _Frames) -> OnHost:
    """Return what has arrived, in pinned memory."""
    return form(_put(accelrt.empty_pinned(header["nbytes"]), frames), header["layout"])


def from_file(form: type[OnHost], header: _Header, frames: _Frames) -> OnHost:
    """Return what was read into pinned memory where it is."""
    whole = memoryview(frames[0]).obj if header["nbytes"] and len(frames) == 1 else None
    if not isinstance(whole, accelrt.Buffer):
        return on_host(form, header, frames)
    start = address_of_memoryview(frames[0]) - whole.data_ptr()
    return form(whole[start : start + header["nbytes"]], header["layout"])


@dask_deserialize.register(InFile)
def _deserialize_from_file(header: _Header, frames: _Frames) -> Value:
    buffer = from_file(OnHost, header, frames).pinned
    if header["shared_on"] is not None:
        shared = accelrt.empty_shared(buffer.nbytes, device=header["shared_on"])
        if buffer.nbytes:
            with memoryview(shared) as target, memoryview(buffer) as source:  # on no stream
                target[:] = source
        buffer = shared
    return _with_layout(buffer, header["layout"])


dask_deserialize.register((accelrt.Buffer, accelrt.View), _deserialize)
dask_deserialize.register(OnHost, partial(from_file, OnHost))
copyreg.pickle(accelrt.Buffer, _reduce)
copyreg.pickle(accelrt.View, _reduce)

sizeof.register((accelrt.Buffer, accelrt.View), attrgetter("nbytes"))
sizeof.register(OnHost, attrgetter("pinned.nbytes"))
