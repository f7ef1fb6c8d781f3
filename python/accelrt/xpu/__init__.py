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
    "can_device_access_peer",
    "current_device",
    "current_stream",
    "default_generator",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "empty_host_cache",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "host_memory_stats",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "register_oom_observer",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "shared_memory_stats",
    "stream",
    "synchronize",
]

_kind = Kind("xpu")

can_device_access_peer = _kind.can_device_access_peer
current_device = _kind.current_device
current_stream = _kind.current_stream
default_generator = _kind.default_generator
default_stream = _kind.default_stream
device = _kind.device
device_count = _kind.device_count
device_of = _kind.device_of
empty_cache = _kind.empty_cache
empty_host_cache = _kind.empty_host_cache
get_arch_list = _kind.get_arch_list
get_device_capability = _kind.get_device_capability
get_device_name = _kind.get_device_name
get_device_properties = _kind.get_device_properties
get_per_process_memory_fraction = _kind.get_per_process_memory_fraction
get_rng_state = _kind.get_rng_state
get_rng_state_all = _kind.get_rng_state_all
host_memory_stats = _kind.host_memory_stats
init = _kind.init
initial_seed = _kind.initial_seed
is_available = _kind.is_available
is_bf16_supported = _kind.is_bf16_supported
is_initialized = _kind.is_initialized
manual_seed = _kind.manual_seed
manual_seed_all = _kind.manual_seed_all
max_memory_allocated = _kind.max_memory_allocated
max_memory_reserved = _kind.max_memory_reserved
mem_get_info = _kind.mem_get_info
memory_allocated = _kind.memory_allocated
memory_reserved = _kind.memory_reserved
memory_snapshot = _kind.memory_snapshot
memory_stats = _kind.memory_stats
memory_stats_as_nested_dict = _kind.memory_stats_as_nested_dict
memory_summary = _kind.memory_summary
register_oom_observer = _kind.register_oom_observer
reset_accumulated_memory_stats = _kind.reset_accumulated_memory_stats
reset_peak_memory_stats = _kind.reset_peak_memory_stats
seed = _kind.seed
seed_all = _kind.seed_all
set_device = _kind.set_device
set_per_process_memory_fraction = _kind.set_per_process_memory_fraction
set_rng_state = _kind.set_rng_state
set_rng_state_all = _kind.set_rng_state_all
set_stream = _kind.set_stream
shared_memory_stats = _kind.shared_memory_stats
stream = _kind.stream
synchronize = _kind.synchronize
