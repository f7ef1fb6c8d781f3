"""A profile as a view: the records of a Chrome trace as slices on tracks.

The format is that of Chrome's trace viewer, which torch's profiler and ours write: `X` slices (and
pairs of `B` and `E`), `M` names of processes and threads, `C` counters, `i` instants, `s` and `f`
the ends of arrows. Times are in microseconds there, and in whole nanoseconds here. Records stand in
any order. A malformed record is skipped and counted.
"""

import bisect
import gzip
import json
import math
import zlib
from array import array
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

from accelrt.cli.replay.errors import TraceError, resemblance
from accelrt.cli.view.columns import Columns
from accelrt.cli.view.frames import Names
from accelrt.cli.view.texts import shown

# Slices of a track that overlap stand below each other; of more, the last row takes the rest.
_MOST_ROWS = 32
# What records say of themselves is taken over up to here.
_MOST_DETAIL_BYTES = 16 << 20
# Three centuries: more than clocks of machines show.
_MOST_US = 10**16
# Of a time in microseconds as it is written: so many digits after the point are nanoseconds.
_NS_DIGITS = 3
# Longer numbers are none that a record needs, and Python refuses to read the longest.
_MOST_DIGITS = 40
_BAD = "bad records"
# The name of a slice, counter, process or phase whose record has none.
_UNNAMED = "unnamed"
_MOST_DROPPED = 1 << 64
# Ends and starts that touch may be rounded past each other.
_TOUCHING_NS = 1
# What a slice's time is: a wait, work of a thread, or work of a stream, by the categories of ours
# and of torch's profiler. In a profile without a stream's work that of threads stands for it.
_WAITS, _OF_THREAD, _OF_STREAM = range(3)
_KINDS = dict.fromkeys(("wait", "host wait"), _WAITS) | dict.fromkeys(
    ("task", "kernel", "gpu_memcpy", "gpu_memset"), _OF_STREAM
)


class _Written(str):
    """A number as a file spells it. A float would round times since 1970 to a quarter of a us."""

    __slots__ = ()


def _integer(text: str) -> int | _Written:
    return int(text) if len(text) <= _MOST_DIGITS else _Written(text)


def _parsed(raw: bytes) -> object:
    try:
        return json.loads(raw, parse_float=_Written)
    except json.JSONDecodeError:
        raise
    except ValueError:  # an integer of thousands of digits; the default parser is faster
        return json.loads(raw, parse_float=_Written, parse_int=_integer)


def read(path: Path) -> tuple[list[Any], int]:
    """Return the records of a file, each still unchecked, and how many found no room in it."""
    content = _load(path)
    records = content.get("traceEvents") if isinstance(content, dict) else content
    if not isinstance(records, list):
        message = "it is no profile: it has no list of traceEvents"
        raise TraceError(message)
    if records and isinstance(records[0], dict) and "peak_reserved_bytes" in records[0]:
        message = "these are figures of replays: a page is made of the recording itself"
        raise TraceError(message)
    return records, _dropped(content.get("otherData") if isinstance(content, dict) else None)


def _dropped(written: object) -> int:
    count = written.get("dropped_records") if isinstance(written, dict) else None
    return count if type(count) is int and 0 <= count < _MOST_DROPPED else 0


def _load(path: Path) -> object:
    raw = path.read_bytes()
    try:
        if is_packed := raw.startswith(b"\x1f\x8b"):
            raw = gzip.decompress(raw)
        return _parsed(raw)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        message = f"it is damaged: {error}"
        raise TraceError(message) from error
    except ValueError as error:
        looks = resemblance(raw[:64], but="JSON")
        if looks and is_packed:
            looks = ": only profiles are read packed by gzip, and it is none"
        message = f"it is no JSON{looks or f': {error}'}"
        raise TraceError(message) from error


def view(records: list[Any]) -> tuple[dict[str, Any], Columns]:
    """Return the head and the columns of a profile."""
    reader = _Reader()
    for index, record in enumerate(records):
        try:
            reader.read(index, record)
        except _BadRecordError as error:
            reader.skip(str(error))
    return reader.result()


class _BadRecordError(Exception):
    """A record that a page cannot show, and why."""


