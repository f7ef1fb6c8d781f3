"""Goal: `view` says what it cannot show together, what it writes, and what its files have lost.

Method: the command runs in processes of its own, on files that are made here.
"""

import pickle
from pathlib import Path

import traces
from test_view import OWN, entry, opened, page_of, refused, snapshot_with, view


def test_what_cannot_be_compared_is_named(tmp_path: Path) -> None:
    one = traces.write_snapshot(tmp_path / "a.pickle", traces.training(1))
    made = traces.write_profile(tmp_path / "c.json", 3)
    two = tmp_path / "two.pickle"
    two.write_bytes(pickle.dumps(snapshot_with(device_traces=entry() * 2, segments=[])))
    for files, expected in (
        ([one], "--compare takes two files, not 1"),
        ([one, one, one], "--compare takes two files, not 3"),
        ([one, made], f"--compare takes snapshots or tables, and {made} is a profile"),
        ([two, one], f"--compare takes snapshots of one device, and {two} has 2"),
        ([one, OWN], f"two snapshots or two tables: {one} is a snapshot, {OWN} is a table"),
    ):
        refused(view("--compare", *files, "-o", tmp_path / "page.html"), expected)
    assert not (tmp_path / "page.html").exists()


def test_policies_without_requests_to_replay_are_refused(tmp_path: Path) -> None:
    made = traces.write_profile(tmp_path / "c.json", 3)
    expected = f"--policy replays requests, and {made} is a profile"
    other = traces.write_profile(tmp_path / "d.json", 1)
    for files in ([made], [made, other]):
        refused(view(*files, "--policy", "native"), expected)
    snapshot = traces.write_snapshot(tmp_path / "a.pickle", traces.training(1))
    found = page_of(tmp_path, made, snapshot, "--policy", "native")
    assert ["replays" in it.head for it in found] == [False, True]


def test_a_page_of_several_files_has_a_name_of_its_own(tmp_path: Path) -> None:
    names = ("a.pickle", "b.pickle")
    for name in names:
        traces.write_snapshot(tmp_path / name, traces.training(1))
    for arguments, page_name in (
        (("a.pickle",), "a.pickle.html"),
        (names, "a.pickle+1.html"),
        (("--compare", *names), "a.pickle-b.pickle.html"),
    ):
        ended = view(*arguments, folder=tmp_path)
        assert ended.stdout.startswith(f"{page_name}: "), ended
        assert (tmp_path / page_name).exists()


def test_a_page_says_what_its_file_has_lost(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"traceEvents": [], "otherData": {"dropped_records": 12}}')
    ended = view(path, "-o", tmp_path / "page.html")
    assert ": 0 slices of a.json (12 records found no room) (" in ended.stdout
    assert opened(tmp_path / "page.html")[0].head["dropped"] == 12
    content = snapshot_with(accelrt={"num_dropped_entries": 7})
    (tmp_path / "a.pickle").write_bytes(pickle.dumps(content))
    (found,) = page_of(tmp_path, tmp_path / "a.pickle")
    assert found.head["dropped"] == 7
    for wrong in (-1, "x", True, None, 1 << 80):
        content = snapshot_with(accelrt={"num_dropped_entries": wrong})
        (tmp_path / "a.pickle").write_bytes(pickle.dumps(content))
        assert page_of(tmp_path, tmp_path / "a.pickle")[0].head["dropped"] == 0
