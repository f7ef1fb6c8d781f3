"""A worker's device, the streams of its tasks, its store, and its numbers for the dashboard."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import dask.config
from dask.utils import parse_bytes
from distributed import WorkerPlugin, get_worker
from distributed.threadpoolexecutor import ThreadPoolExecutor

import accelrt
from accelrt.dask.frames import receive_on
from accelrt.dask.store import DeviceStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed import Worker

# Of dask's configuration: what `LocalCluster` tells its workers, and users those that they start.
DEVICE, DEVICE_MEMORY, HOST_MEMORY = (
    f"accelrt.{name}" for name in ("device", "device-memory", "host-memory")
)


def environment_name(name: str) -> str:
    """Return the variable that sets a value of dask's configuration."""
    return "DASK_" + name.replace(".", "__").replace("-", "_").upper()


class Devices(WorkerPlugin):
    """Gives each worker of a running cluster a device: `client.register_plugin(Devices())`.

    A worker takes the device that `accelrt.device` of dask's configuration names
    (`DASK_ACCELRT__DEVICE`), or else the one of its number.
    """

    name = "accelrt"

    def setup(self, worker: Worker) -> None:
        """Prepare a worker, once."""
        dask_setup(worker)

    def teardown(self, worker: Worker) -> None:
        """Be asked for memory no more."""
        if isinstance(worker.data, DeviceStore):
            worker.data.close()


def dask_setup(worker: Worker) -> None:
    """Give a worker its device: what `--preload accelrt.dask` calls. A second call does nothing."""
    if isinstance(worker.data, DeviceStore):
        return
    device = _choose(worker)
    total = accelrt.get_device_module(device).mem_get_info(device)[1]
    if limit := dask.config.get(DEVICE_MEMORY, None):
        fraction = min(parse_bytes(limit) / total, 1.0)
        accelrt.get_device_module(device).set_per_process_memory_fraction(fraction, device)
    receive_on(device)
    store = DeviceStore(worker.local_directory, device, host_limit=_host_limit(worker))
    for key in list(worker.data):
        store[key] = worker.data[key]
    worker.state.data = worker.memory_manager.data = store
    threads = worker.state.nthreads
    previous = worker.executors["default"]
    worker.executors["default"] = StreamThreadPoolExecutor(store, threads)
    previous.shutdown(wait=False)  # what it runs, it ends
    _measure(worker, store, total)


def device_of(worker: Worker | None = None) -> accelrt.device:
    """Return the device of a worker; inside a task, of the own one."""
    return store_of(worker).device


def store_of(worker: Worker | None = None) -> DeviceStore:
    """Return the store of a worker; inside a task, of the own one."""
    data = (worker or get_worker()).data
    if not isinstance(data, DeviceStore):
        message = "this worker has no device: preload accelrt.dask, or register the plug-in"
        raise TypeError(message)
    return data


class StreamThreadPoolExecutor(ThreadPoolExecutor):
    """Runs each task on the worker's device, on a stream that is current inside of the task.

    A task ends when its stream has: what it returns is complete, and a failure of the stream is
    the task's.
    """

    def __init__(self, store: DeviceStore, threads: int) -> None:
        """Start no thread yet."""
        super().__init__(threads, thread_name_prefix="Dask-Default-Threads")
        self._store = store

    def submit(  # type: ignore[override]  # as distributed's
        self,
        fn: Callable[..., Any],
        *args: Any,  # noqa: ANN401
        **kwargs: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Enqueue a call."""
        return super().submit(self._run, fn, args, kwargs)

    def _run(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> object:
        device = self._store.device
        stream = accelrt.Stream(device)
        stream.wait_stream(self._store.stream)  # values may be on their way
        with accelrt.get_device_module(device).device(device), stream:
            outcome = function(*args, **kwargs)
        stream.synchronize()
        return outcome


def _choose(worker: Worker) -> accelrt.device:
    kind = accelrt.accelerator.current_stream().device.type
    count = accelrt.accelerator.device_count()
    index = dask.config.get(DEVICE, None)
    if index is None:
        index = 0
        with suppress(ValueError, TypeError):
            index = int(worker.name) % count
    if not isinstance(index, int) or not 0 <= index < count:
        message = f"{DEVICE}: {index!r}: there are {count} devices of {kind}, from 0"
        raise ValueError(message)
    return accelrt.device(kind, index)


def _host_limit(worker: Worker) -> int:
    """Return the bytes of host memory above which values go to disk."""
    if limit := dask.config.get(HOST_MEMORY, None):
        return int(parse_bytes(limit))
    manager = worker.memory_manager
    fraction = manager.memory_target_fraction or manager.memory_spill_fraction or 0.6
    return int((manager.memory_limit or (1 << 62)) * fraction)


def _measure(worker: Worker, store: DeviceStore, total: int) -> None:
    """Send numbers of the device with each heartbeat."""
    module = accelrt.get_device_module(store.device)

    def numbers(_worker: Worker) -> dict[str, int]:
        stats = module.memory_stats(store.device)
        names = {"allocated": "current", "reserved": "current", "allocated_peak": "peak"}
        found = {
            f"{name}_bytes": stats[f"{name.partition('_')[0]}_bytes.all.{what}"]
            for name, what in names.items()
        }
        return found | store.numbers()

    worker.metrics["accelrt"] = numbers
    # What the dashboard's pages about devices read, by these names.
    worker.metrics["gpu_memory_used"] = lambda _: module.memory_allocated(store.device)
    worker.metrics["gpu-memory-total"] = lambda _: total
    worker.metrics["gpu_utilization"] = lambda _: 0
