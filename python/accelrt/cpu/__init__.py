"""The embedded cpu device: the machine's own cores, really asynchronous, always there.

>>> import accelrt
>>> accelrt.cpu.is_available()
True
"""

from accelrt._core import Event, Stream
from accelrt._kinds import Kind, StreamContext

__all__ = [
    "Event",
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

_kind = Kind("cpu")

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
