"""Traces: the recorded requests of a program, read from `.ops.csv` files and snapshots."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from accelrt import _core
from accelrt.cli.replay import operations, snapshots
from accelrt.cli.replay.errors import TraceError


@dataclass(frozen=True)
class Trace:
    """The requests of one device."""

    name: str
    recording: _core.Recording
    settings: str | None = None
    """Of the allocator that a snapshot was taken of; None for a trace that has no snapshot."""


def read(path: Path) -> list[Trace]:
    """Return the traces of a file: one for each device with events."""
    try:
        return list(_traces(path))
    except (TraceError, ValueError) as error:
        message = f"cannot read {path}: {error}"
        raise TraceError(message) from error
    except OSError as error:
        message = f"cannot read {path}: {error.strerror}"
        raise TraceError(message) from error


def _traces(path: Path) -> Iterator[Trace]:
    path.stat()  # one that is not there has no kind either
    if path.suffix == ".csv":
        yield Trace(path.name, _core.Recording.of_operations(operations.read(path)))
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
        yield Trace(name, recording, snapshot.settings)
