"""Intel GPUs and other OpenCL devices with unified shared memory, found at run time.

Source: `torch.xpu` of torch 2.13. `Program` compiles kernels; `Stream.launch` enqueues them.

>>> import accelrt
>>> accelrt.xpu.is_available() == (accelrt.xpu.device_count() > 0)
True
"""

# Written by `make stubs` from the methods of `accelrt._kinds.Kind`.

from collections.abc import Iterable
from os import PathLike
from typing import Any

from accelrt import _core
from accelrt._core import Event, Kernel, Program, Stream
from accelrt._kinds import DeviceContext, StreamContext
from accelrt._memory import DeviceArgument, ObserverHandle, _OomObserver, _Reclaimer
from accelrt._random import _State

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
    "dump_snapshot",
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
    "record_memory_history",
    "register_oom_observer",
    "register_reclaimer",
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
    "take_memory_snapshot",
]

def can_device_access_peer(device: DeviceArgument, peer: DeviceArgument) -> bool:
    """Return True when a device can access the memory of `peer`, or is `peer`."""

def current_device() -> int:
    """Return the index of this thread's current device."""

def current_stream(device: DeviceArgument = None) -> _core.Stream:
    """Return this thread's current stream on a device."""

def default_generator(device: DeviceArgument = None) -> _core.Generator:
    """Return the default generator of a device, shared by all threads."""

def default_stream(device: DeviceArgument = None) -> _core.Stream:
    """Return the default stream of a device, current in threads that have set no other."""

def device(device: DeviceArgument) -> DeviceContext:
    """Return a context manager that makes a device current; None has no effect."""

def device_count() -> int:
    """Return the number of devices; initialises no device."""

def device_of(obj: object) -> DeviceContext:
    """Return a context manager that makes an object's device current.

    An object without a device of this kind has no effect.
    """

def dump_snapshot(path: str | bytes | PathLike[str] = "dump_snapshot.pickle") -> None:
    """Write a snapshot with the history to a file, for `python -m accelrt view` and `replay`.

    The file is a pickle as torch's `_dump_snapshot` writes, which pytorch.org/memory_viz opens.
    """

def empty_cache() -> None:
    """Free the cached memory. Wait, without the GIL, until no stream uses it."""

def empty_host_cache() -> None:
    """Free the cached pinned memory. Wait, without the GIL, until no stream uses it."""

def get_arch_list() -> list[str]:
    """Return the architectures that this build has native code for.

    For `cpu` that is the machine's architecture. Other kinds compile kernels at run time.
    """

def get_device_capability(device: DeviceArgument = None) -> dict[str, object]:
    """Return the capabilities of a device: `{"supported_dtypes": names}`."""

def get_device_name(device: DeviceArgument = None) -> str:
    """Return the vendor's name of a device."""

def get_device_properties(device: DeviceArgument = None) -> _core.DeviceProperties:
    """Return the properties of a device: name, memory, cores, caches, pages."""

def get_per_process_memory_fraction(device: DeviceArgument = None) -> float:
    """Return the fraction of a device's memory that the allocator may reserve."""

def get_rng_state(device: DeviceArgument = None) -> bytes:
    """Return the state of a device's default generator: 16 bytes."""

def get_rng_state_all() -> list[bytes]:
    """Return the states of the default generators of all devices."""

def host_memory_stats() -> dict[str, int | float | list[int]]:
    """Return the statistics of the pinned-memory cache, by sorted flat keys; times in us."""

def init() -> None:
    """Initialise the current device, as its first use would."""

def initial_seed() -> int:
    """Return the seed of the current device's default generator."""

def is_available() -> bool:
    """Return True when the kind has at least one device; initialises no device."""

def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Return True when the current device computes with bfloat16.

    Without `including_emulation`, the device must have instructions for bfloat16.
    """

def is_initialized() -> bool:
    """Return True once a device was initialised; False in a forked child."""

def manual_seed(seed: int) -> None:
    """Seed the default generator of the current device."""

def manual_seed_all(seed: int) -> None:
    """Seed the default generators of all devices."""

def max_memory_allocated(device: DeviceArgument = None) -> int:
    """Return the peak of `memory_allocated` since its last reset.

    Under the default policy the peak is an upper bound when several threads create buffers: it
    includes freed memory that other streams still use and, without the setting
    `exact_statistics:True`, memory in the threads' caches.
    """

def max_memory_reserved(device: DeviceArgument = None) -> int:
    """Return the peak of `memory_reserved` since its last reset."""

def mem_get_info(device: DeviceArgument = None) -> tuple[int, int]:
    """Return free and total bytes of a device, as `accelerator.get_memory_info`."""

def memory_allocated(device: DeviceArgument = None) -> int:
    """Return the bytes of allocated blocks."""

def memory_reserved(device: DeviceArgument = None) -> int:
    """Return the bytes reserved from the device."""

def memory_snapshot() -> list[dict[str, Any]]:
    """Return all devices' segments with their blocks, in the format of torch's snapshots.

    Blocks in use have the `frames` that a history recorded, and the tag as `user_metadata`.
    """

def memory_stats(device: DeviceArgument = None) -> dict[str, int]:
    """Return the statistics of a device's allocator by sorted flat keys; zeros before its use.

    Keys and meanings are PyTorch's, as `allocated_bytes.all.current`. accelrt's own keys:
    `num_oom_rejections` counts requests that `throw_on_cudamalloc_oom` refused,
    `num_pages_stolen` pages that moved to a request that had too few, `num_frontier_reuses`
    requests that another stream's freed memory served. `inactive_split` counts free blocks in
    segments that are partly in use. Calling this returns the memory in the threads' caches to
    the allocator first.
    """

def memory_stats_as_nested_dict(device: DeviceArgument = None) -> dict[str, Any]:
    """Return `memory_stats` as nested dictionaries, one level for each part of a key."""

def memory_summary(device: DeviceArgument = None, abbreviated: bool = False) -> str:
    """Return a device's statistics as a table; `abbreviated` leaves out the rows of pools."""

