"""`tests/steps`: the runner of make targets counts tests, and stops at the first failure."""

import stat
from pathlib import Path

import pytest

import steps
from kinds import KIND

pytestmark = pytest.mark.skipif(KIND != "cpu", reason="about make, not about a device")

RUST = """     Running unittests src/lib.rs (target/debug/deps/a-1)
test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s
     Running tests/order/main.rs (target/debug/deps/b-1)
test result: ok. {passed} passed; 0 failed; 0 ignored; 0 measured; 9 filtered out; finished in 1s
"""
PYTEST = "\x1b[32m======= \x1b[32m\x1b[1m639 passed\x1b[0m, 5 skipped in 8.24s ====\x1b[0m\n"


def make(folder: Path, output: str, *, fails: str = "") -> str:
    """Write a program in the place of make; the target `fails` exits with 3."""
    text, program = folder / "output", folder / "make"
    text.write_text(output)
    program.write_text(f"#!/bin/sh\ncat {text}\n[ \"$1\" != '{fails}' ] || exit 3\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


def run(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, program: str, *names: str
) -> tuple[int, list[str]]:
    monkeypatch.setenv("MAKE", program)
    status = steps.main(list(names))
    return status, [" ".join(line.split()) for line in capfd.readouterr().out.splitlines()]


def test_counts_tests_of_each_suite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    program = make(tmp_path, RUST.format(passed=7) + PYTEST)
    status, lines = run(capfd, monkeypatch, program, "one", "two")
    assert status == 0
    for name in ("one", "two"):
        at = lines.index(f"{name} 0.0 651 6")
        assert lines[at + 1 : at + 4] == [
            "src/lib.rs 5 1",
            "tests/order/main.rs 7 0",
            "pytest 639 5",
        ]


def test_filter_without_matches_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    program = make(tmp_path, RUST.format(passed=0))
    status, lines = run(capfd, monkeypatch, program, "one", "two")
    assert status == 1
    assert "one: the filter matches no test of tests/order/main.rs" in lines
    assert "::: two" not in lines


def test_failure_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    status, lines = run(capfd, monkeypatch, make(tmp_path, "", fails="two"), "one", "two", "three")
    assert status == 3
    assert "two failed with status 3" in lines
    assert "::: three" not in lines
