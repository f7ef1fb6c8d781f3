"""A stand-alone runtime for stream-based accelerators: one API for devices, streams and events.

`accelrt.accelerator` has the device-agnostic functions, which take no device type. `accelrt.cpu`
and `accelrt.xpu` have the functions of one kind. This module has what all kinds share. No function
holds the GIL while it waits.

>>> import accelrt
>>> copy, compute = accelrt.Stream(), accelrt.Stream()
>>> ready = copy.record_event()
>>> compute.wait_event(ready)  # ordered by the event; no thread waits
>>> compute.synchronize()
"""

from __future__ import annotations

import importlib
import os
import sys

from accelrt import accelerator, cpu, xpu
from accelrt._core import (
    __VERSION__,
    Buffer,
    DeviceLost,
    DeviceProperties,
    Event,
    Generator,
    HostCall,
    OutOfMemoryError,
    Stream,
    StreamError,
    View,
    as_buffer,
    current_accelerator,
    device,
    empty,
    empty_pinned,
    empty_shared,
    from_dlpack,
    is_inference_mode_enabled,
    load_kind,
    ordered,
    reads,
    writes,
    zeros,
)
from accelrt._exit import finish_at_exit
from accelrt._kinds import module_of
from accelrt._random import get_rng_state, initial_seed, manual_seed, seed, set_rng_state

TYPE_CHECKING = False  # not imported: `typing` would double the import time
if TYPE_CHECKING:
    from types import ModuleType

    from accelrt import backends, profiler, sanitizer, testing
    from accelrt._fork_rng import fork_rng
    from accelrt._inference_mode import inference_mode
    from accelrt._memory_history import MemoryReport, MemoryUse, memory_report
    from accelrt._memory_tag import memory_tag
    from accelrt._numpy_memory import numpy_memory
    from accelrt._verbose import verbose
    from accelrt.sanitizer import host_access

__all__ = [
    "Buffer",
    "DeviceLost",
    "DeviceProperties",
    "Event",
    "Generator",
    "HostCall",
    "MemoryReport",
    "MemoryUse",
    "OutOfMemoryError",
    "Stream",
    "StreamError",
    "View",
    "__version__",
    "accelerator",
    "as_buffer",
    "backends",
    "cpu",
    "device",
    "empty",
    "empty_pinned",
    "empty_shared",
    "fork_rng",
    "from_dlpack",
    "get_device_module",
    "get_rng_state",
    "host_access",
    "inference_mode",
    "initial_seed",
    "is_inference_mode_enabled",
    "load_kind",
    "manual_seed",
    "memory_report",
    "memory_tag",
    "numpy_memory",
    "ordered",
    "profiler",
    "reads",
    "sanitizer",
    "seed",
    "set_rng_state",
    "testing",
    "verbose",
    "writes",
    "xpu",
    "zeros",
]

__version__ = __VERSION__

finish_at_exit()
if os.environ.get("ACCELRT_SANITIZER"):
    importlib.import_module("accelrt.sanitizer").watch_process()

# Names whose modules are imported at first use.
_AT_FIRST_USE = {
    "fork_rng": "accelrt._fork_rng",
    "host_access": "accelrt.sanitizer",
    "inference_mode": "accelrt._inference_mode",
    "MemoryReport": "accelrt._memory_history",
    "MemoryUse": "accelrt._memory_history",
    "memory_report": "accelrt._memory_history",
    "memory_tag": "accelrt._memory_tag",
    "numpy_memory": "accelrt._numpy_memory",
    "verbose": "accelrt._verbose",
}


def __getattr__(name: str) -> object:
    """Import a module at its first use."""
    if name in {"backends", "profiler", "sanitizer", "testing"}:
        return importlib.import_module(f"accelrt.{name}")  # the import binds the name here
    if name not in _AT_FIRST_USE:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message, name=name, obj=sys.modules[__name__])
    found: object = getattr(importlib.import_module(_AT_FIRST_USE[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Return the public names, including those of modules that are not imported yet."""
    return sorted(__all__)


def get_device_module(device: device | str | None = None) -> ModuleType:
    """Return the module of a device's kind, by default that of the current accelerator.

    >>> import accelrt
    >>> accelrt.get_device_module("cpu") is accelrt.cpu
    True
    """
    return module_of(current_accelerator() if device is None else device)
