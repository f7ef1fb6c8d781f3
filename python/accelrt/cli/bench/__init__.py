"""`python -m accelrt bench`: the figures that Python can measure, ours beside the peers'."""

import itertools
import json
import sys
from pathlib import Path

from accelrt.cli.bench import (
    allocators,
    buffers,
    copies,
    events,
    idle,
    launches,
    machine,
    replays,
    table,
    xpu,
)


def run(json_file: Path | None, traces: Path) -> int:
    """Measure, print the table and keep its records; return the exit status."""
    measured = itertools.chain(
        launches.measure(),
        events.measure(),
        copies.measure(),
        idle.measure(),
        xpu.measure(),
        buffers.measure(),
        allocators.measure(),
        replays.measure(traces),
    )
    records = table.records(measured)
    sys.stdout.write(f"{machine.facts()}\n\n{table.text(records)}")
    if json_file is not None:
        json_file.write_text(json.dumps(records, indent=1, ensure_ascii=False) + "\n")
    return 0
