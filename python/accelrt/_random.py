"""The functions for default generators, of the kinds' modules and of `accelrt`."""

from __future__ import annotations

import os

from accelrt import _core

TYPE_CHECKING = False  # not imported: `typing` would double the import time
if TYPE_CHECKING:
    from collections.abc import Iterable

    from accelrt._memory import DeviceArgument

_State = bytes | bytearray | memoryview


class Random:
    """The functions for random numbers in one kind's module.

    Seeding initialises no device: a generator that is created later starts with the last seed
    set for its device, or with an unpredictable seed if there is none.
    """

    def _name(self) -> str:
        raise NotImplementedError

    def _index(self, device: DeviceArgument) -> int:
        raise NotImplementedError

    def default_generator(self, device: DeviceArgument = None) -> _core.Generator:
        """Return the default generator of a device, shared by all threads."""
        return _core.default_generator(self._name(), self._index(device))

    def manual_seed(self, seed: int) -> None:
        """Seed the default generator of the current device."""
        _core.manual_seed_device(self._name(), _core.current_device(self._name()), seed)

    def manual_seed_all(self, seed: int) -> None:
        """Seed the default generators of all devices."""
        _core.manual_seed_all(self._name(), seed)

    def seed(self) -> None:
        """Seed the default generator of the current device with an unpredictable number."""
        self.manual_seed(_unforeseen())

    def seed_all(self) -> None:
        """Seed the default generators of all devices with one unpredictable number."""
        self.manual_seed_all(_unforeseen())

    def initial_seed(self) -> int:
        """Return the seed of the current device's default generator."""
        return self.default_generator().initial_seed()

    def get_rng_state(self, device: DeviceArgument = None) -> bytes:
        """Return the state of a device's default generator: 16 bytes."""
        return self.default_generator(device).get_state()

    def get_rng_state_all(self) -> list[bytes]:
        """Return the states of the default generators of all devices."""
        return [self.get_rng_state(index) for index in range(_core.device_count(self._name()))]

    def set_rng_state(self, new_state: _State, device: DeviceArgument = None) -> None:
        """Restore the state of a device's default generator."""
        self.default_generator(device).set_state(new_state)

    def set_rng_state_all(self, new_states: Iterable[_State]) -> None:
        """Restore the states of the default generators of all devices."""
        for index, state in enumerate(new_states):
            self.set_rng_state(state, index)


def _unforeseen() -> int:
    return int.from_bytes(os.urandom(8), "little")


def seed() -> int:
    """Seed the default generators of all devices with an unpredictable number; return it.

    >>> import accelrt
    >>> accelrt.seed() == accelrt.initial_seed()
    True
    """
    number = int.from_bytes(os.urandom(8), "little")
    manual_seed(number)
    return number


def initial_seed() -> int:
    """Return the seed of the current cpu device's default generator."""
    return _core.default_generator("cpu", _core.current_device("cpu")).initial_seed()


def get_rng_state() -> bytes:
    """Return the state of the current cpu device's default generator: 16 bytes."""
    return _core.default_generator("cpu", _core.current_device("cpu")).get_state()


def set_rng_state(new_state: _State) -> None:
    """Restore the state of the current cpu device's default generator."""
    _core.default_generator("cpu", _core.current_device("cpu")).set_state(new_state)


def manual_seed(seed: int) -> _core.Generator:
    """Seed the default generators of all devices of all kinds; return that of `cpu`.

    Initialises no device and queries no driver. A forked child skips the default generators, which
    it cannot use, and gets a new generator for the cpu with this seed.

    >>> import accelrt
    >>> accelrt.manual_seed(7).initial_seed()
    7
    """
    made = _core.manual_seed(seed)
    if made is not None:
        return made
    return _core.default_generator("cpu", _core.current_device("cpu"))
