"""A worker's device, the streams of its tasks, its store, and its numbers for the dashboard."""

from __future__ import annotations

import logging
import threading
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import dask.config
from dask.utils import key_split, parse_bytes
from distributed import Status, WorkerPlugin, get_worker
from distributed.comm import utils as comm_utils
from distributed.core import error_message
from distributed.protocol.serialize import to_serialize
from distributed.threadpoolexecutor import ThreadPoolExecutor
from distributed.utils import iscoroutinefunction
from distributed.worker_state_machine import ExecuteFailureEvent, ExecuteSuccessEvent

import accelrt
from accelrt._failures import causes, fade_logged
from accelrt._memory import fraction_of
from accelrt.dask.failures import (
    DefaultStream,
    add_failures,
    add_failures_to_message,
    failure_of,
)
from accelrt.dask.frames import Receiving
from accelrt.dask.store import DeviceStore
from accelrt.profiler import record_function

if TYPE_CHECKING:
    from collections.abc import Callable

    from dask.typing import Key
    from distributed import Worker

# Of dask's configuration: what `LocalCluster` tells its workers, and users those that they start.
DEVICE, DEVICE_MEMORY = "accelrt.device", "accelrt.device-memory"
HOST_MEMORY = "accelrt.host-memory"

# A longer name of digits is no number of a worker.
MAX_NUMBER_DIGITS = 18

# The workers of this process with a device.
_workers: WeakSet[Worker] = WeakSet()

# What the loop is about to have executed, as a range of profiles.
_executed = ContextVar("executed", default="task")


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
        """Be asked for memory no more, when the worker ends: it keeps its device until then."""
        if worker.status == Status.closing and isinstance(worker.data, DeviceStore):
            worker.data.close()


def dask_setup(worker: Worker) -> None:
    """Give a worker its device: what `--preload accelrt.dask` calls. A second call does nothing.

    `RuntimeError` when another worker of the process has one.
    """
    if isinstance(worker.data, DeviceStore):
        return
    _check_is_only(worker)
    device = _choose(worker)
    module = accelrt.get_device_module(device)
    total = module.mem_get_info(device)[1]
    if (limit := dask.config.get(DEVICE_MEMORY, None)) is not None:
        module.set_per_process_memory_fraction(fraction_of(parse_bytes(limit), total), device)
    manager = worker.memory_manager
    store = DeviceStore(
        worker.local_directory, device, host_limit=_host_limit(worker), max_spill=manager.max_spill
    )
    module.synchronize(device)  # what its values may wait for
    store.update((key, worker.data[key]) for key in list(worker.data))
    worker.state.data = manager.data = store
    module.set_device(device)  # of this thread, for coroutines
    Receiving.device, Receiving.stream = device, store.stream
    streams: WeakSet[accelrt.Stream] = WeakSet([store.stream])
    default = DefaultStream(device)
    for name, threads in (("default", worker.state.nthreads), ("actor", 1)):
        worker.executors[name].shutdown(wait=False)  # what it runs, it ends
        worker.executors[name] = StreamThreadPoolExecutor(store, threads, streams, default)
    _bring_by_a_thread(worker, store, default)
    _wait_for_actors(worker, default)
    _workers.add(worker)

    def numbers(_worker: Worker) -> dict[str, int]:
        return {
            "allocated_bytes": module.memory_allocated(device),
            "allocated_peak_bytes": module.max_memory_allocated(device),
            "reserved_bytes": module.memory_reserved(device),
            "busy_streams": sum(not stream.query() for stream in streams.copy()),
            **store.numbers(),
        }

    worker.metrics["accelrt"] = numbers
    # What the dashboard's pages about devices read, by these names.
    worker.metrics["gpu_memory_used"] = lambda _: module.memory_allocated(device)
    worker.metrics["gpu-memory-total"] = lambda _: total
    worker.metrics["gpu_utilization"] = lambda _: 0


def _check_is_only(worker: Worker) -> None:
    """Raise unless no other worker of this process has a device: what is received is put there."""
    ended = {Status.closing, Status.closed, Status.failed}
    for other in list(_workers):
        if other is not worker and other.status not in ended:
            message = (
                f"the worker {other.address} of this process has a device already: start each"
                " worker in a process of its own (processes=True)"
            )
            raise RuntimeError(message)


def _bring_by_a_thread(worker: Worker, store: DeviceStore, default: DefaultStream) -> None:
    """Have what tasks and other workers ask for brought by a thread before the loop reads it.

    Coroutines end after their work on the default stream.
    """
    execute, get_data, gather_dep = worker.execute, worker.get_data, worker.gather_dep

    async def execute_brought(key: Key, **options: Any) -> Any:
        _executed.set(key_split(key))
        task: Any = worker.state.tasks[key]
        needed = [it.key for it in task.dependencies]
        brought = partial(store.during, needed, partial(execute, key, **options))
        is_coroutine, run_id = getattr(task.run_spec, "is_coro", False), task.run_id
        if not is_coroutine:
            return await brought()
        ended, failure = await default.awaited(brought)
        if failure is None:
            return ended
        failed = ExecuteFailureEvent.from_exception(failure, key=key, run_id=run_id, **options)
        return _with_failure(ended, failed, failure)

    async def get_data_brought(comm: Any, keys: list[Key], **options: Any) -> Any:
        is_sent = not comm.peer_address.startswith("inproc")
        return await store.during(keys, lambda: get_data(comm, keys, **options), is_sent=is_sent)

    async def gather_dep_stored(*args: Any, **options: Any) -> Any:
        return await store.storing(partial(gather_dep, *args, **options))

    async def gather_stored(**options: Any) -> Any:  # dask asks handlers for names
        return await store.storing(partial(worker.gather, **options))

    # Workers' logs are kept, and the frames of an error have a task's values.
    for handler in logging.getLogger("distributed.worker").handlers:  # also of what is below it
        handler.addFilter(fade_logged)
    vars(worker).update(execute=execute_brought, gather_dep=gather_dep_stored)
    worker.handlers.update(get_data=get_data_brought, gather=gather_stored)
    # The loop copies 1 MiB at once: larger messages are read and written by another thread.
    if comm_utils.OFFLOAD_THRESHOLD:
        comm_utils.OFFLOAD_THRESHOLD = min(comm_utils.OFFLOAD_THRESHOLD, 1 << 20)


