"""Goal: the recordings of several processes keep their own tracks, arrows and names in one trace.

Method: whole files of small recordings.
"""

import gzip
import json
import os
import pickle
import time
from pathlib import Path

import pytest

import accelrt
from accelrt import _merged_traces
from accelrt._recording import Recording
from accelrt._recordings import Recordings


def exported(*records: dict[str, object], dropped: int = 0) -> bytes:
    content = {"otherData": {"dropped_records": dropped}, "traceEvents": records}
    return json.dumps(content).encode()


TRACES = [
    (
        "worker b",
        12.5,
        exported(
            {"ph": "M", "name": "process_name", "pid": 9, "args": {"name": "cpu:0"}},
            {"ph": "M", "name": "thread_name", "pid": 9, "args": {"name": "stream"}},
            {"ph": "X", "name": "a", "pid": 9, "ts": 1.0004, "dur": 2, "id": 3},
            dropped=2,
        ),
    ),
    (
        "a",
        12.0,
        exported(
            {"ph": "M", "name": "process_name", "pid": 9, "args": {"name": "cpu:0"}},
            {"ph": "s", "name": "b", "pid": 9, "ts": 0, "id": 3, "bind_id": "x"},
            {"ph": "f", "name": "b", "pid": 4, "ts": 7},
            dropped=5,
        ),
    ),
]
MERGED = {
    "otherData": {"dropped_records": 7},
    "traceEvents": [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "worker b: cpu:0"}},
        {"ph": "M", "name": "thread_name", "pid": 1, "args": {"name": "stream"}},
        {"ph": "X", "name": "a", "pid": 1, "ts": 500001.0, "dur": 2, "id": "0.3"},
        {"ph": "M", "name": "process_name", "pid": 2, "args": {"name": "a: cpu:0"}},
        {"ph": "s", "name": "b", "pid": 2, "ts": 0.0, "id": "1.3", "bind_id": "1.x"},
        {"ph": "f", "name": "b", "pid": 3, "ts": 7.0},
    ],
}


@pytest.mark.parametrize("form", [str, os.fsencode, Path])
def test_merged_trace_whole(tmp_path: Path, form: type) -> None:
    plain, packed = tmp_path / "trace.json", tmp_path / "trace.json.gz"
    for path in (plain, packed):
        _merged_traces.write(iter(TRACES), form(path))
    assert json.loads(plain.read_bytes()) == MERGED
    assert json.loads(gzip.decompress(packed.read_bytes())) == MERGED


def test_merged_trace_of_nothing(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    Recordings().export_chrome_trace(path)
    assert json.loads(path.read_bytes()) == {
        "otherData": {"dropped_records": 0},
        "traceEvents": [],
    }
    assert Recordings().dump_snapshots(tmp_path) == []


def test_recordings_have_files_of_their_names(tmp_path: Path) -> None:
    recordings = Recordings()
    recordings._found = {
        "b": (0.0, exported(), None),
        "tcp:1": (1.0, exported(), {"segments": [1]}),
        "c": (2.0, exported(dropped=3), {"segments": []}),
    }
    paths = recordings.dump_snapshots(tmp_path)
    assert paths == [tmp_path / "tcp-1.pickle", tmp_path / "c.pickle"]
    first, second = (pickle.loads(path.read_bytes()) for path in paths)  # noqa: S301  our own files
    assert (first, second) == ({"segments": [1]}, {"segments": []})
    recordings.export_chrome_trace(tmp_path / "all.json")
    merged = json.loads((tmp_path / "all.json").read_bytes())
    assert merged["otherData"] == {"dropped_records": 3}


@pytest.mark.parametrize("has_history", [False, True])
def test_recording_begins_on_the_common_clock(has_history: bool) -> None:  # noqa: FBT001
    before_s = time.time()
    recording = Recording(clock_ahead_s=1e6, memory_history=has_history)
    buffer = accelrt.empty(4096)
    begin_s, trace, snapshot = recording.stop()
    recording.close()
    assert 0 <= begin_s - 1e6 - before_s < 100
    assert "traceEvents" in json.loads(trace)
    assert (snapshot is not None) == has_history
    if snapshot is not None:
        actions = [it["action"] for entries in snapshot["device_traces"] for it in entries]
        assert "alloc" in actions
    buffer.release()
    late = accelrt.accelerator.take_memory_snapshot()["device_traces"]
    assert not any(late)
