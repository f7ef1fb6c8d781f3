"""Goal: each figure is a row of the table, what is not there is said, and nothing is judged.

Method: what takes no time is measured; nothing here is about how fast something is.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import accelrt
from accelrt import _core, cli
from accelrt.backends import mkl
from accelrt.cli import bench
from accelrt.cli.bench import (
    allocators,
    awaits,
    clusters,
    generators,
    histories,
    idle,
    launches,
    profiles,
    quiet,
    replays,
    sanitizers,
    tables,
    xpu,
)
from accelrt.cli.bench.measure import in_pairs, in_turns
from accelrt.cli.bench.measurement import Measurement
from accelrt.cli.bench.quiet import Patience, Watch
from accelrt.cli.bench.rows import ROWS
from kinds import KIND

NAMES = [row.name for row in ROWS]


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Patience, "SECONDS", 0.0)


def test_every_row_has_a_name_of_its_own() -> None:
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize(
    ("missing", "part", "first"),
    [
        ("numpy", allocators._of_arrays, "H1"),
        ("mkl", allocators._of_products, "H2"),
        ("xpu", xpu.measure, "D"),
        ("numpy", clusters.measure, "Z"),
        ("distributed", clusters.measure, "Z"),
    ],
)
def test_unmeasured_rows_are_all_named(
    monkeypatch: pytest.MonkeyPatch,
    missing: str,
    part: Callable[[], Iterator[Measurement]],
    first: str,
) -> None:
    for module in (allocators, clusters):
        monkeypatch.setattr(module, "optional", lambda name: None if name == missing else name)
    for module in (mkl, accelrt.xpu):
        monkeypatch.setattr(module, "is_available", lambda: False)
    measured = list(part())
    assert [row.name for row in measured] == [name for name in NAMES if name.startswith(first)]
    assert {row.ours for row in measured} == {None}
    assert len({row.reason for row in measured} - {None}) == 1


@pytest.mark.parametrize("is_named", [True, False])
def test_rows_of_traces_say_that_there_are_none(tmp_path: Path, *, is_named: bool) -> None:
    measured = {row.name: row for row in replays.measure(tmp_path if is_named else None)}
    expected = [name for name in NAMES if name.startswith(("A7", "A8", "A9", "A10"))]
    assert sorted(measured) == sorted(expected)
    fuzz = measured.pop("A9.fuzz")
    assert fuzz.ours is not None
    assert fuzz.ours > 0
    assert measured
    assert {row.reason for row in measured.values()} == {
        "no traces: --traces names their folder",
    }


def test_tables_are_read_and_replayed_whole(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hot = tmp_path / "hot.ops.csv"
    tables.write_hot(hot, 1_000)
    figures = _core.Recording.of_table(hot).replay("", 1 << 30, 2 << 20)
    assert (figures.events, figures.failed_at) == (1_000, None)
    monkeypatch.setattr(tables, "write_hot", lambda path: path.write_bytes(hot.read_bytes()))
    own = Path(__file__).parents[1] / "data"
    (tmp_path / "ops").symlink_to(own)
    measured = list(tables.measure(tmp_path))
    assert [row.name for row in measured] == [name for name in NAMES if name.startswith("V4")]
    assert all(row.ours for row in measured)
    (tmp_path / "ops").unlink()
    for folder in (tmp_path, None):
        reasons = {row.name: row.reason for row in list(tables.measure(folder))[2:]}
        reason = "no traces: --traces names their folder"
        assert reasons == {"V4.traces": reason, "V4.traces.reading": reason}


def test_a_history_is_measured_beside_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "_ROUNDS", 10)
    measured = list(histories.measure())
    assert [row.name for row in measured] == [name for name in NAMES if name.startswith("V2")]
    assert all(row.excess_ns is not None and row.ours is not None for row in measured), measured


def test_a_watch_of_the_sanitizer_is_measured_beside_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitizers, "_ROUNDS", 10)
    measured = list(sanitizers.measure())
    assert [row.name for row in measured] == [name for name in NAMES if name.startswith("S1")]
    assert all(row.excess_ns is not None and row.ours is not None for row in measured), measured


@pytest.mark.skipif(KIND != "cpu", reason="the clusters are of cpu devices")
@pytest.mark.filterwarnings("default")  # those of other packages
def test_clusters_are_measured_beside_plain_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_VALUES", 2), ("_TASKS", 5), ("_ROWS", 512), ("_PRODUCTS", 1)):
        monkeypatch.setattr(clusters, name, value)
    measured = list(clusters.measure())
    assert [row.name for row in measured] == [name for name in NAMES if name.startswith("Z")]
    assert all(row.ours and row.peer_ns for row in measured), measured
    monkeypatch.setattr(clusters, "optional", lambda _: None)
    assert {row.reason for row in clusters.measure()} == {"needs the extra `dask`, and NumPy"}


def test_a_profile_is_exported_made_into_a_page_and_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(profiles, "_TASKS", 100)
    monkeypatch.setattr(profiles, "_REPETITIONS", 1)
    measured = list(profiles.measure())
    assert [row.name for row in measured] == [name for name in NAMES if name.startswith("V3")]
    # What an empty document takes may vary by more than so small a page.
    assert all(row.ours is not None or "Chromium" in str(row.reason) for row in measured)
    monkeypatch.setattr(profiles, "_BROWSERS", ("no browser",))
    assert list(profiles.measure())[-1].reason == "needs Chromium, which `make peers` installs"


def test_random_numbers_are_measured_beside_numpys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generators, "_BYTES", 1 << 20)
    measured = list(generators.measure())
    assert [row.name for row in measured] == [name for name in NAMES if name.startswith("R")]
    assert all(row.ours and row.peer_ns for row in measured)


def test_awaits_are_measured_beside_asyncios_and_tasks_beside_what_is_outside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("_DONE", 16), ("_PENDING", 8), ("_BLOCKS", 1), ("_SLEEP_S", 0.001)):
        monkeypatch.setattr(awaits, name, value)
    measured = list(awaits.measure())
    assert [row.name for row in measured] == [name for name in NAMES if name.startswith("W")]
    assert all(row.ours and (row.peer is None or row.peer_ns) for row in measured)
    assert [row.name for row in measured if row.excess_ns is not None] == ["W3", "W3.empty"]


def test_a_difference_is_of_neighbours_of_which_the_first_alternates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quiet, "_is_quiet", lambda: True)
    order = list[str]()

    def block(name: str) -> float:
        # The machine becomes slower all the time; one block is interrupted.
        order.append(name)
        return len(order) // 2 + {"ours": 5.0, "theirs": 0.0}[name] + 1e9 * (len(order) == 40)

    pair = in_pairs(lambda: block("ours"), lambda: block("theirs"))
    assert order[:6] == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert order.count("ours") == order.count("theirs") == 12 * 9
    assert pair.excess_ns in {4.0, 5.0, 6.0}
    assert pair.ours.quiet == pair.theirs.quiet == 11


def test_rows_that_are_not_wanted_are_neither_measured_nor_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(generators, "_BYTES", 1 << 20)

    def unwanted() -> Iterator[Measurement]:
        pytest.fail("measured")
        yield

    monkeypatch.setattr(launches, "measure", unwanted)
    assert bench.run(None, tmp_path, "R1.s", patience_s=0) == 0
    names = [line.split("|")[1].strip() for line in capsys.readouterr().out.splitlines()[4:]]
    assert names == ["R1.sfc64"]


def test_who_measures_sees_progress_and_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rows = [Measurement("Q7", ours=3.0, ours_min=2.0), Measurement("Q2", reason="no function")]
    for module in (launches, idle):
        monkeypatch.setattr(module, "measure", lambda: iter([]))
    monkeypatch.setattr(idle, "measure", lambda: iter(rows))
    assert bench.run(None, tmp_path, "Q", patience_s=0) == 0
    said = capsys.readouterr()
    assert said.err.splitlines()[0] == f"accelrt bench: Q7 (1 of {len(ROWS)} at most)"
    assert "3 ns" in said.out
    assert said.out.splitlines()[-1] == "not measured: Q2: no function"


def test_rows_that_do_not_exist_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", "--rows", "ZZ"])
    assert "argument --rows: no row's name begins with 'ZZ'" in capsys.readouterr().err


def test_what_was_not_quiet_is_taken_again_while_there_is_patience(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Patience, "SECONDS", 60.0)
    # Before and after each of three times.
    moments = iter([True, False, True, False, True, True])
    monkeypatch.setattr(quiet, "_is_quiet", lambda: next(moments))
    values, watch = iter([1.0, 2.0, 3.0]), Watch(Patience())
    assert watch.once(lambda: next(values)) == 3.0
    assert watch.was_quiet
    assert next(moments, None) is None


def test_blocks_that_were_taken_again_are_among_the_unfiltered_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Patience, "SECONDS", 60.0)
    # Before and after each block, of which a repetition has two. But for the repetition that warms
    # up the first block is slow and not quiet each time, and is taken again.
    moments = iter([True] * 4 + [True, False, True, True, True, True] * 11)
    monkeypatch.setattr(quiet, "_is_quiet", lambda: next(moments))
    values = iter([0.5, 0.5] + [90.0, 1.0, 2.0] * 11)
    (figure,) = in_turns(lambda watch: watch.blocks(2, 10, lambda _: next(values)))
    assert (figure.median, figure.least, figure.quiet) == (1.5, 1.5, 11)
    assert (figure.unfiltered, figure.p99) == (2.0, 90.0)


def test_of_a_hundred_blocks_99_take_no_longer_than_the_99th_percentile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quiet, "_is_quiet", lambda: True)
    values = iter([0.0] * 100 + [float(number) for number in range(1100)])
    (figure,) = in_turns(lambda watch: watch.blocks(100, 1, lambda _: next(values)))
    assert figure.p99 == 1089.0
    assert figure.unfiltered == 550.0


def test_without_patience_what_is_measured_counts_as_it_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quiet, "_is_quiet", lambda: False)
    watch = Watch(Patience())
    assert watch.once(lambda: 1.0) == 1.0
    assert not watch.was_quiet


def test_nothing_waits_for_quiet_moments_longer_than_its_patience(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Patience, "SECONDS", 40.0)
    # A quiet moment comes after many looks, and then another one: both waits are of one patience.
    monkeypatch.setattr(time, "sleep", lambda _: None)
    now = iter(range(1_000))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(now)))
    moments = iter([*[False] * 20, True, True, *[False] * 40])
    monkeypatch.setattr(quiet, "_is_quiet", lambda: next(moments))
    watch = Watch(Patience())
    assert watch.once(lambda: 1.0) == 1.0
    assert watch.was_quiet
    assert watch.once(lambda: 2.0) == 2.0
    assert not watch.was_quiet
    assert len(list(moments)) > 15


def test_quiet_is_near_the_shortest_pulse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "_FIRST_LOOK_S", 0)
    monkeypatch.setattr(quiet, "_QUIET_FACTOR", 1.5)
    monkeypatch.setattr(quiet, "_pulse_ns", lambda: 100)
    best = quiet._Best()
    # The pulse of 90 ns is the shortest one from then on.
    pulses = {150: True, 151: False, 90: True, 136: False, 135: True, 100: True}
    assert {pulse_ns: best.is_near(pulse_ns) for pulse_ns in pulses} == pulses


def test_a_repetition_is_quiet_when_all_of_its_blocks_were(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([True, True, False, True, True])
    monkeypatch.setattr(quiet, "_is_quiet", lambda: next(moments))
    asked, watch = [], Watch(Patience())

    def ns_of(rounds: int) -> float:
        asked.append(rounds)
        return float(len(asked))

    assert watch.blocks(2, 80, ns_of) == 1.5
    assert asked == [80, 80]
    assert not watch.was_quiet


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf", ""])
def test_a_patience_that_is_no_time_is_refused(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", "--patience", text])
    assert f"argument --patience: {text!r} is not a number of seconds" in capsys.readouterr().err


def test_later_rounds_of_a_replay_find_the_pages_of_the_first() -> None:
    events = [(True, 1, 5 << 20, 0), (True, 2, 40 << 20, 0), (False, 1, 0, 0)]
    recording = _core.Recording.of_operations(events)
    first, third = (
        recording.replay("policy:torch", 1 << 30, 2 << 20, rounds).page_operations
        for rounds in (1, 3)
    )
    assert (first, third) == (30, 0)
