"""Goal: `view` makes a page of what a file has; wrong files are one line, and nothing in them runs.

Method: the command runs in processes of its own; pages are taken apart again, and their numbers
compared with those of the program that made the file. What a browser shows of a page is in
`test_view_browser.py`.
"""

import base64
import gzip
import hashlib
import html
import json
import os
import pickle
import re
import struct
import subprocess
import sys
from array import array
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import recorded
import traces
from accelrt import cli
from accelrt.cli.replay.errors import TraceError
from accelrt.cli.view import page, profile, sources
from accelrt.cli.view.columns import Columns
from processes import LIMIT_SECONDS, run

ROOT = Path(__file__).parents[2]
OWN = ROOT / "tests/data/own_gpt_fixed.ops.csv"
TYPES = {"Uint8Array": "B", "Uint16Array": "H", "Int32Array": "i", "Uint32Array": "I"}
TYPES |= {"Float64Array": "d", "steps": "I"}


def view(*arguments: object, folder: Path | None = None) -> "subprocess.CompletedProcess[str]":
    if folder is None:
        return run("-m", "accelrt", "view", *map(str, arguments))
    return subprocess.run(  # noqa: S603  the interpreter of this test
        [sys.executable, "-m", "accelrt", "view", *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )


class Opened:
    """A view of a page: its kind, name, head and columns."""

    def __init__(self, kind: str, name: str, content: str) -> None:
        self.kind, self.name = html.unescape(kind), html.unescape(name)
        whole = gzip.decompress(base64.b64decode(content))
        (length,) = struct.unpack_from("<I", whole)
        self.head: dict[str, Any] = json.loads(whole[4 : 4 + length])
        self.columns: dict[str, list[float]] = {}
        for column, (type_name, offset, count) in self.head["columns"].items():
            values = array(TYPES[type_name])
            start = 4 + length + offset
            assert start % 8 == 0
            values.frombytes(whole[start : start + count * values.itemsize])
            self.columns[column] = list(values)


def opened(path: Path) -> list[Opened]:
    text = path.read_text("utf-8")
    found = re.findall(
        r'<script type="application/x-accelrt-view" data-kind="([^"]*)" data-name="([^"]*)">'
        r"([A-Za-z0-9+/=]*)</script>",
        text,
    )
    return [Opened(*parts) for parts in found]


def page_of(tmp_path: Path, *arguments: object) -> list[Opened]:
    out = tmp_path / "page.html"
    ended = view(*arguments, "-o", out)
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    assert ended.stdout.startswith(f"{out}: ")
    return opened(out)


def refused(ended: "subprocess.CompletedProcess[str]", *parts: str) -> None:
    """Expect wrong use, told in one line."""
    assert (ended.returncode, ended.stdout) == (2, ""), ended
    (line,) = ended.stderr.splitlines()
    assert line.startswith("accelrt view: "), line
    assert all(part in line for part in parts), line


def refused_here(capsys: pytest.CaptureFixture[str], path: Path, *parts: str) -> None:
    """Expect the same of a file, in this process: starting one takes longer than reading."""
    status = cli.main(["view", str(path), "-o", str(path.with_suffix(".html"))])
    said = capsys.readouterr()
    refused(subprocess.CompletedProcess([], status, said.out, said.err), *parts)
    assert not path.with_suffix(".html").exists()


def peak(found: Opened) -> tuple[int, int]:
    """Return the peak of live bytes in a view, and after how many entries it is reached."""
    change = [0.0] * (found.head["entries"] + 1)
    columns = found.columns
    for born, died, size in zip(columns["born"], columns["died"], columns["size"], strict=True):
        change[int(born) + 1] += size
        if died < found.head["entries"]:
            change[int(died) + 1] -= size
    best, sum_ = (0.0, 0), 0.0
    for state, more in enumerate(change):
        sum_ += more
        best = max(best, (sum_, -state))
    return int(best[0]), -best[1]


def test_a_snapshots_page_has_its_allocations_segments_and_stacks(tmp_path: Path) -> None:
    program = traces.training(3)
    path = traces.write_snapshot(tmp_path / "a.pickle", program)
    (found,) = page_of(tmp_path, path)
    assert (found.kind, found.name) == ("snapshot", "a.pickle")
    assert found.head["entries"] == len(program.trace)
    assert peak(found) == (program.peak_bytes, program.entries_at_peak)
    columns, count = found.columns, found.head["entries"]
    ends = zip(columns["died"], columns["size"], strict=True)
    assert sum(size for died, size in ends if died == count) == program.live_bytes
    assert sum(born == -1 for born in columns["born"]) == 8
    segments = found.head["segments"]
    assert [segment["size"] for segment in segments] == [traces.SEGMENT_BYTES] * len(segments)
    assert sum(columns["block_size"]) == len(segments) * traces.SEGMENT_BYTES
    assert found.head["shortages"] == [{"entry": len(program.trace) - 1, "size": 64 * traces.MIB}]
    assert [name for name, *_ in found.head["annotations"]] == ["warm-up"]
    names = {found.head["frames"][frame][0] for stack in found.head["stacks"] for frame in stack}
    assert {"forward", "attention", "backward", "train", "step"} <= names


def test_a_blocks_owner_is_the_allocation_at_its_address(tmp_path: Path) -> None:
    path = traces.write_snapshot(tmp_path / "a.pickle", traces.training(2))
    (found,) = page_of(tmp_path, path)
    columns = found.columns
    owned = 0
    blocks = zip(
        *(columns[f"block_{name}"] for name in ("owner", "address", "requested", "state")),
        strict=True,
    )
    for owner, address, requested, state in blocks:
        assert bool(owner) == bool(state)
        if owner:
            owned += 1
            allocation = int(owner) - 1
            assert columns["address"][allocation] == address
            assert columns["size"][allocation] == requested
            assert columns["died"][allocation] == found.head["entries"]
    assert owned == 16


def test_a_table_is_replayed_under_each_policy(tmp_path: Path) -> None:
    (found,) = page_of(tmp_path, OWN)
    assert (found.kind, peak(found)[0]) == ("table", 88_068_184)
    assert [it["policy"] for it in found.head["replays"]] == ["native", "torch", "torch+expandable"]
    for number, replay in enumerate(found.head["replays"]):
        assert replay["peakLive"] == max(found.columns[f"replay{number}_live"]) == 88_068_184
        assert replay["peakReserved"] == max(found.columns[f"replay{number}_reserved"])
        assert found.columns[f"replay{number}_events"][-1] == 14_964
    (found,) = page_of(tmp_path, OWN, "--policy", "torch")
    assert [it["policy"] for it in found.head["replays"]] == ["torch"]


def test_a_snapshot_is_replayed_when_a_policy_is_named(tmp_path: Path) -> None:
    path = traces.write_snapshot(tmp_path / "a.pickle", traces.training(2))
    assert "replays" not in page_of(tmp_path, path)[0].head
    (found,) = page_of(tmp_path, path, "--policy", "native")
    assert found.head["replays"][0]["error"] is None


def test_a_profiles_page_has_its_slices_tracks_arrows_and_counters(tmp_path: Path) -> None:
    path = traces.write_profile(tmp_path / "a.json", 20)
    (found,) = page_of(tmp_path, path)
    records = json.loads(path.read_text())["traceEvents"]
    slices = [record for record in records if record["ph"] == "X"]
    columns, head = found.columns, found.head
    assert len(columns["row"]) == len(slices) == 200
    total = round(sum(record["dur"] for record in slices) * 1000)
    assert abs(sum(columns["duration"]) - total) <= len(slices)  # each is a whole number of ns
    assert len(columns["arrow_from_time"]) == 40
    arrows = zip(columns["arrow_from_time"], columns["arrow_to_time"], strict=True)
    assert all(begin <= end for begin, end in arrows)
    threads = [track["thread"] for track in head["tracks"]]
    assert threads[0] == "MainThread"
    assert "stream 1 (compute)" in threads
    assert [name for *_, name in head["counters"]] == ["allocated", "reserved"]
    # Kernels stand below the layer that they are in, and no row has two slices at a time.
    assert sorted(map(tuple, head["rows"]))[:2] == [(0, 0), (0, 1)]
    until: dict[float, float] = {}
    start = 0.0
    for step, duration, row in zip(
        columns["start"], columns["duration"], columns["row"], strict=True
    ):
        start += step
        assert start >= until.get(row, 0.0) - 1
        until[row] = start + duration


def test_waits_are_no_work_and_threads_work_counts_where_there_are_no_streams() -> None:
    def kinds_of(*categories: object) -> list[int]:
        records = [
            {"ph": "X", "cat": category, "name": "a", "pid": 1, "tid": 1, "ts": index, "dur": 1}
            for index, category in enumerate(categories)
        ]
        _, columns = profile.view(records)
        return list(columns["kind"])

    waits, of_thread, of_stream = range(3)  # as `page/profile_model.js` has them
    of_ours = kinds_of("task", "wait", "host wait", "enqueue", "range")
    assert of_ours == [of_stream, waits, waits, of_thread, of_thread]
    assert kinds_of("kernel", "gpu_memcpy", "cpu_op") == [of_stream, of_stream, of_thread]
    assert kinds_of("cpu_op", None, [1], "wait") == [of_stream, of_stream, of_stream, waits]


def test_every_form_of_a_profile_is_read(tmp_path: Path) -> None:
    records = [
        {"ph": "B", "name": "outer", "pid": 1, "tid": 1, "ts": 1},
        {"ph": "B", "name": "inner", "pid": 1, "tid": 1, "ts": 2},
        {"ph": "E", "pid": 1, "tid": 1, "ts": 3},
        {"ph": "E", "pid": 1, "tid": 1, "ts": 9},
        {"ph": "E", "pid": 1, "tid": 1, "ts": 10},
        {"ph": "i", "name": "mark", "pid": "a", "tid": "b", "ts": 4},
        {"ph": "X", "name": "endless", "pid": 2, "tid": [3], "ts": -5, "dur": 1e6},
        {"ph": "b", "name": "async", "pid": 1, "tid": 1, "ts": 4},
        {"ph": "f", "id": 9, "pid": 1, "tid": 1, "ts": 4},
    ]
    (tmp_path / "a.json").write_text(json.dumps(records))  # a list alone is allowed
    (found,) = page_of(tmp_path, tmp_path / "a.json")
    assert sorted(found.head["names"]) == ["endless", "inner", "mark", "outer"]
    assert found.columns["duration"] == [1e9, 8000, 1000]
    assert found.head["skipped"] == {"E without B": 1, "b": 1, "f without s": 1}
    packed = gzip.compress(json.dumps({"traceEvents": records}).encode())
    (tmp_path / "a.json.gz").write_bytes(packed)
    (again,) = page_of(tmp_path, tmp_path / "a.json.gz")
    assert again.columns == found.columns


def test_what_a_file_says_is_never_markup(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script>"
    program = traces.Program()
    program.allocate(512, (evil, f"{evil}.py", 1))
    path = traces.write_snapshot(tmp_path / "<b>&\"'.pickle", program)
    profile_path = tmp_path / "p.json"
    record = {"ph": "X", "name": evil, "pid": evil, "tid": evil, "ts": 0, "args": {evil: evil}}
    profile_path.write_text(json.dumps([record]))
    found = page_of(tmp_path, path, profile_path)
    assert found[0].name == "<b>&\"'.pickle"
    assert found[1].head["names"] == [evil]
    text = (tmp_path / "page.html").read_text()
    assert "alert(1)" not in text
    assert "<b>" not in text


def test_a_page_asks_for_nothing(tmp_path: Path) -> None:
    page_of(tmp_path, OWN, "--policy", "torch")
    text = (tmp_path / "page.html").read_text()
    assert "default-src 'none'" in text
    assert set(re.findall(r'<[^>]*(?:src|href)="([^"]*)"', text)) == {"data:,"}
    addresses = set(re.findall(r"https?://[\w./-]+", text))
    assert addresses == {"https://github.com/leeoniya/uPlot"}  # in the library's own head


def test_several_files_are_tabs_and_two_are_compared(tmp_path: Path) -> None:
    first = traces.write_snapshot(tmp_path / "a.pickle", traces.training(1))
    second = traces.write_snapshot(tmp_path / "b.pickle", traces.training(1, width=2))
    profile_path = traces.write_profile(tmp_path / "c.json", 3)
    assert [it.kind for it in page_of(tmp_path, first, profile_path)] == ["snapshot", "profile"]
    assert 'data-compares="false"' in (tmp_path / "page.html").read_text()
    assert len(page_of(tmp_path, "--compare", first, second)) == 2
    assert 'data-compares="true"' in (tmp_path / "page.html").read_text()


def test_the_page_stands_where_it_is_asked_for_and_never_on_a_file(tmp_path: Path) -> None:
    path = traces.write_profile(tmp_path / "a.json", 1)
    ended = view(path, folder=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(opened(tmp_path / "a.json.html")) == 1
    before = path.read_bytes()
    refused(view(path, "-o", path), "is one of the files")
    assert path.read_bytes() == before
    refused(view(path, "-o", tmp_path / "none" / "page.html"), "cannot write", "No such file")


def snapshot_with(**changes: object) -> dict[str, Any]:
    return traces.training(1).snapshot() | changes


def entry(**changes: object) -> list[Any]:
    whole = {"action": "alloc", "addr": 512, "size": 512, "stream": 0, "time_us": 1, "frames": []}
    return [[whole | changes]]


def segment(**changes: object) -> list[Any]:
    block = {"address": 0, "size": 512, "requested_size": 9, "state": "inactive", "frames": []}
    whole = {"device": 0, "address": 0, "total_size": 512, "stream": 0, "blocks": [block]}
    return [whole | changes]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ([], "it is no memory snapshot"),
        ({"segments": [], "device_traces": []}, "the snapshot is empty"),
        (snapshot_with(device_traces=7), "device_traces is no list"),
        (snapshot_with(device_traces=[[7]]), "trace[0] of device 0 has no action"),
        (snapshot_with(device_traces=entry(action=[])), "has no action"),
        (snapshot_with(device_traces=entry(addr="x")), "trace[0]['addr'] is x, not a whole"),
        (snapshot_with(device_traces=entry(size=-1)), "trace[0]['size'] is -1"),
        (snapshot_with(device_traces=entry(size=1 << 9999)), "is an integer of 10000 bits"),
        (snapshot_with(device_traces=entry(stream={})), "['stream'] is a dict"),
        (snapshot_with(segments=[7]), "segments[0] names no device"),
        (snapshot_with(segments=segment(address=None)), "segments[0]['address'] is None"),
        (snapshot_with(segments=segment(blocks=None)), "segments[0] has no list of blocks"),
        (snapshot_with(segments=segment(blocks=[7])), "segments[0]['blocks'][0] is no dict"),
        (snapshot_with(segments=segment(blocks=[{}])), "['blocks'][0] has no size"),
        (snapshot_with(segments=segment(blocks=[{"size": 1}])), "['blocks'][0] has no state"),
        (snapshot_with(segments=segment(blocks=[{"size": 1, "state": 5}])), "['state'] is 5"),
    ],
)
def test_wrong_snapshots_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: object, expected: str
) -> None:
    path = tmp_path / "a.pickle"
    path.write_bytes(pickle.dumps(content))
    refused_here(capsys, path, f"cannot read {path}", expected)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "it is no JSON"),
        (b"7", "it has no list of traceEvents"),
        (b'[{"trace": "a", "peak_reserved_bytes": 1}]', "these are figures of replays"),
        (b'{"traceEvents": 7}', "it has no list of traceEvents"),
        (b"[7]", "traceEvents[0] is 7, not an object"),
        (b'[{"ph": "X", "ts": "x"}]', "traceEvents[0]['ts'] is x, not a time in us"),
        (b'[{"ph": "X"}]', "traceEvents[0] has no ts"),
        (b'[{"ph": "X", "ts": null}]', "traceEvents[0]['ts'] is None"),
        (b"[]", "the profile is empty: no slices, no marks and no counters"),
        (b'[{"ph": "M", "name": "process_name"}]', "the profile is empty"),
        (pickle.dumps({}), "it looks like a pickle, and a name that ends in .pickle says so"),
        (
            gzip.compress(pickle.dumps({}), mtime=0),
            "only profiles are read packed by gzip, and it is none",
        ),
        (b'[{"ph": "X", "ts": NaN}]', "traceEvents[0]['ts'] is nan"),
        (b'[{"ph": "X", "ts": 1e300}]', "traceEvents[0]['ts'] is 1e300"),
        (b'[{"ph": "X", "ts": 1, "dur": -1}]', "traceEvents[0]['dur'] is -1, below 0"),
        (b"\xff\xfe", "it is no JSON"),
        (b"\x1f\x8b nothing", "it is damaged"),
        (gzip.compress(b"[]" * 100, mtime=0)[:-9], "it is damaged"),
        (b"[" * 100_000, "it is nested too deeply"),
        (b'[{"ph": "X", "ts": ' + b"9" * 5000 + b"}]", "traceEvents[0]['ts'] is 9999"),
    ],
)
def test_wrong_profiles_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, expected: str
) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    refused_here(capsys, path, f"cannot read {path}", expected)


