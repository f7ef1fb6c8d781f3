"""Goal: each figure of the repository has one goal, and what is shipped has and names none.

Method: measurements are made up and judged; the package that is installed is read.
"""

import json
from pathlib import Path

import pytest

import accelrt
import judged
from accelrt.cli import bench
from accelrt.cli.bench import idle, launches
from accelrt.cli.bench.measurement import Measurement
from accelrt.cli.bench.rows import ROWS
from goals import GOALS

ROWS_OF_GOALS = [goal.row for goal in GOALS]


def test_every_goal_has_a_row_of_its_own() -> None:
    assert len({row.name for row in ROWS_OF_GOALS}) == len(GOALS)


def test_what_python_measures_has_its_place_among_the_goals() -> None:
    assert [row for row in ROWS_OF_GOALS if row in ROWS] == list(ROWS)


def test_a_goal_of_a_difference_is_judged_by_pairs_and_not_by_medians() -> None:
    def verdict(excess_ns: float | None) -> object:
        measured = Measurement("D1", ours=600.0, peer="raw", peer_ns=550.0, excess_ns=excess_ns)
        (record,) = [it for it in judged.records([measured]) if it["name"] == "D1"]
        line = judged.text([record]).splitlines()[-1]
        return record["met"], record["excess_ns"], line.split("|")[9].strip()

    assert verdict(100.0) == (True, 100.0, "yes: +100 ns")
    assert verdict(120.0) == (False, 120.0, "no: +120 ns")
    assert verdict(None) == (None, None, "")


def test_what_was_not_measured_is_not_judged() -> None:
    measured = [Measurement("A7.max", reason="no traces")]
    of_row = {str(record["name"]): record for record in judged.records(measured)}
    assert of_row["A7.max"]["met"] is None
    assert "not measured: no traces" in judged.text([of_row["A7.max"]])
    assert of_row["A7.own"]["met"] is None


def test_a_figure_is_shown_with_its_goal_between_ratio_and_quiet() -> None:
    measured = [Measurement("Q4", ours=100.0, ours_min=90.0, peer="pong", peer_ns=66.0, quiet=11)]
    (record,) = [it for it in judged.records(measured) if it["name"] == "Q4"]
    heads, _, cells = judged.text([record]).splitlines()
    assert [head.strip() for head in heads.split("|")[7:-1]] == ["ratio", "goal", "met", "quiet"]
    assert [cell.strip() for cell in cells.split("|")[7:-1]] == ["1.52", "≤ 2 x", "yes", "11"]


def test_the_command_prints_and_keeps_figures_and_judges_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(launches, "measure", lambda: iter([]))
    monkeypatch.setattr(idle, "measure", lambda: iter([Measurement("Q7", ours=3.0, ours_min=2.0)]))
    kept = tmp_path / "kept"
    assert bench.run(kept, tmp_path, "Q", patience_s=0) == 0
    shown = capsys.readouterr().out
    assert "3 ns" in shown
    assert not [goal for goal in GOALS if str(goal) and str(goal) in shown]
    assert all({"goal", "met"}.isdisjoint(record) for record in json.loads(kept.read_text()))


def test_what_is_installed_names_no_goals() -> None:
    package = Path(accelrt.__file__).parent
    sources = sorted(package.rglob("*.py"))
    assert package / "cli" / "bench" / "rows.py" in sources
    assert [path for path in sources if "goal" in path.read_text("utf-8").lower()] == []
