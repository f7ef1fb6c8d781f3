"""Goal: a replay reads what was recorded as it is, shows figures, and refuses what it cannot read.

Method: the command runs in processes of its own, on the trace in `tests/data`, on small files made
here, and on recorded PyTorch snapshots where their folder stands beside the repository.
"""

import argparse
import csv
import hashlib
import json
import os
import pickle
import pty
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

import recorded
from accelrt.cli import replay as cli
from accelrt.cli.replay import traces
from accelrt.cli.replay.table import text as table_text
from processes import LIMIT_SECONDS, run

ROOT = Path(__file__).parents[2]
OWN = ROOT / "tests/data/own_gpt_fixed.ops.csv"
KEYS = [
    *("trace", "policy", "config", "granularity", "events", "peak_live_bytes"),
    *("peak_reserved_bytes", "ratio", "page_operations", "ns_per_event", "failed_at"),
]
MIB = 1 << 20

# Recorded snapshots: events, peak of live bytes and a digest of the table that the parser of
# public traces writes for them; addresses and layouts that must agree.
RECORDED = {
    "bcrafton_memory_snapshot.pickle": (
        *(4771, 3_849_232_640, "44e161b83e08ec4faf2e9171fadc0f36a8aa264c48ce77e92b779e596008daff"),
        "addresses 2162/2162 layouts 96/96",
    ),
    "wedsonlin_medium_512_inference.pickle": (
        *(3555, 1_949_343_744, "c8e9188d4e55a095ae9668aea43c8c592f8593e863e476faff1fa0fafe4e11df"),
        "addresses 1666/1666 layouts 101/101",
    ),
}


def replay(*arguments: object) -> "subprocess.CompletedProcess[str]":
    return run("-m", "accelrt", "replay", *map(str, arguments))


def records(tmp_path: Path, *arguments: object) -> list[dict[str, Any]]:
    out = tmp_path / "records.json"
    ended = replay(*arguments, "--json", out)
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    found: list[dict[str, Any]] = json.loads(out.read_text())
    assert all(list(record) == KEYS for record in found)
    return found


def table(tmp_path: Path, *rows: str) -> Path:
    path = tmp_path / "made.ops.csv"
    path.write_text("\n".join(["t,op,id,size,stream", *rows]) + "\n")
    return path


def refused(ended: "subprocess.CompletedProcess[str]", *parts: str) -> None:
    """Expect wrong use, told in one line."""
    assert (ended.returncode, ended.stdout) == (2, ""), ended
    (line,) = ended.stderr.splitlines()
    assert line.startswith("accelrt replay: ")
    assert all(part in line for part in parts), line


def test_each_policy_has_a_record_with_what_the_trace_holds(tmp_path: Path) -> None:
    found = records(tmp_path, OWN)
    assert [record["policy"] for record in found] == ["native", "torch", "torch+expandable"]
    for record in found:
        assert record["trace"] == "own_gpt_fixed.ops.csv"
        assert (record["config"], record["granularity"]) == ("", 2 * MIB)
        assert (record["events"], record["failed_at"]) == (14_964, None)
        assert record["peak_live_bytes"] == 88_068_184
        reserved = record["peak_reserved_bytes"]
        assert reserved % (2 * MIB) == 0
        assert reserved >= record["peak_live_bytes"]
        assert record["ratio"] == round(reserved / record["peak_live_bytes"], 4)
        assert record["ns_per_event"] > 0
        assert record["page_operations"] * 2 * MIB >= reserved


def test_settings_and_policies_are_those_asked_for(tmp_path: Path) -> None:
    # 24 MiB in a segment of 48: without a limit it is split, and the next request fits.
    path = table(
        tmp_path,
        f"0,a,7,{48 * MIB},0",
        f"1,f,7,{48 * MIB},0",
        f"2,a,8,{24 * MIB},0",
        f"3,a,9,{24 * MIB},0",
    )
    (split,) = records(tmp_path, path, "--policy", "torch")
    assert split["peak_reserved_bytes"] == 48 * MIB
    config = "max_split_size_mb:40"
    (unsplit,) = records(tmp_path, path, "--policy", "torch", "--config", config)
    assert (unsplit["config"], unsplit["peak_reserved_bytes"]) == (config, 96 * MIB)
    assert unsplit["peak_live_bytes"] == 48 * MIB


