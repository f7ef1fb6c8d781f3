"""Goal: a file that a command cannot use is one line on standard error and status 2.

Method: contents that are empty, cut off, of another format or of wrong types, under each ending
that a command reads; profiles that a program under `explore` leaves behind.
"""

import argparse
import gzip
import json
import os
import pickle
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accelrt import _core, cli
from accelrt.cli import explore, sizes
from accelrt.cli.replay.errors import TraceError
from processes import run

NAN = float("nan")
TABLE = (Path(__file__).parents[2] / "tests/data/own_gpt_fixed.ops.csv").read_bytes()
PROFILE = json.dumps({"traceEvents": [{"ph": "X", "ts": 1, "dur": 2, "name": "a"}]}).encode()
SNAPSHOT = {"segments": [], "device_traces": [[{"action": "alloc", "addr": 1, "size": 2}]]}


def with_trace(*entries: object) -> bytes:
    return pickle.dumps({"segments": [], "device_traces": [list(entries)]})


def with_segment(**segment: object) -> bytes:
    return pickle.dumps({"segments": [{"device": 0, **segment}], "device_traces": []})


# None of them can be used, by any command and under any ending.
UNUSABLE: dict[str, bytes] = {
    "empty": b"",
    "binary": bytes(range(256)) * 8,
    "cut profile": PROFILE[:-5],
    "cut pickle": pickle.dumps(SNAPSHOT)[:-9],
    "cut gzip": gzip.compress(PROFILE)[:-4],
    "packed bytes": gzip.compress(b"\0\1"),
    "empty list": b"[]",
    "no list": b'{"traceEvents": 3}',
    "deep": b"[" * 100_000,
    "long number": b'{"traceEvents": [{"ph": "X", "dur": 1, "ts": %b}]}' % (b"9" * 5000),
    "NaN": b'{"traceEvents": [{"ph": "X", "ts": NaN}, {"ph": "C", "ts": 1, "args": {"a": NaN}}]}',
    "wrong types": b'{"traceEvents": [3, null, "a", [], {"ph": 3}, {"ph": "X", "ts": {}}]}',
    "pickled list": pickle.dumps([]),
    "pickled wrong types": pickle.dumps({"segments": 3, "device_traces": [[3]]}),
    "pickled entry": with_trace(3),
    "pickled action": with_trace({"action": ["alloc"]}),
    "pickled number": with_trace({"action": "alloc", "addr": "x", "size": NAN}),
    "pickled blocks": with_segment(blocks=3, address=1, total_size=2),
    "pickled block": with_segment(blocks=[{"size": "a", "state": 3}], address=1, total_size=2),
    "cut table": TABLE[:10],
}


def one_line(capsys: pytest.CaptureFixture[str], file: Path, *command: str) -> None:
    assert cli.main([*command, str(file)]) in {1, 2}
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith(f"accelrt {command[0]}: ")
    assert errors.count("\n") == 1
    assert file.name in errors


@pytest.mark.parametrize(
    "command", [["view"], ["replay"], ["replay", "--minimum"], ["replay", "--check"], ["verbose"]]
)
@pytest.mark.parametrize("ending", [".json", ".json.gz", ".pickle", ".ops.csv", ".txt"])
def test_unusable_files_are_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
    ending: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / f"file{ending}"
    one_line(capsys, file, *command)  # it is missing
    for content in UNUSABLE.values():
        file.write_bytes(content)
        one_line(capsys, file, *command)
    file.unlink()
    file.mkdir()
    one_line(capsys, file, *command)
    assert sorted(tmp_path.iterdir()) == [file]


# An index of the memo for which Python's unpickler allocates a gigabyte.
JUMP = b"}r" + (1 << 26).to_bytes(4, "little") + b"."


def nested(depth: int) -> object:
    """Return a list of lists, of few objects, whose text is exponential in the depth."""
    shared: object = "x"
    for _ in range(depth):
        shared = [shared, shared]
    return shared


@pytest.mark.parametrize("command", [["view"], ["replay"]])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\x80\x02" + JUMP, "index 67108864 in a memo of 0 objects"),
        (b"\x80\x02}p67108864\n.", "index 67108864 in a memo of 0 objects"),
        (b"\x80\x04\x95\x07" + bytes(7) + JUMP, "index 67108864 in a memo of 0 objects"),
        (b"\x80\x04B\xff\xff\xff\xff", "pickle data was truncated"),
        (b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f", "pickle data was truncated"),
        (with_segment(address=nested(20), blocks=[]), "segments[0]['address'] is "),
        (with_trace({"action": "alloc", "addr": nested(20)}), "trace[0]['addr'] is "),
    ],
    ids=["index", "text index", "framed index", "cut", "long", "nested segment", "nested entry"],
)
def test_broken_pickles_take_bounded_memory_and_time(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
    content: bytes,
    expected: str,
) -> None:
    file = tmp_path / "broken.pickle"
    file.write_bytes(content)
    assert cli.main([*command, str(file)]) == 2
    errors = capsys.readouterr().err
    assert f"{file}: " in errors
    assert expected in errors
    if expected.endswith("is "):
        shown = "a list of length 2" if command == ["replay"] else "(a list, a list)"
        assert f"{expected}{shown}, not a whole number" in errors


