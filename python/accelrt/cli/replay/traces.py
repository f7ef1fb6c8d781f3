"""Traces: the recorded requests of a program, of tables `.ops.csv` and of snapshots.

A table is read while it is replayed, each time from its beginning, so that it may have any size.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from accelrt import _core
from accelrt.cli.replay import snapshots
from accelrt.cli.replay.errors import TraceError, expect_file, naming
from accelrt.cli.sizes import counted


@dataclass(frozen=True)
class Trace:
    """The requests of one device."""

    name: str
    recording: _core.Recording
    settings: str | None = None
    """Of the allocator that a snapshot was taken of; None for a trace that has no snapshot."""
    notes: tuple[str, ...] = ()
    """The parts of the recording that were left out, one a line."""

    def failed_request(self) -> tuple[int, int] | None:
        """Return the bytes of the request that a snapshot ended with, out of memory, if it did.

        The second number is what the allocator could have then.
        """
        failed = self.recording.failed_request()
        return None if failed is None else failed[:2]

    def with_failed_request(self) -> _core.Recording:
        """Return the recording, with such a request as if it had been served."""
        failed = self.recording.failed_request()
        return self.recording if failed is None else failed[2]


def read(path: Path) -> list[Trace]:
    """Return the traces of a file: one for each device with events."""
    with naming(path):
        return list(_traces(path))


def _traces(path: Path) -> Iterator[Trace]:
    expect_file(path)
    if path.suffix == ".csv":
        if not path.is_file():
            message = "it is no regular file, and each replay reads a table from its beginning"
            raise TraceError(message)
        yield Trace(path.name, _core.Recording.of_table(path))
    elif path.suffix in {".pickle", ".pkl"}:
        yield from _snapshot(path)
    else:
        message = "neither a table (.ops.csv) nor a memory snapshot (.pickle)"
        raise TraceError(message)


def _snapshot(path: Path) -> Iterator[Trace]:
    snapshot = snapshots.read(path)
    devices = [device for device in snapshot.devices if device.trace or device.segments]
    if not devices:
        message = "the snapshot is empty: no segments, and no history was recorded"
        raise TraceError(message)
    for device in devices:
        name = path.name if len(devices) == 1 else f"{path.name}:{device.index}"
        recording = _core.Recording.of_snapshot(device.segments, device.trace)
        notes = tuple(_notes(device, snapshot.settings))
        yield Trace(name, recording, snapshot.settings, notes)


def _notes(device: snapshots.Device, settings: str) -> Iterator[str]:
    if device.skipped:
        yield snapshots.skipped_text(device.skipped)
    with contextlib.suppress(ValueError):  # it is raised where the settings are used
        _, unknown = _core.Recording.settings(settings)
        if unknown:
            yield f"skipped {counted(len(unknown), 'unknown setting')}: {', '.join(unknown)}"