def test_the_table_has_a_line_for_each_replay_and_no_bar_without_a_terminal() -> None:
    ended = replay(OWN, "--policy", "torch+expandable,torch")
    assert (ended.returncode, ended.stderr) == (0, "")
    head, *rows = ended.stdout.splitlines()
    assert head.split()[:3] == ["trace", "policy", "events"]
    assert [row.split()[:3] for row in rows] == [
        [OWN.name, policy, "14964"] for policy in ("torch+expandable", "torch")
    ]


def test_on_a_terminal_a_bar_is_shown_and_wiped() -> None:
    master, terminal = pty.openpty()
    command = [sys.executable, "-m", "accelrt", "replay", str(OWN), "--policy", "torch"]
    subprocess.run(  # noqa: S603  the interpreter of this test
        command, stdout=subprocess.DEVNULL, stderr=terminal, check=True, timeout=LIMIT_SECONDS
    )
    os.close(terminal)
    shown = os.read(master, 4096).decode()
    os.close(master)
    assert shown.startswith("\rreplay 0/1 [....")
    assert shown.endswith("\r\x1b[K")


def test_the_event_that_fails_is_told(tmp_path: Path) -> None:
    path = table(tmp_path, f"0,a,0,{MIB},0", f"1,a,1,{100 * MIB},0", f"2,f,0,{MIB},0")
    (record,) = records(tmp_path, path, "--policy", "torch", "--capacity", 64 * MIB)
    assert (record["events"], record["failed_at"]) == (1, 1)
    assert "event 1" in replay(path, "--policy", "torch", "--capacity", 64 * MIB).stdout


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (["0,a,1,-5,0"], "line 2 has '-5' for a whole number"),
        (["0,a,1,5,0", "1,f,2,5,0"], "line 3 frees id 2, which is not live"),
        (["0,a,1,5,0", "1,f,1,5,0", "2,f,1,5,0"], "line 4 frees id 1, which is not live"),
        (["0,a,1,5,0", "1,a,1,5,0"], "line 3 allocates id 1, which is live already"),
        (["0,x,1,5,0"], "line 2 is '0,x,1,5,0', not five values"),
        (["0,a,1,5"], "line 2 is '0,a,1,5', not five values"),
        (["0,a,1,5,0", ""], "line 3 is '', not five values"),
        (["0,a,1,99999999999999999999,0"], "line 2 has '99999999999999999999'"),
        (["0,a,1,5,copy"], "line 2 has 'copy'"),
    ],
)
def test_a_table_that_cannot_be_is_refused_by_its_line(
    tmp_path: Path, rows: Sequence[str], expected: str
) -> None:
    refused(replay(table(tmp_path, *rows)), "made.ops.csv", expected)


def test_files_that_are_no_traces_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "wrong.csv"
    path.write_text("id,lower,upper,size\n")
    refused(replay(path), "line 1 is 'id,lower,upper,size', not 't,op,id,size,stream'")
    path.write_bytes(b"t,op,\xff")
    refused(replay(path), "byte 5 is no ASCII")
    path.write_text("")
    refused(replay(path), "line 1 is ''")
    refused(replay(tmp_path / "none.csv"), "No such file or directory")
    refused(replay(tmp_path / "none.json"), "No such file or directory")
    path = tmp_path / "trace.json"
    path.write_text("[]")
    refused(replay(path), "neither a table (.ops.csv) nor a memory snapshot")


def test_a_replay_that_serves_nothing_fails_and_sizes_take_units() -> None:
    assert replay(OWN, "--capacity", "1K").returncode == 1
    ended = replay(OWN, "--capacity", "1G", "--granularity", "2MiB", "--policy", "native")
    assert ended.returncode == 0, ended.stderr