def _with_failure(ended: Any, failed: ExecuteFailureEvent, failure: Exception) -> Any:
    """Return the end of a coroutine whose work failed. One that is to run again stays as it is."""
    if isinstance(ended, ExecuteFailureEvent):
        ended.exception = add_failures_to_message(ended.exception, [failure])
    return failed if isinstance(ended, ExecuteSuccessEvent) else ended


def _wait_for_actors(worker: Worker, default: DefaultStream) -> None:
    """Have calls of actors on the event loop end after their work on the default stream."""
    actor_execute = worker.actor_execute

    async def actor_execute_waited(**options: Any) -> Any:  # dask asks handlers for names
        call = partial(actor_execute, **options)
        if not _is_for_the_loop(worker, **options):
            return await call()
        response, failure = await default.awaited(call)
        if failure is not None and response["status"] == "error":
            add_failures(response["exception"].data, [failure])
        elif failure is not None:
            return {"status": "error", "exception": to_serialize(failure)}
        return response

    worker.handlers.update(actor_execute=actor_execute_waited)


def _is_for_the_loop(
    worker: Worker,
    actor: Key,
    function: str,
    kwargs: dict[str, Any] | None = None,
    **_options: Any,
) -> bool:
    """Return whether a call of an actor runs on the event loop: a coroutine, or by request."""
    method = getattr(worker.state.actors.get(actor), function, None)
    return iscoroutinefunction(method) or not (kwargs or {}).get("separate_thread", True)


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

    A call ends when its stream has: what it returns is complete, and a failure of the stream is
    the call's. Each thread has a stream, which no other call uses meanwhile. The default stream is
    shared: see `accelrt.dask.failures`. The first error is raised, a call's own before those of its
    streams; the others are notes of it.
    """

    def __init__(
        self,
        store: DeviceStore,
        threads: int,
        streams: WeakSet[accelrt.Stream],
        default: DefaultStream,
    ) -> None:
        """Start no thread yet; add the stream of each to all streams of the worker."""
        super().__init__(threads, thread_name_prefix="Dask-Default-Threads")
        self._store, self._streams, self._default = store, streams, default
        self._own = threading.local()

    def submit(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """Enqueue a call."""
        return super().submit(self._run, _executed.get(), partial(fn, *args, **kwargs))

    def _run(self, name: str, function: Callable[[], object]) -> object:
        stream = getattr(self._own, "stream", None)
        if stream is None:
            stream = self._own.stream = accelrt.Stream(self._store.device, dedicated=True)
            self._streams.add(stream)
        outcome: object = None
        errors: list[BaseException] = []
        failures: list[Exception] = []
        try:
            with stream, record_function(name):
                use = self._default.begin()
                try:
                    outcome = function()
                except BaseException as error:  # noqa: BLE001  raised below
                    errors.append(error)
                failures += filter(None, (failure_of(stream.synchronize), self._default.end(use)))
            if isinstance(outcome, dict) and outcome.get("op") in {"task-finished", "task-erred"}:
                return _ended(outcome, failures)
            errors += failures
            if errors:
                add_failures(errors[0], errors[1:])
                raise errors[0]
            return outcome
        finally:  # the frames of the error have this one
            errors.clear()
            failures.clear()
            del outcome


def _ended(outcome: dict[str, Any], failures: list[Exception]) -> dict[str, Any]:
    """Return the outcome of a task, as dask has it, with the failures of its streams.

    No error is raised: it would keep the frames that it passes, and so the values, in a cycle.
    """
    if failures and outcome["op"] == "task-finished":
        first, *others = failures
        add_failures(first, others)
        times = {it: outcome[it] for it in ("start", "stop", "thread")}
        raised = {"op": "task-erred", "actual_exception": first}
        outcome = {**error_message(first), **times, **raised}
    elif failures:
        outcome["exception"] = add_failures_to_message(outcome["exception"], failures)
    for it in causes(outcome.get("actual_exception")):
        it.__traceback__ = None
    return outcome


def _choose(worker: Worker) -> accelrt.device:
    kind = accelrt.accelerator.current_stream().device.type
    count, name = accelrt.accelerator.device_count(), str(worker.name)
    index = dask.config.get(DEVICE, None)
    if index is None:
        is_number = name.isdecimal() and len(name) <= MAX_NUMBER_DIGITS
        index = int(name) % max(count, 1) if is_number else 0
    if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < count:
        message = f"{DEVICE}: {index!r}: there are {count} devices of {kind}, from 0"
        raise ValueError(message)
    return accelrt.device(kind, index)


def _host_limit(worker: Worker) -> int:
    """Return the bytes of host memory above which values go to disk."""
    if (limit := dask.config.get(HOST_MEMORY, None)) is not None:
        return int(parse_bytes(limit))
    manager = worker.memory_manager
    fraction = manager.memory_target_fraction or manager.memory_spill_fraction or 0.6
    return int((manager.memory_limit or (1 << 62)) * fraction)
