"""Goal: each track, slice and counter of a profile has a label, whatever its records lack.

Method: records of each phase, from which one optional key is removed, or emptied, at a time; every
text of the head that a page shows is compared.
"""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelrt.cli.view import profile

PID, TID = {"pid": 7}, {"pid": 7, "tid": 9}
NAMES: list[dict[str, Any]] = [
    {"ph": "M", **PID, "name": "process_name", "args": {"name": "worker"}},
    {"ph": "M", **TID, "name": "thread_name", "args": {"name": "stream 1"}},
]
# The other records, each with what a page shows of it.
RECORDS: list[tuple[dict[str, Any], str]] = [
    (
        {"ph": "X", **TID, "ts": 1, "dur": 2, "name": "slice", "cat": "task", "args": {"a": 1}},
        "slice",
    ),
    ({"ph": "B", **TID, "ts": 4, "name": "opened", "cat": "task", "args": {"a": 1}}, "opened"),
    ({"ph": "E", **TID, "ts": 5}, "opened"),
    ({"ph": "i", **TID, "ts": 6, "name": "mark"}, "mark"),
    ({"ph": "C", **PID, "ts": 7, "name": "memory", "args": {"used": 8}}, "memory"),
    ({"ph": "s", **TID, "ts": 1, "id": 3, "cat": "flow", "name": "arrow"}, ""),
    ({"ph": "f", **TID, "ts": 5, "id": 3, "cat": "flow", "name": "arrow"}, ""),
    ({"ph": "M", **PID, "name": "process_sort_index", "args": {"sort_index": 1}}, ""),
    ({"ph": "M", **TID, "name": "thread_sort_index", "args": {"sort_index": 1}}, ""),
]
EMPTY: st.SearchStrategy[object] = st.sampled_from([None, "", " ", {}, []])


def labels(records: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the texts that a page shows."""
    head, _ = profile.view(records)
    yield from head["names"]
    for track in head["tracks"]:
        yield from (track["process"], track["thread"])
    for counter in head["counters"]:
        yield from counter
    yield from head["skipped"]


def places(records: list[dict[str, Any]]) -> list[tuple[int, str, bool]]:
    """Return each key that a record may lack, and whether it is one of its arguments."""
    return [
        (index, key, is_argument)
        for index, record in enumerate(records)
        for is_argument, keys in ((False, record), (True, record.get("args", {})))
        for key in keys
        if key not in {"ph", "ts"}
    ]


ALL = [*NAMES, *(record for record, _ in RECORDS)]


def test_whole_records_have_their_labels() -> None:
    found = list(labels(ALL))
    assert set(found) == {"slice", "opened", "mark", "worker", "stream 1", "memory", "used"}


@pytest.mark.parametrize("length", [79, 80, 81, 200, 10_000])
def test_names_are_not_cut(length: int) -> None:
    # The names of all records that have one of their own; they differ only in the last character.
    def name(last: str) -> str:
        return "n" * (length - 1) + last

    records: list[dict[str, Any]] = [
        {"ph": "X", **TID, "ts": 1, "dur": 2, "name": name("a")},
        {"ph": "X", **TID, "ts": 1, "dur": 2, "name": name("b")},
        {"ph": "B", **TID, "ts": 4, "name": name("c")},
        {"ph": "E", **TID, "ts": 5},
        {"ph": "i", **TID, "ts": 6, "name": name("d")},
        {"ph": "I", **TID, "ts": 6, "name": name("e")},
        {"ph": "C", **PID, "ts": 7, "name": name("f"), "args": {"used": 8}},
        {"ph": "C", **PID, "ts": 7, "name": name("g"), "args": {"used": 8}},
    ]
    head, _ = profile.view(records)
    assert sorted(head["names"]) == [name(last) for last in "abcde"]
    assert [counter[1] for counter in head["counters"]] == [name("f"), name("g")]
    assert head["skipped"] == {}


@given(place=st.sampled_from(places(ALL)), change=st.one_of(st.just("drop"), EMPTY))
def test_missing_keys_leave_every_label(place: tuple[int, str, bool], change: object) -> None:
    index, key, is_argument = place
    records = copy.deepcopy(ALL)
    changed = records[index]["args"] if is_argument else records[index]
    if change == "drop":
        del changed[key]
    else:
        changed[key] = change
    found = list(labels(records))
    assert all(text.strip() and text not in {"None", "null"} for text in found), found
    assert not any("None" in text for text in found), found
    # The other records keep theirs; `B` and `E` make one slice.
    changed_text = dict(enumerate(text for _, text in RECORDS)).get(index - len(NAMES), "")
    others = {text for _, text in RECORDS} - {"", changed_text}
    assert others <= set(found)


@given(
    names=st.lists(st.sampled_from(["worker", "", " ", None]), min_size=1),
    kind=st.sampled_from(["process", "thread"]),
)
def test_empty_names_keep_known_labels(names: list[str | None], kind: str) -> None:
    named = [{"ph": "M", **TID, "name": f"{kind}_name", "args": {"name": name}} for name in names]
    head, _ = profile.view([*named, RECORDS[0][0]])
    (track,) = head["tracks"]
    number = {"process": 7, "thread": 9}[kind]
    assert track[kind] == ("worker" if "worker" in names else f"{kind} {number}")


def test_records_without_a_place_have_labels() -> None:
    head, _ = profile.view([{"ph": "X", "ts": 1}, {"ph": "C", "ts": 1, "args": {"used": 1, "": 2}}])
    (track,) = head["tracks"]
    assert (track["process"], track["thread"]) == ("unnamed process", "unnamed thread")
    assert head["names"] == ["unnamed"]
    expected = [["unnamed process", "used", "used"], ["unnamed process", "unnamed", "unnamed"]]
    assert head["counters"] == expected
