"""The page of a replay: live bytes, and what each policy reserves above them."""

from collections.abc import Sequence
from pathlib import Path

from accelrt.cli.replay.policies import Replays
from accelrt.cli.view import page, sources


def write(output: Path, traces: Sequence[Path], replays: Replays) -> int:
    """Write the page of some traces, which replays each of them once more; return its bytes."""
    views = [view for path in traces for view in sources.read(path, replays)]
    return page.write(output, ", ".join(path.name for path in traces), views, compares=False)