def test_other_files_are_one_line(tmp_path: Path) -> None:
    refused(view(tmp_path / "none.json"), "none.json: No such file or directory")
    refused(view(tmp_path), f"cannot read {tmp_path}: it is a folder")
    (tmp_path / "folder.pickle").mkdir()
    refused(view(tmp_path / "folder.pickle"), "folder.pickle: it is a folder")
    (tmp_path / "a.pickle").write_text('{"traceEvents": []}')
    refused(view(tmp_path / "a.pickle"), "it looks like JSON, and a name that ends in .json")
    (tmp_path / "a.pickle").write_bytes(gzip.compress(b""))
    refused(view(tmp_path / "a.pickle"), "it is packed by gzip")
    (tmp_path / "a.txt").touch()
    refused(view(tmp_path / "a.txt"), "neither a memory snapshot")
    table = tmp_path / "a.ops.csv"
    table.write_text("t,op,id,size,stream\n")
    refused(view(table), "the table has no events")
    rows = (f"{i},a,{i},8,{i}\n" for i in range((1 << 16) + 1))
    table.write_text("t,op,id,size,stream\n" + "".join(rows))
    refused(view(table), "event 65536 is of another stream than 65536 before it")
    table.write_text("t,op,id,size,stream\n0,f,1,2,0\n")
    refused(view(table), "line 2 frees id 1, which is not live")
    refused(view(OWN, "-o", tmp_path), f"cannot write {tmp_path}: Is a directory")
    for arguments in ((OWN, "-o", ""), ("",)):
        ended = view(*arguments)
        assert ended.returncode == 2
        assert ended.stderr.endswith(": the name of a file must not be empty\n")


