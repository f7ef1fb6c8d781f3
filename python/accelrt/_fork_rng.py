"""Restores the default generators at the end of a `with`."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from accelrt import _core
from accelrt._memory import DeviceArgument


@contextmanager
def fork_rng(
    devices: Iterable[DeviceArgument] | None = None,
    enabled: bool = True,  # noqa: FBT001, FBT002  torch's signature
    device_type: str | None = None,
) -> Iterator[None]:
    """Restore the states of default generators at the end of a `with`.

    Restores the generators of all cpu devices, and of `devices` of the kind `device_type`: by
    default all devices of the current accelerator's kind. No effect unless `enabled`.

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
