"""Goal: `view` reads every field of a file into its place of the page.

Method: whole heads and columns of small files, with zero, empty and missing values in them.
"""

from array import array
from typing import Any

import pytest

from accelrt import _core
from accelrt.cli.replay.errors import TraceError
from accelrt.cli.replay.policies import Replays
from accelrt.cli.replay.snapshots import Device, Snapshot
from accelrt.cli.view import curves, memory, profile, snapshot
from accelrt.cli.view.columns import Columns


def numbers(columns: Columns) -> dict[str, list[float]]:
    return {name: values.tolist() for name, (_, values) in columns._columns.items()}


number = profile._Written


def rec(phase: str, time: object = None, **more: object) -> dict[str, Any]:
    record = {"ph": phase, "pid": 1, "tid": 2, **more}
    return record if time is None else record | {"ts": time}


RECORDS: list[object] = [
    rec("M", name="process_name", args={"name": "program"}),
    rec("M", name="thread_name", args={"name": "main"}),
    rec("M", name="thread_name", tid=3, args={"name": "worker"}),
    rec("M", name="process_sort_index", args={"sort_index": 4}),
    rec("M", name="thread_sort_index", tid=3, args={"sort_index": number("1.5")}),
    rec("X", 10, dur=5, name="outer", cat="cpu_op"),
    rec("X", 10, dur=2, name="inner", cat="task", args={"bytes": 8}),
    rec("X", 11, dur=5, name="crossing", cat="wait", args={"bytes": 9, "x": number("0.25")}),
    rec("X", 15, dur=0, name="outer", cat="cpu_op", args={"bytes": 8}),
    rec("X", 12, tid=3, name=" "),
    rec("X", number("16.0015"), tid=3, dur=number("0.001"), name="short", cat="kernel"),
    rec("B", 20, tid=3, name="pair", args={"n": None}),
    rec("E", 22, tid=3),
    rec("E", 23, tid=3),
    rec("B", 24, tid=3, name="open"),
    rec("s", 9, id=7, cat="flow"),
    rec("f", 12, id=7, tid=3, cat="flow"),
    rec("s", 13, id=7, cat="flow"),
    rec("f", 14, id=7, tid=3, cat="flow"),
    rec("f", 14, id=8),
    rec("C", 10, name="memory", args={"live": 1, "held": number("2.5"), "no": "x"}),
    rec("C", 8, name="memory", args={"live": 0}),
    rec("i", 14, name="mark"),
    rec("I", 13, tid=3),
    rec("N", 1),
    rec("X", -1, dur=-1),
    rec("X"),
    7,
]

PROFILE_HEAD = {
    "startNs": "8000",
    "names": ["outer", "inner", "crossing", "unnamed", "short", "pair", "open", "mark"],
    "details": ["", '{"bytes": 8}', '{"bytes": 9, "x": 0.25}', '{"n": null}'],
    "tracks": [
        {"process": "program", "thread": "main", "pid": "1", "tid": "2", "place": [4, 0]},
        {"process": "program", "thread": "worker", "pid": "1", "tid": "3", "place": [4, 1.5]},
    ],
    "rows": [[0, 0], [0, 1], [0, 2], [1, 0]],
    "counters": [["program", "memory", "live"], ["program", "memory", "held"]],
    "skipped": {"N": 1, "bad records": 3, "E without B": 1, "f without s": 1},
    "firstBad": "traceEvents[25]['dur'] is -1, below 0",
    "detailsLeftOut": 0,
}
PROFILE_COLUMNS = {
    "start": [2000, 0, 1000, 1000, 3000, 1002, 3998, 4000],
    "duration": [5000.0, 2000.0, 5000.0, 0.0, 0.0, 1.0, 2000.0, 0.0],
    "row": [0, 1, 2, 3, 0, 3, 3, 3],
    "name": [0, 1, 2, 3, 0, 4, 5, 6],
    "detail": [0, 1, 2, 0, 1, 0, 3, 0],
    "kind": [1, 2, 0, 1, 1, 2, 1, 1],
    "instant_time": [5000, 1000],
    "instant_track": [1, 0],
    "instant_name": [3, 7],
    "arrow_from_time": [1000.0, 5000.0],
    "arrow_from_track": [0, 0],
    "arrow_to_time": [4000.0, 6000.0],
    "arrow_to_track": [1, 1],
    "counter0_time": [0, 2000],
    "counter0_value": [0.0, 1.0],
    "counter1_time": [2000],
    "counter1_value": [2.5],
}


