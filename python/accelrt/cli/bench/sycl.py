"""A SYCL queue through dpctl as a peer, where that is installed."""

import importlib
from typing import Any, Final

from accelrt.cli.bench.measure import Figure, in_blocks, in_turns, ns_per_round, once

NAME: Final = "dpctl barrier"
_BARRIERS = 1_000
_TRIPS, _BLOCKS = 50, 10


def figures() -> list[Figure] | list[None]:
    """Measure enqueueing a barrier, and one that is waited for; nothing where dpctl is missing."""
    queue = _queue()
    if queue is None:
        return [None, None]
    return in_turns(
        once(lambda: _enqueueing_ns(queue)),
        in_blocks(_BLOCKS, _TRIPS, "queue.submit_barrier().wait()", queue=queue),
    )


def _queue() -> Any:  # noqa: ANN401  # dpctl may be missing, and has no types
    try:
        dpctl = importlib.import_module("dpctl")
        return dpctl.SyclQueue(property="in_order")
    except Exception:  # noqa: BLE001  # a peer that does not work here is as good as none
        return None


def _enqueueing_ns(queue: Any) -> float:  # noqa: ANN401  # as above
    ns = ns_per_round(_BARRIERS, "queue.submit_barrier()", queue=queue)
    queue.wait()
    return ns
