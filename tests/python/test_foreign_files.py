"""Goal: files of other programs are read whatever version wrote them, in any order, exactly.

Method: properties over generated files. A changed spelling, order or version gives the same result
as the plain file; malformed parts are counted, and the rest is unchanged.
"""

import json
import pickle
import random
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traces
from accelrt import cli
from accelrt.cli.replay import snapshots
from accelrt.cli.replay import traces as replayed
from accelrt.cli.replay.errors import TraceError
from accelrt.cli.view import profile, sources
from accelrt.cli.view.columns import Columns

MOST_NS = 10**19  # of a time, which is below it
Series = dict[str, list[tuple[Any, ...]]]


def rising(columns: Columns, name: str) -> list[int]:
    """Return the numbers of a column of steps."""
    total, numbers = 0, []
    for step in columns[name]:
        total += int(step)
        numbers.append(total)
    return numbers


def resolved(head: dict[str, Any], columns: Columns) -> Series:
    """Return what a profile shows, without the numbers that names have by chance."""
    names, begin = head["names"], int(head["startNs"])
    tracks = [(track["pid"], track["tid"]) for track in head["tracks"]]
    shown: Series = defaultdict(list)
    times = rising(columns, "start")
    for time, duration, row, name, detail in zip(
        times,
        *(columns[it] for it in ("duration", "row", "name", "detail")),
        strict=True,
    ):
        track, depth = head["rows"][row]
        details = head["details"][detail]
        shown["slices"].append((begin + time, duration, tracks[track], depth, names[name], details))
    instants = columns["instant_track"], columns["instant_name"]
    for time, track, name in zip(rising(columns, "instant_time"), *instants, strict=True):
        shown["instants"].append((begin + time, tracks[track], names[name]))
    ends = (columns[f"arrow_{end}_{it}"] for end in ("from", "to") for it in ("time", "track"))
    for start, source, time, target in zip(*ends, strict=True):
        shown["arrows"].append((begin + start, tracks[source], begin + time, tracks[target]))
    for number, series in enumerate(head["counters"]):
        values = columns[f"counter{number}_value"]
        times = rising(columns, f"counter{number}_time")
        shown[f"counter {series}"] += [
            (begin + time, value) for time, value in zip(times, values, strict=True)
        ]
    return shown


def shown(records: list[Any]) -> Series:
    return resolved(*profile.view(records))


def spellings(ns: int) -> list[str]:
    """Return the ways in which writers spell a time in microseconds."""
    exact = Decimal(ns).scaleb(-3)
    whole, rest = divmod(abs(ns), 1000)
    sign = "-" if ns < 0 else ""
    return [
        *(f"{exact:f}", f"{exact:.3f}", f"{exact:e}", f"{sign}{whole}.{rest:03d}000"),
        *((f"{sign}{whole}",) if rest == 0 else ()),
    ]


@given(
    st.integers(-MOST_NS + 1, MOST_NS - 1)
    | st.sampled_from([0, 1, -1, MOST_NS - 1, 1 - MOST_NS, 1712195495997093250]),
    st.data(),
)
def test_times_read_to_the_nanosecond(ns: int, data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(spellings(ns)))
    parsed = profile._parsed(f'[{{"ts": {text}}}]'.encode())
    assert isinstance(parsed, list)
    assert profile._ns(0, parsed[0], "ts") == ns, text


@pytest.mark.parametrize(
    "text",
    [
        *("10000000000000000", "10000000000000000.000", "-1e16", "1e400", "1e999999", "9" * 5000),
        *("NaN", "Infinity", "true", '"1.5"', "null"),
    ],
)
def test_times_out_of_range_refused(text: str) -> None:
    parsed = profile._parsed(f'[{{"ts": {text}}}]'.encode())
    assert isinstance(parsed, list)
    with pytest.raises(profile._BadRecordError, match="not a time in us"):
        profile._ns(0, parsed[0], "ts")


def test_absolute_times_keep_rows_of_children(tmp_path: Path) -> None:
    base = 1712195495997093
    slices = [("parent", 0, 900), *((f"child {i}", 100 * i, 100) for i in range(9))]
    records = ", ".join(
        f'{{"ph": "X", "name": "{name}", "pid": 1, "tid": 1, "ts": {base}.{begin:03d}, '
        f'"dur": 0.{length:03d}, "args": {{"flops": 2.5}}}}'
        for name, begin, length in slices
    )
    path = tmp_path / "a.json"
    path.write_text(f'{{"traceEvents": [{records}]}}')
    (view,) = sources.read(path, None)
    begin = base * 1000
    assert resolved(view.head, view.columns)["slices"] == [
        (begin, 900, ("1", "1"), 0, "parent", '{"flops": 2.5}'),
        *((begin + at, 100, ("1", "1"), 1, name, '{"flops": 2.5}') for name, at, _ in slices[1:]),
    ]


