"""`torch.accelrt`: the functions that torch's modules of devices have, of accelrt's devices.

What `torch.accelerator` has is the same function there and here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

import torch
from torch import Event, Stream
from torch.accelerator import (
    current_stream,
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
    set_stream,
    synchronize,
)

import accelrt
from accelrt_torch import _C, memory  # type: ignore[attr-defined]
from accelrt_torch.memory import memory_snapshot

# A device as functions take it: an index, a name, or none for the current one.
DeviceArgument: TypeAlias = torch.device | str | int | None

__all__ = [
    "Event",
    "Stream",
    "SyncRow",
    "clear_sync_report",
    "current_device",
    "current_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_num_threads",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_summary",
    "operator_count",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_num_threads",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "shape_cache_counts",
    "stream",
    "sync_report",
    "synchronize",
]


def _index(device: DeviceArgument) -> int:
    """Return the index of a device, of none the current one's."""
    if device is None:
        return current_device()
    if isinstance(device, int):
        return device
    given = torch.device(device)
    if given.type != "accelrt":
        message = f"Expected an accelrt device, but got {given}"
        raise ValueError(message)
    return current_device() if given.index is None else given.index


def is_available() -> bool:
    """Return whether there is a device."""
    return device_count() > 0


def device_count() -> int:
    """Return the number of devices."""
    return int(_C.device_count())


def init() -> None:
    """Initialise accelrt for torch, as the first tensor of a device does."""
    _C.init()


def _lazy_init() -> None:
    _C.init()


def is_initialized() -> bool:
    """Return whether the process may use devices: false in a forked child of one that has."""
    return not _is_in_bad_fork()


def __getattr__(name: str) -> object:
    # torch's own modules have a variable: `torch.utils.checkpoint` keeps states of generators only
    # where it is true.
    if name == "_initialized":
        return is_initialized()
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)


def _is_in_bad_fork() -> bool:
    return bool(_C.is_in_bad_fork())


def current_device() -> int:
    """Return the index of the thread's current device."""
    return int(_C.current_device())


def set_device(device: DeviceArgument) -> None:
    """Make a device current for the thread."""
    _C.exchange_device(_index(device))


class device:  # noqa: N801 - the name is torch's
    """Makes a device current inside of a `with` statement."""

    def __init__(self, device: DeviceArgument) -> None:
        """Take the device; of none, and of a negative index, nothing changes."""
        self.idx = _index(device)
        self.prev_idx = -1

    def __enter__(self) -> Self:
        if self.idx >= 0:
            self.prev_idx = _C.exchange_device(self.idx)
        return self

    def __exit__(self, *_exception: object) -> None:
        if self.prev_idx >= 0:
            _C.exchange_device(self.prev_idx)


class device_of(device):  # noqa: N801 - the name is torch's
    """Makes the device of a tensor current inside of a `with` statement."""

    def __init__(self, tensor: torch.Tensor) -> None:
        """Take the tensor; one of another kind of device changes nothing."""
        super().__init__(tensor.device.index if tensor.device.type == "accelrt" else -1)


def stream(stream: torch.Stream) -> torch.Stream:
    """Return a context in which a stream is current: the stream itself."""
    return stream


def _generator(device: DeviceArgument) -> torch.Generator:
    return _C.default_generator(_index(device))


def get_rng_state(device: DeviceArgument = None) -> torch.Tensor:
    """Return the state of a device's default generator: 16 bytes, the seed and the offset."""
    return _generator(device).get_state()


def set_rng_state(new_state: torch.Tensor, device: DeviceArgument = None) -> None:
    """Set the state of a device's default generator."""
    _generator(device).set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """Return the states of all devices' default generators."""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state_all(new_states: Sequence[torch.Tensor]) -> None:
    """Set the states of all devices' default generators."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seed the current device's default generator."""
    _generator(None).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed all devices' default generators."""
    for index in range(device_count()):
        _generator(index).manual_seed(int(seed))


def seed() -> int:
    """Seed the current device's default generator by chance, and return the seed."""
    return int(_generator(None).seed())


def seed_all() -> None:
    """Seed all devices' default generators by chance."""
    for index in range(device_count()):
        _generator(index).seed()


def initial_seed() -> int:
    """Return the seed of the current device's default generator."""
    return int(_generator(None).initial_seed())


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


def memory_summary(device: DeviceArgument = None) -> str:
    """Return a table of what a device's allocator has, as accelrt shows it."""
    return accelrt.cpu.memory_summary(_index(device))


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
    no Python, as that of a backward pass.
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
