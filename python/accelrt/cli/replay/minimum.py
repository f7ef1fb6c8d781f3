"""`replay --minimum`: the smallest capacity on which each trace completes, per policy."""

import json
from collections.abc import Sequence
from typing import TypedDict

from accelrt import _core
from accelrt.cli.replay.policies import settings_of
from accelrt.cli.replay.table import aligned, mebibytes
from accelrt.cli.replay.traces import Trace


class Record(TypedDict):
    """The search of one trace and policy; `--json` writes these."""

    trace: str
    policy: str
    config: str
    granularity: int
    capacity: int
    events: int
    peak_live_bytes: int
    bound_bytes: int
    minimum_bytes: int | None
    ratio: float | None
    fails_below_bytes: int | None
    fails_again_bytes: int | None
    replays: int
    failed_at: int | None


def search(
    trace: Trace, policy: str, config: str, *, capacity_bytes: int, page_bytes: int
) -> Record:
    """Search the smallest capacity up to one; a failed request at the end counts as well."""
    recording = trace.with_failed_request()
    settings = settings_of(policy, config)
    found = recording.minimum(settings, capacity_bytes, page_bytes)
    bound, least = found.bound_bytes, found.bytes
    return Record(
        trace=trace.name,
        policy=policy,
        config=config,
        granularity=page_bytes,
        capacity=capacity_bytes,
        events=found.figures.events,
        peak_live_bytes=found.figures.peak_live_bytes,
        bound_bytes=bound,
        minimum_bytes=least,
        ratio=round(least / bound, 4) if least and bound else None,
        fails_below_bytes=least - page_bytes if least else None,
        fails_again_bytes=found.fails_again_bytes,
        replays=found.replays,
        failed_at=found.figures.failed_at,
    )


def to_json(records: Sequence[Record]) -> str:
    """Return the records as a JSON array."""
    return json.dumps(records, indent=1) + "\n"


_HEAD = (
    *("trace", "policy", "events", "peak live MiB", "bound MiB", "minimum MiB", "minimum/bound"),
    "replays",
)


def text(records: Sequence[Record]) -> str:
    """Return a table with a line for each search, and what is to be said of some below it."""
    lines = [aligned([_HEAD, *map(_row, records)], names=2)]
    lines += [f"{note}\n" for note in map(_note, records) if note]
    return "".join(lines)


def _row(record: Record) -> tuple[str, ...]:
    ratio = record["ratio"]
    return (
        record["trace"],
        record["policy"],
        str(record["events"]),
        mebibytes(record["peak_live_bytes"]),
        mebibytes(record["bound_bytes"]),
        mebibytes(record["minimum_bytes"]),
        "-" if ratio is None else f"{ratio:.4f}",
        str(record["replays"]),
    )


def _note(record: Record) -> str:
    """Say that a search found nothing, or that more memory is not always enough."""
    named = f"{record['trace']}, {record['policy']}"
    least, again = record["minimum_bytes"], record["fails_again_bytes"]
    if least is None:
        at = "" if record["failed_at"] is None else f": event {record['failed_at']} fails"
        return f"{named}: does not complete on {record['capacity']} bytes{at}"
    if again is None:
        return ""
    return (
        f"{named}: not monotonic: it completes on {least} bytes, and fails again on {again} bytes"
    )


def is_complete(records: Sequence[Record]) -> bool:
    """Return True when every search found a capacity."""
    return all(record["minimum_bytes"] is not None for record in records)


def least_bytes(
    recording: _core.Recording, settings: str, capacity_bytes: int, page_bytes: int
) -> int | None:
    """Return the smallest capacity up to one, for settings of which nothing else is asked."""
    return recording.minimum(settings, capacity_bytes, page_bytes).bytes