def test_a_pickle_from_a_pipe_is_read_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe.pickle"
    os.mkfifo(pipe)
    for content, expected in (
        (pickle.dumps(SNAPSHOT), "trace[0] has no 'stream'"),
        (b"\x80\x02" + JUMP, "it is no memory snapshot"),
        (pickle.dumps(os.system), "refused: it asks for posix.system"),
        (b"[]", "it is no whole pickle (KeyError: 91)\n"),
    ):
        writer = threading.Thread(target=pipe.write_bytes, args=(content,))
        writer.start()
        assert cli.main(["replay", str(pipe)]) == 2
        writer.join()
        assert expected in capsys.readouterr().err


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_whole_pickles_have_no_fault(tmp_path: Path, protocol: int) -> None:
    """All opcodes of plain values, in order: an argument that is skipped wrongly is found."""
    shared = [b"", b"r\xff" * 300, bytearray(b"p\n"), 1.5, True, None, (), (1,), (1, 2), (1, 2, 3)]
    texts = ["", "r" * 300, "\u20ac\n", "x" * 70_000]
    numbers = [sign * (1 << bits) for bits in (0, 8, 16, 31, 64, 3000) for sign in (-1, 1)]
    value = [shared, texts, numbers, shared, {1: shared}, {2}, frozenset((3,)), (1, 2, 3, 4)]
    file = tmp_path / "whole.pickle"
    for pickler in pickle.Pickler, pickle._Pickler:
        with file.open("wb") as opened:
            pickler(opened, protocol).dump([value, *map(str, range(1000))])
        assert _core.find_pickle_fault(file) is None
        whole = file.read_bytes()
        file.write_bytes(whole[:-1] + b"0" + JUMP)  # which is behind the last frame
        assert "index 67108864 in a memo of" in str(_core.find_pickle_fault(file))


def test_demo_and_bench_name_unusable_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in (tmp_path, tmp_path / "missing"):
        one_line(capsys, file, "demo")
    (tmp_path / "empty").touch()
    one_line(capsys, tmp_path / "empty", "demo")

    def fails(*_: object) -> int:
        message = f"cannot read {tmp_path}: it is damaged"
        raise TraceError(message)

    monkeypatch.setattr("accelrt.cli.bench.run", fails)
    one_line(capsys, tmp_path, "bench", "--traces")


# A program that leaves a profile, as if its process had been killed while it wrote that.
LEAVES = """
import os, sys
from pathlib import Path
if "ACCELRT_PROFILE" in os.environ:
    Path(os.environ["ACCELRT_PROFILE"]).write_bytes({content!r})
sys.exit("seed:0," not in os.environ["ACCELRT_CPU_SCHEDULE"])
"""
DAMAGED = ("empty", "binary", "cut profile", "empty list", "no list", "wrong types", "deep")


@pytest.mark.parametrize("damage", DAMAGED)
def test_explore_names_damaged_profiles(tmp_path: Path, damage: str) -> None:
    script, page = tmp_path / "script.py", tmp_path / "page.html"
    script.write_text(LEAVES.format(content=UNUSABLE[damage]))
    options = ("--strategy", "pct") if damage in {"cut profile", "no list"} else ()
    ended = run("-m", "accelrt", "explore", *options, "-o", str(page), "-n", "2", str(script))
    assert ended.returncode == 2
    assert ended.stderr.startswith("accelrt explore: cannot read /")
    assert "/trace.json: " in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert ended.stdout.startswith("" if options else "seed 1 fails, exit status 1\n")
    assert not page.exists()


def test_explore_explains_missing_timeline(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("raise SystemExit(1)")
    ended = run("-m", "accelrt", "explore", "-n", "1", str(script))
    assert (ended.returncode, ended.stderr) == (1, "")
    last = "no timeline: the program ended before its profile was written\n"
    assert ended.stdout.endswith(f"\n{last}")


def test_bench_writes_records_in_any_locale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def records(_: Any) -> list[dict[str, str]]:
        return [{"name": "Q1", "what": "\ud800"}]

    monkeypatch.setattr("accelrt.cli.bench.table.records", records)
    monkeypatch.setattr("accelrt.cli.bench.table.text", lambda _: "a\n")
    file = tmp_path / "out.json"
    assert cli.main(["bench", "--json", str(file), "--rows", "Q"]) == 0
    assert json.loads(file.read_text("utf-8")) == records(None)


@pytest.mark.parametrize(
    ("argument", "accepted", "refused"),
    [
        (sizes.size_argument, {"1": 1, str(2**63 - 1): 2**63 - 1}, ["0", str(2**63), "-1", ""]),
        (sizes.count_argument, {"1": 1, "007": 7}, ["0", "-1", "1.0", "\u00b2", ""]),
        (sizes.seconds_argument, {"0": 0, "1e308": 1e308}, ["-0.1", "inf", "nan", "1 s", ""]),
        (explore._timeout, {"0.1": 0.1}, ["0", "-1", "inf"]),
        (explore._seed, {"0": 0, str(2**64 - 1): 2**64 - 1}, [str(2**64), "-1", "\u00b2", ""]),
        (explore._depth, {"1": 1, "1000": 1000}, ["0", "1001"]),
    ],
)
def test_arguments_have_limits(
    argument: Callable[[str], float], accepted: dict[str, float], refused: list[str]
) -> None:
    assert {text: argument(text) for text in accepted} == accepted
    for text in refused:
        with pytest.raises(argparse.ArgumentTypeError, match=f"^{re.escape(repr(text))} is not a "):
            argument(text)
