"""The comparer, the generator and the shrinker: a difference that is there is found.

No wheel is needed: both sides are texts here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import built
import installed
import oracle
import wheels
from differences import Difference, Explanation, Failure, before_failure, difference, known
from generator import KINDS, is_sound, program
from shrinker import shrink
from sides import run

SAID = """\
call 0 allocate 2097152 0+0
0 at 0+0 | 2097152 512 512
1 at 0+512 | 2097152 1024 1024
device 0
statistic allocation.all 2 2 2 0
statistic num_ooms 0
segment 0+0 2097152 small whole stream 0 pool 0
block 0 512 512 allocated
block 512 2096640 0 free""".splitlines()


def changed(old: str, new: str) -> list[str]:
    """Plant one thing."""
    lines = [line.replace(old, new, 1) for line in SAID]
    assert lines != SAID
    return [line for line in lines if line]


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("1 at 0+512", "1 at 0+1024", "address"),
        ("1 at 0+512", "1 at out_of_memory", "address"),
        ("2097152 1024 1024", "2097152 1024 1536", "bytes"),
        ("allocate 2097152 0+0", "allocate 2097152 1+0", "calls"),
        ("call 0 allocate 2097152 0+0", "", "calls"),
        ("allocation.all 2 2", "allocation.all 2 3", "statistic allocation.all.peak"),
        ("num_ooms 0", "num_ooms 1", "statistic num_ooms"),
        ("stream 0", "stream 1", "layout"),
        ("block 512 2096640 0 free", "", "layout"),
        ("device 0", "error it panicked", "end"),
    ],
)
def test_a_planted_difference_is_found_and_named(old: str, new: str, what: str) -> None:
    planted = changed(old, new)
    for real, ours in ((SAID, planted), (planted, SAID)):
        found = difference(real, ours)
        assert found is not None
        assert found.what == what


def test_runs_that_are_the_same_do_not_differ() -> None:
    assert difference(SAID, list(SAID)) is None


def test_two_sides_that_both_fail_are_no_agreement() -> None:
    both = [*SAID, "error it panicked"]
    found = difference(both, both)
    assert found is not None
    assert found.what == "end"


def test_what_pytorch_answered_before_it_failed_by_a_known_defect_is_compared() -> None:
    real = [*SAID[:3], "call 0 release 2097152 0+0", "error x ASSERT FAILED at y"]
    defect = Failure(("oom",), "ASSERT", "why")
    assert defect.is_that("oom", real)
    assert not defect.is_that("gc", real)
    assert not defect.is_that("oom", [*real, "end"])
    assert difference(*before_failure(real, SAID)) is None
    found = difference(*before_failure(real, changed("1 at 0+512", "1 at 0+0")))
    assert found is not None
    assert found.what == "address"


def test_an_explanation_covers_its_kinds_and_its_numbers_alone() -> None:
    one = Explanation(("oom",), frozenset({"allocation.all.peak", "segment"}), "why")
    peak = Difference("statistic allocation.all.peak", "", "")
    both = Difference("statistic allocation.all.current allocation.all.peak", "", "")
    assert one.explains("oom", peak)
    assert one.explains("oom", Difference("statistic segment.all.peak", "", ""))
    assert not one.explains("record", peak)
    assert not one.explains("oom", both)
    assert not one.explains("oom", Difference("address", "", ""))


def test_each_committed_explanation_is_of_kinds_that_there_are() -> None:
    there, expected = {*KINDS, *oracle.committed()}, known()
    for kinds, reason in (
        *((one.kinds, one.reason) for one in expected.explanations),
        *((one.kinds, one.reason) for one in expected.failures),
    ):
        assert set(kinds) <= there
        assert reason


@pytest.mark.parametrize("kind", KINDS)
def test_one_seed_is_one_program(kind: str) -> None:
    assert program(kind, 3) == program(kind, 3)
    assert program(kind, 3) != program(kind, 4)


def test_a_program_frees_and_uses_only_what_it_asked_for_before() -> None:
    for kind in KINDS:
        live = set[str]()
        for line in program(kind, 1):
            word, *rest = line.split()
            if word == "allocate":
                live.add(rest[0])
            elif word == "free":
                live.remove(rest[0])
            elif word == "use":
                assert rest[0] in live


def test_a_program_that_drops_a_pool_it_is_in_is_not_sound() -> None:
    assert is_sound(["pool 1", "enter 1", "leave 1", "drop 1"])
    assert not is_sound(["pool 1", "enter 1", "drop 1", "leave 1"])
    assert not is_sound(["enter 1", "leave 1"])
    assert all(is_sound(program(kind, 2)) for kind in KINDS)


def test_shrinking_leaves_the_steps_that_matter_and_the_head() -> None:
    lines = ["capacity 1024", *[f"allocate {number} 512 0" for number in range(100)]]
    wanted = {"allocate 17 512 0", "allocate 60 512 0"}
    assert shrink(lines, lambda lines: wanted <= set(lines)) == ["capacity 1024", *sorted(wanted)]


def test_a_side_that_dies_is_an_error_of_that_program_alone(tmp_path: Path) -> None:
    side = tmp_path / "side"
    side.write_text(
        "#!/bin/sh\n"
        "while read -r word name; do\n"
        '  [ "$name" = bad ] && exit 1\n'
        '  [ "$word" = program ] && printf "program %s\\n0 at 0+0\\nend %s\\n" "$name" "$name"\n'
        "done\n"
        "exit 0\n"
    )
    side.chmod(0o755)
    outcomes = run(side, {"good": [], "bad": [], "later": []})
    assert outcomes == {
        "good": ["0 at 0+0"],
        "bad": ["error it did not end"],
        "later": ["0 at 0+0"],
    }


def test_a_release_that_cannot_be_had_is_said_and_fails_only_where_one_is_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fetch(version: str, _folder: Path) -> None:
        if version != "9.0.0":
            message = "no network"
            raise wheels.MissingError(message)

    monkeypatch.setattr(wheels, "newest", lambda: "9.0.0")
    monkeypatch.setattr(wheels, "fetch", fetch)
    monkeypatch.setattr(built, "build_driver", lambda folder: folder / "driver")
    monkeypatch.delenv("ORACLE_REQUIRED", raising=False)
    assert oracle.available(tmp_path) == [("9.0.0", tmp_path / "9.0.0" / "driver")]
    expected = f"oracle: not available: torch {wheels.PINNED}: no network\n"
    assert capsys.readouterr().out == expected
    monkeypatch.setenv("ORACLE_REQUIRED", "1")
    with pytest.raises(wheels.MissingError):
        oracle.available(tmp_path)


def test_the_newest_release_that_is_there_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for version in ("2.9.1", "2.13.0", "2.15.0"):
        (tmp_path / version).mkdir()
    for version in ("2.9.1", "2.13.0"):  # of the third one the parts are not whole
        (tmp_path / version / "whole").touch()
    monkeypatch.setattr(built, "build_driver", lambda wheel: wheel / "built/driver")
    assert installed.timing(tmp_path) == tmp_path / "2.13.0/built/timing"

    def build(wheel: Path) -> Path:
        if wheel.name == "2.13.0":
            raise FileNotFoundError(wheel.name)
        return wheel / "built/driver"

    monkeypatch.setattr(built, "build_driver", build)
    assert installed.timing(tmp_path) == tmp_path / "2.9.1/built/timing"
    assert capsys.readouterr().err == "oracle: torch 2.13.0 cannot be measured: 2.13.0\n"


def test_where_no_release_was_brought_nothing_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert installed.timing(tmp_path) is None
    assert installed.timing(tmp_path / "missing") is None
    assert capsys.readouterr().err == ""
