"""Goal: rows of the bench that replace clocks, processes and recordings are whole.

Method: as in `test_bench_figures.py`, where no statement is timed.
"""

import asyncio
import importlib
import importlib.util
import itertools
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import pytest

import accelrt
from accelrt.cli.bench import (
    awaits,
    clusters,
    current,
    generators,
    machine,
    measure,
    profiles,
    quiet,
    replays,
    table,
    tables,
)
from accelrt.cli.bench.measurement import Measurement
from accelrt.cli.bench.rows import Row
from bench_rows import constants, rows

handler_name = importlib.import_module("numpy._core.multiarray").get_handler_name
Rows = dict[str, tuple[float | None, str | None, float | None]]
Runs = list[tuple[str, int]]


class Recording:
    """Stands in for a recording: its peaks by settings, in pages, and operations of each page."""

    def __init__(self, live: int, reserved: dict[str, int], operations: int = 3) -> None:
        self.live = live
        self.reserved = reserved
        self.operations = operations

    def replay(self, settings: str, capacity: int, page: int, rounds: int = 1) -> Any:
        assert capacity == 1 << 40
        pages = self.reserved[settings]
        of_page = self.operations + 4 * (settings != "ours")
        return SimpleNamespace(
            peak_live_bytes=self.live << 20,
            peak_reserved_bytes=pages * page,
            page_operations=pages * of_page if rounds == 1 else pages,
            events=4 * rounds,
        )


def test_replays_whole_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(accelrt.accelerator, "get_allocator_settings", lambda: "ours")
    torch, expandable = "policy:torch", "policy:torch,expandable_segments:True"

    def recording(live: int, *pages: int, operations: int = 3) -> Recording:
        reserved = dict(zip(("ours", torch, expandable), pages, strict=True))
        return Recording(live, reserved, operations)

    # Mean, median, least and greatest of the public recordings differ in every column.
    public = recording(8, 5, 8, 4)
    found = {
        **dict.fromkeys((Path(name).name for name in replays._PUBLIC), public),
        "G_1.ops.csv": recording(4, 8, 12, 3, operations=9),
        "own_a.ops.csv": recording(1, 1, 1, 1),
        "own_b.ops.csv": recording(199, 112, 224, 1),
        "own_c.ops.csv": recording(1, 1, 1, 1),
        "synth_robson.ops.csv": recording(2, 2, 3, 1),
    }
    own = sorted(f"ops/{name}" for name in found if name.startswith("own"))
    for name in (*replays._PUBLIC, *own, replays._ADVERSARY):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    constants(monkeypatch, replays, _fuzz=lambda: recording(4, 3, 4, 1))
    reading = SimpleNamespace(read=lambda path: [SimpleNamespace(recording=found[path.name])])
    monkeypatch.setattr(replays, "traces", reading)

    def mean(public_ratio: float, other_ratio: float, pages_per_2_mib: int = 1) -> float:
        ratio: float = (public_ratio**5 * other_ratio) ** (1 / 6) / pages_per_2_mib
        return round((ratio - 1) * 100, 3)

    assert rows(replays.measure(tmp_path)) == {
        "A9.fuzz": (50, "policy torch", 100),
        "A7": (mean(1.25, 4), "policy torch", mean(2, 6)),
        "A7.max": (300, "policy torch", 500),
        "A7.expandable": (mean(1.25, 4), "expandable segments", mean(1, 1.5)),
        "A7.max.expandable": (300, "expandable segments", 50),
        "A7.own": (100, "policy torch", 200),
        "A8": (mean(1.25, 4, 32), "policy torch", mean(2, 6, 32)),
        "A8.max": (-87.5, "policy torch", -81.25),
        "A8.expandable": (mean(1.25, 4, 32), "expandable segments", mean(1, 1.5, 32)),
        "A8.max.expandable": (-87.5, "expandable segments", -95.312),
        "A9.robson": (100, "policy torch", 200),
        "A10": (3, "policy torch", 7),
        "A10.worst": (9, "policy torch", 13),
        "A10.third": (round(5 / 12, 3), "policy torch", round(8 / 12, 3)),
        "A10.third.worst": (round(8 / 12, 3), "policy torch", 1),
    }
    (tmp_path / replays._ADVERSARY).unlink()
    assert rows(replays.measure(tmp_path))["A7"][1] == "no traces: --traces names their folder"