class _Reader:
    """Goes through the records once; what it cannot show it counts."""

    def __init__(self) -> None:
        self._tracks, self._names, self._details = Names(), Names(), Names()
        self._details.number("")
        self._detail_bytes = self._left_out = 0
        self._labels: dict[tuple[str, str], str] = {}
        self._places: dict[tuple[str, str], float] = {}
        # Start, minus end, track, name, detail and kind: sorted, what holds others stands before
        # them.
        self._slices: list[tuple[int, int, int, int, int, int]] = []
        # Of each track the times of `B` and `E`, with what `B` begins.
        self._bounds: dict[int, list[tuple[int, tuple[int, int, int] | None]]] = defaultdict(list)
        self._arrows: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        self._arrow_ends: list[tuple[tuple[str, str], int, int]] = []
        self._counters: dict[tuple[str, str, str], list[tuple[int, float]]] = defaultdict(list)
        self._instants: list[tuple[int, int, int]] = []
        self._skipped: dict[str, int] = defaultdict(int)
        self._first_bad = ""
        self._known: dict[tuple[object, object], int] = {}

    def skip(self, reason: str) -> None:
        """Count a record that is none."""
        self._skipped[_BAD] += 1
        self._first_bad = self._first_bad or reason

    def read(self, index: int, record: object) -> None:
        if not isinstance(record, dict):
            message = f"traceEvents[{index}] is {shown(record)}, not an object"
            raise _BadRecordError(message)
        if record.get("ph") == "X":
            start = _ns(index, record, "ts")
            duration = _ns(index, record, "dur") if "dur" in record else 0
            if duration < 0:
                message = f"traceEvents[{index}]['dur'] is {shown(record['dur'])}, below 0"
                raise _BadRecordError(message)
            self._add_slice(start, start + duration, self._track(record), record)
        else:
            self._read_other(index, record, _text(record.get("ph")) or _UNNAMED)

    def _read_other(self, index: int, record: dict[str, Any], phase: str) -> None:
        if phase == "M":
            self._read_name(record)
        elif phase in {"B", "E"}:
            self._read_bound(index, record)
        elif phase in {"s", "f"}:
            self._read_arrow(index, record)
        elif phase == "C":
            self._read_counter(index, record)
        elif phase in {"i", "I"}:
            time = _ns(index, record, "ts")
            track, name = self._track(record), self._names.number(_name(record) or _UNNAMED)
            self._instants.append((time, track, name))
        else:
            self._skipped[phase] += 1

    def _track(self, record: dict[str, Any]) -> int:
        pid, tid = record.get("pid"), record.get("tid")
        try:
            known = self._known.get((pid, tid))
        except TypeError:  # no number and no text
            return self._tracks.number((_text(pid), _text(tid)))
        if known is None:
            known = self._known[pid, tid] = self._tracks.number((_text(pid), _text(tid)))
        return known

    def _add_slice(self, start: int, end: int, track: int, record: dict[str, Any]) -> None:
        name, detail = self._names.number(_name(record) or _UNNAMED), self._detail(record)
        self._slices.append((start, -end, track, name, detail, _kind(record)))

    def _read_bound(self, index: int, record: dict[str, Any]) -> None:
        time, track = _ns(index, record, "ts"), self._track(record)
        begun = None
        if record["ph"] == "B":
            name = self._names.number(_name(record) or _UNNAMED)
            begun = name, self._detail(record), _kind(record)
        self._bounds[track].append((time, begun))

    def _pair_bounds(self) -> None:
        """Add a slice for each `B`. Those without an `E` end with the last of the others."""
        unended: list[tuple[int, int, tuple[int, int, int]]] = []
        for track, bounds in self._bounds.items():
            bounds.sort(key=lambda bound: bound[0])
            opened: list[tuple[int, int, tuple[int, int, int]]] = []
            for time, begun in bounds:
                if begun is not None:
                    opened.append((time, track, begun))
                elif opened:
                    start, _, ended = opened.pop()
                    self._slices.append((start, -time, track, *ended))
                else:
                    self._skipped["E without B"] += 1
            unended += opened
        last = max((-slice_[1] for slice_ in self._slices), default=0)
        for start, track, begun in unended:
            self._slices.append((start, -max(start, last), track, *begun))

    def _read_name(self, record: dict[str, Any]) -> None:
        given = record.get("args")
        values = given if isinstance(given, dict) else {}
        process, thread = _text(record.get("pid")), _text(record.get("tid"))
        kind = _name(record)
        key = (process, "") if kind.startswith("process") else (process, f"={thread}")
        if kind in {"process_name", "thread_name"}:
            # An empty name does not replace one that is known.
            self._labels[key] = _text(values.get("name")) or self._labels.get(key, "")
        elif kind in {"process_sort_index", "thread_sort_index"}:
            place = _finite(values.get("sort_index"))
            if place is not None:
                self._places[key] = place

    def _read_arrow(self, index: int, record: dict[str, Any]) -> None:
        key = shown(record.get("cat", "")), shown(record.get("id"))
        time, track = _ns(index, record, "ts"), self._track(record)
        if record["ph"] == "s":
            self._arrows[key].append((time, track))
        else:
            self._arrow_ends.append((key, time, track))

    def _read_counter(self, index: int, record: dict[str, Any]) -> None:
        given = record.get("args")
        time = _ns(index, record, "ts")
        for key, value in (given if isinstance(given, dict) else {}).items():
            number = _finite(value)
            if number is not None:
                series = _text(record.get("pid")), _name(record), _text(key)
                self._counters[series].append((time, float(number)))

    def _detail(self, record: dict[str, Any]) -> int:
        given = record.get("args")
        if not isinstance(given, dict) or not given:
            return 0
        if self._detail_bytes > _MOST_DETAIL_BYTES:
            self._left_out += 1
            return 0
        text = json.dumps({key: _detail_of(value) for key, value in given.items()})
        self._detail_bytes += len(text)
        return self._details.number(text)

    def result(self) -> tuple[dict[str, Any], Columns]:
        """Return the head and the columns; each kind of record stands by time."""
        self._pair_bounds()
        self._slices.sort()
        self._instants.sort()
        arrows = self._paired_arrows()
        for series in self._counters.values():
            series.sort(key=lambda point: point[0])  # of equal times the last of the file counts
        firsts = [part[0][0] for part in (self._slices, self._instants) if part]
        firsts += [series[0][0] for series in self._counters.values()]
        start = min(firsts, default=0)
        columns = Columns()
        rows = self._add_slices(columns, start)
        columns.add_rising("instant_time", (time - start for time, *_ in self._instants))
        columns.add("instant_track", array("I", [track for _, track, _ in self._instants]))
        columns.add("instant_name", array("I", [name for *_, name in self._instants]))
        for position, end in ((0, "from"), (2, "to")):
            times = [arrow[position] - start for arrow in arrows]
            columns.add(f"arrow_{end}_time", array("d", times))
            tracks = [arrow[position + 1] for arrow in arrows]
            columns.add(f"arrow_{end}_track", array("I", tracks))
        for number, series in enumerate(self._counters.values()):
            columns.add_rising(f"counter{number}_time", (time - start for time, _ in series))
            columns.add(f"counter{number}_value", array("d", [value for _, value in series]))
        head = {
            "startNs": str(start),
            "names": self._names.values(),
            "details": self._details.values(),
            "tracks": self._track_heads(),
            "rows": rows,
            "counters": [
                # Of a name and a key the page shows one where they are equal.
                [self._label(process), name or key or _UNNAMED, key or name or _UNNAMED]
                for process, name, key in self._counters
            ],
            "skipped": dict(self._skipped),
            "firstBad": self._first_bad,
            "detailsLeftOut": self._left_out,
        }
        return head, columns

    def _add_slices(self, columns: Columns, start: int) -> list[list[int]]:
        """Add the slices, each in the first row of its track that is free; return the rows."""
        ends: dict[int, list[int]] = defaultdict(list)
        rows = Names()
        row = array("I")
        for begin, minus_end, track, *_ in self._slices:
            of_track = ends[track]
            for depth, end in enumerate(of_track):
                if end <= begin + _TOUCHING_NS:
                    of_track[depth] = -minus_end
                    break
            else:
                depth = min(len(of_track), _MOST_ROWS - 1)
                if len(of_track) < _MOST_ROWS:
                    of_track.append(-minus_end)
            row.append(rows.number((track, depth)))
        columns.add_rising("start", (slice_[0] - start for slice_ in self._slices))
        columns.add("duration", array("d", [-slice_[1] - slice_[0] for slice_ in self._slices]))
        columns.add("row", row)
        columns.add("name", array("I", [slice_[3] for slice_ in self._slices]))
        columns.add("detail", array("I", [slice_[4] for slice_ in self._slices]))
        columns.add("kind", array("B", self._kinds()))
        return [list(pair) for pair in rows.values()]

    def _kinds(self) -> list[int]:
        kinds = [slice_[5] for slice_ in self._slices]
        if _OF_STREAM in kinds:
            return kinds
        return [_OF_STREAM if kind == _OF_THREAD else kind for kind in kinds]

    def _paired_arrows(self) -> list[tuple[int, int, int, int]]:
        """Return each arrow's time and track at both ends: its end takes the last start before."""
        for starts in self._arrows.values():
            starts.sort()
        pairs = []
        for key, time, track in self._arrow_ends:
            starts = self._arrows.get(key, [])
            place = bisect.bisect_right(starts, (time, math.inf)) - 1
            if starts:
                pairs.append((*starts[max(place, 0)], time, track))
            else:
                self._skipped["f without s"] += 1
        return sorted(pairs)

    def _label(self, process: str, thread: str | None = None) -> str:
        """Return the name of a process, or of a thread of it; else its number."""
        if thread is None:
            known, noun, number = self._labels.get((process, "")), "process", process
        else:
            known, noun, number = self._labels.get((process, f"={thread}")), "thread", thread
        return known or (f"{noun} {number}" if number else f"{_UNNAMED} {noun}")

    def _track_heads(self) -> list[dict[str, Any]]:
        return [
            {
                "process": self._label(process),
                "thread": self._label(process, thread),
                "pid": process,
                "tid": thread,
                "place": [
                    self._places.get((process, ""), 0),
                    self._places.get((process, f"={thread}"), 0),
                ],
            }
            for process, thread in self._tracks.values()
        ]


