"""Goal: `view` tells ranges, tracks, arrows and ends of files apart, and leaves nothing behind.

Method: small files whose every number is known, as pages that are taken apart again.
"""

import gc
import json
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import traces
from accelrt import cli
from accelrt.cli import terminal
from accelrt.cli.replay import snapshots
from accelrt.cli.replay.errors import TraceError
from accelrt.cli.view import profile, snapshot, sources
from accelrt.cli.view.frames import Stacks
from accelrt.cli.view.texts import shown
from test_view import Opened, entry, page_of, snapshot_with


def test_an_address_that_is_handed_out_again_ends_the_allocation_before(tmp_path: Path) -> None:
    # The free between fell out of the ring of entries.
    content = snapshot_with(device_traces=[[*entry()[0], *entry(size=1024)[0]]], segments=[])
    path = tmp_path / "a.pickle"
    path.write_bytes(pickle.dumps(content))
    (found,) = page_of(tmp_path, path)
    assert (found.columns["born"], found.columns["died"]) == ([0, 1], [1, 2])


def test_ranges_of_a_snapshot_nest_and_are_of_its_device(tmp_path: Path) -> None:
    def mark(stage: str, time: int, device: int = 0) -> dict[str, Any]:
        return {"stage": stage, "name": "step", "device": device, "time_us": time}

    marks = [mark("START", 11), mark("START", 21), mark("END", 26, device=1)]
    marks += [mark("END", 31), mark("END", 41)]
    path = tmp_path / "a.pickle"
    content = snapshot_with(device_traces=entry(), segments=[], external_annotations=marks)
    path.write_bytes(pickle.dumps(content))
    (found,) = page_of(tmp_path, path)
    assert found.head["startUs"] == 1
    assert found.head["annotations"] == [["step", 20, 30], ["step", 10, 40]]


def durations_by_name(found: Opened) -> dict[str, float]:
    names = (found.head["names"][int(name)] for name in found.columns["name"])
    return dict(zip(names, found.columns["duration"], strict=True))


def test_slices_with_a_begin_and_an_end_are_of_their_track_and_end_with_the_profile(
    tmp_path: Path,
) -> None:
    def bound(phase: str, tid: int, time: int, **more: str) -> dict[str, Any]:
        return {"ph": phase, "pid": 1, "tid": tid, "ts": time, **more}

    records = [
        bound("B", 1, 0, name="first"),
        bound("B", 2, 1, name="second"),
        bound("B", 3, 2, name="open"),
        bound("E", 1, 5),
        bound("E", 2, 9),
    ]
    path = tmp_path / "a.json"
    path.write_text(json.dumps(records))
    (found,) = page_of(tmp_path, path)
    assert durations_by_name(found) == {"first": 5000, "second": 8000, "open": 7000}


def test_an_arrow_whose_number_is_used_again_begins_at_its_own_start(tmp_path: Path) -> None:
    times = [("s", 1), ("f", 2), ("s", 5), ("f", 6)]
    records = [{"ph": ph, "id": 7, "pid": 1, "tid": 1, "ts": time} for ph, time in times]
    records.append({"ph": "X", "name": "all", "pid": 1, "tid": 1, "ts": 0, "dur": 9})
    path = tmp_path / "a.json"
    path.write_text(json.dumps(records))
    (found,) = page_of(tmp_path, path)
    assert found.columns["arrow_from_time"] == [1000, 5000]
    assert found.columns["arrow_to_time"] == [2000, 6000]


def test_arrows_are_in_the_order_of_their_starts(tmp_path: Path) -> None:
    times = [("s", 1, 3), ("s", 2, 5), ("f", 2, 6), ("f", 1, 8)]
    records = [{"ph": ph, "id": it, "pid": 1, "tid": 1, "ts": time} for ph, it, time in times]
    records.append({"ph": "X", "name": "all", "pid": 1, "tid": 1, "ts": 0, "dur": 9})
    path = tmp_path / "a.json"
    path.write_text(json.dumps(records))
    (found,) = page_of(tmp_path, path)
    assert found.columns["arrow_from_time"] == [3000, 5000]
    assert found.columns["arrow_to_time"] == [8000, 6000]


@pytest.mark.parametrize("number", [0, -1, 2.5, "0.25", 9.99e299, "-9.99e299", "12"])
def test_finite_numbers_are_shown(number: float | str) -> None:
    written = profile._Written(number) if isinstance(number, str) else number
    assert profile._finite(written) == float(number)


@pytest.mark.parametrize("number", [1e300, "1e300", -math.inf, math.nan, "-1e300", 10**301])
def test_other_numbers_are_not_shown(number: float | str) -> None:
    written = profile._Written(number) if isinstance(number, str) else number
    assert profile._finite(written) is None
    assert [profile._finite(it) for it in (True, False, None, "1", [1])] == [None] * 5


