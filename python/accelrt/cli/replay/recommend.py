"""`replay --recommend`: which settings serve a trace with the least memory.

Each is tried by a replay of its own, on the capacity that was given or recorded; without one on an
ample capacity, and by the smallest that completes. Nothing depends on times.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypedDict

from accelrt.cli.replay import progress
from accelrt.cli.replay.candidates import Candidate, candidates
from accelrt.cli.replay.minimum import least_bytes
from accelrt.cli.replay.table import aligned, mebibytes
from accelrt.cli.replay.traces import Trace


class Record(TypedDict):
    """One trial; `--json` writes these, the best first."""

    trace: str
    rank: int
    policy: str
    accelrt_alloc_conf: str
    pytorch_alloc_conf: str | None
    granularity: int
    capacity: int | None
    fits: bool
    failed_at: int | None
    peak_live_bytes: int
    bound_bytes: int
    peak_reserved_bytes: int
    minimum_bytes: int | None
    page_operations: int


@dataclass(frozen=True)
class Recommendation:
    """The trials of one trace, and what is said of them."""

    records: list[Record]
    text: str

    @property
    def fits(self) -> bool:
        """True when some settings fit."""
        return any(record["fits"] for record in self.records)


def recommend(
    trace: Trace, policies: list[str], capacity_bytes: int | None, ample_bytes: int, page_bytes: int
) -> Recommendation:
    """Try the settings of some policies; the capacity is the recorded one if none is given."""
    recording, failed = trace.with_failed_request(), trace.failed_request()
    survey = recording.survey()
    live, bound = survey.peak_live_bytes, -(-survey.peak_live_bytes // page_bytes) * page_bytes
    head = f"{trace.name}: {survey.events} events, {mebibytes(live)} MiB live at most\n"
    if failed is not None:
        requested_bytes, recorded_bytes = failed
        head += (
            f"The recording ended out of memory: {requested_bytes} bytes were requested, "
            f"and the allocator could have {recorded_bytes} bytes.\n"
        )
        capacity_bytes = capacity_bytes or recorded_bytes

    def tried(candidate: Candidate) -> Record:
        settings = candidate.settings
        figures = recording.replay(settings, capacity_bytes or ample_bytes, page_bytes)
        fits, least = figures.failed_at is None, None
        if capacity_bytes is None:
            least = least_bytes(recording, settings, ample_bytes, page_bytes)
        return Record(
            trace=trace.name,
            rank=0,
            policy=candidate.policy,
            accelrt_alloc_conf=settings,
            pytorch_alloc_conf=candidate.of_pytorch,
            granularity=page_bytes,
            capacity=capacity_bytes,
            fits=fits,
            failed_at=figures.failed_at,
            peak_live_bytes=live,
            bound_bytes=bound,
            peak_reserved_bytes=figures.peak_reserved_bytes,
            minimum_bytes=least,
            page_operations=figures.page_operations,
        )

    every = candidates(survey, policies, trace.settings)
    records = ranked([tried(candidate) for candidate in progress.shown(every)])
    if not any(record["fits"] for record in records):
        furthest = records[0]
        settings = furthest["accelrt_alloc_conf"]
        furthest["minimum_bytes"] = least_bytes(recording, settings, ample_bytes, page_bytes)
    return Recommendation(records, head + "".join(_lines(records, capacity_bytes)))


def ranked(records: Sequence[Record]) -> list[Record]:
    """Return the records with their ranks: those that fit by what they reserve, then the others.

    What does not fit stands by how far it came. Equals stay in the order of the trials.
    """

    def key(record: Record) -> tuple[bool, int, int]:
        if record["fits"]:
            return False, record["peak_reserved_bytes"], record["minimum_bytes"] or 0
        return True, -(record["failed_at"] or 0), record["peak_reserved_bytes"]

    in_order = sorted(records, key=key)
    return [Record(**{**record, "rank": rank}) for rank, record in enumerate(in_order, start=1)]


_HEAD = "settings", "fits", "peak reserved MiB", "minimum MiB", "page ops"


def _lines(records: Sequence[Record], capacity_bytes: int | None) -> Iterator[str]:
    yield f"{aligned([_HEAD, *map(_row, records)], names=1)}\n"
    fitting = [record for record in records if record["fits"]]
    place = "" if capacity_bytes is None else f" on {capacity_bytes} bytes"
    yield f"{len(fitting)} of {len(records)} settings fit{place}.\n"
    if not fitting:
        yield from _why_none(records[0], capacity_bytes)
        return
    best = fitting[0]
    yield f"The least memory: ACCELRT_ALLOC_CONF={best['accelrt_alloc_conf']}\n"
    of_pytorch = [it for it in fitting if it["pytorch_alloc_conf"] is not None]
    if of_pytorch:
        text = of_pytorch[0]["pytorch_alloc_conf"]
        reserved = mebibytes(of_pytorch[0]["peak_reserved_bytes"])
        of_text = f"PYTORCH_ALLOC_CONF={text}" if text else "its defaults"
        yield f"With PyTorch's allocator: {of_text} ({reserved} MiB reserved)\n"
    elif any(it["pytorch_alloc_conf"] is not None for it in records):
        yield "With PyTorch's allocator: none of its settings fit.\n"


def _why_none(furthest: Record, capacity_bytes: int | None) -> Iterator[str]:
    live, least = furthest["peak_live_bytes"], furthest["minimum_bytes"]
    if capacity_bytes is not None and live > capacity_bytes:
        yield f"No allocator can: {live} bytes are live at once.\n"
    if least is not None:
        yield f"{furthest['accelrt_alloc_conf']} comes furthest, and needs {least} bytes.\n"


def _row(record: Record) -> tuple[str, ...]:
    failed_at = record["failed_at"]
    return (
        record["accelrt_alloc_conf"],
        "yes" if failed_at is None else f"no: event {failed_at}",
        mebibytes(record["peak_reserved_bytes"]),
        mebibytes(record["minimum_bytes"]),
        str(record["page_operations"]),
    )


def to_json(found: Sequence[Recommendation]) -> str:
    """Return the records of all traces as a JSON array."""
    return json.dumps([record for it in found for record in it.records], indent=1) + "\n"