def _ns(index: int, record: dict[str, Any], key: str) -> int:
    if key not in record:
        message = f"traceEvents[{index}] has no {key}"
        raise _BadRecordError(message)
    value = record[key]
    if isinstance(value, _Written):
        whole, _, fraction = value.partition(".")
        if len(fraction) <= _NS_DIGITS and fraction.isdecimal() and len(whole) <= _MOST_DIGITS:
            ns = int(f"{whole}{fraction.ljust(_NS_DIGITS, '0')}")
            if abs(ns) < _MOST_US * 1000:
                return ns
        value = Decimal(value)
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    if not is_number or not -_MOST_US < value < _MOST_US:
        message = f"traceEvents[{index}]['{key}'] is {shown(record[key])}, not a time in us"
        raise _BadRecordError(message)
    rounded: int = round(value * 1000)
    return rounded


def _name(record: dict[str, Any]) -> str:
    name = record.get("name")
    if isinstance(name, str) and not name.isspace():
        return name  # of any length
    return _text(name)


def _text(value: object) -> str:
    """Return a name or a number as a page shows it; an empty text for a missing or blank one."""
    text = "" if value is None else shown(value)
    return "" if text.isspace() else text


def _kind(record: dict[str, Any]) -> int:
    category = record.get("cat")
    return _KINDS.get(category, _OF_THREAD) if isinstance(category, str) else _OF_THREAD


def _finite(value: object) -> float | None:
    """Return a number that a page can show; None for another value."""
    if isinstance(value, _Written):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if -1e300 < value < 1e300 else None  # noqa: PLR2004  what a float can hold


def _detail_of(value: object) -> object:
    """Return a value that a page shows; no number is one that JSON does not have."""
    number = _finite(value)
    if number is not None:
        return number
    if isinstance(value, str | bool) or value is None:
        return value
    return shown(value)
