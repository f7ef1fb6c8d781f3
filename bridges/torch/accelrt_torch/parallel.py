"""Copies between several devices, for `torch.nn.DataParallel` and `torch.nn.parallel`.

torch has these functions for CUDA only. Tensors of accelrt, and those of the host while accelrt is
the accelerator, are copied here; other tensors are passed to torch's functions.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from itertools import repeat

import torch
from torch.utils._pytree import tree_leaves

Tensors = Sequence[torch.Tensor]
Streams = Sequence[torch.Stream | None] | None


def broadcast_coalesced(
    tensors: Tensors, devices: Sequence[int], _buffer_size: int
) -> list[list[torch.Tensor]]:
    """Return a list of copies for each device."""
    return [broadcast_one(tensors, device) for device in devices]


def broadcast_one(tensors: Tensors, device: int) -> list[torch.Tensor]:
    """Copy tensors to a device; those that are there are returned unchanged."""
    return [tensor.to(f"accelrt:{device}", non_blocking=True) for tensor in tensors]


def broadcast(tensor: torch.Tensor, devices: Sequence[int]) -> list[torch.Tensor]:
    """Return a copy for each device."""
    return [copy for device in devices for copy in broadcast_one([tensor], device)]


def broadcast_out(tensor: torch.Tensor, outs: Tensors) -> list[torch.Tensor]:
    """Copy a tensor to each of `outs`."""
    return [out.copy_(tensor, non_blocking=True) for out in outs]


def scatter(
    tensor: torch.Tensor,
    devices: Sequence[int],
    chunk_sizes: Sequence[int] | None,
    dim: int,
    streams: Streams,
) -> list[torch.Tensor]:
    """Copy a part of the tensor to each device, on its stream where one is given."""
    parts = tensor.split(chunk_sizes, dim) if chunk_sizes else tensor.chunk(len(devices), dim)
    copies = []
    for part, device, stream in zip(parts, devices, streams or repeat(None), strict=False):
        with torch.accelrt.stream(stream):
            copies.append(part.to(f"accelrt:{device}", non_blocking=True))
    return copies


def scatter_out(
    tensor: torch.Tensor, outs: Tensors, dim: int, streams: Streams
) -> list[torch.Tensor]:
    """Copy a part of the tensor to each of `outs`."""
    parts = tensor.split([out.size(dim) for out in outs], dim)
    for part, out, stream in zip(parts, outs, streams or repeat(None), strict=False):
        with torch.accelrt.stream(stream):
            out.copy_(part, non_blocking=True)
    return list(outs)


def gather(tensors: Tensors, dim: int, destination: int | None) -> torch.Tensor:
    """Concatenate the tensors on a device, on the host for -1, on the current device for none."""
    index = torch.accelrt.current_device() if destination is None else destination
    target = "cpu" if index < 0 else f"accelrt:{index}"
    return torch.cat([tensor.to(target) for tensor in tensors], dim)


def gather_out(tensors: Tensors, out: torch.Tensor, dim: int) -> torch.Tensor:
    """Concatenate the tensors in `out`."""
    return torch.cat([tensor.to(out.device) for tensor in tensors], dim, out=out)


def _is_for_accelrt(arguments: object) -> bool:
    types = {it.device.type for it in tree_leaves(arguments) if isinstance(it, torch.Tensor)}
    accelerator = torch.accelerator.current_accelerator()
    is_ours = accelerator is not None and accelerator.type == "accelrt"
    return "accelrt" in types or (types == {"cpu"} and is_ours)


def install() -> None:
    """Take the place of torch's functions for tensors of accelrt."""
    functions: tuple[Callable[..., object], ...] = (
        broadcast,
        broadcast_coalesced,
        broadcast_out,
        gather,
        gather_out,
        scatter,
        scatter_out,
    )
    for own in functions:
        name = f"_{own.__name__}"
        of_torch = getattr(torch._C, name, own)  # noqa: SLF001 - missing in a build for CPUs
        setattr(torch._C, name, _choose(own, of_torch))  # noqa: SLF001


def _choose(own: Callable[..., object], of_torch: Callable[..., object]) -> Callable[..., object]:
    @wraps(own)
    def call(*arguments: object) -> object:
        return own(*arguments) if _is_for_accelrt(arguments) else of_torch(*arguments)

    return call