def test_profile_whole_view() -> None:
    head, columns = profile.view(RECORDS)
    assert head == PROFILE_HEAD
    assert numbers(columns) == PROFILE_COLUMNS


INNER: list[dict[str, Any]] = [{"name": "f", "filename": "a.py", "line": 3}]
OUTER: list[dict[str, Any]] = [{"name": "g", "filename": "b.py", "line": 0}, *INNER]
TRACE: list[dict[str, Any]] = [
    {"action": "segment_alloc", "addr": 1000, "size": 400, "time_us": 50, "stream": 5},
    {
        "action": "alloc",
        "addr": 1000,
        "size": 100,
        "stream": 5,
        "frames": INNER,
        "time_us": 50,
        "user_metadata": "kv",
    },
    {"action": "alloc", "addr": 1100, "size": 60, "stream": 0, "frames": OUTER, "time_us": 55},
    {
        "action": "free_requested",
        "addr": 1000,
        "size": 100,
        "stream": 5,
        "frames": OUTER,
        "time_us": 60,
    },
    {
        "action": "free_completed",
        "addr": 1000,
        "size": 100,
        "stream": 5,
        "frames": INNER,
        "time_us": 70,
    },
    {
        "action": "free_requested",
        "addr": 1300,
        "size": 20,
        "stream": 5,
        "frames": INNER,
        "time_us": 71,
    },
    {"action": "oom", "size": 999, "device_free": 1, "time_us": 75},
    {"action": "alloc", "addr": 1100, "size": 70, "stream": 0, "time_us": 80},
    {"action": "segment_free", "addr": 9000, "size": 5, "time_us": 81},
    {"action": "snapshot", "time_us": 90},
]
SEGMENTS: list[dict[str, Any]] = [
    {
        "address": 1000,
        "total_size": 400,
        "stream": 5,
        "segment_type": "small",
        "segment_pool_id": (0, 1),
        "is_expandable": True,
        "frames": INNER,
        "blocks": [
            {"size": 100, "state": "inactive"},
            {"size": 100, "requested_size": 70, "state": "active_allocated", "frames": OUTER},
            {"size": 100, "state": "inactive", "requested_size": 0},
            {"size": 50, "address": 1300, "requested_size": 20, "state": "active_pending_free"},
            {
                "size": 50,
                "address": 1350,
                "state": "active_awaiting_free",
                "frames": INNER,
                "user_metadata": "kv",
            },
        ],
    },
    {"address": 5000, "total_size": 8, "blocks": []},
]

ANNOTATIONS: list[dict[str, Any]] = [
    {"name": "step", "device": 1, "time_us": 55, "stage": "START"},
    {"name": "step", "device": 1, "time_us": 60, "stage": "END"},
    {"name": "other", "device": 0, "time_us": 60, "stage": "START"},
    {"name": "step", "time_us": 61, "stage": "END"},
]

