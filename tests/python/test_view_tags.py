"""Goal: a page shows memory by tag, says what its file has lost, and every word can be read.

Method: a headless Chromium opens pages of small files; sums are read from tables, colours and
labels from the model that draws them, and widths from the layout. Skipped where there is none.
"""

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import traces
from chromium import Browser
from test_view_browser import OWN, a_browser, browser, page_of, pytestmark, told

__all__ = ["browser", "pytestmark"]


def tagged(path: Path, sizes: dict[str, tuple[int, ...]], **more: object) -> Path:
    """Write a snapshot with an allocation of each size, by tag, in one segment."""
    trace, address = list[dict[str, Any]](), 1 << 20
    for tag, of_tag in sizes.items():
        for size in of_tag:
            entry = {"action": "alloc", "addr": address, "size": size, "user_metadata": tag}
            trace.append(entry | {"stream": 0, "time_us": 1000 + len(trace), "frames": []})
            address += size
    content = {"segments": [], "device_traces": [trace]} | more
    path.write_bytes(pickle.dumps(content))
    return path


def rows(browser: Browser) -> list[list[str]]:
    found: list[list[str]] = browser.evaluate(
        "[...document.querySelectorAll('.side table tbody tr')].map((row) =>"
        "[...row.cells].map((cell) => cell.innerText))"
    )
    return found


SIZES = {"weights": (1 << 20,), "kv cache": (2 << 20, 3 << 20), "": (4 << 20,)}


def test_what_is_live_is_summed_by_tag(browser: Browser, tmp_path: Path) -> None:
    browser.open(page_of(tmp_path, tagged(tmp_path / "a.pickle", SIZES)))
    browser.evaluate("document.querySelector('.side [data-value=tags]').click()")
    assert rows(browser) == [
        ["kv cache", "5.00 MiB", "2"],
        ["no tag", "4.00 MiB", "1"],
        ["weights", "1.00 MiB", "1"],
    ]


def test_colours_are_those_of_tags_where_tags_are_chosen(browser: Browser, tmp_path: Path) -> None:
    page = page_of(tmp_path, tagged(tmp_path / "a.pickle", SIZES))
    browser.open(page)
    before = browser.picture(tmp_path / "sites.png")
    browser.evaluate("document.querySelector('.toolbar [data-value=tag]').click()")
    browser.settle()
    assert browser.picture(tmp_path / "tags.png") != before
    keys = "[...document.querySelectorAll('.keys .key')].map((key) => key.innerText)"
    assert browser.evaluate(keys) == ["kv cache", "no tag", "weights"]
    left, top, width, height = browser.box(".chart .marks")
    browser.mouse("mouseMoved", left + width - 30, top + height - 30)
    browser.settle()
    assert "tag: weights" in browser.text(".tip")
    statement = """
        const model = new MemoryModel(view);
        return [...model.tag].map((tag) => [model.tags[tag].text, model.tags[tag].rank]);
    """
    assert told(browser, page, statement) == [
        ["weights", 1],
        ["kv cache", 0],
        ["kv cache", 0],
        ["no tag", -1],
    ]


def test_a_recording_without_tags_offers_none(browser: Browser, tmp_path: Path) -> None:
    browser.open(page_of(tmp_path, OWN, "--policy", "native"))
    for part in (".toolbar [data-value=tag]", ".side [data-value=tags]"):
        assert browser.evaluate(f"document.querySelector('{part}') === null")


def test_a_page_tells_what_its_file_has_lost(browser: Browser, tmp_path: Path) -> None:
    lost = {"num_dropped_entries": 7}
    browser.open(page_of(tmp_path, tagged(tmp_path / "a.pickle", SIZES, accelrt=lost)))
    assert browser.figure("Entries lost") == "7"
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"traceEvents": [], "otherData": {"dropped_records": 12}}))
    browser.open(page_of(tmp_path, path))
    assert browser.figure("Records missing") == "12"


def test_one_is_no_plural(browser: Browser, tmp_path: Path) -> None:
    segment = {"device": 0, "address": 1 << 20, "total_size": 4096, "stream": 0, "blocks": []}
    early = {"address": 1 << 20, "size": 512, "requested_size": 512, "state": "active_allocated"}
    segment["blocks"] = [early]
    path = tmp_path / "a.pickle"
    path.write_bytes(pickle.dumps({"segments": [segment], "device_traces": [[]]}))
    browser.open(page_of(tmp_path, path))
    assert "in 1 segment\n" in f"{browser.text('.tiles')}\n"
    assert "1 block from before" in browser.text(".tiles")
    assert "of 0 allocations" in browser.text(".tiles")
    assert "in 1 allocation, " in browser.text(".side .where")


def test_the_snapshots_own_entry_does_not_squeeze_the_axis_of_time(
    browser: Browser, tmp_path: Path
) -> None:
    path = tagged(tmp_path / "a.pickle", SIZES)
    content = pickle.loads(path.read_bytes())  # noqa: S301  our own
    last = {"action": "snapshot", "addr": 0, "size": 0, "stream": 0, "frames": []}
    content["device_traces"][0].append(last | {"time_us": 1_000_000})
    path.write_bytes(pickle.dumps(content))
    statement = """
        const axis = new MemoryAxis(new MemoryModel(view));
        axis.setMode("time");
        return [axis.most, axis.stateAt(axis.most)];
    """
    most_ns, state = told(browser, page_of(tmp_path, path), statement)
    assert (most_ns, state) == (pytest.approx(3006), 4)  # the last event is 3 us behind the first


@pytest.fixture
def narrow() -> Iterator[Browser]:
    with a_browser(1300) as started:
        yield started


def test_the_figures_of_three_policies_are_not_cut_off(narrow: Browser, tmp_path: Path) -> None:
    narrow.open(page_of(tmp_path, OWN))
    sizes = narrow.evaluate(
        "(() => { const box = document.querySelector('.replays .figures');"
        "return [box.scrollWidth, box.clientWidth, box.getBoundingClientRect().right]; })()"
    )
    whole, shown, right = sizes
    assert whole <= shown
    assert right <= 1300


def test_the_words_about_the_peak_stand_on_no_line(browser: Browser, tmp_path: Path) -> None:
    program = traces.Program()
    program.allocate(64 << 20)
    path = traces.write_snapshot(tmp_path / "a.pickle", program)
    statement = """
        const drawn = [];
        const context = new Proxy({}, {
            get: (_, name) => name === "measureText" ? () => ({ width: 50 })
                : (...given) => drawn.push([name, ...given]),
            set: () => true,
        });
        const chart = Object.create(MemoryChart.prototype);
        const model = { peakState: 3, total: [0, 0, 0, 100] };
        Object.assign(chart, {
            model, shared: { axis: { valueOf: (x) => x, low: 0, span: 4 } },
            plot: { left: 0, top: 20, width: 400, height: 100 }, low: 0, high: 100,
        });
        chart.drawPeak(context);
        const [, left, top, width, height] = drawn.find(([name]) => name === "fillRect");
        const [, text, x, y] = drawn.find(([name]) => name === "fillText");
        const isOnGround = left < x && y > top && y < top + height && drawn.findIndex(
            ([name]) => name === "fillRect") < drawn.findIndex(([name]) => name === "fillText");
        return [text, isOnGround, top >= 20 + 16];
    """
    assert told(browser, page_of(tmp_path, path), statement) == ["peak 100 B", True, True]
