"""What a page is made of: files of every kind, as views."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from accelrt import _core
from accelrt.cli.replay import snapshots
from accelrt.cli.replay.errors import TraceError, expect_file, naming
from accelrt.cli.replay.policies import POLICIES, Replays
from accelrt.cli.sizes import counted
from accelrt.cli.view import curves, memory, profile, snapshot
from accelrt.cli.view.page import View

_PICKLES = frozenset((".pickle", ".pkl"))
_PROFILES = frozenset((".json", ".gz", ".trace"))


def read(path: Path, replays: Replays | None) -> list[View]:
    """Return the views of a file: one, or for a snapshot one for each device that it is about.

    Replays are made as they are asked for; of a table under all policies unless others are named.
    """
    with naming(path), _collector_paused():
        return list(_views(path, replays))


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Leave the garbage collector out: it would look through millions of records again and again.

    What is read has no cycles, and goes when its last reference does.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _views(path: Path, replays: Replays | None) -> Iterator[View]:
    expect_file(path)
    if path.suffix == ".csv":
        recording = _core.Recording.of_table(path)
        recording.survey()  # raises the first mistake of the table
        events = recording.operations()
        if not events:
            message = "the table has no events"
            raise TraceError(message)
        head, columns = memory.of_operations(events)
        head["replays"] = curves.add(columns, recording, replays or Replays([*POLICIES]))
        yield View("table", path.name, head, columns)
    elif path.suffix in _PICKLES:
        yield from _snapshot(path, replays)
    elif path.suffix in _PROFILES:
        yield _profile(path)
    else:
        message = (
            "neither a memory snapshot (.pickle), a table of events (.ops.csv) "
            "nor a profile (.json)"
        )
        raise TraceError(message)


def _profile(path: Path) -> View:
    records, dropped = profile.read(path)
    head, columns = profile.view(records)
    head["dropped"] = dropped
    is_empty = not (len(columns["start"]) or len(columns["instant_time"]) or head["counters"])
    if is_empty and not dropped:
        bad = head["firstBad"]
        message = f"the profile is empty: no slices, no marks and no counters{bad and f'; {bad}'}"
        raise TraceError(message)
    return View("profile", path.name, head, columns)


def _snapshot(path: Path, replays: Replays | None) -> Iterator[View]:
    found = snapshots.read(path)
    devices = [device for device in found.devices if device.trace or device.segments]
    if not devices:
        message = "the snapshot is empty: no segments, and no history was recorded"
        raise TraceError(message)
    for device in devices:
        name = path.name if len(devices) == 1 else f"{path.name}:{device.index}"
        head, columns = snapshot.view(found, device)
        if replays is not None:
            recording = _core.Recording.of_snapshot(device.segments, device.trace)
            head["replays"] = curves.add(columns, recording, replays)
        yield View("snapshot", name, head, columns)


def summary(view: View) -> str:
    """Return in words what is in a view.

    >>> from accelrt.cli.view.columns import Columns
    >>> summary(View("table", "a.ops.csv", {"entries": 7}, Columns()))
    '7 events of a.ops.csv'
    """
    if view.kind == "profile":
        slices = counted(len(view.columns["start"]), "slice")
        lost, bad = view.head["dropped"], view.head["skipped"].get("bad records", 0)
        notes = [f"{lost} records found no room"] if lost else []
        if bad:
            first = view.head["firstBad"]
            notes.append(f"skipped {counted(bad, 'bad record')}, the first: {first}")
        note = f" ({', '.join(notes)})" if notes else ""
        return f"{slices} of {view.name}{note}"
    # Entries of a snapshot are more than the requests and frees that a replay calls events.
    count = view.head["entries"]
    if view.kind == "snapshot":
        skipped = view.head["skipped"]
        note = f" ({snapshots.skipped_text(skipped)})" if skipped else ""
        return f"{count} {'entry' if count == 1 else 'entries'} of {view.name}{note}"
    return f"{counted(count, 'event')} of {view.name}"