SNAPSHOT_HEAD = {
    "entries": 10,
    "device": 1,
    "streams": ["5", "0"],
    "tags": ["", "kv"],
    "segments": [
        {
            "address": 1000,
            "size": 400,
            "stream": 0,
            "class": "small",
            "pool": "(0, 1)",
            "isExpandable": True,
            "stack": 0,
        },
        {
            "address": 5000,
            "size": 8,
            "stream": 1,
            "class": "",
            "pool": "()",
            "isExpandable": False,
            "stack": -1,
        },
    ],
    "segmentEvents": [[0, 0, 1000, 400], [8, 1, 9000, 5]],
    "shortages": [{"entry": 6, "size": 999}],
    "skipped": {"unknown": 2},
    "settings": "x:1",
    "dropped": 3,
    "frames": [("f", "a.py", 3), ("g", "b.py", 0)],
    "stacks": [(0,), (1, 0)],
    "startUs": 50,
    "lastEvent": 8,
    "annotations": [["step", 5, 10]],
}
SNAPSHOT_COLUMNS = {
    "size": [20.0, 50.0, 100.0, 60.0, 70.0],
    "address": [1300.0, 1350.0, 1000.0, 1100.0, 1100.0],
    "stream": [0, 0, 0, 1, 1],
    "tag": [0, 1, 1, 0, 0],
    "born": [-1, -1, 1, 2, 7],
    "asked": [5, 0, 3, 10, 10],
    "died": [10, 10, 4, 7, 10],
    "stack": [-1, 0, 0, 1, 1],
    "free_stack": [0, -1, 1, -1, -1],
    "block_owner": [0, 5, 0, 1, 2],
    "block_state": [0, 1, 0, 2, 2],
    "block_in": [0, 0, 0, 0, 0],
    "block_address": [1000.0, 1100.0, 1200.0, 1300.0, 1350.0],
    "block_size": [100.0, 100.0, 100.0, 50.0, 50.0],
    "block_requested": [0.0, 70.0, 0.0, 20.0, 0.0],
    "time": [0, 0, 5, 5, 10, 1, 4, 5, 1, 9],
}


def test_profile_details_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "_MOST_DETAIL_BYTES", 16)
    records = [rec("X", time, dur=1, args={"a": "x" * 4}) for time in range(4)]
    head, columns = profile.view(records)
    # Each is of 13 bytes: two are taken, the second one past the limit.
    assert numbers(columns)["detail"] == [1, 1, 0, 0]
    assert (head["details"], head["detailsLeftOut"]) == (["", '{"a": "xxxx"}'], 2)


def test_snapshot_whole_view() -> None:
    device = Device(1, TRACE, SEGMENTS, {"unknown": 2})
    head, columns = snapshot.view(Snapshot([device], "x:1", ANNOTATIONS, 3), device)
    assert head == SNAPSHOT_HEAD
    assert numbers(columns) == SNAPSHOT_COLUMNS
    # Times that are not whole are left out, and with them what is placed by them.
    device = Device(0, [TRACE[1], {**TRACE[2], "time_us": 1.5}])
    head, columns = snapshot.view(Snapshot([device], "", []), device)
    assert not {"startUs", "lastEvent", "annotations"} & head.keys()
    assert "time" not in numbers(columns)
    # Where no free was completed, the requests end the allocations.
    device = Device(0, [TRACE[1], TRACE[2], TRACE[3]])
    _, columns = snapshot.view(Snapshot([device], "", []), device)
    assert [columns[name].tolist() for name in ("asked", "died")] == [[2, 3], [2, 3]]


@pytest.mark.parametrize("written", [True, False, 1, 0, None, "True", [True]])
def test_only_true_makes_a_segment_expandable(written: object) -> None:
    segment = {"address": 1000, "total_size": 400, "stream": 5, "blocks": []}
    segments = [{**segment, "is_expandable": written}, segment]
    device = Device(0, [], segments)
    head, _ = snapshot.view(Snapshot([device], "", []), device)
    assert [it["isExpandable"] for it in head["segments"]] == [written is True, False]


def test_snapshot_tags_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "MOST_STREAMS", 3)
    tags = "a", "b", "c", "b"
    trace = [
        {"action": "alloc", "addr": place, "size": 1, "user_metadata": tag}
        for place, tag in enumerate(tags)
    ]
    device = Device(0, trace)
    head, columns = snapshot.view(Snapshot([device], "", []), device)
    assert numbers(columns)["tag"] == [1, 2, 0, 2]
    assert head["tags"] == ["", "a", "b"]


def test_snapshot_streams_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "MOST_STREAMS", 3)
    streams = (4, 0, 4, 9, 7)
    trace = [
        {"action": "alloc", "addr": place, "size": 1, "stream": stream}
        for place, stream in enumerate(streams)
    ]
    device = Device(0, trace[:4])
    head, columns = snapshot.view(Snapshot([device], "", []), device)
    assert (head["streams"], numbers(columns)["stream"]) == (["4", "0", "9"], [0, 1, 0, 2])
    device = Device(0, trace)
    with pytest.raises(TraceError, match=r"^trace\[4\] is of another stream than 3 before it$"):
        snapshot.view(Snapshot([device], "", []), device)