SEGMENT: dict[str, Any] = {
    "device": 0,
    "address": 0x7000_0000_0000,
    "total_size": 2 * MIB,
    "allocated_size": 512,
    "active_size": 512,
    "requested_size": 100,
    "stream": 0,
    "segment_type": "small",
    "segment_pool_id": (0, 0),
    "is_expandable": False,
    "blocks": [
        {
            "address": 0x7000_0000_0000,
            "size": 512,
            "requested_size": 100,
            "state": "active_allocated",
        },
        {
            "address": 0x7000_0000_0200,
            "size": 2 * MIB - 512,
            "requested_size": 0,
            "state": "inactive",
        },
    ],
}
ENTRY = {"action": "alloc", "addr": 0x7000_0000_0000, "size": 100, "stream": 0, "time_us": 1}


def snapshot(
    tmp_path: Path, *, segments: object = None, traces: object = None, **more: object
) -> Path:
    """Write a snapshot; by default of one request and the segment that it is served from."""
    content = {
        "segments": [SEGMENT] if segments is None else segments,
        "device_traces": [[ENTRY]] if traces is None else traces,
        **more,
    }
    path = tmp_path / "made.pickle"
    path.write_bytes(pickle.dumps(content))
    return path


def test_a_snapshot_that_agrees_is_counted(tmp_path: Path) -> None:
    ended = replay(snapshot(tmp_path), "--check")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "made.pickle: addresses 1/1 layouts 1/1" in ended.stdout
    assert ended.stdout.splitlines()[-1] == "addresses 1/1 layouts 1/1"


def test_a_snapshot_that_differs_fails_and_says_where(tmp_path: Path) -> None:
    # No allocator that takes the best fit leaves the front of an empty segment free.
    free, used = SEGMENT["blocks"][::-1]
    start = SEGMENT["address"]
    blocks = [
        {**free, "address": start, "size": 2 * MIB - 512},
        {**used, "address": start + 2 * MIB - 512},
    ]
    entry = {**ENTRY, "addr": start + 2 * MIB - 512}
    path = snapshot(tmp_path, segments=[{**SEGMENT, "blocks": blocks}], traces=[[entry]])
    ended = replay(path, "--check")
    assert (ended.returncode, ended.stderr) == (1, "")
    assert "addresses 0/1 layouts 0/1" in ended.stdout
    assert "first difference: " in ended.stdout


@pytest.mark.parametrize(
    "other", [{"stream": 1}, {"segment_type": "large"}, {"is_expandable": True}]
)
def test_a_segment_that_serves_others_is_another_one(tmp_path: Path, other: dict[str, Any]) -> None:
    # Method: the recording takes the segment itself, so that its request is served alike.
    taken = {"action": "segment_alloc", "addr": SEGMENT["address"], "size": 2 * MIB, "stream": 0}
    path = snapshot(tmp_path, segments=[{**SEGMENT, **other}], traces=[[taken, ENTRY]])
    ended = replay(path, "--check")
    assert (ended.returncode, ended.stderr) == (1, "")
    assert "has other blocks" in ended.stdout
    assert ended.stdout.splitlines()[-1] == "addresses 1/1 layouts 0/1"


def test_a_snapshot_without_requests_does_not_pass(tmp_path: Path) -> None:
    ended = replay(snapshot(tmp_path, traces=[[]]), "--check")
    assert (ended.returncode, ended.stderr) == (1, "")
    assert "first difference: no request was recorded" in ended.stdout
    assert ended.stdout.splitlines()[-1] == "addresses 0/0 layouts 1/1"


@pytest.mark.parametrize("named", [{}, {"pool_id": (0, 4)}])
def test_what_a_recording_took_for_a_private_pool_is_taken_for_it(
    tmp_path: Path, named: dict[str, Any]
) -> None:
    taken = {"action": "segment_alloc", "addr": SEGMENT["address"], "size": 2 * MIB, "stream": 0}
    path = snapshot(
        tmp_path,
        segments=[{**SEGMENT, "segment_pool_id": (0, 4)}],
        traces=[[{**taken, **named}, {**ENTRY, **named}]],
    )
    ended = replay(path, "--check")
    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (
        0,
        "addresses 1/1 layouts 1/1",
    ), ended


