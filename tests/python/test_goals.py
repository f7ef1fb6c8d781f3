"""Goal: each figure of the repository has one goal, and what is shipped has and names none.

Method: measurements are made up and judged; the package that is installed is read.
"""

import json
from pathlib import Path

import pytest

import accelrt
import judged
import report
from accelrt.cli import bench
from accelrt.cli.bench import idle, launches, table
from accelrt.cli.bench.measurement import Measurement
from accelrt.cli.bench.quiet import Patience
from accelrt.cli.bench.rows import ROWS
from goals import GOALS, TABLES

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
        return record["met"], record["excess_ns"], line.split("|")[11].strip()

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
    shown = _shown(
        Measurement("Q4", ours=100.0, ours_min=90.0, peer="pong", peer_ns=66.0, quiet=11)
    )
    assert list(shown)[-4:] == ["ratio", "goal", "met", "quiet"]
    assert list(shown.values())[-4:] == ["1.52", "≤ 2 x", "yes", "11"]


def _shown(measured: Measurement) -> dict[str, str]:
    """Return the cells of a row, by their heads."""
    (record,) = [it for it in judged.records([measured]) if it["name"] == measured.name]
    heads, _, cells = (
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in judged.text([record]).splitlines()
    )
    return dict(zip(heads, cells, strict=True))


def test_every_block_is_shown_beside_the_quiet_ones() -> None:
    measured = Measurement("Q1", ours=10.0, ours_min=9.0, unfiltered=12.0, p99=31.5, quiet=3)
    shown = _shown(measured)
    assert [shown[head] for head in ("ours", "least", "all", "p99", "quiet")] == [
        "10 ns",
        "9",
        "12",
        "31.50",
        "3",
    ]
    assert _shown(Measurement("Q1", ours=10.0))["p99"] == ""


def test_the_real_allocator_is_judged_beside_the_model() -> None:
    def verdict(row: str, peer_ns: float | None) -> tuple[str, str]:
        shown = _shown(Measurement(row, ours=100.0, peer="a peer", peer_ns=peer_ns))
        return shown["goal"], shown["met"]

    assert verdict("A3.c10", 500.0) == ("≤ 0.2 x", "yes")
    assert verdict("A3.c10", 499.0) == ("≤ 0.2 x", "no")
    assert verdict("A2.c10", 500.0) == ("≤ 0.2 x", "yes")
    assert verdict("A3.model", 200.0) == ("≤ 0.35 x", "no")
    assert verdict("A3.c10", None) == ("≤ 0.2 x", "not measured")
    names = {row.name for row in ROWS_OF_GOALS}
    for peer in ("model", "c10"):
        assert {f"{row}.{peer}" for row in report.MODELLED} <= names
    assert {f"A3.c10.{it}" for it in TABLES} <= names


def test_what_the_model_flatters_is_said_by_the_figures() -> None:
    def records(**took: float) -> list[table.Record]:
        return judged.records(
            Measurement(name, ours=1.0, peer="it", peer_ns=ns) for name, ns in took.items()
        )

    both = records(**{"A2.model": 250.0, "A2.c10": 750.0, "A3.model": 100.0, "A3.c10": 340.0})
    assert report.flattery(both) == (
        "The model flatters PyTorch: its own allocator takes "
        "3.0 times as long at A2, 3.4 times as long at A3."
    )
    alone = records(**{"A2.model": 250.0})
    assert "is not measured" in report.flattery(alone)


def test_the_command_prints_and_keeps_figures_and_judges_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(launches, "measure", lambda: iter([]))
    monkeypatch.setattr(idle, "measure", lambda: iter([Measurement("Q7", ours=3.0, ours_min=2.0)]))
    kept = tmp_path / "kept"
    patience_s = Patience.SECONDS
    assert bench.run(kept, tmp_path, "Q", patience_s=0) == 0
    assert patience_s == Patience.SECONDS, "for this run alone"
    shown = capsys.readouterr().out
    assert "3 ns" in shown
    assert not [goal for goal in GOALS if str(goal) and str(goal) in shown]
    assert all({"goal", "met"}.isdisjoint(record) for record in json.loads(kept.read_text()))


def test_what_is_installed_names_no_goals() -> None:
    package = Path(accelrt.__file__).parent
    sources = sorted(package.rglob("*.py"))
    assert package / "cli" / "bench" / "rows.py" in sources
    assert [path for path in sources if "goal" in path.read_text("utf-8").lower()] == []