BAD: list[Any] = [
    *(7, None, "x", [], {"ph": "X"}, {"ph": "X", "name": "bad", "ts": None}),
    *({"ph": phase, "name": "bad", "pid": 9, "ts": "soon"} for phase in "XBECisf"),
    *({"ph": "X", "name": "bad", "ts": 1, "dur": wrong} for wrong in (-1, -0.001, "x", True)),
    *({"ph": "i", "name": "bad", "ts": wrong} for wrong in (float("nan"), 1e17, 1 << 9999, False)),
]


@given(st.lists(st.tuples(st.integers(0, 99), st.sampled_from(BAD)), max_size=5))
def test_bad_records_skipped_and_counted(bad: list[tuple[int, Any]]) -> None:
    good = traces.profile(3)["traceEvents"]
    mixed = list(good)
    for place, record in bad:
        mixed.insert(place % (len(mixed) + 1), record)
    head, columns = profile.view(mixed)
    assert resolved(head, columns) == shown(good)
    assert head["skipped"].get("bad records", 0) == len(bad)


def test_count_of_bad_records_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "a.json", tmp_path / "a.html"
    good = {"ph": "X", "name": "a", "ts": 1, "dur": 2}
    for records, note in [
        ([good], ""),
        ([{}, good, 7], " (skipped 1 bad record, the first: traceEvents[2] is 7, not an object)"),
    ]:
        path.write_text(json.dumps(records))
        assert cli.main(["view", str(path), "-o", str(out)]) == 0
        assert f": 1 slice of a.json{note} (" in capsys.readouterr().out