def record_memory_history(
    enabled: str | None = "all",
    context: str | None = "all",
    stacks: str = "all",
    max_entries: int = 100000,
    device: DeviceArgument = None,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: Iterable[str] | None = None,
    *,
    max_frames: int = 32,
) -> None:
    """Record what the allocators of all devices do, with Python's stacks, for snapshots.

    As torch's `_record_memory_history`: `enabled` is "all", "state" for blocks in use alone,
    or None to end and forget the history. `context` says whose stacks are recorded: "all",
    "alloc" without frees, "state" of blocks in use, None of nothing. `stacks` is "python" or
    "all"; both mean Python's. Of the entries the newest `max_entries` are kept, of a stack the
    innermost `max_frames`. With `global_record_annotations` snapshots have the ranges of
    `accelrt.profiler.record_function`; without the actions in `skip_actions`. `device` is
    checked alone, and `compile_context` has no effect.

    While a history is on, requests and frees take the allocator's slow path.

    >>> import accelrt
    >>> accelrt.cpu.record_memory_history()
    >>> buffer = accelrt.empty(4096, device="cpu")
    >>> entries = accelrt.cpu.take_memory_snapshot()["device_traces"][0]
    >>> [entry["size"] for entry in entries if entry["action"] == "alloc"]
    [4096]
    >>> accelrt.cpu.record_memory_history(None)
    """

def register_oom_observer(observer: _OomObserver) -> ObserverHandle:
    """Call `observer` at each out-of-memory error of this kind; return its handle.

    The call `observer(device, requested_bytes, limit_bytes, free_bytes)` precedes the raise of
    the error; exceptions of the observer go to `sys.unraisablehook`.
    """

def register_reclaimer(reclaimer: _Reclaimer) -> ObserverHandle:
    """Ask `reclaimer` for memory before a request of this kind fails; return its handle.

    The call `reclaimer(device, requested_bytes, lacking_bytes)` comes on the thread of the
    request. It drops what it can spare of that device, at once or a little at a time, and
    returns something true if that was any: then the request is tried again, behind the streams
    that still use the memory, and the reclaimers are asked again if it lacks more. They are
    asked in the order of their registration until one had some. Exceptions go to
    `sys.unraisablehook` and count as false. A request inside of a reclaimer asks none.

    >>> import accelrt
    >>> cache = [accelrt.empty(1000)]
    >>> def spare(device, requested_bytes, lacking_bytes):
    ...     return cache.pop() if cache else None
    >>> with accelrt.accelerator.register_reclaimer(spare):
    ...     try:
    ...         accelrt.empty(1 << 62)
    ...     except accelrt.OutOfMemoryError:  # above the limit: no reclaimer is asked
    ...         len(cache)
    1
    """

def reset_accumulated_memory_stats(device: DeviceArgument = None) -> None:
    """Reset every sum and count to zero."""

def reset_peak_memory_stats(device: DeviceArgument = None) -> None:
    """Reset every peak to the current value."""

def seed() -> None:
    """Seed the default generator of the current device with an unpredictable number."""

def seed_all() -> None:
    """Seed the default generators of all devices with one unpredictable number."""

def set_device(device: DeviceArgument) -> None:
    """Make a device current in this thread; a negative index has no effect."""

def set_per_process_memory_fraction(fraction: float, device: DeviceArgument = None) -> None:
    """Limit the fraction, 0 to 1, of a device's memory that the allocator may reserve."""

def set_rng_state(new_state: _State, device: DeviceArgument = None) -> None:
    """Restore the state of a device's default generator."""

def set_rng_state_all(new_states: Iterable[_State]) -> None:
    """Restore the states of the default generators of all devices."""

def set_stream(stream: _core.Stream) -> None:
    """Make a stream and its device current in this thread."""

def shared_memory_stats(device: DeviceArgument = None) -> dict[str, int]:
    """Return the statistics of memory from `empty_shared`, which the host and a device share.

    The keys are those of `memory_stats`, which does not count this memory. Shared memory uses
    the device's capacity, `empty_cache` frees it, and resets of the device's peaks and sums
    include it; `set_per_process_memory_fraction` does not limit it.
    """

def stream(stream: _core.Stream | None) -> StreamContext:
    """Return a context manager that makes a stream current; None has no effect."""

def synchronize(device: DeviceArgument = None, timeout: float | None = None) -> None:
    """Wait, without the GIL, until all streams of a device are done; raise and clear errors.

    After `timeout` seconds raise TimeoutError; the work goes on.
    """

def take_memory_snapshot() -> dict[str, Any]:
    """Return what `dump_snapshot` writes: torch's dictionary, `memory_snapshot()` in it.

    `segments` are those of `memory_snapshot()`, `device_traces` the history of each device,
    `allocator_settings` the settings by torch's names, `external_annotations` the ranges.
    """
