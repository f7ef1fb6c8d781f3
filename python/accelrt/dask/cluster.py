"""A worker process for each device: as a cluster on this machine, or beside a scheduler."""

from __future__ import annotations

import operator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import dask.config
import distributed
from dask.utils import parse_bytes

import accelrt
from accelrt.dask.worker import DEVICE, DEVICE_MEMORY, HOST_MEMORY, environment_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    _Bytes = str | int | None
    _Numbers = int | Iterable[int] | None


def _checked(size: _Bytes) -> _Bytes:
    with suppress(OverflowError, ValueError):
        if size is None or (size != "" and parse_bytes(size) >= 0):
            return size
    message = f"{size!r} is no number of bytes, as 2GiB"
    raise ValueError(message)


def _index(number: Any) -> int:
    if isinstance(number, bool):
        raise TypeError(number)
    return operator.index(number)


def _indices(kind: str, devices: _Numbers, count: int) -> list[int]:
    """Return the numbers of devices; an integer n selects devices 0 to n - 1."""
    given: Any = range(count) if devices is None else devices
    with suppress(TypeError):
        wanted = _index(given)
        if not 0 < wanted <= count:
            message = f"devices={wanted}: expected 1 to {count}, the number of {kind} devices"
            raise ValueError(message)
        given = range(wanted)
    try:
        indices = [_index(it) for it in given]
    except TypeError:
        message = f"devices={devices!r} is neither a number of devices nor a list such as [0, 2]"
        raise ValueError(message) from None
    if not indices:
        message = "devices is empty: pass at least one number"
        raise ValueError(message)
    missing = [index for index in indices if not 0 <= index < count]
    if missing:
        message = f"devices={missing}: valid numbers of {kind} devices are 0 to {count - 1}"
        raise ValueError(message)
    return indices


class Workers:
    """What distinguishes the workers of a kind's devices: one worker process for each."""

    def __init__(
        self, kind: str | None, devices: _Numbers, device_memory: _Bytes, host_memory: _Bytes
    ) -> None:
        """Find the devices; `ValueError` names what is not there, or no size."""
        if not isinstance(kind, str | None):
            message = f"kind={kind!r} must be a device type such as 'cpu'; numbers go to devices="
            raise TypeError(message)
        self.kind = kind or accelrt.accelerator.current_stream().device.type
        self._module = accelrt.get_device_module(self.kind)
        self.devices = _indices(self.kind, devices, self._module.device_count())
        self._memory = (_checked(device_memory), _checked(host_memory))

    def options(self, device: int, given: dict[str, Any]) -> dict[str, Any]:
        """Return the options of a worker's process, with those that a user has given."""
        values = zip((DEVICE, DEVICE_MEMORY, HOST_MEMORY), (device, *self._memory), strict=True)
        own = {environment_name(name): str(value) for name, value in values if value is not None}
        also = given.get("preload") or dask.config.get("distributed.worker.preload", None) or []
        added: dict[str, Any] = {
            "env": {"ACCELRT_ACCELERATOR": self.kind} | own | (given.get("env") or {}),
            "preload": ["accelrt.dask", *([also] if isinstance(also, str) else also)],
            "resources": {"accelerator": 1} | (given.get("resources") or {}),
        }
        device_memory, host_memory = self._memory
        if "memory_limit" not in given and host_memory is not None:
            limit = parse_bytes(host_memory) / 0.6 + (1 << 30)
            if self.kind == "cpu":  # whose memory is the process's own, as distributed counts
                limit += parse_bytes(device_memory or self._module.mem_get_info()[1])
            added["memory_limit"] = int(limit)
        return given | added


class LocalCluster(distributed.LocalCluster):
    """Workers for the devices of a kind: `with LocalCluster() as cluster, Client(cluster): ...`.

    `kind` is that of the accelerator unless it is named. `devices` is a number of devices or a list
    of their numbers; without it, each device is used. `device_memory` limits what each worker takes
    of its device, and `host_memory` what it keeps in host memory before it writes to disk; both are
    bytes or texts such as "2GiB". Other options are those of `distributed.LocalCluster`. Each
    worker has the resource `accelerator`, once.
    """

    def __init__(
        self,
        kind: str | None = None,
        devices: int | Iterable[int] | None = None,
        *,
        device_memory: str | int | None = None,
        host_memory: str | int | None = None,
        threads_per_worker: int = 1,
        **options: Any,
    ) -> None:
        """Start the scheduler and the workers, and wait for them."""
        if "n_workers" in options:
            message = "n_workers is not supported: each device runs one worker; pass devices="
            raise TypeError(message)
        self._workers = Workers(kind, devices, device_memory, host_memory)
        options["threads_per_worker"] = threads_per_worker
        super().__init__(n_workers=0, processes=True, **options)
        self.scale(len(self._workers.devices))
        if not self.asynchronous:
            self.sync(self._correct_state)

    def new_worker_spec(self) -> dict[Any, Any]:
        """Return the next worker's name and options."""
        ((name, spec),) = super().new_worker_spec().items()
        variable = environment_name(DEVICE)
        taken = [int(it["options"]["env"][variable]) for it in self.worker_spec.values()]
        device = min(self._workers.devices, key=taken.count)
        return {name: spec | {"options": self._workers.options(device, spec["options"])}}