def test_times_of_snapshots_have_limits() -> None:
    most = 2**63 - 1
    columns = Columns()
    assert snapshot._add_times(columns, [{"time_us": most}, {"time_us": 0}]) == most
    for wrong in (-1, most + 1, True, 1.0, None):
        assert snapshot._add_times(columns, [{"time_us": 0}, {"time_us": wrong}]) is None
    assert snapshot._add_times(columns, []) is None
    times = (0, most, -1, most + 1, True, 1.0, None)
    marks = [
        {"name": f"{time!r}", "time_us": time, "stage": stage}
        for time in times
        for stage in ("START", "END")
    ]
    assert snapshot._annotations(marks, 0, 0) == [["0", 0, 0], [f"{most}", most, most]]


def test_profile_rows_and_details_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Further slices overlap in the last row, also one behind the end of such a slice."""
    monkeypatch.setattr(profile, "_MOST_ROWS", 2)
    monkeypatch.setattr(profile, "_MOST_DETAIL_BYTES", 2 * len('{"n": 0}'))
    bounds = [(0, 100), (0, 100), (0, 5), (50, 10)]
    records = [
        rec("X", start, dur=duration, name="a", args={"n": place})
        for place, (start, duration) in enumerate(bounds)
    ]
    head, columns = profile.view(records)
    assert head["rows"] == [[0, 0], [0, 1]]
    assert numbers(columns)["row"] == [0, 1, 1, 1]
    # The third makes them longer than the limit, and is the last one.
    assert head["details"] == ["", '{"n": 0}', '{"n": 1}', '{"n": 2}']
    assert head["detailsLeftOut"] == 1


def test_operations_whole_view() -> None:
    operations = [(True, 7, 10, 3), (True, 8, 20, 0), (False, 7, 0, 0), (True, 7, 30, 3)]
    head, columns = memory.of_operations(operations)
    assert head == {"entries": 4, "streams": ["3", "0"]}
    assert numbers(columns) == {
        "size": [10, 20, 30], "address": [0, 0, 0], "stream": [0, 1, 0], "tag": [0, 0, 0],
        "born": [0, 1, 3], "asked": [2, 4, 4], "died": [2, 4, 4], "stack": [-1, -1, -1],
        "free_stack": [-1, -1, -1],
    }  # fmt: skip


def test_curves_whole_view() -> None:
    mib = 1 << 20
    recording = _core.Recording.of_operations([(True, 1, 3 * mib, 0), (False, 1, 0, 0)])
    columns = Columns()
    (head,) = curves.add(columns, recording, Replays(["torch"], "", 64 * mib, 2 * mib))
    assert head.pop("nsPerEvent") >= 0
    assert head == {
        "policy": "torch", "events": 2, "peakLive": 3 * mib, "peakReserved": 20 * mib,
        "pageOperations": 10, "failedAt": None, "error": None,
    }  # fmt: skip
    assert numbers(columns) == {
        "replay0_events": [1, 2],
        "replay0_live": [3 * mib, 0],
        "replay0_reserved": [20 * mib, 20 * mib],
    }
    (failed,) = curves.add(columns, recording, Replays(["torch"], "", mib, 2 * mib))
    assert failed["failedAt"] == 0


def test_columns_keep_their_type() -> None:
    columns = Columns()
    columns.add("a", array("B", [1, 2]))
    columns.add_rising("b", [1, 5, 3, 1 << 32])
    columns.add_rising("c", [0, 1 << 32])
    columns.add_rising("d", [0, (1 << 32) - 1])
    assert {name: kind for name, (kind, _) in columns._columns.items()} == {
        "a": "Uint8Array", "b": "steps", "c": "Float64Array", "d": "steps",
    }  # fmt: skip
    assert numbers(columns)["b"] == [1, 4, 0, (1 << 32) - 5]
