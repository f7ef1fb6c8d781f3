"""How functions of `torch.accelrt` are told which device."""

from typing import TypeAlias

import torch

from accelrt_torch import _C  # type: ignore[attr-defined]

# An index, a name, or none for the current device.
DeviceArgument: TypeAlias = torch.device | str | int | None


def index_of(device: DeviceArgument) -> int:
    """Return the index of a device that is there, of none the current one's."""
    index = given_index(device)
    _C.check_is_there(index)
    return index


def given_index(device: DeviceArgument) -> int:
    """Return the index of a device, of none the current one's, whether it is there or not."""
    if device is None:
        return int(_C.current_device())
    if isinstance(device, int):
        return device
    given = torch.device(device)
    if given.type != "accelrt":
        message = f"Expected an accelrt device, but got {given}"
        raise ValueError(message)
    return int(_C.current_device()) if given.index is None else given.index
