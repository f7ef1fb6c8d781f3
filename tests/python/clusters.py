"""What tests of dask's workers ask of a cluster, and the values that they give it."""

import os
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from distributed import Client

import accelrt
from accelrt.dask import store_of
from processes import LIMIT_SECONDS

if TYPE_CHECKING:
    from distributed import Worker

IS_LONG = bool(os.environ.get("TEST_LONG"))
# What has not ended by then never will: a test starts up to four processes, one behind the other.
LIMIT_S = LIMIT_SECONDS * (5 if IS_LONG else 2)
# A machine that is busy for longer than dask's own half a minute loses no connection.
TIMEOUTS = {f"distributed.comm.timeouts.{it}": "10m" for it in ("connect", "tcp")}
VALUE_BYTES = 2 << 20


def make(number: int) -> accelrt.Buffer:
    return accelrt.empty(VALUE_BYTES).fill_(number)


def sum_of_ends(buffer: accelrt.Buffer) -> tuple[int, str]:
    with memoryview(buffer) as view:
        return view[0] + view[-1], str(buffer.device)


def workers_of(client: Client) -> dict[str, Any]:
    """Return what the scheduler knows; what a client keeps has no workers at times."""
    scheduler: Any = client.scheduler
    found: dict[str, Any] = client.sync(scheduler.identity, n_workers=-1)["workers"]
    return found


def gathered(client: Client, futures: list[Any]) -> list[Any]:
    results: list[Any] = client.gather(futures)
    return results


def on_both(
    client: Client, function: Callable[..., Any], values: Iterable[Any], turn: int = 1
) -> list[Any]:
    """Submit a call for each value, by turns to both workers, each of which gets so many."""
    workers = sorted(workers_of(client))
    return [
        client.submit(function, value, workers=[workers[at // turn % 2]], pure=False)
        for at, value in enumerate(values)
    ]


def numbers(dask_worker: "Worker") -> dict[str, int]:
    return store_of(dask_worker).numbers()


def allocated(dask_worker: "Worker") -> int:
    found: int = dask_worker.metrics["accelrt"](dask_worker)["allocated_bytes"]
    return found


def wait_until_empty(client: Client) -> None:
    """Wait until no worker has a value."""

    def is_empty(dask_worker: "Worker") -> bool:
        return len(dask_worker.data) == len(dask_worker.state.actors) == 0

    give_up = time.monotonic() + LIMIT_S / 2
    while not all(client.run(is_empty).values()):
        assert time.monotonic() < give_up, client.run(numbers)