@st.composite
def profiles(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw records whose times all differ: nested slices of both forms, counters and arrows."""
    records: list[dict[str, Any]] = []
    clock = iter(range(1, 10_000))

    def add(phase: str, tid: int, **more: object) -> None:
        time = next(clock)
        records.append({"ph": phase, "pid": 1, "tid": tid, "ts": time, "name": "e", **more})

    def nest(tid: int, depth: int) -> None:
        for _ in range(draw(st.integers(0, 2 if depth else 0))):
            name = draw(st.sampled_from("abc"))
            add("B", tid, name=name, args={"depth": depth})
            nest(tid, depth - 1)
            add("E", tid)

    for tid in range(draw(st.integers(1, 3))):
        nest(tid, 3)
        for _ in range(draw(st.integers(0, 3))):
            kind = draw(st.sampled_from(["X", "C", "i", "arrow"]))
            if kind == "arrow":
                add("s", tid, id=draw(st.integers(0, 1)))
                add("f", tid, id=records[-1]["id"])
            else:
                value = draw(st.integers(0, 3))
                add(kind, tid, dur=value / 2, args={"bytes": value, "other": -value})
    return records


@given(profiles(), st.integers())
def test_order_of_records_changes_nothing(records: list[dict[str, Any]], seed: int) -> None:
    mixed = records[:]
    random.Random(seed).shuffle(mixed)  # noqa: S311  an order that is to repeat
    plain, other = shown(records), shown(mixed)
    assert plain == other
    for name, points in plain.items():
        assert points == sorted(points, key=lambda point: point[0]), name


@given(
    st.lists(st.tuples(st.sampled_from("sfs"), st.integers(0, 4), st.integers(0, 2)), max_size=9)
)
def test_arrows_begin_at_the_last_start(ends: list[tuple[str, int, int]]) -> None:
    records = [
        {"ph": phase, "id": key // 2, "cat": f"{key % 2}", "pid": 1, "tid": tid, "ts": time}
        for tid, (phase, time, key) in enumerate(ends)
    ]
    expected, unpaired = [], 0
    for phase, time, key in ends:
        starts = sorted(at for begun, at, of in ends if (begun, of) == ("s", key))
        if phase == "f" and starts:
            begun = max((at for at in starts if at <= time), default=starts[0])
            expected.append((begun * 1000, time * 1000))
        unpaired += phase == "f" and not starts
    head, columns = profile.view(records)
    found = zip(columns["arrow_from_time"], columns["arrow_to_time"], strict=True)
    assert sorted(found) == sorted(expected)
    assert head["skipped"].get("f without s", 0) == unpaired


@given(
    st.lists(st.tuples(st.sampled_from("BBE"), st.integers(0, 1), st.integers(0, 9)), max_size=9),
    st.none() | st.integers(0, 12),
)
def test_open_slices_end_with_the_profile(
    bounds: list[tuple[str, int, int]], whole: int | None
) -> None:
    records: list[dict[str, Any]] = [
        {"ph": phase, "pid": 1, "tid": tid, "ts": time, "name": f"{place}"}
        for place, (phase, tid, time) in enumerate(bounds)
    ]
    slices, unopened = [], 0
    opened: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for phase, tid, time, place in sorted(
        ((*bound, place) for place, bound in enumerate(bounds)), key=lambda it: (it[2], it[3])
    ):
        if phase == "B":
            opened[tid].append((time, f"{place}"))
        elif opened[tid]:
            begun, name = opened[tid].pop()
            slices.append((begun, time, name))
        else:
            unopened += 1
    if whole is not None:
        records.append({"ph": "X", "pid": 2, "tid": 2, "ts": 0, "dur": whole, "name": "whole"})
        slices.append((0, whole, "whole"))
    last = max((end for _, end, _ in slices), default=0)
    slices += [(begun, max(begun, last), name) for it in opened.values() for begun, name in it]
    head, columns = profile.view(records)
    found = [
        (begin, begin + duration, name)
        for begin, duration, _, _, name, _ in resolved(head, columns)["slices"]
    ]
    assert sorted(found) == sorted((1000 * a, 1000 * b, name) for a, b, name in slices)
    assert head["skipped"].get("E without B", 0) == unopened


@pytest.mark.parametrize(("begin", "depth"), [(998, 1), (999, 0), (1000, 0), (1001, 0)])
def test_slices_that_touch_share_a_row(begin: int, depth: int) -> None:
    times = (0, 1000), (begin, 500)  # one nanosecond is lost where both ends are rounded
    records = [{"ph": "X", "ts": begin / 1000, "dur": length / 1000} for begin, length in times]
    assert [slice_[3] for slice_ in shown(records)["slices"]] == [0, depth]


@pytest.mark.parametrize("phase", ["i", "I"])
def test_instants_of_both_spellings_are_read(phase: str) -> None:
    record = {"ph": phase, "name": "mark", "pid": 1, "tid": 2, "ts": 4}
    assert shown([record]) == {"instants": [(4000, ("1", "2"), "mark")]}


def test_counters_of_one_time_keep_their_order() -> None:
    values = [5, 3, 9, 1]
    records = [{"ph": "C", "name": "c", "ts": 4, "args": {"used": value}} for value in values]
    ((_, points),) = shown(records).items()
    assert [value for _, value in points] == values


def written(tmp_path: Path, content: object) -> Path:
    path = tmp_path / "a.pickle"
    path.write_bytes(pickle.dumps(content))
    return path


def operations(path: Path) -> list[list[tuple[bool, int, int, int]]]:
    return [trace.recording.operations() for trace in replayed.read(path)]


def sizes(path: Path) -> list[list[Any]]:
    return [
        [list(view.columns[name]) for name in ("size", "address", "block_size", "block_requested")]
        for view in sources.read(path, None)
    ]


def snapshot() -> dict[str, Any]:
    return traces.training(2).snapshot()


@settings(max_examples=30)
@given(places=st.lists(st.integers(0, 1000), max_size=4))
def test_unknown_actions_skipped_and_counted(
    tmp_path_factory: pytest.TempPathFactory, places: list[int]
) -> None:
    tmp_path = tmp_path_factory.getbasetemp()
    content = snapshot()
    plain = written(tmp_path, content)
    expected = operations(plain), sizes(plain)
    trace = content["device_traces"][0]
    unknown: dict[str, Any] = {"addr": -1, "size": None, "frames": [], "device": "x"}
    actions = [("user_defined", "other", "a new one")[place % 3] for place in places]
    for place, action in zip(places, actions, strict=True):
        trace.insert(place % (len(trace) + 1), {**unknown, "action": action, "time_us": 0})
    path = written(tmp_path, content)
    assert (operations(path), sizes(path)) == expected
    (read,) = replayed.read(path)
    (view,) = sources.read(path, None)
    count = len(places)
    entries = f"{count} entr{'y' if count == 1 else 'ies'}"
    names = ", ".join(map(repr, sorted(set(actions))))
    note = f"skipped {entries} of unknown actions: {names}"
    assert read.notes == ((note,) if places else ())
    assert (note in sources.summary(view)) == bool(places)


ACTIONS = ("alloc", "alloc", "free_requested", "free_completed")


@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 2)), max_size=12))
def test_lives_of_allocations_follow_the_trace(
    tmp_path_factory: pytest.TempPathFactory, entries: list[tuple[str, int]]
) -> None:
    trace = [{"action": it, "addr": at, "size": 8, "stream": 0} for it, at in entries]
    count, done = len(trace), "free_completed"
    if not any(it == done for it, _ in entries):
        done = "free_requested"
    lives: list[list[int]] = []
    live: dict[int, list[int]] = {}
    for index, (action, at) in enumerate(entries):
        if action == "alloc":
            if at in live:
                live.pop(at)[2] = index
            live[at] = [index, count, count]
            lives.append(live[at])
            continue
        if at not in live:
            live[at] = [-1, count, count]
            lives.append(live[at])
        if live[at][1] == count:
            live[at][1] = index
        if action == done:
            live.pop(at)[2] = index
    path = written(tmp_path_factory.getbasetemp(), {"segments": [], "device_traces": [trace]})
    if entries:
        (view,) = sources.read(path, None)
        columns = (view.columns[name] for name in ("born", "asked", "died"))
        assert sorted(zip(*columns, strict=True)) == sorted(map(tuple, lives))


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), max_size=5), st.integers())
def test_ranges_pair_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, ranges: list[tuple[str, int]], seed: int
) -> None:
    marks, expected = [], []
    clock = iter(range(5, 99))
    for name, depth in ranges:
        begins = [next(clock) for _ in range(depth)]
        ends = [next(clock) for _ in range(depth)]
        marks += [{"stage": "START", "name": name, "time_us": time} for time in begins]
        marks += [{"stage": "END", "name": name, "time_us": time} for time in ends]
        pairs = zip(reversed(begins), ends, strict=True)
        expected += [[name, begin - 1, end - 1] for begin, end in pairs]
    random.Random(seed).shuffle(marks)  # noqa: S311  an order that is to repeat
    entry = {"action": "alloc", "addr": 512, "size": 512, "stream": 0, "time_us": 1}
    content = {"segments": [], "device_traces": [[entry]], "external_annotations": marks}
    (view,) = sources.read(written(tmp_path_factory.getbasetemp(), content), None)
    assert view.head["annotations"] == expected


def test_notes_of_replays_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = snapshot()
    content["device_traces"][0].append({"action": "melt\n"})
    content["allocator_settings"] = {"PYTORCH_ALLOC_CONF": "new_key:3,expandable_segments:False"}
    path = str(written(tmp_path, content))
    notes = [
        "a.pickle: skipped 1 entry of unknown actions: 'melt\\n'",
        "a.pickle: skipped 1 unknown setting: new_key",
    ]
    for options in (["--policy", "torch"], ["--check"], ["--minimum", "--policy", "torch"]):
        cli.main(["replay", path, *options])
        printed = capsys.readouterr()
        assert [line for line in printed.out.splitlines() if "skipped" in line] == notes
        assert printed.err == ""


def older(content: dict[str, Any], *, has_history: bool) -> dict[str, Any]:
    """Return a snapshot as PyTorch 2.0 wrote it."""
    for segment in content["segments"]:
        for key in ("requested_size", "segment_pool_id", "is_expandable", "frames"):
            segment.pop(key, None)
        for block in segment["blocks"]:
            block.pop("address", None)
            requested, frames = block.pop("requested_size", 0), block.pop("frames", [])
            if has_history and block["state"] != "inactive":
                last = {"addr": 1, "real_size": requested, "frames": frames}
                block["history"] = [last, {"addr": 1, "real_size": 7, "frames": []}]
    for trace in content["device_traces"]:
        for entry in trace:
            for key in ("time_us", "pool_id", "device", "compile_context", "user_metadata"):
                entry.pop(key, None)
    return content


def test_snapshots_of_older_versions_are_read(tmp_path: Path) -> None:
    expected = operations(written(tmp_path, snapshot()))
    path = written(tmp_path, older(snapshot(), has_history=True))
    assert operations(path) == expected
    (view,) = sources.read(path, None)
    (plain,) = sources.read(written(tmp_path, snapshot()), None)
    for name in ("size", "block_size", "block_state", "stack"):
        assert view.columns[name] == plain.columns[name], name
    path = written(tmp_path, older(snapshot(), has_history=False))
    (found,) = operations(path)
    assert [it[:2] for it in found] == [it[:2] for it in expected[0]]


def test_snapshots_through_json_are_read(tmp_path: Path) -> None:
    plain = written(tmp_path, snapshot())
    expected = operations(plain), sizes(plain)
    path = written(tmp_path, json.loads(json.dumps(snapshot())))
    assert (operations(path), sizes(path)) == expected


@pytest.mark.parametrize(
    "key", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"]
)
def test_settings_of_every_device_are_read(tmp_path: Path, key: str) -> None:
    content = snapshot() | {"allocator_settings": {key: "max_split_size_mb:21"}}
    (trace,) = replayed.read(written(tmp_path, content))
    assert trace.settings == "max_split_size_mb:21"


def numbers(place: Any) -> list[tuple[Any, Any]]:
    """Return the places of the numbers in a snapshot: container and key."""
    inner = place.items() if isinstance(place, dict) else enumerate(place)
    found = []
    for key, value in list(inner):
        if isinstance(value, dict | list):
            found += numbers(value)
        elif isinstance(value, int):
            found.append((place, key))
    return found


WRONG = [1 << 20_000, -(1 << 20_000), 1 << 64, -1, float("nan"), 1.5, True, None]


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(WRONG))
def test_any_number_is_read_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, wrong: object
) -> None:
    content = traces.training(1).snapshot()
    found = numbers(content)
    by_key = sorted({str(key) for _, key in found})
    key = data.draw(st.sampled_from(by_key))
    place, at = data.draw(st.sampled_from([it for it in found if str(it[1]) == key]))
    place[at] = wrong
    path = written(tmp_path_factory.getbasetemp(), content)
    try:
        for view in sources.read(path, None):
            assert view.columns.packed(view.head)
        for trace in replayed.read(path):
            assert trace.recording.operations()
    except TraceError as error:
        message = str(error)
        assert "\n" not in message
        assert len(message) < 500


def test_devices_stand_by_number(tmp_path: Path) -> None:
    content: dict[str, list[Any]] = {"segments": [], "device_traces": [[], []]}
    for device in (5, 0, 3):
        block = {"size": 512, "requested_size": 9 + device, "state": "active_allocated"}
        content["segments"].append(
            {"device": device, "stream": 0, "address": 0, "total_size": 512, "blocks": [block]}
        )
    views = sources.read(written(tmp_path, content), None)
    shown = [(view.name, list(view.columns["size"])) for view in views]
    assert shown == [(f"a.pickle:{device}", [9.0 + device]) for device in (0, 3, 5)]


def test_device_numbers_have_a_limit(tmp_path: Path) -> None:
    content = snapshot()
    for device, is_right in ((snapshots._MAX_DEVICE - 1, True), (snapshots._MAX_DEVICE, False)):
        for segment in content["segments"]:
            segment["device"] = device
        path = written(tmp_path, content)
        if is_right:
            assert len(sources.read(path, None)) == 2
        else:
            with pytest.raises(TraceError, match="names no device"):
                sources.read(path, None)


@pytest.mark.parametrize("count", [31, 32, 33, 34])
def test_rows_of_a_track_have_a_limit(count: int) -> None:
    records = [
        {"ph": "X", "name": f"{i}", "pid": 1, "tid": 1, "ts": i, "dur": 99} for i in range(count)
    ]
    depths = [depth for *_, depth, _, _ in shown(records)["slices"]]
    assert depths == [min(i, 31) for i in range(count)]


@pytest.mark.parametrize("step", [0, 1, (1 << 32) - 2, (1 << 32) - 1])
def test_steps_up_to_four_bytes_pack(step: int) -> None:
    columns = Columns()
    columns.add_rising("a", [step])
    columns.add_rising("b", [7, 7 + step])
    assert (rising(columns, "a"), rising(columns, "b")) == ([step], [7, 7 + step])
    columns.add_rising("c", [0, 1 << 32])
    assert list(columns["c"]) == [0.0, float(1 << 32)]


@pytest.mark.parametrize(("count", "status"), [(63, 0), (64, 0), (65, 2)])
def test_pages_of_a_view_have_a_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int, status: int
) -> None:
    entry = {"action": "alloc", "addr": 512, "size": 512, "stream": 0}
    path = written(tmp_path, {"segments": [], "device_traces": [[entry]] * count})
    assert cli.main(["view", str(path), "-o", str(tmp_path / "a.html")]) == status
    assert ("more than a page shows" in capsys.readouterr().err) == (status == 2)
