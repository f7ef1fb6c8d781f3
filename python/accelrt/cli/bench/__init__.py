"""`python -m accelrt bench`: the figures that Python can measure, ours beside the peers'."""

import itertools
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from accelrt.cli import terminal
from accelrt.cli.bench import (
    allocators,
    awaits,
    buffers,
    clusters,
    copies,
    events,
    generators,
    histories,
    idle,
    imports,
    launches,
    machine,
    profiles,
    replays,
    sanitizers,
    table,
    tables,
    xpu,
)
from accelrt.cli.bench.measurement import Measurement
from accelrt.cli.bench.quiet import Patience
from accelrt.cli.bench.rows import ROWS
from accelrt.cli.bench.table import Record
from accelrt.cli.terminal import Style


def run(
    json_file: Path | None,
    traces: Path | None,
    rows: str = "",
    patience_s: float = Patience.SECONDS,
) -> int:
    """Measure, print the table and keep its records; return the exit status.

    `rows` is how the names of the wanted ones begin; each waits for a quiet machine up to
    `patience_s` seconds.
    """
    before, Patience.SECONDS = Patience.SECONDS, patience_s
    try:
        records = _measured(traces, rows)
    finally:
        Patience.SECONDS = before
    head, *rest = table.text(records).splitlines(keepends=True)
    shown = Style.of(sys.stdout).bold(head.rstrip("\n"))
    sys.stdout.write(f"{machine.facts()}\n\n{shown}\n{''.join(rest)}")
    if json_file is not None:
        json_file.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    return 0


def _measured(traces: Path | None, rows: str) -> list[Record]:
    """Measure the wanted rows; return their records."""
    # With the letters of their rows: what is not wanted is not measured.
    parts = (
        ("Q", launches.measure()),
        ("E", events.measure()),
        ("W", awaits.measure()),
        ("C", copies.measure()),
        ("Q", idle.measure()),
        ("I", imports.measure()),
        ("D", xpu.measure()),
        ("A", buffers.measure()),
        ("H", allocators.measure()),
        ("A", replays.measure(traces)),
        ("R", generators.measure()),
        ("V", histories.measure()),
        ("V", profiles.measure()),
        ("V", tables.measure(traces)),
        ("S", sanitizers.measure()),
        ("Z", clusters.measure()),
    )
    measured = itertools.chain(*(part for letter, part in parts if rows[:1] in ("", letter)))
    return [it for it in table.records(_told(measured)) if str(it["name"]).startswith(rows)]


def _told(measured: Iterable[Measurement]) -> Iterator[Measurement]:
    """Say on standard error which row was measured: a whole run takes minutes."""
    try:
        for number, measurement in enumerate(measured, start=1):
            name, count = measurement.name, len(ROWS)
            if terminal.shows_progress():
                terminal.wipe()  # the bar before may have been longer
                terminal.bar(f"bench {number}/{count}", number / count, f" {name}")
            elif sys.stderr is not None:
                sys.stderr.write(f"accelrt bench: {name} ({number} of {count} at most)\n")
            yield measurement
    finally:
        terminal.wipe()