@pytest.mark.parametrize("state", ["active_pending_free", "active_other"])
def test_whatever_is_active_is_in_use(tmp_path: Path, state: str) -> None:
    used, free = SEGMENT["blocks"]
    path = snapshot(tmp_path, segments=[{**SEGMENT, "blocks": [{**used, "state": state}, free]}])
    assert replay(path, "--check").stdout.splitlines()[-1] == "addresses 1/1 layouts 1/1"
    path = snapshot(tmp_path, segments=[{**SEGMENT, "blocks": [{**used, "state": "x"}, free]}])
    refused(replay(path), "['state'] is 'x', not one of active_allocated")


def test_a_real_replay_takes_the_devices_memory_and_decides_as_the_others(tmp_path: Path) -> None:
    accounted = records(tmp_path, OWN)
    on_device = records(tmp_path, OWN, "--real")
    for one, other in zip(accounted, on_device, strict=True):
        for key in ("policy", "events", "peak_live_bytes", "peak_reserved_bytes", "failed_at"):
            assert one[key] == other[key], key


def test_a_real_replay_has_the_capacity_of_its_device(tmp_path: Path) -> None:
    path = table(tmp_path, f"0,a,0,{MIB},0", f"1,a,1,{64 * MIB},0")
    arguments = ("-m", "accelrt", "replay", str(path), "--policy", "torch", "--real")
    ended = run(*arguments, ACCELRT_CPU_MEMORY=str(32 * MIB))
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    assert "event 1" in ended.stdout


def test_a_real_replay_has_no_other_memory_than_the_devices() -> None:
    for more in (("--capacity", "1"), ("--granularity", "64"), ("--check",)):
        refused(replay(OWN, "--real", *more), "--real has the device's own memory")


@pytest.mark.parametrize("action", ["segment_map", "segment_unmap"])
def test_a_replay_that_fails_is_told_and_the_others_go_on(tmp_path: Path, action: str) -> None:
    grown = {"action": action, "addr": 0x6000_0000_0000, "size": 2 * MIB, "stream": 0}
    path = snapshot(
        tmp_path, traces=[[grown], [ENTRY]], segments=[SEGMENT, {**SEGMENT, "device": 1}]
    )
    ended = replay(path, "--check")
    assert (ended.returncode, ended.stderr) == (1, "")
    first, second, total = ended.stdout.splitlines()[-3:]
    assert first.startswith("made.pickle:0: cannot check a recording with segments that grow")
    assert second == "made.pickle:1: addresses 1/1 layouts 1/1"
    assert total == "addresses 1/1 layouts 1/1"
    given = argparse.Namespace(
        check=False, config="", capacity=None, granularity=None, traces=[], json=None, real=False
    )

    class Broken:
        def replay(self, *_: object) -> None:
            message = "the device is gone"
            raise RuntimeError(message)

    traces_read: list[Any] = [traces.Trace("a", cast("Any", Broken())), *traces.read(OWN)]
    broken, whole = cli._replays(given, traces_read, ["torch"])
    assert (broken["error"], broken["events"]) == ("the device is gone", None)
    assert (whole["error"], whole["events"]) == (None, 14_964)
    assert "the device is gone" in table_text([broken, whole])


def test_a_segment_that_goes_back_is_followed_to_the_device(tmp_path: Path) -> None:
    gone = {"action": "segment_free", "addr": 0x6100_0000_0000, "size": 20 * MIB, "stream": 0}
    path = snapshot(tmp_path, traces=[[gone, ENTRY]], segments=[SEGMENT])
    ended = replay(path, "--check")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines()[-1] == "addresses 1/1 layouts 1/1"


