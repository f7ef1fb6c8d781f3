"""A profile's trace keeps the rules of the Trace Event Format, which Perfetto and Chrome read.

Method: a program with tasks on two streams, waits of streams and threads, nested ranges, a failure,
and calls of a library. Each rule goes through all events, and a broken trace for each of them shows
that it can fail.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fake_math import fake_mkl, watched
from kinds import KIND

Event = dict[str, Any]
# Times have three decimals: what touches may overlap by one of the last.
ROUNDING_US = 0.0015

PROGRAM = """
from accelrt import profiler
onemkl = load({library!r})

@profiler.record_function("step")
def step(streams, number):
    first, second = streams
    with first, profiler.record_function("copy \\\\ \\"quoted\\""):
        buffer = accelrt.zeros(4096)
    second.wait_event(first.record_event())
    second.launch_host(sum, range(1000))
    onemkl.print_line(b"MKL_VERBOSE DGEMM(N,N,64) 3us CNR:OFF NThr:2\\n" * number)
    second.synchronize()

streams = [accelrt.Stream(dedicated=True) for _ in range(2)]
with profiler.profile(verbose=True, profile_memory=True) as run:
    for number in range(1, 20):
        step(streams, number)
    threads = [threading.Thread(target=step, args=(streams, 1), name="other") for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    streams[0].launch_host(int, "no number")
    try:
        streams[0].synchronize()
    except accelrt.StreamError:
        pass
run.export_chrome_trace({path!r})
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    code = PROGRAM.format(library=str(fake_mkl()), path=str(path))
    assert watched(code, ACCELRT_ACCELERATOR=KIND) == []
    return read(path)


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def has_the_fields_of_its_phase(events: list[Event]) -> None:
    for event in events:
        assert event["ph"] in {"X", "M", "s", "f", "C"}, event
        assert isinstance(event["name"], str), event
        assert all(type(event[key]) is int and event[key] >= 0 for key in ("pid", "tid")), event
        if event["ph"] == "M":
            assert event["name"] in {"process_name", "thread_name", "thread_sort_index"}, event
            key, kind = ("sort_index", int) if "sort" in event["name"] else ("name", str)
            assert isinstance(event["args"][key], kind), event
        else:
            assert isinstance(event["ts"], int | float), event
            assert isinstance(event["cat"], str), event
        if event["ph"] == "X":
            assert event["dur"] > 0, event
        if event["ph"] == "C":  # a counter has a series for each of its numbers
            assert all(type(value) is int and value >= 0 for value in event["args"].values())
        # Only the end of an arrow says that the slice around it is meant.
        assert event.get("bp") == ("e" if event["ph"] == "f" else None), event


def names_each_process_and_track_once(events: list[Event]) -> None:
    named = Counter(
        (event["name"], event["pid"], event["tid"]) for event in events if event["ph"] == "M"
    )
    assert set(named.values()) == {1}
    for event in events:
        assert named["process_name", event["pid"], 0], event
        if event["ph"] not in {"M", "C"}:  # counters are of their process
            assert named["thread_name", event["pid"], event["tid"]], event


def nests_slices(events: list[Event]) -> None:
    tracks: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(event)
    for slices in tracks.values():
        slices.sort(key=lambda event: (event["ts"], -event["dur"]))
        around: list[float] = []
        for event in slices:
            end = event["ts"] + event["dur"]
            while around and around[-1] <= event["ts"] + ROUNDING_US:
                around.pop()
            assert not around or end <= around[-1] + ROUNDING_US, event
            around.append(end)


def has_both_ends_of_each_arrow_inside_of_slices(events: list[Event]) -> None:
    ends: dict[tuple[str, str, int], list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] in {"s", "f"}:
            ends[event["cat"], event["name"], event["id"]].append(event)
            assert any(
                (slice_["pid"], slice_["tid"]) == (event["pid"], event["tid"])
                and slice_["ts"] <= event["ts"] <= slice_["ts"] + slice_["dur"] + ROUNDING_US
                for slice_ in events
                if slice_["ph"] == "X"
            ), event
    for arrow in ends.values():
        start, end = arrow
        assert (start["ph"], end["ph"]) == ("s", "f"), "in this order, and no more"
        assert start["ts"] <= end["ts"] + ROUNDING_US, arrow


def binds_each_enqueue_to_one_task(events: list[Event]) -> None:
    bound: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        assert ("bind_id" in event) == bool(event.get("flow_in") or event.get("flow_out")), event
        if "bind_id" in event:
            bound[event["bind_id"]].append(event)
    for pair in bound.values():
        call, task = sorted(pair, key=lambda event: "flow_in" in event)
        assert call["flow_out"] is task["flow_in"] is True
        assert call["ts"] <= task["ts"] + task["dur"] + ROUNDING_US, pair


RULES = [
    has_the_fields_of_its_phase,
    names_each_process_and_track_once,
    nests_slices,
    has_both_ends_of_each_arrow_inside_of_slices,
    binds_each_enqueue_to_one_task,
]


def test_the_object_is_the_formats(trace: dict[str, Any]) -> None:
    assert set(trace) == {"displayTimeUnit", "otherData", "traceEvents"}
    assert trace["displayTimeUnit"] in {"ms", "ns"}
    categories = Counter(event.get("cat") for event in trace["traceEvents"])
    kinds = {"task", "wait", "enqueue", "range", "host wait", "order", "library call"}
    assert kinds <= set(categories), "or the program shows less than the rules are about"


@pytest.mark.parametrize("rule", RULES)
def test_a_trace_keeps_the_rule(trace: dict[str, Any], rule: Callable[[list[Event]], None]) -> None:
    rule(trace["traceEvents"])


@pytest.mark.parametrize(
    ("rule", "phase", "change"),
    [
        (has_the_fields_of_its_phase, "X", {"tid": "stream 1"}),
        (has_the_fields_of_its_phase, "f", {"bp": "s"}),
        (names_each_process_and_track_once, "X", {"tid": 1 << 20}),
        (names_each_process_and_track_once, "M", {"pid": 1 << 20}),
        (has_the_fields_of_its_phase, "C", {"args": {"allocated bytes": -1}}),
        (nests_slices, "X", {"dur": 1e12, "ts": -1e6, "pid": 1, "tid": 1}),
        (has_both_ends_of_each_arrow_inside_of_slices, "s", {"ts": 1e15}),
        (has_both_ends_of_each_arrow_inside_of_slices, "f", {"id": 1 << 40}),
        (binds_each_enqueue_to_one_task, "X", {"bind_id": 1 << 40, "flow_in": True}),
    ],
)
def test_a_broken_trace_breaks_the_rule(
    trace: dict[str, Any], rule: Callable[[list[Event]], None], phase: str, change: Event
) -> None:
    events = [dict(event) for event in trace["traceEvents"]]
    chosen = [event for event in events if event["ph"] == phase]
    broken = chosen[len(chosen) // 2]
    broken.update(change)
    if rule is nests_slices:  # it begins before the others and ends inside of one
        inside = max(
            (event for event in events if (event["pid"], event["tid"]) == (1, 1)),
            key=lambda event: event.get("dur", 0) if event is not broken else 0,
        )
        broken["dur"] = inside["ts"] + inside["dur"] / 2 - broken["ts"]
    with pytest.raises((AssertionError, ValueError)):
        rule(events)
