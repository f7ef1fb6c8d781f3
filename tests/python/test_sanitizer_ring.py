"""The sanitizer on examples/ring_buffer.py, and on rings that are wrong in one thing each.

Goal: in a program of three streams and a host thread that waits rarely, each missing or misplaced
order is found with both places and what would mend it, and the right program has no finding.
Method: each wrong ring overrides one method of the example's; the lines of its two uses have marks.
"""

from __future__ import annotations

import importlib.util
import inspect
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import accelrt
from accelrt import sanitizer
from kinds import host_cores

if TYPE_CHECKING:
    from io import BufferedReader, BufferedWriter

_SPEC = importlib.util.spec_from_file_location(
    "ring_buffer", Path(__file__).parents[2] / "examples" / "ring_buffer.py"
)
assert _SPEC is not None
ring_buffer = importlib.util.module_from_spec(_SPEC)
assert _SPEC.loader is not None
_SPEC.loader.exec_module(ring_buffer)

Ring: Any = ring_buffer.Ring
Slot: Any = ring_buffer.Slot
swab = ring_buffer.swab
CHUNKS = 3 * ring_buffer.SLOTS
CONTENT = bytes(range(256)) * (CHUNKS * ring_buffer.CHUNK_BYTES // 256)


class NoWaitBetweenLoadAndCompute(Ring):  # type: ignore[misc]
    """Swaps bytes that may not be there yet."""

    def enqueue(self, slot: Slot, nbytes: int, target: BufferedWriter) -> None:
        """Forget that compute waits for load."""
        with self.load:
            slot.source[:nbytes].copy_(slot.read[:nbytes], non_blocking=True)  # first
        source, swapped = accelrt.reads(slot.source), accelrt.writes(slot.swapped)
        self.compute.launch(swab, source, swapped, nbytes)  # second
        self.store.wait_event(self.compute.record_event())
        with self.store:
            slot.swapped[:nbytes].copy_to(slot.result[:nbytes], non_blocking=True)
        self.store.launch_host(target.write, slot.output[:nbytes])
        self.store.record_event(slot.written)


class NoWaitBetweenComputeAndStore(Ring):  # type: ignore[misc]
    """Stores what may not be swapped yet."""

    def enqueue(self, slot: Slot, nbytes: int, target: BufferedWriter) -> None:
        """Forget that store waits for compute."""
        with self.load:
            slot.source[:nbytes].copy_(slot.read[:nbytes], non_blocking=True)
        self.compute.wait_event(self.load.record_event())
        source, swapped = accelrt.reads(slot.source), accelrt.writes(slot.swapped)
        self.compute.launch(swab, source, swapped, nbytes)  # first
        with self.store:
            slot.swapped[:nbytes].copy_to(slot.result[:nbytes], non_blocking=True)  # second
        self.store.launch_host(target.write, slot.output[:nbytes])
        self.store.record_event(slot.written)


class NoWaitForTheSlot(Ring):  # type: ignore[misc]
    """Takes a slot whose last chunk may still be on its way."""

    def run(self, source: BufferedReader, target: BufferedWriter) -> int:
        """Forget to wait for the slot's event."""
        for count in range(CHUNKS):
            slot = self.slots[count % ring_buffer.SLOTS]
            self.enqueue(slot, source.readinto(slot.input), target)
        self.store.synchronize()
        return int(CHUNKS)

    def enqueue(self, slot: Slot, nbytes: int, target: BufferedWriter) -> None:
        """As in the example."""
        with self.load:
            slot.source[:nbytes].copy_(slot.read[:nbytes], non_blocking=True)  # second
        self.compute.wait_event(self.load.record_event())
        source, swapped = accelrt.reads(slot.source), accelrt.writes(slot.swapped)
        self.compute.launch(swab, source, swapped, nbytes)  # first
        self.store.wait_event(self.compute.record_event())
        with self.store:
            slot.swapped[:nbytes].copy_to(slot.result[:nbytes], non_blocking=True)
        self.store.launch_host(target.write, slot.output[:nbytes])
        self.store.record_event(slot.written)


class TheEventIsRecordedTooEarly(Ring):  # type: ignore[misc]
    """Says that a chunk is written before it is stored."""

    def enqueue(self, slot: Slot, nbytes: int, target: BufferedWriter) -> None:
        """Record the slot's event in front of the copy."""
        with self.load:
            slot.source[:nbytes].copy_(slot.read[:nbytes], non_blocking=True)
        self.compute.wait_event(self.load.record_event())
        source, swapped = accelrt.reads(slot.source), accelrt.writes(slot.swapped)
        self.compute.launch(swab, source, swapped, nbytes)  # second
        self.store.wait_event(self.compute.record_event())
        self.store.record_event(slot.written)
        with self.store:
            slot.swapped[:nbytes].copy_to(slot.result[:nbytes], non_blocking=True)  # first
        self.store.launch_host(target.write, slot.output[:nbytes])


class TheEventIsRecordedOnAnotherStream(Ring):  # type: ignore[misc]
    """Says that a chunk is written when it is computed."""

    def enqueue(self, slot: Slot, nbytes: int, target: BufferedWriter) -> None:
        """Record the slot's event on compute."""
        with self.load:
            slot.source[:nbytes].copy_(slot.read[:nbytes], non_blocking=True)
        self.compute.wait_event(self.load.record_event())
        source, swapped = accelrt.reads(slot.source), accelrt.writes(slot.swapped)
        self.compute.launch(swab, source, swapped, nbytes)  # second
        self.compute.record_event(slot.written)
        self.store.wait_event(self.compute.record_event())
        with self.store:
            slot.swapped[:nbytes].copy_to(slot.result[:nbytes], non_blocking=True)  # first
        self.store.launch_host(target.write, slot.output[:nbytes])


class TheWaitComesBeforeTheRecord(Ring):  # type: ignore[misc]
    """Waits for the round before."""

    def __init__(self) -> None:
        """Make an event for all chunks."""
        super().__init__()
        self.loaded = accelrt.Event()

    def enqueue(self, slot: Slot, nbytes: int, target: BufferedWriter) -> None:
        """Record after the wait."""
        self.compute.wait_event(self.loaded)
        with self.load:
            slot.source[:nbytes].copy_(slot.read[:nbytes], non_blocking=True)  # first
            self.loaded.record()
        source, swapped = accelrt.reads(slot.source), accelrt.writes(slot.swapped)
        self.compute.launch(swab, source, swapped, nbytes)  # second
        self.store.wait_event(self.compute.record_event())
        with self.store:
            slot.swapped[:nbytes].copy_to(slot.result[:nbytes], non_blocking=True)
        self.store.launch_host(target.write, slot.output[:nbytes])
        self.store.record_event(slot.written)


class MemoryOfItsOwnByItsAddress(Ring):  # type: ignore[misc]
    """Takes new memory for each chunk, and gives its address alone to the function."""

    def enqueue(self, slot: Slot, nbytes: int, target: BufferedWriter) -> None:
        """Free the memory while compute may use it."""
        with self.load:
            memory = accelrt.empty(nbytes)
            memory.copy_(slot.read[:nbytes], non_blocking=True)
        self.compute.wait_event(self.load.record_event())
        swapped = accelrt.writes(slot.swapped)
        self.compute.launch(swab, memory.data_ptr(), swapped, nbytes)  # first
        del memory  # second
        self.store.wait_event(self.compute.record_event())
        with self.store:
            slot.swapped[:nbytes].copy_to(slot.result[:nbytes], non_blocking=True)
        self.store.launch_host(target.write, slot.output[:nbytes])
        self.store.record_event(slot.written)


class TheHostReadsAhead(Ring):  # type: ignore[misc]
    """Reads into a slot before it is free."""

    def run(self, source: BufferedReader, target: BufferedWriter) -> int:
        """Wait for the slot behind the read."""
        for count in range(CHUNKS):
            slot = self.slots[count % ring_buffer.SLOTS]
            with accelrt.host_access(slot.read):  # second
                nbytes = source.readinto(slot.input)
            slot.written.synchronize()
            self.enqueue(slot, nbytes, target)
        self.store.synchronize()
        return int(CHUNKS)


WRONG = [
    (NoWaitBetweenLoadAndCompute, "race", "wait_event()"),
    (NoWaitBetweenComputeAndStore, "race", "wait_event()"),
    (NoWaitForTheSlot, "race", "wait_event()"),
    (TheEventIsRecordedTooEarly, "race", "wait_event()"),
    (TheEventIsRecordedOnAnotherStream, "race", "wait_event()"),
    (TheWaitComesBeforeTheRecord, "race", "wait_event()"),
    (MemoryOfItsOwnByItsAddress, "missing-record-stream", "record_stream()"),
    (TheHostReadsAhead, "host-access", "synchronize()"),
]


def marks(ring: type) -> dict[str, int]:
    """Return the lines of a class that have marks."""
    source, first = inspect.getsourcelines(ring)
    found = ((line.partition("# ")[2].strip(), number) for number, line in enumerate(source, first))
    return {mark: number for mark, number in found if mark in {"first", "second"}}


def report_of(ring: Any) -> sanitizer.Report:
    """Return what a ring's run has."""
    with sanitizer.watch() as report:
        ring().run(BytesIO(CONTENT), BytesIO())
        accelrt.accelerator.synchronize()
    return report


@host_cores
@pytest.mark.parametrize(("ring", "kind", "fix"), WRONG)
def test_a_wrong_ring_is_found_with_both_places(ring: type, kind: str, fix: str) -> None:
    report, lines = report_of(ring), marks(ring)
    found = [
        finding
        for finding in report.findings
        if finding.kind == kind
        and finding.second.line == lines["second"]
        and (finding.first is None or finding.first.line == lines.get("first", finding.first.line))
    ]
    assert found, f"{lines} in\n{report}"
    assert fix in found[0].fix
    streams = {use.stream for use in (found[0].first, found[0].second) if use is not None}
    assert len(streams) == 2, str(report)


@host_cores
def test_a_wait_before_the_record_is_named() -> None:
    kinds = {finding.kind for finding in report_of(TheWaitComesBeforeTheRecord).findings}
    assert kinds == {"race", "unrecorded-event"}


@host_cores
def test_the_right_ring_has_no_finding() -> None:
    report = report_of(Ring)
    assert report.findings == [], str(report)
