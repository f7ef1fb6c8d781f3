"""Intel GPUs and other OpenCL devices with unified shared memory, found at run time.

Source: `torch.xpu` of torch 2.13. `Program` compiles kernels, `Stream.launch` runs them.

>>> import accelrt
>>> accelrt.xpu.is_available() == (accelrt.xpu.device_count() > 0)
True
"""

from accelrt._core import Event, Kernel, Program, Stream
from accelrt._kinds import Kind, StreamContext

__all__ = [
    "Event",
    "Kernel",
    "Program",
    "Stream",
    "StreamContext",
    "current_device",
    "current_stream",
    "device",
    "device_count",
    "device_of",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "init",
    "is_available",
    "is_initialized",
    "mem_get_info",
    "set_device",
    "set_stream",
    "stream",
    "synchronize",
]

_kind = Kind("xpu")

current_device = _kind.current_device
current_stream = _kind.current_stream
device = _kind.device
device_count = _kind.device_count
device_of = _kind.device_of
get_device_capability = _kind.get_device_capability
get_device_name = _kind.get_device_name
get_device_properties = _kind.get_device_properties
init = _kind.init
is_available = _kind.is_available
is_initialized = _kind.is_initialized
mem_get_info = _kind.mem_get_info
set_device = _kind.set_device
set_stream = _kind.set_stream
stream = _kind.stream
synchronize = _kind.synchronize
