"""The measurement of one row of the figures."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Measurement:
    """The measurement of a row, or the reason that it is missing."""

    name: str
    ours: float | None = None
    ours_min: float | None = None
    peer: str | None = None
    peer_ns: float | None = None
    excess_ns: float | None = None  # the median of what ours took more, of pairs with the peer's
    reason: str | None = None
    # Of every block, those included that were taken again because the machine was not quiet.
    unfiltered: float | None = None  # their median
    p99: float | None = None  # of a hundred 99 took no longer
    peer_unfiltered: float | None = None
    peer_p99: float | None = None
    quiet: int | None = None  # of eleven repetitions, that were taken while the machine was quiet
