"""The accelerator's kind, and the device of an argument."""

from __future__ import annotations

from accelrt import _core

TYPE_CHECKING = False  # not imported: `typing` would double the import time
if TYPE_CHECKING:
    from accelrt._memory import DeviceArgument


def kind_of() -> str:
    """Return the accelerator's kind."""
    return _core.current_accelerator().type


def index_of(device: DeviceArgument, *, optional: bool = True) -> int:
    """Return the device index of an argument."""
    return _core.accelerator_index(device, optional)
