"""The page of a replay: live bytes, and what each policy reserves above them."""

from collections.abc import Sequence
from pathlib import Path

from accelrt.cli.replay.policies import Replays
from accelrt.cli.view import page, sources


def write(output: Path, traces: Sequence[Path], replays: Replays) -> None:
    """Write the page of some traces; it replays each of them once more."""
    views = [view for path in traces for view in sources.read(path, replays)]
    page.write(output, ", ".join(path.name for path in traces), views, compares=False)