def test_each_device_of_a_snapshot_is_a_trace_of_its_own(tmp_path: Path) -> None:
    other = {**SEGMENT, "device": 2}
    path = snapshot(tmp_path, segments=[SEGMENT, other], traces=[[ENTRY], [], [ENTRY]])
    ended = replay(path, "--check")
    assert ended.returncode == 0, ended
    lines = ended.stdout.splitlines()
    assert lines[-3:] == [
        "made.pickle:0: addresses 1/1 layouts 1/1",
        "made.pickle:2: addresses 1/1 layouts 1/1",
        "addresses 2/2 layouts 2/2",
    ]


def test_settings_that_policies_have_as_well_choose_among_them(tmp_path: Path) -> None:
    path = table(tmp_path, f"0,a,7,{MIB},0")
    for config, policies in [
        ("expandable_segments:True", ["torch+expandable"]),
        ("max_split_size_mb:40, expandable_segments : False ", ["torch"]),
        ("policy:torch", ["torch", "torch+expandable"]),
    ]:
        found = records(tmp_path, path, "--config", config)
        assert [record["policy"] for record in found] == policies
    expandable = ("--config", "expandable_segments:True")
    assert records(tmp_path, path, "--policy", "torch+expandable", *expandable)
    refused(
        replay(path, "--policy", "torch", *expandable),
        "--config expandable_segments:True contradicts --policy torch",
    )
    refused(replay(path, "--config", "expandable_segments:true"), '"true"', "True or False")
    refused(replay(path, "--config", "policy:best"), '"best"', "torch")


def test_a_check_takes_the_settings_of_the_snapshot(tmp_path: Path) -> None:
    def recorded(text: str) -> Path:
        return snapshot(tmp_path, allocator_settings={"PYTORCH_CUDA_ALLOC_CONF": text})

    path = recorded("backend:cudaMallocAsync")
    refused(replay(path, "--check"), "cudaMallocAsync", "native")
    assert replay(path, "--check", "--config", "max_split_size_mb:20").returncode == 0
    assert replay(path, "--check", "--config", "").returncode == 0
    assert replay(path).returncode == 0
    path = recorded("backend:native,release_lock_on_cudamalloc:True,expandable_segments:True")
    (record,) = records(tmp_path, path, "--check")
    assert record["config"] == "expandable_segments:True"
    path = recorded("policy:torch,max_split_size_mb:1")
    refused(replay(path, "--check"), "max_split_size_mb", '"1"')


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"segments": 5}, "segments is no list"),
        ({"traces": [5]}, "device_traces[0] is no list"),
        ({"segments": [[]]}, "segments[0] names no device"),
        ({"segments": [{**SEGMENT, "device": -1}]}, "segments[0] names no device"),
        ({"traces": [[5]]}, "trace[0] is no dict"),
        ({"traces": [[{**ENTRY, "action": 4}]]}, "trace[0]['action'] is 4, not a text"),
        ({"traces": [[{**ENTRY, "size": True}]]}, "trace[0]['size'] is True, not a number"),
        ({"traces": [[{**ENTRY, "size": -5}]]}, "trace[0]['size'] is -5, not a number of bytes"),
        ({"traces": [[{**ENTRY, "addr": "0x"}]]}, "trace[0]['addr'] is '0x', not a whole number"),
        (
            {"traces": [[{**ENTRY, "size": 1 << 16_610}]]},
            "trace[0]['size'] is an integer of 16611 bits, not a number of bytes",
        ),
        ({"traces": [[{"action": "alloc"}]]}, "trace[0] has no 'addr'"),
        ({"segments": [{**SEGMENT, "total_size": 5}]}, "segments[0] has blocks up to"),
        ({"segments": [{**SEGMENT, "address": 5}]}, "blocks'][0] of 512 bytes at"),
        ({"segments": [{**SEGMENT, "segment_type": "tiny"}]}, "is 'tiny', not one of small, large"),
        ({"segments": [], "traces": []}, "the snapshot is empty"),
        ({"traces": [[{**ENTRY, "pool_id": 4}]]}, "trace[0]['pool_id'] is 4, not a pair of whole"),
    ],
)
def test_a_snapshot_that_cannot_be_is_refused_by_its_place(
    tmp_path: Path, change: dict[str, Any], expected: str
) -> None:
    refused(replay(snapshot(tmp_path, **change)), "made.pickle", expected)


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("echo run",)


