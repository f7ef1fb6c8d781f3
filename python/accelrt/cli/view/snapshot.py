"""A memory snapshot as a view: its trace as allocations over time, and its segments.

What a snapshot must have is checked where it is used, and a wrong entry is named; what it may lack
(stacks, times, tags) is left out.
"""

from array import array
from collections.abc import Sequence
from typing import Any

from accelrt.cli.replay.errors import TraceError
from accelrt.cli.replay.snapshots import Device, Snapshot
from accelrt.cli.view.columns import Columns
from accelrt.cli.view.frames import Names, Stacks
from accelrt.cli.view.memory import BEFORE, MOST_STREAMS, Allocations
from accelrt.cli.view.texts import shown

_SEGMENT_ACTIONS = ("segment_alloc", "segment_free", "segment_map", "segment_unmap")
_INACTIVE, _ALLOCATED, _AWAITING_FREE = range(3)
# A number in a column of the page; devices have fewer bytes.
_MOST = 1 << 63
_MOST_STREAM = 1 << 64


def view(snapshot: Snapshot, device: Device) -> tuple[dict[str, Any], Columns]:
    """Return the head and the columns of one device."""
    reader = _Reader(device)
    reader.read_trace()
    reader.read_segments()
    return reader.result(snapshot)


class _Reader:
    """Goes through a device's trace once, and then through its segments."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._allocations, self._stacks = Allocations(), Stacks()
        self._streams, self._tags = Names(), Names()
        self._tags.number("")
        self._live: dict[int, int] = {}
        self._shortages: list[dict[str, int]] = []
        self._segment_events: list[list[int]] = []
        # Where completed frees were not recorded, the requested ones count.
        self._ends = "free_completed"
        if not any(_action(entry) == self._ends for entry in device.trace):
            self._ends = "free_requested"

    def read_trace(self) -> None:
        for index, entry in enumerate(self._device.trace):
            action = _action(entry)
            if action is None:
                message = f"trace[{index}] of device {self._device.index} has no action"
                raise TraceError(message)
            if action == "alloc":
                self._start(index, entry)
            elif action in ("free_requested", "free_completed"):
                self._end(index, entry, action)
            elif action in _SEGMENT_ACTIONS:
                kind = _SEGMENT_ACTIONS.index(action)
                number = (_number(entry, key, f"trace[{index}]") for key in ("addr", "size"))
                self._segment_events.append([index, kind, *number])
            elif action == "oom":
                size = _number(entry, "size", f"trace[{index}]")
                self._shortages.append({"entry": index, "size": size})

    def _start(self, index: int, entry: dict[str, Any]) -> None:
        place = f"trace[{index}]"
        address = _number(entry, "addr", place)
        if address in self._live:  # its free fell out of the ring of entries
            self._finish(self._live.pop(address), index)
        size = _number(entry, "size", place)
        self._live[address] = self._add(index, entry, address, size, place)

    def _end(self, index: int, entry: dict[str, Any], action: str) -> None:
        place = f"trace[{index}]"
        address = _number(entry, "addr", place)
        allocation = self._live.get(address)
        if allocation is None:
            size = _number(entry, "size", place)
            before = {**entry, "frames": []}  # its stack is that of the free
            allocation = self._live[address] = self._add(BEFORE, before, address, size, place)
        if self._allocations.asked[allocation] == BEFORE:
            self._allocations.asked[allocation] = index
            self._allocations.free_stack[allocation] = self._stacks.number(entry.get("frames"))
        if action == self._ends:
            self._finish(self._live.pop(address), index)

    def _finish(self, allocation: int, index: int) -> None:
        self._allocations.died[allocation] = index

    def _add(self, born: int, entry: dict[str, Any], address: int, size: int, place: str) -> int:
        stream = self._streams.number(_stream(entry, place))
        if stream >= MOST_STREAMS:
            message = f"{place} is of another stream than {MOST_STREAMS} before it"
            raise TraceError(message)
        stack = self._stacks.number(entry.get("frames"))
        allocation = self._allocations.add(born, size, stream, address=address, stack=stack)
        tag = entry.get("user_metadata")
        if isinstance(tag, str) and tag:
            number = self._tags.number(tag)
            self._allocations.tag[allocation] = number if number < MOST_STREAMS else 0
        return allocation

    def read_segments(self) -> None:
        self._segments: list[dict[str, Any]] = []
        self._blocks: dict[str, array[Any]] = {
            "owner": array("I"),
            "state": array("B"),
            "in": array("I"),
        }
        self._sizes: dict[str, array[Any]] = {
            name: array("d") for name in ("address", "size", "requested")
        }
        for number, segment in enumerate(self._device.segments):
            place = f"segments[{number}]"
            read: dict[str, Any] = {
                "address": _number(segment, "address", place),
                "size": _number(segment, "total_size", place),
                "stream": self._streams.number(_stream(segment, place)),
                "class": shown(segment.get("segment_type", "")),
                "pool": shown(segment.get("segment_pool_id", ())),
                "isExpandable": segment.get("is_expandable") is True,
                "stack": self._stacks.number(segment.get("frames")),
            }
            self._segments.append(read)
            self._read_blocks(number, segment, read, place)

    def _read_blocks(
        self, number: int, segment: dict[str, Any], read: dict[str, Any], place: str
    ) -> None:
        blocks = segment.get("blocks")
        if not isinstance(blocks, list):
            message = f"{place} has no list of blocks"
            raise TraceError(message)
        next_address = read["address"]
        for position, block in enumerate(blocks):
            where = f"{place}['blocks'][{position}]"
            if not isinstance(block, dict):
                message = f"{where} is no dict"
                raise TraceError(message)
            size = _number(block, "size", where)
            # Older versions write no addresses: blocks stand one after another.
            address = _number(block, "address", where) if "address" in block else next_address
            next_address = address + size
            state = _state(block, where)
            requested = _number(block, "requested_size", where) if "requested_size" in block else 0
            owner = 0
            if state != _INACTIVE:
                owner = 1 + self._owner(address, requested or size, block, segment, where)
                if state == _AWAITING_FREE and self._allocations.asked[owner - 1] == BEFORE:
                    self._allocations.asked[owner - 1] = 0
            self._blocks["in"].append(number)
            self._blocks["state"].append(state)
            self._blocks["owner"].append(owner)
            for name, value in (("address", address), ("size", size), ("requested", requested)):
                self._sizes[name].append(value)

    def _owner(
        self,
        address: int,
        size: int,
        block: dict[str, Any],
        segment: dict[str, Any],
        place: str,
    ) -> int:
        """Return the allocation in a block; one that the trace does not have was there before."""
        allocation = self._live.get(address)
        if allocation is None:
            entry = {key: block.get(key) for key in ("frames", "user_metadata")}
            entry["stream"] = segment.get("stream")
            allocation = self._live[address] = self._add(BEFORE, entry, address, size, place)
        elif self._allocations.stack[allocation] == Stacks.NONE:
            self._allocations.stack[allocation] = self._stacks.number(block.get("frames"))
        return allocation

    def result(self, snapshot: Snapshot) -> tuple[dict[str, Any], Columns]:
        trace = self._device.trace
        columns, places = self._allocations.columns(len(trace))
        for block, owner in enumerate(self._blocks["owner"]):
            if owner:
                self._blocks["owner"][block] = 1 + places[owner - 1]
        for columns_of in (self._blocks, self._sizes):
            for name, values in columns_of.items():
                columns.add(f"block_{name}", values)
        head = {
            "entries": len(trace),
            "device": self._device.index,
            "streams": [str(stream) for stream in self._streams.values()],
            "tags": self._tags.values()[:MOST_STREAMS],
            "segments": self._segments,
            "segmentEvents": self._segment_events,
            "shortages": self._shortages,
            "skipped": self._device.skipped,
            "settings": snapshot.settings,
            "dropped": snapshot.dropped,
            **self._stacks.head(),
        }
        start = _add_times(columns, trace)
        if start is not None:
            head["startUs"] = start
            events = (i for i, entry in enumerate(trace) if _action(entry) != "snapshot")
            head["lastEvent"] = max(events, default=0)
            head["annotations"] = _annotations(snapshot.annotations, self._device.index, start)
        return head, columns


def _add_times(columns: Columns, trace: Sequence[dict[str, Any]]) -> int | None:
    """Add when each entry was made, where all of them say so; return when the first was."""
    times = [entry.get("time_us") for entry in trace]
    if not times or not all(type(time) is int and 0 <= time < _MOST for time in times):
        return None
    start = int(times[0] or 0)
    columns.add_rising("time", (int(time or 0) - start for time in times))
    return start


def _annotations(entries: Sequence[object], device: int, start_us: int) -> list[list[Any]]:
    """Return the ranges that the program named: name, begin and end, in us since the start."""
    ranges: list[list[Any]] = []
    opened: dict[str, list[int]] = {}
    marks: list[tuple[int, str, object]] = []
    for entry in entries:
        if not isinstance(entry, dict) or entry.get("device", device) != device:
            continue
        name, time, stage = (entry.get(key) for key in ("name", "time_us", "stage"))
        if isinstance(name, str) and type(time) is int and 0 <= time < _MOST:
            marks.append((time, name, stage))
    marks.sort(key=lambda mark: mark[0])
    for time, name, stage in marks:
        if stage == "START":
            opened.setdefault(name, []).append(time)
        elif stage == "END" and opened.get(name):
            ranges.append([name, opened[name].pop() - start_us, time - start_us])
    return ranges


def _action(entry: object) -> str | None:
    action = entry.get("action") if isinstance(entry, dict) else None
    return action if isinstance(action, str) else None


def _number(entry: dict[str, Any], key: str, place: str) -> int:
    if key not in entry:
        message = f"{place} has no {key}"
        raise TraceError(message)
    value = entry[key]
    if type(value) is not int or not 0 <= value < _MOST:
        message = f"{place}['{key}'] is {shown(value)}, not a whole number of at least 0"
        raise TraceError(message)
    return value


def _stream(entry: dict[str, Any], place: str) -> int:
    value = entry.get("stream", 0)
    if type(value) is not int or not -_MOST <= value < _MOST_STREAM:
        message = f"{place}['stream'] is {shown(value)}, not the number of a stream"
        raise TraceError(message)
    return value


def _state(block: dict[str, Any], place: str) -> int:
    if "state" not in block:
        message = f"{place} has no state"
        raise TraceError(message)
    state = block["state"]
    if state == "inactive":
        return _INACTIVE
    if state == "active_allocated":
        return _ALLOCATED
    # Writers name the third state differently.
    if isinstance(state, str) and state.startswith("active"):
        return _AWAITING_FREE
    message = f"{place}['state'] is {shown(state)}, not inactive or active_…"
    raise TraceError(message)
