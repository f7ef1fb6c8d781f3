"""Tensors of `torch.device("accelrt")` under dask.distributed, as `accelrt.dask` has buffers.

Whichever is imported last, this package or `accelrt.dask`, imports this module. A tensor's frame is
its memory, which the host reads behind all work of its device; what arrives is put on the device of
the worker that receives it. Tensors that tasks return leave the device when its memory is needed.
Those with gradients stay there: their graph has the memory too.
"""

from __future__ import annotations

import ctypes
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from distributed.protocol import torch as of_distributed
from distributed.protocol.serialize import dask_deserialize, dask_serialize

import accelrt
from accelrt.dask import frames

if TYPE_CHECKING:
    from collections.abc import Sequence

    _Header = dict[str, Any]


class TensorOnHost(frames.OnHost):
    """What was a tensor on a device, or has no room there; the layout has its type and shape."""

    @staticmethod
    def device_of(value: torch.Tensor) -> accelrt.device | None:
        """Return the device that a tensor can leave."""
        is_ours = _is_ours(value) and not value.requires_grad
        return accelrt.device("cpu", value.device.index) if is_ours else None

    @staticmethod
    def work_state(_value: torch.Tensor) -> str:
        """Return "done": the copy waits for all work of the device."""
        return "done"

    @staticmethod
    def is_only_holder(_value: torch.Tensor) -> bool:
        """Return True: tensors that share a storage are not counted."""
        return True

    @classmethod
    def of(cls, value: torch.Tensor) -> TensorOnHost:
        """Copy a tensor's memory."""
        pinned = accelrt.empty_pinned(value.nbytes)
        if value.nbytes:
            pinned.copy_(_memory(value))
        return cls(pinned, _layout_of(value))

    def on(self, device: accelrt.device) -> torch.Tensor:
        """Copy the memory to a tensor on a device."""
        return _put(_empty(cast("tuple[str, Sequence[int]]", self.layout), device), [self.pinned])

    def sent(self) -> frames.OnHost:
        """Return the same on its way to another worker."""
        return SentTensor(self.pinned, self.layout)

    @staticmethod
    def sending(value: torch.Tensor) -> frames.OnHost:
        """Return a tensor on its way to another worker."""
        return SentTensor(cast("accelrt.Buffer", value), _layout_of(value))


class SentTensor(TensorOnHost):
    """A tensor on its way to another worker's store: there it is on the device, or has no room."""


def _is_ours(tensor: torch.Tensor) -> bool:
    return bool(tensor.device.type == "accelrt" and tensor.layout == torch.strided)


def _layout_of(tensor: torch.Tensor) -> tuple[str, tuple[int, ...]]:
    return str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)


def _empty(layout: tuple[str, Sequence[int]], device: accelrt.device | None) -> torch.Tensor:
    place = "accelrt" if device is None else f"accelrt:{device.index}"
    return torch.empty(tuple(layout[1]), dtype=getattr(torch, layout[0]), device=place)


def _memory(tensor: torch.Tensor) -> memoryview:
    """Return a tensor's memory, which keeps the tensor, behind the work of its device."""
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    torch.accelerator.synchronize(tensor.device)
    memory = (ctypes.c_ubyte * tensor.nbytes).from_address(tensor.data_ptr())
    memory.tensor = tensor
    return memoryview(memory).cast("B")


def _put(tensor: torch.Tensor, parts: Sequence[Any]) -> torch.Tensor:
    """Copy frames into a contiguous tensor, one behind the other."""
    start = 0
    for part in (memoryview(it).cast("B") for it in parts):
        if part.nbytes:
            _memory(tensor)[start : start + part.nbytes] = part
        start += part.nbytes
    return tensor


@dask_serialize.register(torch.Tensor)
def _serialize(tensor: torch.Tensor) -> tuple[_Header, list[Any]]:
    if tensor.device.type == "cpu":
        header, parts = of_distributed.serialize_torch_Tensor(tensor)
        return header, parts
    if not _is_ours(tensor):
        raise NotImplementedError(tensor.layout)  # the next way is taken, which is pickle
    header = {"nbytes": tensor.nbytes, "layout": _layout_of(tensor), "device": "accelrt"}
    has_bytes = tensor.nbytes > 0
    return header | {"requires_grad": tensor.requires_grad}, [_memory(tensor)] if has_bytes else []


@dask_serialize.register(SentTensor)
def _serialize_sent(sent: SentTensor) -> tuple[_Header, list[Any]]:
    value = sent.pinned  # or still a tensor
    has_bytes = value.nbytes > 0
    memory = _memory if isinstance(value, torch.Tensor) else memoryview
    return {"nbytes": value.nbytes, "layout": sent.layout}, [memory(value)] if has_bytes else []


def _received(header: _Header, parts: Sequence[Any]) -> torch.Tensor | frames.OnHost:
    try:
        tensor = frames.RECEIVING.allocate(partial(_empty, header["layout"]))
    except torch.OutOfMemoryError:
        if frames.RECEIVING.device is None:
            raise
        return frames.on_host(TensorOnHost, header, parts)
    return _put(tensor, parts)


@dask_deserialize.register(torch.Tensor)
def _deserialize(header: _Header, parts: Sequence[Any]) -> torch.Tensor:
    """Return a tensor of the CPU where the device has no room for it."""
    if header.get("device", "accelrt") != "accelrt":
        of_cpu: torch.Tensor = of_distributed.deserialize_torch_Tensor(header, parts)
        return of_cpu
    found = _received(header, parts)
    if isinstance(found, frames.OnHost):
        dtype, shape = header["layout"]
        found = torch.frombuffer(found.pinned, dtype=getattr(torch, dtype)).view(tuple(shape))
    return found.requires_grad_(header.get("requires_grad", False))


@dask_deserialize.register(SentTensor)
def _deserialize_sent(header: _Header, parts: Sequence[Any]) -> torch.Tensor | frames.OnHost:
    return (_deserialize if frames.STORING.get() is None else _received)(header, parts)


dask_deserialize.register(TensorOnHost, partial(frames.from_file, TensorOnHost))
frames.FORMS[torch.Tensor] = TensorOnHost