def test_fuzz_is_one_program() -> None:
    events = replays._fuzz().operations()
    live, most = set[int](), 0
    for is_request, identity, size, stream in events:
        if is_request:
            assert 512 <= size <= 64 << 20
            assert stream in range(4)
            live.add(identity)
            most = max(most, len(live))
        else:
            live.remove(identity)
    assert (len(events), len(live), most) == (39_563, 437, 500)


def test_profile_page_is_opened_by_the_browser(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    page.write_text("<canvas>")
    ran, now = list[Any](), iter([1.0, 3.5] * 2)

    def run(command: list[str], **options: Any) -> Any:
        ran.append((command[0], command[-2:], options))
        return SimpleNamespace(stdout=page.read_bytes())

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(profiles, "time", SimpleNamespace(perf_counter=lambda: next(now)))
    assert profiles._open("chromium", page, "<canvas") == 2.5
    limits = {"check": True, "capture_output": True, "timeout": 120}
    assert ran == [("chromium", ["--dump-dom", page.as_uri()], limits)]
    with pytest.raises(RuntimeError, match=r"^chromium shows no <title> in page\.html$"):
        profiles._open("chromium", page, "<title>")


def test_machine_facts_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cpus, clock = tmp_path / "cpuinfo", tmp_path / "clock"
    cpus.write_text("processor\t: 0\nmodel name\t: Fast: 9\n\nmodel name\t: Other\n")
    clock.write_text("tsc\n")
    constants(monkeypatch, machine, _PROCESSORS=cpus, _CLOCK_SOURCE=clock)
    monkeypatch.setattr(os, "sched_getaffinity", {0: {3, 4, 5}}.__getitem__)
    for name, value in (("release", "6.1"), ("python_version", "3.99"), ("machine", "riscv")):
        monkeypatch.setattr(platform, name, lambda value=value: value)
    whole = "cpu Fast: 9; cpus 3; kernel 6.1; clock tsc; Python 3.99; torch 2"
    assert machine.facts(torch="2") == whole
    cpus.unlink()
    clock.unlink()
    assert machine.facts() == "cpu riscv; cpus 3; kernel 6.1; clock unknown; Python 3.99"


TABLE = """\
| row | what   |     ours |    least |   all |  p99 | peer |  peer's | ratio | quiet |
| --- | ------ | -------: | -------: | ----: | ---: | ---- | ------: | ----: | ----: |
| Z   | zero   |     0 ns |        0 |     0 |    0 | p    |    4 ns |  0.00 |     0 |
| A   | a long | 1,234 ms | 1,233.25 |       |      | q    | missing |       |       |
| B   | both   |  2.50 ns |        2 | 2,000 | 3.10 | r    | 1.25 ns |  2.00 |    11 |
not measured: M, N: no clock
not measured: O: no cpu
"""


def test_table_whole_text() -> None:
    known = [
        (Row("Z", "zero"), Measurement("Z", 0.0, 0.0, "p", 4.0, unfiltered=0.0, p99=0.0, quiet=0)),
        (Row("A", "a long", "ms"), Measurement("A", 1234.0, 1233.25, "q")),
        (Row("M", "m"), Measurement("M", reason="no clock")),
        (Row("B", "both"), Measurement("B", 2.5, 2, "r", 1.25, 1, None, 2000, 3.1, 9, 8, 11)),
        (Row("O", "o"), Measurement("O", reason="no cpu")),
        (Row("N", "n"), Measurement("N", reason="no clock")),
        (Row("U", "u"), table.unmeasured(Row("U", "u"))),
    ]
    records = [table.record(row, measured) for row, measured in known]
    assert table.text(records) == TABLE
    assert records[1] == {
        "name": "A", "what": "a long", "unit": "ms", "ours_ns": None, "ours": 1234.0,
        "ours_min": 1233.25, "unfiltered": None, "p99": None, "peer": "q", "peer_ns": None,
        "peer_unfiltered": None, "peer_p99": None, "excess_ns": None, "ratio": None,
        "reason": "q is missing", "quiet": None,
    }  # fmt: skip
    assert records[3] == {
        "name": "B", "what": "both", "unit": "ns", "ours_ns": 2.5, "ours": 2.5, "ours_min": 2,
        "unfiltered": 2000, "p99": 3.1, "peer": "r", "peer_ns": 1.25, "peer_unfiltered": 9,
        "peer_p99": 8, "excess_ns": 1, "ratio": 2.0, "reason": None, "quiet": 11,
    }  # fmt: skip


def test_rows_of_figures_whole() -> None:
    ours = measure.Figure(2.0, 1.0, 9, 3.0, 4.0)
    theirs = measure.Figure(6.0, 5.0, 8, 7.0, 8.0)
    pair = measure.Pair(ours, theirs, -0.5)
    assert measure.paired("S1", pair, "off") == Measurement(
        "S1", 2.0, 1.0, "off", 6.0, -0.5, None, 3.0, 4.0, 7.0, 8.0, 9
    )
    assert measure.row("S1", ours) == Measurement(
        "S1", 2.0, 1.0, None, None, None, None, 3.0, 4.0, None, None, 9
    )


@pytest.mark.parametrize("is_inside", [True, False])
def test_current_stream_of_its_process(*, is_inside: bool) -> None:
    # A statement that fails in the other process.
    inside = "current_stream() != type(current_stream())(0, 0, 0)"
    statement = f"1 / ({inside})" if is_inside else f"1 / (not {inside})"
    with current.Asked(statement, is_inside=is_inside) as asked:
        assert min(asked.ns(), asked.ns()) > 0


def test_clusters_whole_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_REPETITIONS", 1)
    monkeypatch.setattr(quiet, "_is_quiet", lambda: True)
    limits, turns = list[tuple[str, int]](), itertools.count(1)

    @contextmanager
    def client(name: str, nbytes: int) -> Iterator[str]:
        limits.append((name, nbytes))
        yield name

    def product(client: str, *, is_ours: bool) -> float:
        assert is_ours == (client == "ours")
        return next(turns) ** 2 * (1 if is_ours else 10)

    constants(monkeypatch, clusters, _ROWS=16, _PRODUCTS=3, optional=lambda _: object())
    constants(
        monkeypatch,
        clusters,
        _left_ms=lambda: 1.0,
        _copied_ms=lambda: 2.0,
        _spilled_ms=lambda: 3.0,
        _written_ms=lambda: 4.0,
        _spilled_by_dask_ms=lambda: 5.0,
        _task_us={"ours": 6.0, "plain": 7.0}.__getitem__,
        _product_s=product,
        _ours=lambda nbytes: client("ours", nbytes),
        _plain=lambda nbytes: client("plain", nbytes),
    )
    measured = list(clusters.measure())
    assert rows(measured) == {
        "Z1.host": (1, "memcpy", 2),
        "Z1.disk": (3, "raw writes", 4),
        "Z1.disk.dask": (3, "dask", 5),
        "Z2": (6, "dask", 7),
        "Z3": (9, "dask", 160),
    }
    assert measured[-1].ours_min == 1
    # A block is of float32.
    assert limits == [("ours", 4 * 16 * 16), ("plain", 4 * 16 * 16)]


def test_clusters_time_whole_values_on_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spill = pytest.importorskip("distributed.spill")
    found, closed = list[tuple[int, int]](), list[type]()
    kinds = [importlib.import_module("accelrt.dask").DeviceStore, spill.SpillBuffer]
    for kind in kinds:

        def close(store: object, close: Callable[[Any], None] = kind.close) -> None:
            closed.append(type(store))
            close(store)

        monkeypatch.setattr(kind, "close", close)

    def bytes_on_disk() -> int:
        return sum(it.stat().st_size for it in tmp_path.rglob("*") if it.is_file())

    def took_ms(act: Callable[[], object]) -> float:
        before = bytes_on_disk()
        act()
        found.append((before, bytes_on_disk() // (1 << 20)))
        return 7.0

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    constants(monkeypatch, clusters, _VALUES=3, _VALUE_BYTES=1 << 20, _ms=took_ms)
    for of_disk in (clusters._spilled_ms, clusters._spilled_by_dask_ms, clusters._written_ms):
        assert of_disk() == 7
    # All is written, and while it is timed; the stores are closed and their files removed.
    assert found == [(0, 3)] * 3
    assert list(tmp_path.iterdir()) == []
    assert closed == kinds


def test_clusters_times_have_their_units(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")
    now = iter([1.0, 1.25] * 3)
    monkeypatch.setattr(clusters, "time", SimpleNamespace(perf_counter=lambda: next(now)))
    monkeypatch.setattr(distributed, "wait", lambda _: None)
    constants(monkeypatch, clusters, _TASKS=50, _BLOCKS=0)
    client = SimpleNamespace(map=lambda *_, pure: pure)
    assert clusters._ms(lambda: None) == 250
    assert clusters._task_us(client) == 5_000
    assert clusters._product_s(client, is_ours=True) == 0.25


def test_awaits_whole_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_REPETITIONS", 1)
    monkeypatch.setattr(measure, "_PAIRS", 2)
    monkeypatch.setattr(quiet, "_is_quiet", lambda: True)
    known = {"_of_one": 10, "_of_events": 20, "_of_callables": 30, "_in_executor": 40}
    asked = list[tuple[str, bool]]()

    def timed(runner: asyncio.Runner, count: int, rounds: Any) -> measure.Thing:
        runner.run(rounds(2))  # they end
        is_future = rounds.args and isinstance(rounds.args[0], asyncio.Future)
        return measure.once(lambda: known[rounds.func.__name__] + count + 0.5 * is_future)

    class Asked:
        def __init__(self, statement: str, *, is_inside: bool) -> None:
            asked.append((statement, is_inside))
            self.ns = lambda: (
                {"current_stream()": 7.0, "empty(512)": 9.0}[statement] * (3 if is_inside else 1)
            )

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...

    ms = {awaits._sleep: 50.0, awaits._sleep_in_python: 60.0}
    constants(monkeypatch, awaits, _timed=timed, Asked=Asked, _ms=ms.__getitem__)
    constants(monkeypatch, awaits, _DONE=1000, _PENDING=100)
    measured = list(awaits.measure())
    assert rows(measured) == {
        "W1": (1010, "asyncio.Future", 1010.5),
        "W2": (120, "run_in_executor", 140),
        "W2.callable": (130, "run_in_executor", 140),
        "W3": (21, "outside", 7),
        "W3.empty": (27, "outside", 9),
        "W4": (50, None, None),
        "W4.callable": (60, None, None),
    }
    assert [it.excess_ns for it in measured] == [None, None, None, 14, 18, None, None]
    statements = [(name, is_in) for name in ("current_stream()", "empty(512)") for is_in in (1, 0)]
    assert asked == statements


def test_awaits_are_timed_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "_is_quiet", lambda: True)
    now, counts = itertools.count(0, 320), list[int]()
    monkeypatch.setattr(awaits, "time", SimpleNamespace(perf_counter_ns=lambda: next(now)))
    monkeypatch.setattr(awaits, "_BLOCKS", 3)

    async def rounds(count: int) -> None:
        counts.append(count)

    with asyncio.Runner() as runner:
        thing = awaits._timed(runner, 16, rounds)
        assert thing(quiet.Watch(quiet.Patience(0))) == 20
    assert counts == [2, 16] * 3


def test_one_is_awaited_each_time() -> None:
    class Awaited:
        count = 0

        def __await__(self) -> Generator[None, None, None]:
            self.count += 1
            yield

    awaited = Awaited()
    asyncio.run(awaits._of_one(awaited, 5))
    assert awaited.count == 5


def test_sleepers_sleep_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    done, now = list[str](), iter([1.0, 1.5])

    def stream(kind: str, *, dedicated: bool) -> Any:
        assert (kind, dedicated) == ("cpu", True)
        return SimpleNamespace(synchronize=lambda: done.append("waited"))

    monkeypatch.setattr(accelrt, "Stream", stream)
    monkeypatch.setattr(awaits, "time", SimpleNamespace(perf_counter=lambda: next(now)))
    assert awaits._ms(lambda _: done.append("sleeps")) == 500
    assert done == ["sleeps"] * 8 + ["waited"] * 8


def test_generators_whole_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_REPETITIONS", 1)
    monkeypatch.setattr(quiet, "_is_quiet", lambda: True)
    sizes = {"uint32": 1, "uint64": 2, "float32": 3, "float64": 4}
    methods = {"fill_raw_": 10, "fill_uniform_": 20, "fill_normal_": 30}

    def ours(_: accelrt.Buffer, method: str, dtype: str) -> measure.Thing:
        return measure.once(lambda: methods[method] + sizes[dtype])

    def peer(_: object, peer: str, method: str, dtype: str) -> measure.Thing:
        value = methods[method] + sizes[dtype] + {"Philox": 100, "SFC64": 200}[peer]
        return measure.once(lambda: value)

    constants(monkeypatch, generators, _BYTES=1 << 10, _ours=ours, _peer=peer)
    figures = {"R1": 11, "R2": 12, "R3": 23, "R4": 24, "R5": 33, "R6": 34}
    assert rows(generators.measure()) == {
        f"{name}.{peer.lower()}": (figure, f"NumPy {peer}", figure + more)
        for name, figure in figures.items()
        for peer, more in (("Philox", 100), ("SFC64", 200))
    }


@pytest.mark.parametrize("dtype", ["uint32", "float64"])
def test_numpy_fills_as_many_bytes(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    monkeypatch.setattr(quiet, "_is_quiet", lambda: True)
    constants(monkeypatch, generators, _BYTES=1 << 12, _PIECE_BYTES=1 << 10)
    filled = list[tuple[Any, ...]]()

    def note(name: str) -> Any:
        def fill(*args: Any, out: Any = None, dtype: str = "") -> None:
            filled.append((name, *args, *((out.nbytes, dtype) if out is not None else ())))

        return fill

    class Generator:
        def __init__(self, bits: object) -> None:
            assert bits == "SFC64 1"
            self.integers = note("integers")
            self.random = note("random")
            self.standard_normal = note("normal")

    random = SimpleNamespace(Generator=Generator, SFC64=lambda seed: f"SFC64 {seed}")
    numpy = SimpleNamespace(random=random, zeros=np.zeros, dtype=np.dtype)
    for method in ("fill_raw_", "fill_uniform_", "fill_normal_"):
        generators._peer(numpy, "SFC64", method, dtype)(quiet.Watch(quiet.Patience(0)))
    size = np.dtype(dtype).itemsize
    assert filled == [
        *[("integers", 0, 1 << (8 * size), (1 << 10) // size, dtype)] * 4,
        ("random", 1 << 12, dtype),
        ("normal", 1 << 12, dtype),
    ]


def test_tables_whole_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(measure, "_REPETITIONS", 1)
    monkeypatch.setattr(quiet, "_is_quiet", lambda: True)
    monkeypatch.setattr(accelrt.accelerator, "get_allocator_settings", lambda: "ours")
    now = [0]
    monkeypatch.setattr(tables, "time", SimpleNamespace(thread_time_ns=lambda: now[0]))

    def work(ns: int, events: int) -> Any:
        now[0] += ns
        return SimpleNamespace(events=events)

    def recording(events: int) -> Any:
        def replay(settings: str, capacity: int, page: int) -> Any:
            assert (settings, capacity, page) == ("ours", 1 << 40, 2 << 20)
            return work(events * 10 + 60, events)

        return SimpleNamespace(replay=replay, survey=lambda: work(events * 4, events))

    read = list[str]()

    def traces(path: Path) -> list[Any]:
        read.append(path.name)
        return [SimpleNamespace(recording=recording({"b": 10, "c": 20}.get(path.name[:1], 100)))]

    (tmp_path / "ops").mkdir()
    for name in ("c.ops.csv", "b.ops.csv", "d.csv"):
        (tmp_path / "ops" / name).touch()
    monkeypatch.setattr(tables, "traces", SimpleNamespace(read=traces))
    monkeypatch.setattr(tables, "write_hot", lambda _: None)
    assert rows(tables.measure(tmp_path)) == {
        "V4": (10.6, None, None),
        "V4.reading": (4, None, None),
        "V4.traces": (14, None, None),  # 420 ns of 30 events
        "V4.traces.reading": (4, None, None),
    }
    assert read == ["hot.ops.csv", "b.ops.csv", "c.ops.csv"]


def test_hot_table_has_few_blocks(tmp_path: Path) -> None:
    path = tmp_path / "hot.ops.csv"
    tables.write_hot(path, 1_000)
    head, *lines = path.read_text().splitlines()
    assert (head, len(lines)) == ("t,op,id,size,stream", 1_000)
    live, sizes, most = set[int](), set[int](), 0
    for place, line in enumerate(lines):
        time_of_event, action, identity, size, stream = line.split(",")
        assert (int(time_of_event), stream) == (place, "0")
        if action == "a":
            assert int(identity) == place
            live.add(place)
            sizes.add(int(size))
            most = max(most, len(live))
        else:
            assert (action, size) == ("f", "0")
            live.remove(int(identity))
    assert (most, sizes) == (64, {512, 4096, 65536, 1 << 20})


def test_profiles_whole_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([3.0, 1.0, 2.5, 7.0])
    opened = list[tuple[str, str, str]]()

    def took(act: Any) -> float:
        act()
        return next(seconds)

    def show(browser: str, document: Path, mark: str) -> float:
        content = document.read_text()
        title = "<title>trace.json · accelrt view</title>"
        assert (title if document.name == "page.html" else mark) in content
        opened.append((browser, document.name, mark))
        return 0.25 if document.name == "empty.html" else 16 / 2 ** len(opened)

    found = {"google-chrome": "/bin/chrome", "chromium-browser": None}
    constants(monkeypatch, profiles, _TASKS=3, _seconds=took, _open=show)
    monkeypatch.setattr(shutil, "which", found.get)
    measured = list(profiles.measure())
    assert rows(measured) == {
        "V3": (2.5, None, None),
        "V3.page": (7, None, None),
        "V3.open": (1.75, None, None),
    }
    assert [it.ours_min for it in measured] == [1, 7, 0.25]
    chrome = "/bin/chrome"
    assert opened == [(chrome, "page.html", "<canvas"), (chrome, "empty.html", "<title>")] * 3
    summary = profiles._profile().key_averages().table()
    assert [line.split()[-1] for line in summary.splitlines() if "abs" in line] == ["3"]


def test_blocks_are_multiplied_and_added(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")
    total, a, b = (clusters._block(2, is_ours, 0) for is_ours in (True, False, True))
    np.asarray(total)[:] = [[1, 2], [3, 4]]
    a[:] = [[1, 2], [3, 5]]
    np.asarray(b)[:] = [[7, 11], [13, 17]]
    for is_ours, kind in ((True, accelrt.View), (False, np.ndarray)):
        made = clusters._add_product(total, a, b, is_ours)
        assert type(made) is kind
        assert np.asarray(made).tolist() == [[34, 47], [89, 122]]
    waited = list[Any]()

    class Client:
        def submit(self, function: Any, *args: Any, **_: object) -> Any:
            return function(*args)

    monkeypatch.setattr(distributed, "wait", waited.extend)
    constants(monkeypatch, clusters, _ROWS=2, _BLOCKS=3)
    assert clusters._product_s(Client(), is_ours=False) > 0
    # A block of ones, and three times the product of two of them.
    assert [it.tolist() for it in waited] == [[[7, 7], [7, 7]]] * 9
