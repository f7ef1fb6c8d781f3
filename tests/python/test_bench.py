"""Goal: each row of the figures has a goal of its name, and what is not there is said.

Method: what takes no time is measured; nothing here is about how fast something is.
"""

from pathlib import Path

from accelrt import _core
from accelrt.cli.bench import replays
from accelrt.cli.bench.goals import GOALS
from accelrt.cli.bench.table import records

NAMES = [goal.name for goal in GOALS]


def test_every_goal_has_a_name_of_its_own() -> None:
    assert len(set(NAMES)) == len(NAMES)


def test_rows_of_traces_say_that_there_are_none(tmp_path: Path) -> None:
    measured = {row.name: row for row in replays.measure(tmp_path)}
    assert set(measured) < set(NAMES)
    fuzz = measured.pop("A9.fuzz")
    assert fuzz.ours is not None
    assert fuzz.ours > 0
    assert measured
    assert {row.reason for row in measured.values()} == {
        "no traces: --traces names their folder",
    }
    judged = {record["name"]: record for record in records(measured.values())}
    assert judged["A7.max"]["met"] is None


def test_later_rounds_of_a_replay_find_the_pages_of_the_first() -> None:
    events = [(True, 1, 5 << 20, 0), (True, 2, 40 << 20, 0), (False, 1, 0, 0)]
    recording = _core.Recording.of_operations(events)
    first, third = (
        recording.replay("policy:torch", 1 << 30, 2 << 20, rounds).page_operations
        for rounds in (1, 3)
    )
    assert (first, third) == (30, 0)