def test_no_code_of_a_pickle_runs(tmp_path: Path) -> None:
    path = tmp_path / "evil.pickle"
    path.write_bytes(pickle.dumps({"segments": [Evil()], "device_traces": []}))
    refused(replay(path), "refused: it asks for posix.system, and snapshots are plain data")


def test_a_damaged_pickle_is_refused(tmp_path: Path) -> None:
    whole = snapshot(tmp_path).read_bytes()
    path = tmp_path / "cut.pickle"
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        refused(replay(path), "cut.pickle: it is no whole pickle")
    path.write_bytes(pickle.dumps([1, 2]))
    refused(replay(path), "it is no memory snapshot")


def test_what_is_asked_for_wrongly_is_refused() -> None:
    refused(replay(OWN, "--check"), "--check needs snapshots: own_gpt_fixed.ops.csv records no")
    refused(replay(OWN, "--check", "--policy", "torch+expandable"), "--policy can only be torch")
    refused(replay(OWN, "--config", "foo:1"), "Unrecognized key 'foo'")
    for option, value, expected in [
        ("--policy", "best", "'best' is not one of native, torch, torch+expandable"),
        ("--policy", "torch,torch", "each at most once"),
        ("--capacity", "0", "'0' is not a number of bytes of at least 1"),
        ("--granularity", "2MB", "'2MB' is not a number of bytes of at least 1, as 16777216, 256M"),
    ]:
        ended = replay(OWN, option, value)
        assert ended.returncode == 2
        assert expected in ended.stderr


def test_an_output_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    place = tmp_path / "none" / "out.json"
    for option in ("--json", "--plot"):
        ended = replay(OWN, option, place)
        assert (ended.returncode, ended.stdout) == (2, ""), "told before anything is replayed"
        assert ended.stderr == f"accelrt replay: cannot write {place}: No such file or directory\n"
        ended = replay(OWN, option, "")
        assert ended.stderr.endswith(f"{option}: the name of a file must not be empty\n")


def test_what_is_written_is_told(tmp_path: Path) -> None:
    kept, plot = tmp_path / "kept.json", tmp_path / "plot.html"
    path = table(tmp_path, "0,a,1,5,0")
    ended = replay(path, "--policy", "native,torch", "--json", kept, "--plot", plot)
    *_, of_json, of_plot = ended.stdout.splitlines()
    assert of_json == f"{kept}: the table as 2 records"
    assert of_plot.startswith(f"{plot}: the page (")
    *_, of_json = replay(path, "--minimum", "--json", kept).stdout.splitlines()
    assert of_json == f"{kept}: the same as records"


def as_table(operations: Sequence[tuple[bool, int, int, int]]) -> str:
    """Return events as the parser of public traces writes them: frees repeat size and stream."""
    live: dict[int, tuple[int, int]] = {}
    lines = ["t,op,id,size,stream"]
    for time, (is_allocation, identity, *rest) in enumerate(operations):
        if is_allocation:
            live[identity] = (rest[0], rest[1])
        size, stream = live[identity]
        lines.append(f"{time},{'a' if is_allocation else 'f'},{identity},{size},{stream}")
    return "\n".join(lines) + "\n"


def test_a_table_is_read_as_it_is() -> None:
    (trace,) = traces.read(OWN)
    assert as_table(trace.recording.operations()) == OWN.read_text()
    with OWN.open() as file:
        assert len(list(csv.DictReader(file))) == 14_964


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_snapshot_is_replayed_address_by_address(name: str, tmp_path: Path) -> None:
    path = recorded.snapshot(name)
    events, peak_live_bytes, digest, agreement = RECORDED[name]
    (trace,) = traces.read(path)
    text = as_table(trace.recording.operations())
    assert hashlib.sha256(text.encode()).hexdigest() == digest
    (record,) = records(tmp_path, path, "--check")
    assert (record["events"], record["peak_live_bytes"]) == (events, peak_live_bytes)
    assert replay(path, "--check").stdout.splitlines()[-1] == agreement
