"""Goal: a browser shows what a file has: its numbers, its picture, and what the pointer is over.

Method: a headless Chromium opens pages of programs whose numbers the test knows; figures are read
from the page, pictures are compared by their pixels. Skipped where there is no Chromium.
`PICTURES` names a folder where pictures of docs are written then; `make pictures` does.
"""

import contextlib
import gzip
import itertools
import json
import os
import pickle
import random
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

import chromium
import recorded
import traces
from accelrt import cli
from accelrt.cli.replay.errors import TraceError
from accelrt.cli.view import profile, sources
from accelrt.cli.view.page import SCRIPTS, View, write
from chromium import Browser
from kinds import host_cores
from processes import run
from seeds import seeds

ROOT = Path(__file__).parents[2]
OWN = ROOT / "tests/data/own_gpt_fixed.ops.csv"
PICTURES = os.environ.get("PICTURES")

pytestmark = [
    pytest.mark.longer(600),
    pytest.mark.skipif(
        chromium.PATH is None and not os.environ.get("TEST_NEEDS_CHROMIUM"),
        reason="there is no chromium: make peers installs it",
    ),
]


@contextlib.contextmanager
def a_browser(width: int) -> Iterator[Browser]:
    profile = Path(tempfile.mkdtemp())
    with Browser(profile, width=width, height=1100) as started:
        yield started
    shutil.rmtree(profile, ignore_errors=True)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with a_browser(1400) as started:
        yield started


def page_of(tmp_path: Path, *arguments: object) -> Path:
    out = tmp_path / "page.html"
    assert cli.main(["view", *map(str, arguments), "-o", str(out)]) == 0
    return out


def told(browser: Browser, page: Path, statement: str) -> Any:
    """Return what a statement returns that sees the scripts of a page, and its first `view`."""
    folder = resources.files("accelrt.cli.view") / "page"
    scripts = (name for name in SCRIPTS if name != "main")
    joined = "\n".join((folder / f"{name}.js").read_text("utf-8") for name in scripts)
    browser.open(page)
    loaded = "const view = await loadView(document.querySelector('script[data-kind]'));"
    return browser.evaluate(f"(async () => {{ {joined}\n{loaded}\n{statement} }})()")


def picture(browser: Browser, name: str, folder: Path) -> bytes:
    """Take a picture, for docs too where they are asked for."""
    return browser.picture(Path(PICTURES or folder) / f"{name}.png")


def colors_of(png: bytes) -> int:
    """Return how many different colours a picture has, of the rows as they are packed."""
    data, at = b"", 8
    while at < len(png):
        length = int.from_bytes(png[at : at + 4], "big")
        if png[at + 4 : at + 8] == b"IDAT":
            data += png[at + 8 : at + 8 + length]
        at += 12 + length
    raw = zlib.decompress(data)
    return len({raw[i : i + 3] for i in range(0, len(raw) - 3, 97)})


