"""A cluster on this machine, with a worker process for each device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import distributed
from dask.utils import parse_bytes

import accelrt
from accelrt.dask.worker import DEVICE, DEVICE_MEMORY, HOST_MEMORY, environment_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    _Bytes = str | int


class LocalCluster(distributed.LocalCluster):
    """Workers for the devices of a kind: `with LocalCluster() as cluster, Client(cluster): ...`.

    `kind` is that of the accelerator unless it is named, `devices` the numbers of its devices, all
    of them unless they are listed. `device_memory` limits what each worker takes of its device, and
    `host_memory` what it keeps in host memory before it writes to disk; both are bytes or texts
    such as "2GiB". Other options are those of `distributed.LocalCluster`. Each worker has the
    resource `accelerator`, once.
    """

    def __init__(
        self,
        kind: str | None = None,
        devices: Iterable[int] | None = None,
        *,
        device_memory: _Bytes | None = None,
        host_memory: _Bytes | None = None,
        threads_per_worker: int = 1,
        **options: Any,  # noqa: ANN401  distributed's own
    ) -> None:
        """Start the scheduler and the workers, and wait for them."""
        self._kind = kind or accelrt.accelerator.current_stream().device.type
        count = accelrt.get_device_module(self._kind).device_count()
        self._devices = list(range(count) if devices is None else devices)
        if missing := [index for index in self._devices if not 0 <= index < count]:
            message = f"devices {missing}: there are {count} of {self._kind}, from 0"
            raise ValueError(message)
        self._memory = (device_memory, host_memory)
        if host_memory is not None:
            options.setdefault("memory_limit", self._process_bytes(host_memory, device_memory))
        options["resources"] = {"accelerator": 1} | options.get("resources", {})
        options["preload"] = ["accelrt.dask", *options.get("preload", ())]
        super().__init__(n_workers=0, threads_per_worker=threads_per_worker, **options)
        self.scale(len(self._devices))
        if not self.asynchronous:
            self.sync(self._correct_state)

    def _process_bytes(self, host_memory: _Bytes, device_memory: _Bytes | None) -> int:
        """Return a limit for a worker's process, in which host memory is at most 60 %.

        A cpu device's memory is the process's own, which distributed counts as such.
        """
        limit = int(parse_bytes(host_memory) / 0.6) + (1 << 30)
        if self._kind != "cpu":
            return limit
        total = accelrt.cpu.mem_get_info()[1]
        return limit + (total if device_memory is None else int(parse_bytes(device_memory)))

    def new_worker_spec(self) -> dict[Any, Any]:
        """Return the next worker's name and options."""
        ((name, spec),) = super().new_worker_spec().items()
        device = self._devices[len(self.worker_spec) % len(self._devices)]
        values = zip((DEVICE, DEVICE_MEMORY, HOST_MEMORY), (device, *self._memory), strict=True)
        own = {environment_name(name): str(value) for name, value in values if value is not None}
        options = spec["options"]
        environment = {"ACCELRT_ACCELERATOR": self._kind} | own | (options.get("env") or {})
        return {name: spec | {"options": options | {"env": environment}}}