@pytest.mark.parametrize(
    ("dropped", "key"),
    [(profile._dropped, "dropped_records"), (snapshots._dropped, "num_dropped_entries")],
)
def test_numbers_of_what_was_dropped(dropped: Callable[[object], int], key: str) -> None:
    for count in (0, 1, 2**64 - 1):
        assert dropped({key: count, "other": 7}) == count
    for wrong in (2**64, -1, True, 1.0, "1", None):
        assert type(dropped({key: wrong})) is int
        assert dropped({key: wrong}) == 0
    assert dropped([key]) == dropped({}) == dropped(None) == 0


@pytest.mark.parametrize(
    ("number_of", "least", "most"),
    [
        (lambda number: snapshot._number({"a": number}, "a", "here"), 0, 2**63 - 1),
        (lambda number: snapshot._stream({"stream": number}, "here"), -(2**63), 2**64 - 1),
    ],
)
def test_numbers_of_snapshots_have_limits(
    number_of: Callable[[object], int], least: int, most: int
) -> None:
    for number in (least, 0, most):
        assert number_of(number) == number
    for wrong in (least - 1, most + 1, True, 1.0, None):
        with pytest.raises(TraceError, match=r"^here\['.*'\] is .*, not "):
            number_of(wrong)


def test_lines_of_frames_have_limits() -> None:
    stacks, most = Stacks(), 2**31 - 1
    for line in (most, -most, 0, 7, most + 1, -most - 1, True, 1.0):
        stacks.number([{"name": f"f{line!r}", "filename": "a.py", "line": line}])
    lines = [line for _, _, line in stacks.head()["frames"]]
    assert lines[-8:] == [most, -most, 0, 7, 0, 0, 0, 0]


def test_long_integers_are_shown_by_their_size() -> None:
    most = 2**1024 - 1
    for number in (most, -most):
        assert shown(number) == str(number)
        assert shown([number]) == f"({number})"
    for number in (most + 1, -most - 1):
        assert shown(number) == "an integer of 1025 bits"
        assert shown((number, 1)) == "(a int, 1)"


def test_tracks_have_the_places_that_their_writer_wants(tmp_path: Path) -> None:
    records: list[dict[str, Any]] = [
        {"ph": "M", "pid": 4, "name": "process_sort_index", "args": {"sort_index": -2}},
        {"ph": "M", "pid": 4, "tid": 5, "name": "thread_sort_index", "args": {"sort_index": 3}},
        {"ph": "X", "pid": 4, "tid": 5, "name": "a", "ts": 0, "dur": 1},
        {"ph": "X", "pid": 4, "tid": 6, "name": "a", "ts": 0, "dur": 1},
    ]
    path = tmp_path / "a.json"
    path.write_text(json.dumps(records))
    (found,) = page_of(tmp_path, path)
    assert [track["place"] for track in found.head["tracks"]] == [[-2, 3], [-2, 0]]


def test_a_file_named_as_a_part_of_the_page_is_a_name(tmp_path: Path) -> None:
    path = traces.write_profile(tmp_path / "{{script}}{{views}}.json", 1)
    (found,) = page_of(tmp_path, path)
    assert found.name == path.name
    assert f"<title>{path.name} · accelrt view</title>" in (tmp_path / "page.html").read_text()


def test_a_browser_that_does_not_start_is_told_with_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = traces.write_profile(tmp_path / "a.json", 1), tmp_path / "page.html"
    asked: list[str] = []

    def start(uri: str) -> bool:
        asked.append(uri)
        return starts

    monkeypatch.setattr("webbrowser.open", start)
    for starts in (True, False):
        status = cli.main(["view", str(path), "-o", str(out), "--open"])
        said = f"accelrt view: no browser could be started; open {out} yourself\n"
        assert (status, capsys.readouterr().err) == ((0, "") if starts else (2, said))
    assert asked == [out.as_uri()] * 2


@pytest.mark.parametrize("is_enabled", [True, False])
def test_the_garbage_collector_is_left_as_it_was(*, tmp_path: Path, is_enabled: bool) -> None:
    wrong = tmp_path / "a.json"
    wrong.write_text("7")
    was_enabled = gc.isenabled()
    (gc.enable if is_enabled else gc.disable)()
    try:
        sources.read(traces.write_profile(tmp_path / "b.json", 1), None)
        assert gc.isenabled() == is_enabled
        with pytest.raises(TraceError):
            sources.read(wrong, None)
        assert gc.isenabled() == is_enabled
    finally:
        (gc.enable if was_enabled else gc.disable)()


def test_a_bar_leaves_nothing_of_the_longer_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "shows_progress", lambda: True)
    paths = [traces.write_profile(tmp_path / name, 1) for name in ("a long name.json", "b.json")]
    out = tmp_path / "page.html"
    assert cli.main(["view", *map(str, paths), "-o", str(out)]) == 0
    second = capsys.readouterr().err.split(f"{paths[0]}")[1]
    assert second.startswith("\r\x1b[K"), repr(second)
