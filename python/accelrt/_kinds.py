"""The module of each kind of device, as `accelrt.cpu`: the same functions, bound to the kind.

`Kind` has the functions. The package of a kind has a docstring and calls `fill`; `make stubs`
writes the package's stub. `module_of` creates the module of a kind without a package.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType

from accelrt import _core
from accelrt._memory import Memory
from accelrt._random import Random

TYPE_CHECKING = False  # not imported: `typing` would double the import time
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

    from accelrt._memory import DeviceArgument


_modules: dict[str, ModuleType] = {}


def fill(name: str, *classes: type) -> None:
    """Fill the module `accelrt.<kind>`, during its import, with the functions of its kind.

    `classes` are the classes that only this kind has.
    """
    module = sys.modules[name]
    kind = name.rpartition(".")[2]
    vars(module).update(_members(kind, classes))
    _modules.setdefault(kind, module)


def module_of(device: _core.device | str) -> ModuleType:
    """Return the module of a device's kind, as `accelrt.cpu`, for a device or its name."""
    kind = (device if isinstance(device, _core.device) else _core.device(device)).type
    reason = _core.unavailable_reason(kind)
    if reason is not None:
        message = f"No {kind} device is available: {reason}"
        raise RuntimeError(message)
    if kind not in _modules:
        # Not imported: a registered kind may have the name of another module of this package.
        made = ModuleType(f"accelrt.{kind}", f"Devices of kind {kind}.")
        vars(made).update(_members(kind, ()))
        _modules.setdefault(kind, made)  # concurrent threads all get the first module
    return _modules[kind]


def _members(kind: str, classes: tuple[type, ...]) -> dict[str, object]:
    bound = Kind(kind)
    members: dict[str, object] = {
        name: getattr(bound, name) for name in dir(bound) if not name.startswith("_")
    }
    members |= {it.__name__: it for it in (_core.Event, _core.Stream, StreamContext, *classes)}
    return {**members, "__all__": sorted(members)}


class StreamContext:
    """Makes a stream current in this thread inside a `with`; None has no effect."""

    def __init__(self, stream: _core.Stream | None) -> None:
        """Store the stream for the `with`."""
        if stream is not None and not isinstance(stream, _core.Stream):
            message = f"stream must be an accelrt.Stream or None, not {type(stream).__name__}"
            raise TypeError(message)
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.stream is not None:
            self.stream.__exit__(kind, error, traceback)


class DeviceContext:
    """Makes a device of one kind current in this thread inside a `with`; None has no effect.

    Nested uses of one object, and uses in several threads, are independent.
    """

    def __init__(self, kind: str, index: int | None) -> None:
        """Store the index for the `with`."""
        self._kind = kind
        self.idx = -1 if index is None else index

    def __enter__(self) -> None:
        _core.enter_index(self._kind, self.idx)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _core.exit_index(self._kind, self.idx)