def test_the_figures_of_a_snapshot_are_those_of_the_program(
    browser: Browser, tmp_path: Path
) -> None:
    program = traces.training(4)
    path = traces.write_snapshot(tmp_path / "training.pickle", program)
    browser.open(page_of(tmp_path, path))
    assert browser.figure("Peak live") == str(program.peak_bytes)
    assert browser.figure("Live at the end") == str(program.live_bytes)
    assert browser.figure("Peak reserved") == browser.figure("Reserved at the end")
    assert browser.figure("Reserved at the end") == str(2 * traces.SEGMENT_BYTES)
    free = 2 * traces.SEGMENT_BYTES - sum(-(-size // 512) * 512 for size in program.live.values())
    assert browser.figure("Free in segments") == str(free)
    assert browser.figure("Out of memory") == "1"
    assert browser.figure("Live at the peak") == str(program.peak_bytes)
    assert f"after entry {program.entries_at_peak}" in browser.text(".tiles")
    assert len(browser.requests) == 1  # the page itself


def test_the_pointer_shows_what_is_live_and_where_it_comes_from(
    browser: Browser, tmp_path: Path
) -> None:
    path = traces.write_snapshot(tmp_path / "training.pickle", traces.training(4))
    browser.open(page_of(tmp_path, path))
    left, top, width, height = browser.box(".chart .marks")
    browser.mouse("mouseMoved", left + width * 0.6, top + height - 40)
    browser.settle()
    assert browser.text(".side h2") == "Live at the cursor"
    # Weights stand at the bottom; they were there before the recording, with a stack.
    assert "build · model.py:12" in browser.text(".tip")
    browser.mouse("mouseMoved", left + width * 0.6, top + height * 0.6)
    browser.settle()
    assert "step · optimizer.py:7" in browser.text(".tip")
    assert "train · train.py:31" in browser.text(".tip")
    picture(browser, "snapshot", tmp_path)
    browser.click(left + width * 0.6, top + height * 0.6)
    details = browser.text(".details")
    assert "Allocation of 1.0" in details
    assert "null" not in details
    assert "optimizer.py:7" in details
    assert "frames of C++ too (1)" in details
    assert "at::empty_strided" not in details
    browser.evaluate("document.querySelector('.details .link').click()")
    assert "at::empty_strided" in browser.text(".details")


def test_a_search_sums_what_it_finds_and_the_window_zooms(browser: Browser, tmp_path: Path) -> None:
    program = traces.training(4)
    path = traces.write_snapshot(tmp_path / "training.pickle", program)
    browser.open(page_of(tmp_path, path))
    browser.evaluate(
        "(() => { const box = document.querySelector('input[type=search]');"
        "box.value = 'attention'; box.dispatchEvent(new Event('input')); })()"
    )
    assert browser.text(".found").startswith("32 found, ")
    left, top, width, height = browser.box(".chart .marks")
    whole = browser.picture(tmp_path / "whole.png")
    browser.drag(left + width * 0.5, top + height / 2, left + width * 0.6, top + height / 2)
    assert browser.picture(tmp_path / "part.png") != whole
    browser.evaluate("document.activeElement.blur()")
    browser.call("Input.dispatchKeyEvent", type="keyDown", key="Escape")
    browser.settle()
    assert browser.text(".found") == ""


def test_escape_closes_a_dialog(browser: Browser, tmp_path: Path) -> None:
    snapshot = traces.write_snapshot(tmp_path / "training.pickle", traces.training(2))
    profile = traces.write_profile(tmp_path / "a.json", 20)
    is_open = "document.getElementById('help').open"
    escape = {"key": "Escape", "code": "Escape", "windowsVirtualKeyCode": 27}
    for path in snapshot, profile:
        browser.open(page_of(tmp_path, path))
        for opening in "help-button", "?":
            if opening == "?":
                browser.call("Input.dispatchKeyEvent", type="keyDown", key="?", text="?")
            else:
                browser.evaluate(f"document.getElementById('{opening}').click()")
            assert browser.evaluate(is_open)
            browser.call("Input.dispatchKeyEvent", type="keyDown", **escape)
            browser.settle()
            assert not browser.evaluate(is_open)


def test_a_snapshot_has_an_axis_of_time(browser: Browser, tmp_path: Path) -> None:
    path = traces.write_snapshot(tmp_path / "training.pickle", traces.training(2))
    browser.open(page_of(tmp_path, path))
    before = browser.picture(tmp_path / "entries.png")
    browser.evaluate("document.querySelector('[data-value=time]').click()")
    assert browser.picture(tmp_path / "time.png") != before


def test_dark_and_light_follow_the_system_and_the_button(browser: Browser, tmp_path: Path) -> None:
    page = page_of(tmp_path, traces.write_profile(tmp_path / "a.json", 20))
    shown = "getComputedStyle(document.body).backgroundColor"
    browser.open(page, "light")
    light, light_picture = browser.evaluate(shown), browser.picture(tmp_path / "light.png")
    browser.open(page, "dark")
    dark, dark_picture = browser.evaluate(shown), browser.picture(tmp_path / "dark.png")
    assert light != dark
    assert light_picture != dark_picture
    browser.evaluate("document.getElementById('theme-button').click()")
    assert browser.evaluate(shown) == light


def test_a_table_shows_what_each_policy_reserves(browser: Browser, tmp_path: Path) -> None:
    browser.open(page_of(tmp_path, OWN), "dark")
    assert browser.figure("Peak live") == "88068184"
    out = tmp_path / "records.json"
    assert cli.main(["replay", str(OWN), "--json", str(out)]) == 0
    for record in json.loads(out.read_text()):
        shown = browser.figure(f"Reserved by {record['policy']}")
        assert shown == str(record["peak_reserved_bytes"])
        assert browser.figure(f"Ratio {record['policy']}") == f"{record['ratio']:.4f}"
    assert browser.evaluate("document.querySelectorAll('.replays canvas').length") == 1
    assert colors_of(picture(browser, "replay", tmp_path)) > 20


def test_a_profile_shows_tracks_names_and_overlap(browser: Browser, tmp_path: Path) -> None:
    path = traces.write_profile(tmp_path / "pipeline.json", 24)
    browser.open(page_of(tmp_path, path))
    slices = [it for it in json.loads(path.read_text())["traceEvents"] if it["ph"] == "X"]
    ends = [round(it["ts"] * 1000) + round(it["dur"] * 1000) for it in slices]
    assert abs(int(browser.figure("Duration")) - max(ends)) <= 1
    assert browser.figure("Slices") == str(len(slices))
    assert browser.figure("Tracks") == "4"
    assert browser.figure("Arrows") == "48"
    busy = sum(it["dur"] for it in slices if it["name"].startswith("layer ")) * 1000
    assert abs(int(browser.figure("Busiest track")) - busy) <= 24
    assert 0 < int(browser.figure("Overlap")) < max(ends)
    assert "copy out" in browser.text(".side table")
    picture(browser, "profile", tmp_path)


@host_cores
def test_a_page_names_who_had_the_memory_when_there_was_too_little(
    browser: Browser, tmp_path: Path
) -> None:
    # Of docs/memory.md, word by word.
    text = (ROOT / "docs/memory.md").read_text()
    program = text.partition("```python\n")[2].partition("```")[0]
    (tmp_path / "serve.py").write_text(program)
    dump = tmp_path / "memory.pickle"
    settings = {
        "ACCELRT_CPU_MEMORY": "256M",
        "ACCELRT_MEMORY_HISTORY": f"dump-on-oom:{dump}",
    }
    assert "OutOfMemoryError" in run(str(tmp_path / "serve.py"), **settings).stderr
    browser.open(page_of(tmp_path, dump))
    assert browser.figure("Peak live") == str((30 + 4 * 48) << 20)
    for line, function in ((14, "cache"), (7, "load")):
        assert f"serve.py:{line} in {function}" in text
        assert f"{function} · serve.py:{line}" in browser.text(".side")
    browser.evaluate(
        "(() => { const box = document.querySelector('input[type=search]');"
        "box.value = 'kv cache'; box.dispatchEvent(new Event('input')); })()"
    )
    assert browser.text(".found").startswith("4 ")
    picture(browser, "history", tmp_path)


@host_cores
def test_a_wait_too_many_stands_in_the_table_and_in_the_timeline(
    browser: Browser, tmp_path: Path
) -> None:
    # Of docs/profiling.md, word by word.
    example = str(ROOT / "examples/missing_overlap.py")
    path = tmp_path / "wait.json"
    ended = run(example, "--waits-for-every-write", ACCELRT_PROFILE=str(path))
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    browser.open(page_of(tmp_path, path))
    slices = [it for it in json.loads(path.read_text())["traceEvents"] if it["ph"] == "X"]
    waits = [it for it in slices if it["cat"] == "wait"]
    assert len(waits) == 11 + 2 * 12, "of reading for all writes but the first, of the others"
    assert int(browser.figure("Overlap")) < 0.01 * int(browser.figure("Busiest track"))
    rows = browser.evaluate(
        "[...document.querySelectorAll('.side table tbody tr')].map((row) =>"
        "[...row.cells].map((cell) => cell.innerText))"
    )
    (row,) = [row for row in rows if row[0] == "wait"]
    assert str(len(waits)) in row, row
    browser.evaluate(
        "(() => { const box = document.querySelector('input[type=search]');"
        "box.value = 'wait'; box.dispatchEvent(new Event('input')); })()"
    )
    assert int(browser.text(".found").split()[0]) >= len(waits)
    picture(browser, "wait", tmp_path)


def test_a_slice_is_found_and_shown_with_its_details(browser: Browser, tmp_path: Path) -> None:
    browser.open(page_of(tmp_path, traces.write_profile(tmp_path / "a.json", 24)))
    browser.evaluate(
        "(() => { const box = document.querySelector('input[type=search]');"
        "box.value = 'copy out'; box.dispatchEvent(new Event('input')); })()"
    )
    assert browser.text(".found") == "24 found"
    browser.evaluate("document.querySelector('[title^=\"Next found\"]').click()")
    browser.settle()
    details = browser.text(".details")
    assert "copy out" in details
    assert "cpu:0 · stream 2 (copy out)" in details
    assert "262144" in details


def test_a_comparison_shows_what_grew(browser: Browser, tmp_path: Path) -> None:
    programs = traces.training(3), traces.training(3, width=2)
    paths = [
        traces.write_snapshot(tmp_path / f"{name}.pickle", program)
        for name, program in zip(("before", "after"), programs, strict=True)
    ]
    browser.open(page_of(tmp_path, "--compare", *paths))
    grown = programs[1].peak_bytes - programs[0].peak_bytes
    assert browser.figure("Peak live, B - A") == str(grown)
    rows = browser.evaluate(
        "[...document.querySelectorAll('.compare .wide tbody tr')].map((row) =>"
        "[row.cells[0].innerText, Number(row.cells[3].dataset.value)])"
    )
    assert sum(more for _, more in rows) == grown
    assert rows[0][0].startswith("forward · model.py:2")
    picture(browser, "comparison", tmp_path)
    browser.evaluate("document.querySelector('[data-value=function]').click()")
    assert "forward · model.py" in browser.text(".compare .wide tbody")


def test_each_state_of_a_snapshot_has_what_is_live_reserved_and_awaited(
    browser: Browser, tmp_path: Path
) -> None:
    block = {"addr": 4096, "size": 100, "user_metadata": "weights"}
    trace = [
        {"action": "segment_map", "addr": 4096, "size": 1000},
        {"action": "alloc", **block},
        {"action": "segment_alloc", "addr": 8192, "size": 50},
        {"action": "free_requested", **block},
        {"action": "free_completed", **block},
        {"action": "segment_unmap", "addr": 4096, "size": 300},
    ]
    segments = [
        {"device": 0, "address": address, "total_size": size, "stream": 0, "blocks": []}
        for address, size in ((4096, 700), (8192, 50))
    ]
    path = tmp_path / "a.pickle"
    path.write_bytes(pickle.dumps({"segments": segments, "device_traces": [trace]}))
    statement = """
        const model = new MemoryModel(view);
        const states = [0, 1, 2, 3, 4, 5, 6];
        return {
            live: states.filter((state) => model.isLive(0, state)),
            found: states.filter((state) => model.liveIn(state).length),
            awaited: states.filter((state) => model.isLive(0, state)
                && model.isAwaitingFree(0, state)),
            reserved: [...model.reserved],
            tagged: [...model.matches("Weight")],
            others: [...model.matches("gradient")],
        };
    """
    assert told(browser, page_of(tmp_path, path), statement) == {
        "live": [2, 3, 4],
        "found": [2, 3, 4],
        "awaited": [4],
        "reserved": [0, 1000, 1000, 1050, 1050, 1050, 750],
        "tagged": [1],
        "others": [0],
    }


@pytest.mark.parametrize("seed", seeds(4))
def test_segments_that_grow_and_shrink_are_in_each_state_what_was_mapped_then(
    browser: Browser, tmp_path: Path, seed: int
) -> None:
    numbers = random.Random(seed)  # noqa: S311  the test's name has what repeats it
    snapshot, states = traces.growing(numbers, 60)
    path = tmp_path / "a.pickle"
    path.write_bytes(pickle.dumps(snapshot))
    statement = """
        const model = new MemoryModel(view);
        const segments = new Segments(model.head, model.entries);
        const states = [...model.reserved.keys()];
        const places = (ranges) => ranges.map((range) => [range.address, range.end]);
        return {
            reserved: [...model.reserved],
            runs: states.map((state) => places(segments.runsIn(state))),
            regions: places(segments.byAddress.filter((region) => region.parts[0].isExpandable)),
        };
    """
    found = told(browser, page_of(tmp_path, path), statement)
    assert found["reserved"] == [sum(end - begin for begin, end in runs) for runs in states]
    assert found["runs"] == [[list(run) for run in runs] for runs in states]
    # What was ever mapped has one place: no region touches another.
    regions = found["regions"]
    assert all(one[1] < following[0] for one, following in itertools.pairwise(regions))
    for state in found["runs"]:
        for begin, end in state:
            has_place = any(least <= begin and end <= most for least, most in regions)
            assert has_place or end - begin == traces.SEGMENT_BYTES


def test_the_map_shows_the_pages_of_the_moment_under_the_pointer(
    browser: Browser, tmp_path: Path
) -> None:
    # What a segment was at its largest is gone at the end of the program.
    page = traces.PAGE_BYTES
    trace = [
        *({"action": "segment_map", "addr": n * page, "size": page} for n in range(8, 20)),
        {"action": "segment_unmap", "addr": 12 * page, "size": 8 * page},
        {"action": "segment_unmap", "addr": 8 * page, "size": 4 * page},
    ]
    path = tmp_path / "a.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace]}))
    browser.open(page_of(tmp_path, path))
    assert browser.figure("Peak reserved") == str(12 * page)
    assert browser.figure("Reserved at the end") == "0"
    assert browser.text(".map-panel .caption").startswith("0 with 0 B at the end")
    left, top, width, height = browser.box(".chart .marks")
    captions = []
    for state in (1, 12, 13, 14):
        # The plot leaves 74 pixels for its axis, and 14 on the other side.
        x = left + 74 + (width - 88) * (state + 0.5) / (len(trace) + 1)
        browser.mouse("mouseMoved", x, top + height / 2)
        browser.settle()
        captions.append(browser.text(".map-panel .caption").split(";")[0])
    assert captions == [
        "1 with 2.00 MiB after entry 1",
        "1 with 24.0 MiB after entry 12",
        "1 with 8.00 MiB after entry 13",
        "0 with 0 B at the end",
    ]


def test_a_window_of_a_profile_has_the_parts_inside_and_a_slice_its_arrows(
    browser: Browser, tmp_path: Path
) -> None:
    def record(phase: str, tid: int, time: float, **more: object) -> dict[str, object]:
        return {"ph": phase, "pid": 1, "tid": tid, "ts": time, **more}

    records = [
        record("X", 1, 0, dur=10, name="long"),
        record("X", 1, 4, dur=2, name="short"),
        record("X", 2, 7, dur=2, name="end"),
        record("X", 2, 20, dur=1, name="later"),
        record("s", 1, 5, id=1),
        record("f", 2, 8, id=1),
    ]
    path = tmp_path / "a.json"
    path.write_text(json.dumps(records))
    statement = """
        const model = new ProfileModel(view);
        const arrows = (name) => model.arrowsOf(model.nameOf.indexOf(model.names.indexOf(name)));
        return [
            model.namesIn(2000, 5000).map((sum) => [model.names[sum.name], sum.time]),
            ["long", "short", "end", "later"].map((name) => arrows(name).length),
            [...model.busy],
        ];
    """
    assert told(browser, page_of(tmp_path, path), statement) == [
        [["long", 3000], ["short", 1000]],
        [1, 1, 1, 0],
        [10_000, 3000],
    ]


def test_a_line_of_a_replay_has_the_peak_of_the_run_that_an_event_is_in(
    browser: Browser, tmp_path: Path
) -> None:
    # Two runs of two events each; a state is what is there after so many events.
    statement = """
        const model = { replay0_events: [2, 4], replay0_reserved: [10, 20] };
        const line = replayLine(model, { policy: "native" }, 0);
        return [0, 1, 2, 3, 4].map((state) => line.at(state));
    """
    assert told(browser, page_of(tmp_path, OWN), statement) == [0, 10, 10, 20, 20]


def test_a_comparison_at_the_end_has_what_both_programs_left(
    browser: Browser, tmp_path: Path
) -> None:
    programs = traces.training(1), traces.training(2, width=2)
    kept = ("keep", "/app/keep.py", 1)
    programs[1].allocate(4096, kept)
    paths = [
        traces.write_snapshot(tmp_path / f"{name}.pickle", program)
        for name, program in zip(("before", "after"), programs, strict=True)
    ]
    browser.open(page_of(tmp_path, "--compare", *paths))
    browser.evaluate("document.querySelector('[data-value=end]').click()")
    rows = browser.evaluate(
        "[...document.querySelectorAll('.compare .wide tbody tr')].map((row) =>"
        "[3, 4, 5].map((cell) => Number(row.cells[cell].dataset.value ?? row.cells[cell]"
        ".innerText)))"
    )
    before, after = programs
    sums = [sum(column) for column in zip(*rows, strict=True)]
    assert sums == [after.live_bytes - before.live_bytes, len(before.live), len(after.live)]


def test_a_search_goes_to_what_stands_before_and_behind(browser: Browser, tmp_path: Path) -> None:
    records = [
        {"ph": "X", "pid": 1, "tid": 1, "ts": 10 * i, "dur": 5, "name": f"part {i}"}
        for i in range(4)
    ]
    path = tmp_path / "a.json"
    path.write_text(json.dumps(records))
    browser.open(page_of(tmp_path, path))
    browser.evaluate(
        "(() => { const box = document.querySelector('input[type=search]');"
        "box.value = 'part'; box.dispatchEvent(new Event('input')); })()"
    )
    seen = []
    for title in ("Next found", "Next found", "Found before", "Found before"):
        browser.evaluate(f"document.querySelector('[title^=\"{title}\"]').click()")
        seen.append(browser.text(".details h2")[: len("part 0")])
    assert seen == ["part 0", "part 1", "part 0", "part 3"]


def test_a_page_of_a_million_tasks_opens_in_time(browser: Browser, tmp_path: Path) -> None:
    # Without the file between: writing and reading it takes longer than all the rest.
    made = View("profile", "a million", *profile.view(traces.profile(100_000)["traceEvents"]))
    out = tmp_path / "page.html"
    write(out, "a million", [made])
    seconds = browser.open(out)
    assert browser.figure("Slices") == "1000000"
    left, top, width, height = browser.box(".tracks .marks")
    browser.drag(left + width * 0.4, top + height / 2, left + width * 0.6, top + height / 2)
    redraw_ms = browser.evaluate(
        "(async () => { const start = performance.now();"
        "const canvas = document.querySelector('.tracks .marks');"
        "canvas.dispatchEvent(new MouseEvent('dblclick'));"
        "await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));"
        "return performance.now() - start; })()"
    )
    size_mib = out.stat().st_size / 2**20
    shown = f"V3: 1e6 tasks, {size_mib:.1f} MiB: opened in {seconds:.2f} s, redrawn in "
    sys.stderr.write(f"{shown}{redraw_ms:.0f} ms\n")
    assert seconds < 30  # a hang; V3 is judged where the machine is quiet


@pytest.mark.parametrize(
    ("name", "peak_bytes", "segments"),
    [
        ("bcrafton_memory_snapshot", 3_849_232_640, "in 96 segments"),
        ("wedsonlin_medium_512_inference", 1_949_343_744, "in 101 segments"),
    ],
)
def test_recorded_snapshots_open(
    browser: Browser, tmp_path: Path, name: str, peak_bytes: int, segments: str
) -> None:
    browser.open(page_of(tmp_path, recorded.snapshot(f"{name}.pickle")))
    assert browser.figure("Peak live") == str(peak_bytes)
    assert segments in browser.text(".tiles")
    assert colors_of(browser.picture(tmp_path / "recorded.png")) > 20


@pytest.mark.parametrize("kind", ["snapshot", "table", "profile"])
def test_what_has_nothing_in_it_is_still_a_page(
    browser: Browser, tmp_path: Path, kind: str
) -> None:
    if kind == "profile":
        path = tmp_path / "a.json"
        path.write_bytes(gzip.compress(b'{"traceEvents":[],"otherData":{"dropped_records":1}}'))
        path = path.rename(tmp_path / "a.json.gz")
    elif kind == "table":
        path = tmp_path / "a.ops.csv"
        path.write_text("t,op,id,size,stream\n0,a,0,0,0\n")
    else:
        program = traces.Program()
        program.allocate(512, recorded=False)
        program.trace.clear()
        path = traces.write_snapshot(tmp_path / "a.pickle", program)
    browser.open(page_of(tmp_path, path))
    figure = {"profile": "Slices", "table": "Peak live", "snapshot": "Entries"}[kind]
    assert browser.figure(figure) == "0"
    browser.picture(tmp_path / "empty.png")


@pytest.mark.parametrize("seed", seeds(8))
def test_what_is_read_of_a_damaged_file_is_a_page(
    browser: Browser, tmp_path: Path, seed: int
) -> None:
    numbers = random.Random(seed)  # noqa: S311  the test's name has what repeats it
    content = traces.training(1).snapshot()
    records = traces.profile(3)["traceEvents"]
    for _ in range(4):
        traces.damage(content, numbers)
        traces.damage(records, numbers)
    path = tmp_path / "a.pickle"
    path.write_bytes(pickle.dumps(content))
    views = []
    with contextlib.suppress(TraceError):
        views += sources.read(path, None)
    with contextlib.suppress(TraceError):
        views.append(View("profile", "a", *profile.view(records)))
    out = tmp_path / "page.html"
    write(out, "damaged", views)
    for number in range(len(views)):
        browser.open(out)
        browser.evaluate(f"document.querySelectorAll('#tabs button')[{number}].click()")
        browser.settle()
        for y in range(200, 900, 100):
            browser.mouse("mouseMoved", numbers.uniform(50, 900), y)
        browser.click(numbers.uniform(200, 900), 300)
        assert browser.evaluate("document.documentElement.dataset.state") == "ready"
