"""`torch.accelrt.random`: the default generators of devices, as torch's modules have them."""

from collections.abc import Iterable

import torch

from accelrt_torch import _C  # type: ignore[attr-defined]
from accelrt_torch._argument import DeviceArgument, index_of

__all__ = [
    "default_generators",
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


def _generator(device: DeviceArgument) -> torch.Generator:
    return _C.default_generator(index_of(device))


def default_generators() -> tuple[torch.Generator, ...]:
    """Return the devices' default generators."""
    return tuple(_C.default_generator(index) for index in range(_C.device_count()))


def get_rng_state(device: DeviceArgument = None) -> torch.Tensor:
    """Return the state of a device's default generator: 16 bytes, the seed and the offset."""
    return _generator(device).get_state()


def set_rng_state(new_state: torch.Tensor, device: DeviceArgument = None) -> None:
    """Set the state of a device's default generator."""
    _generator(device).set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """Return the states of all devices' default generators."""
    return [generator.get_state() for generator in default_generators()]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Set the states of all devices' default generators."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seed the current device's default generator."""
    _generator(None).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed all devices' default generators."""
    for generator in default_generators():
        generator.manual_seed(int(seed))


def seed() -> int:
    """Seed the current device's default generator by chance, and return the seed."""
    return int(_generator(None).seed())


def seed_all() -> None:
    """Seed all devices' default generators by chance, each with another seed."""
    for generator in default_generators():
        generator.seed()


def initial_seed() -> int:
    """Return the seed of the current device's default generator."""
    return int(_generator(None).initial_seed())