class Kind(Memory, Random):
    """The functions of one kind's module.

    The argument `device` is a device, its name, its index, or None for the current device.
    """

    def __init__(self, kind: str) -> None:
        """Bind the functions to a kind."""
        self._kind = kind

    def _name(self) -> str:
        return self._kind

    def _index(self, device: DeviceArgument) -> int:
        return _core.kind_index(self._kind, device, optional=True)

    def is_available(self) -> bool:
        """Return True when the kind has at least one device; initialises no device."""
        return _core.device_count(self._kind) > 0

    def device_count(self) -> int:
        """Return the number of devices; initialises no device."""
        return _core.device_count(self._kind)

    def is_initialized(self) -> bool:
        """Return True once a device was initialised; False in a forked child."""
        return _core.is_initialized()

    def init(self) -> None:
        """Initialise the current device, as its first use would."""
        _core.initialize(self._kind)

    def current_device(self) -> int:
        """Return the index of this thread's current device."""
        return _core.current_device(self._kind)

    def set_device(self, device: DeviceArgument) -> None:
        """Make a device current in this thread; a negative index has no effect."""
        index = _core.kind_index(self._kind, device, optional=False)
        _core.exchange_device(self._kind, index)

    def device(self, device: DeviceArgument) -> DeviceContext:
        """Return a context manager that makes a device current; None has no effect."""
        return DeviceContext(self._kind, None if device is None else self._index(device))

    def device_of(self, obj: object) -> DeviceContext:
        """Return a context manager that makes an object's device current.

        An object without a device of this kind has no effect.
        """
        owner = getattr(obj, "device", None)
        is_ours = isinstance(owner, _core.device) and owner.type == self._kind
        return DeviceContext(self._kind, self._index(owner) if is_ours else None)

    def get_device_name(self, device: DeviceArgument = None) -> str:
        """Return the vendor's name of a device."""
        return _core.get_device_properties(self._kind, self._index(device)).name

    def get_device_properties(self, device: DeviceArgument = None) -> _core.DeviceProperties:
        """Return the properties of a device: name, memory, cores, caches, pages."""
        return _core.get_device_properties(self._kind, self._index(device))

    def get_device_capability(self, device: DeviceArgument = None) -> dict[str, object]:
        """Return the capabilities of a device: `{"supported_dtypes": names}`."""
        return capability(self._kind, self._index(device))

    def can_device_access_peer(self, device: DeviceArgument, peer: DeviceArgument) -> bool:
        """Return True when a device can access the memory of `peer`, or is `peer`."""
        return _core.can_access_peer(self._kind, self._index(device), self._index(peer))

    def get_arch_list(self) -> list[str]:
        """Return the architectures that this build has native code for.

        For `cpu` that is the machine's architecture. Other kinds compile kernels at run time.
        """
        return [os.uname().machine] if self._kind == "cpu" else []

    def is_bf16_supported(self, including_emulation: bool = True) -> bool:  # noqa: FBT001, FBT002  torch's signature
        """Return True when the current device computes with bfloat16.

        Without `including_emulation`, the device must have instructions for bfloat16.
        """
        may_emulate = _core.flag("including_emulation", including_emulation)
        known = self.get_device_properties() if self.is_available() else None
        return known is not None and (may_emulate or known.has_bfloat16_conversions)

    def memory_stats_as_nested_dict(self, device: DeviceArgument = None) -> dict[str, Any]:
        """Return `memory_stats` as nested dictionaries, one level for each part of a key."""
        return nested(self.memory_stats(device))

    def mem_get_info(self, device: DeviceArgument = None) -> tuple[int, int]:
        """Return free and total bytes of a device, as `accelerator.get_memory_info`."""
        return _core.get_memory_info(self._kind, self._index(device))

    def stream(self, stream: _core.Stream | None) -> StreamContext:
        """Return a context manager that makes a stream current; None has no effect."""
        return StreamContext(stream)

    def default_stream(self, device: DeviceArgument = None) -> _core.Stream:
        """Return the default stream of a device, current in threads that have set no other."""
        return _core.default_stream(self._kind, self._index(device))

    def current_stream(self, device: DeviceArgument = None) -> _core.Stream:
        """Return this thread's current stream on a device."""
        return _core.current_stream(self._kind, self._index(device))

    def set_stream(self, stream: _core.Stream) -> None:
        """Make a stream and its device current in this thread."""
        _core.set_stream(stream)

    def synchronize(self, device: DeviceArgument = None, timeout: float | None = None) -> None:
        """Wait, without the GIL, until all streams of a device are done; raise and clear errors.

        After `timeout` seconds raise TimeoutError; the work goes on.
        """
        _core.synchronize(self._kind, self._index(device), timeout)


def nested(flat: dict[str, int]) -> dict[str, Any]:
    """Return the values of dotted keys as nested dictionaries."""
    whole: dict[str, Any] = {}
    for key, value in flat.items():
        *path, last = key.split(".")
        if path[:1] == ["tags"]:  # whose names may have dots
            path = ["tags", key[len("tags.") : -len(last) - 1]]
        inner = whole
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return whole


def capability(kind: str, index: int) -> dict[str, object]:
    """Return the dtypes that a device's buffers may be viewed as, by NumPy's names."""
    _core.get_device_properties(kind, index)  # raises for a missing device
    return {"supported_dtypes": set(DTYPES)}


# What `Buffer.view` takes: the types of DLPack that NumPy can name.
DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip
