"""The xpu kind from Python (D1, D2), beside a SYCL queue through dpctl where that is installed."""

from collections.abc import Iterator

import accelrt
from accelrt.cli.bench import sycl
from accelrt.cli.bench.measure import in_blocks, in_turns, ns_per_round, once, row
from accelrt.cli.bench.measurement import Measurement

_ROWS = ("D1.python", "D2.python")
_RECORDS = 2_000
_TRIPS, _BLOCKS = 100, 10


def measure() -> Iterator[Measurement]:
    """Yield the rows; without a device each says so."""
    if not accelrt.xpu.is_available():
        reason = "no OpenCL runtime with unified shared memory"
        yield from (Measurement(name, reason=reason) for name in _ROWS)
        return
    stream, event = accelrt.Stream("xpu"), accelrt.Event("xpu")
    record, round_trip = in_turns(
        once(lambda: _enqueueing_ns(stream, event)),
        in_blocks(
            _BLOCKS,
            _TRIPS,
            "record(event); wait()",
            record=stream.record_event,
            wait=event.synchronize,
            event=event,
        ),
    )
    for name, ours, theirs in zip(_ROWS, (record, round_trip), sycl.figures(), strict=True):
        yield row(name, ours, sycl.NAME, theirs)


def _enqueueing_ns(stream: accelrt.Stream, event: accelrt.Event) -> float:
    ns = ns_per_round(_RECORDS, "record(event)", record=stream.record_event, event=event)
    stream.synchronize()
    return ns
