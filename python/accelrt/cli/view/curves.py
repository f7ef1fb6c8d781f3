"""Replays of a recording under each policy, as curves of live and reserved bytes."""

from array import array
from typing import Any

from accelrt import _core
from accelrt.cli.replay.policies import Replays, settings_of
from accelrt.cli.view.columns import Columns

# More than a screen has columns: each point is the peak of its stretch.
_POINTS = 4096


def add(columns: Columns, recording: _core.Recording, replays: Replays) -> list[dict[str, Any]]:
    """Add the curves, by number of the policy; return what a page says of each replay."""
    heads: list[dict[str, Any]] = []
    place = replays.capacity_bytes, replays.granularity_bytes
    for number, policy in enumerate(replays.policies):
        settings = settings_of(policy, replays.config)
        try:
            timeline = recording.timeline(settings, *place, _POINTS)
        except RuntimeError as error:  # of this policy: the others continue
            heads.append({"policy": policy, "error": str(error)})
            continue
        figures = timeline.figures
        ends = [*timeline.events[1:], figures.events]  # of the runs
        columns.add(f"replay{number}_events", array("d", ends))
        columns.add(f"replay{number}_live", array("d", timeline.live_bytes))
        columns.add(f"replay{number}_reserved", array("d", timeline.reserved_bytes))
        heads.append(
            {
                "policy": policy,
                "events": figures.events,
                "peakLive": figures.peak_live_bytes,
                "peakReserved": figures.peak_reserved_bytes,
                "pageOperations": figures.page_operations,
                "nsPerEvent": figures.ns_per_event,
                "failedAt": figures.failed_at,
                "error": None,
            }
        )
    return heads