class Hostile:
    """What a pickle may ask for."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


def test_nothing_in_a_pickle_runs(tmp_path: Path) -> None:
    for number, content in enumerate(
        [Hostile(str(tmp_path / "made")), snapshot_with(extra=Hostile(str(tmp_path / "made")))]
    ):
        path = tmp_path / f"{number}.pickle"
        path.write_bytes(pickle.dumps(content))
        refused(view(path), "refused: it asks for", "mkdir")
        assert not (tmp_path / "made").exists()


def test_a_snapshot_may_lack_what_older_versions_did_not_write(tmp_path: Path) -> None:
    content = {
        "segments": segment(blocks=[{"size": 256, "state": "active_pending_free"}]),
        "device_traces": [[{"action": "free_requested", "addr": 4096, "size": 8}]],
    }
    path = tmp_path / "a.pickle"
    path.write_bytes(pickle.dumps(content))
    (found,) = page_of(tmp_path, path)
    assert "time" not in found.columns
    assert found.columns["block_state"] == [2]
    assert found.columns["size"] == [256, 8]  # what stays is below what goes
    assert found.columns["died"] == [1, 0]


def test_devices_of_a_snapshot_are_views_of_their_own(tmp_path: Path) -> None:
    content = snapshot_with(device_traces=[entry()[0], [], entry(addr=1024)[0]], segments=[])
    path = tmp_path / "a.pickle"
    path.write_bytes(pickle.dumps(content))
    assert [found.name for found in page_of(tmp_path, path)] == ["a.pickle:0", "a.pickle:2"]


def test_a_profile_of_one_mark_or_counter_is_a_page(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for record in (
        {"ph": "i", "name": "mark", "pid": 1, "tid": 1, "ts": 4},
        {"ph": "C", "name": "bytes", "pid": 1, "tid": 1, "ts": 4, "args": {"used": 7}},
    ):
        path.write_text(json.dumps([record]))
        (found,) = page_of(tmp_path, path)
        assert found.columns["start"] == []


huge = st.sampled_from([1, -1]).map(lambda sign: sign << 20_000)
scalars = st.none() | st.booleans() | st.integers() | huge | st.floats() | st.text(max_size=5)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner)
)
KEYS = ("ph", "ts", "dur", "pid", "tid", "name", "args", "id", "cat")


@given(
    st.lists(
        st.dictionaries(st.sampled_from(KEYS), values)
        | st.fixed_dictionaries(
            {"ph": st.sampled_from("XBEMCisf"), "ts": st.floats(-1e9, 1e9)},
            optional={"args": st.dictionaries(st.text(), values), "dur": st.floats(0, 1e9)},
        ),
        max_size=6,
    )
)
def test_no_record_crashes_the_reader_of_profiles(records: list[dict[str, Any]]) -> None:
    try:
        head, columns = profile.view(records)
    except TraceError:
        return
    assert columns.packed(head)


@settings(max_examples=40)
@given(st.data())
def test_no_value_crashes_the_reader_of_snapshots(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = traces.training(1).snapshot()
    for _ in range(data.draw(st.integers(1, 3))):
        place: Any = content
        while isinstance(place, dict | list) and place:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = data.draw(st.sampled_from(keys))
            inner = place[key]
            if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
                place[key] = data.draw(values)
                break
            place = inner
    path = tmp_path_factory.getbasetemp() / "damaged.pickle"
    path.write_bytes(pickle.dumps(content))
    try:
        views = sources.read(path, None)
    except TraceError as error:
        told = str(error)
    else:
        told = ""
        assert all(it.columns.packed(it.head) for it in views)
    assert "\n" not in told


@settings(max_examples=60)
@given(st.data())
def test_no_damage_crashes_the_reader_of_pickles(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(pickle.dumps(traces.training(1).snapshot()))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.pickle"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        views = sources.read(path, None)
    except (TraceError, MemoryError):
        return
    assert all(it.columns.packed(it.head) for it in views)


def test_rising_numbers_are_steps_unless_one_is_too_long() -> None:
    columns = Columns()
    columns.add_rising("short", [5, 7, 6, 9])
    columns.add_rising("long", [0, 1 << 40])
    assert list(columns["short"]) == [5, 2, 0, 2]
    assert list(columns["long"]) == [0.0, float(1 << 40)]


def test_every_recording_opens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in recorded.traces():
        out = tmp_path / "page.html"
        assert cli.main(["view", str(path), "-o", str(out), "--policy", "native"]) == 0
        (found,) = opened(out)
        noun = "events" if found.kind == "table" else "entries"
        assert f"{found.head['entries']} {noun} of {path.name}" in capsys.readouterr().out
        assert peak(found)[0] > 0
        assert found.head["replays"][0]["error"] is None


def test_the_librarys_files_are_those_of_its_checksums() -> None:
    library = resources.files("accelrt.cli.view") / "vendor" / "uplot"
    lines = (library / "SHA256SUMS").read_text().splitlines()
    assert len(lines) == 3
    for line in lines:
        checksum, name = line.split()
        assert hashlib.sha256((library / name).read_bytes()).hexdigest() == checksum
    assert "MIT License" in (library / "LICENSE").read_text()


def test_every_file_of_the_page_is_in_it() -> None:
    folder = resources.files("accelrt.cli.view") / "page"
    scripts = {it.name.removesuffix(".js") for it in folder.iterdir() if it.name.endswith(".js")}
    assert scripts == set(page.SCRIPTS)
    for name in scripts:
        lines = (folder / f"{name}.js").read_text("utf-8").splitlines()
        assert lines[0].startswith("// "), name
        assert len(lines) <= 600
        assert max(map(len, lines)) <= 100, name
