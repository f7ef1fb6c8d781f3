"""What the modules of all kinds offer about their default generators, and `accelrt`'s own."""

import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from accelrt import _core
from accelrt._memory import DeviceArgument

_State = bytes | bytearray | memoryview


class Random:
    """The functions of one kind's module about random numbers.

    Seeding starts nothing: a generator that does not exist yet begins with the last seed that was
    meant for it. One that was never seeded begins with a seed that nobody can foretell.
    """

    def _name(self) -> str:
        raise NotImplementedError

    def _index(self, device: DeviceArgument) -> int:
        raise NotImplementedError

    def default_generator(self, device: DeviceArgument = None) -> _core.Generator:
        """Return the generator of a device that everybody shares."""
        return _core.default_generator(self._name(), self._index(device))

    def manual_seed(self, seed: int) -> None:
        """Seed the default generator of the current device."""
        _core.manual_seed_device(self._name(), _core.current_device(self._name()), seed)

    def manual_seed_all(self, seed: int) -> None:
        """Seed the default generators of all devices."""
        _core.manual_seed_all(self._name(), seed)

    def seed(self) -> None:
        """Seed the default generator of the current device with what nobody can foretell."""
        self.manual_seed(secrets.randbits(64))

    def seed_all(self) -> None:
        """Seed the default generators of all devices with one number that nobody can foretell."""
        self.manual_seed_all(secrets.randbits(64))

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


def manual_seed(seed: int) -> _core.Generator:
    """Seed the default generators of all devices of all kinds; return that of `cpu`.

    Starts nothing and asks no driver.

    >>> import accelrt
    >>> accelrt.manual_seed(7).initial_seed()
    7
    """
    _core.manual_seed(seed)
    return _core.default_generator("cpu", _core.current_device("cpu"))


@contextmanager
def fork_rng(
    devices: Iterable[DeviceArgument] | None = None,
    enabled: bool = True,  # noqa: FBT001, FBT002  torch's signature
    device_type: str | None = None,
) -> Iterator[None]:
    """Restore the default generators at the end of a `with`.

    Those of all cpu devices, and of `devices` of the kind `device_type`: by default all devices of
    the current accelerator's kind. Nothing when not `enabled`.

    >>> import accelrt
    >>> before = accelrt.cpu.get_rng_state()
    >>> with accelrt.fork_rng():
    ...     _ = accelrt.manual_seed(1)
    >>> accelrt.cpu.get_rng_state() == before
    True
    """
    if not _core.flag("enabled", enabled):
        yield
        return
    kind = _core.current_accelerator().type if device_type is None else device_type
    if devices is None:
        devices = range(_core.device_count(kind))
    indices = [_core.kind_index(kind, device, optional=True) for device in devices]
    forked = [("cpu", index) for index in range(_core.device_count("cpu"))]
    forked += [(kind, index) for index in indices]
    generators = [_core.default_generator(*place) for place in forked]
    states = [generator.get_state() for generator in generators]
    try:
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
