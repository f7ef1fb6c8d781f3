"""`torch.accelrt`: the functions that `torch.xpu` has, of accelrt's devices.

Not there: graphs, private pools, allocators from outside, and what only a GPU's driver knows.
"""

from dataclasses import dataclass
from typing import Self

import torch

import accelrt
from accelrt_torch import _C, memory, random, streams  # type: ignore[attr-defined]
from accelrt_torch._argument import DeviceArgument, given_index, index_of
from accelrt_torch.memory import (
    empty_cache,
    get_per_process_memory_fraction,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from accelrt_torch.random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from accelrt_torch.streams import (
    Event,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    set_stream,
    stream,
    synchronize,
)

__all__ = [
    "Event",
    "Stream",
    "StreamContext",
    "SyncRow",
    "can_device_access_peer",
    "clear_sync_report",
    "current_device",
    "current_stream",
    "default_stream",
    "defer_mask_checks",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_num_threads",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
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
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "operator_count",
    "random",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_num_threads",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "shape_cache_counts",
    "stream",
    "streams",
    "sync_report",
    "synchronize",
]


def is_available() -> bool:
    """Return whether there is a device."""
    return device_count() > 0


def device_count() -> int:
    """Return the number of devices."""
    return int(_C.device_count())


def init() -> None:
    """Initialise accelrt for torch, as the first tensor of a device does.

    Raises in a forked child of a process that has used a device.
    """
    if _is_in_bad_fork():
        message = (
            "accelrt cannot be initialised in a forked child of a process that has used a device: "
            "start the child by multiprocessing's 'spawn' method"
        )
        raise RuntimeError(message)
    _C.init()


def _lazy_init() -> None:
    init()


def is_initialized() -> bool:
    """Return whether the process may use devices: false in a forked child of one that has."""
    return not _is_in_bad_fork()


def __getattr__(name: str) -> object:
    # torch's own modules have variables, which change when a device is first used:
    # `torch.utils.checkpoint` keeps states of generators only where `_initialized` is true.
    if name == "_initialized":
        return is_initialized()
    if name == "default_generators":
        return random.default_generators()
    message = f"module 'torch.accelrt' has no attribute {name!r}"
    if hasattr(torch.xpu, name):
        message += ", which torch.xpu has: see what docs/torch.md says is refused"
    raise AttributeError(message)


def _is_in_bad_fork() -> bool:
    return bool(_C.is_in_bad_fork())


def current_device() -> int:
    """Return the index of the thread's current device."""
    return int(_C.current_device())


def set_device(device: DeviceArgument) -> None:
    """Make a device current for the thread; a negative index changes nothing."""
    index = given_index(device)
    if index >= 0:
        _C.exchange_device(index)


def get_device_properties(device: DeviceArgument = None) -> accelrt.DeviceProperties:
    """Return what a device is: its name, bytes of memory, number of cores."""
    return accelrt.cpu.get_device_properties(index_of(device))


def get_device_name(device: DeviceArgument = None) -> str:
    """Return the name of a device: that of the processor whose cores it has."""
    return accelrt.cpu.get_device_name(index_of(device))


def get_device_capability(device: DeviceArgument = None) -> dict[str, object]:
    """Return what a device can: the types of its tensors."""
    return dict(torch.accelerator.get_device_capability(index_of(device)))


def can_device_access_peer(device: DeviceArgument, peer: DeviceArgument) -> bool:
    """Return whether kernels of a device can use the memory of another one."""
    return accelrt.cpu.can_device_access_peer(index_of(device), index_of(peer))


def is_bf16_supported(including_emulation: bool = True) -> bool:  # noqa: FBT001, FBT002 - torch's
    """Return whether kernels take bfloat16; without emulation, whether the processor does."""
    return accelrt.cpu.is_bf16_supported(including_emulation)


class device:  # noqa: N801 - the name is torch's
    """Makes a device current inside of a `with` statement."""

    def __init__(self, device: DeviceArgument) -> None:
        """Take the device; of none, and of a negative index, nothing changes."""
        self.idx = given_index(device)
        self.prev_idx = -1

    def __enter__(self) -> Self:
        if self.idx >= 0:
            self.prev_idx = _C.exchange_device(self.idx)
        return self

    def __exit__(self, *_exception: object) -> None:
        if self.prev_idx >= 0:
            _C.exchange_device(self.prev_idx)


class device_of(device):  # noqa: N801 - the name is torch's
    """Makes the device of a tensor or storage current inside of a `with` statement."""

    def __init__(self, obj: torch.Tensor | torch.UntypedStorage) -> None:
        """Take the object; one of another kind of device changes nothing."""
        super().__init__(obj.device.index if obj.device.type == "accelrt" else -1)


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the types that autocast may choose."""
    return [torch.float16, torch.bfloat16, torch.float32]


def get_num_threads() -> int:
    """Return how many threads a kernel of a task may use."""
    return int(_C.kernel_threads())


def set_num_threads(count: int) -> None:
    """Set how many threads a kernel of a task may use, in every worker of every device.

    At the import it is `torch.get_num_threads()`, whose changes do not reach tasks.
    """
    _C.set_kernel_threads(count)


def defer_mask_checks(enabled: bool = True) -> None:  # noqa: FBT001, FBT002 - as torch's switches
    """Let `x[mask] = values` and `masked_scatter_` return before the mask has been counted.

    A mask whose count does not fit the values then fails the stream. By default the call waits for
    the mask, and raises as on the CPU. A single value fits every mask: such a call never waits.
    """
    _C.set_defers_counts(enabled)


@dataclass(frozen=True)
class SyncRow:
    """An operator that made a thread wait for a stream, at one place of the program."""

    operator: str
    file: str
    line: int
    count: int
    waited_ms: float


def sync_report() -> list[SyncRow]:
    """Return which operators waited since the last `clear_sync_report`, the longest ones first.

    The place is the program's innermost line outside of torch; it is empty for a thread that runs
    no Python, as that of a backward pass, and of the places behind the 4,096th.
    """
    rows = [
        SyncRow(operator, file, line, count, waited_ns / 1e6)
        for operator, file, line, count, waited_ns in _C.waits()
    ]
    return sorted(rows, key=lambda row: row.waited_ms, reverse=True)


def clear_sync_report() -> None:
    """Forget who waited so far."""
    _C.forget_waits()


def operator_count() -> int:
    """Return how many operators were enqueued as tasks."""
    return int(_C.enqueued_count())


def shape_cache_counts() -> tuple[int, int]:
    """Return how often the shapes of results were known, and how often Meta was asked."""
    hits, misses = _C.shape_counts()
    return hits, misses
