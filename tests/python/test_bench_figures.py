"""Goal: each row of the figures is the figure of its statement, with the peer that it names.

Method: a timer that runs a statement once and returns a number for it, so that whole rows are
compared. Where no statement is timed, clocks, processes and recordings are replaced.
"""

import ctypes
import importlib.util
import inspect
import io
import itertools
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from timeit import Timer
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import numpy as np
import pytest

import accelrt
from accelrt.backends import mkl
from accelrt.cli.bench import (
    allocators,
    buffers,
    copies,
    events,
    gate,
    histories,
    idle,
    imports,
    launches,
    measure,
    native,
    quiet,
    sanitizers,
    sycl,
    xpu,
)
from bench_rows import constants, rows
from kinds import host_cores

handler_name = importlib.import_module("numpy._core.multiarray").get_handler_name
Rows = dict[str, tuple[float | None, str | None, float | None]]
Runs = list[tuple[str, int]]

STATEMENTS = {
    "launch(nothing)": 1_000,
    "launch(difference, 1, 2)": 2_000,
    "launch(nothing); synchronize()": 3_000,
    "submit(f, 0)": 4_000,
    "submit(f, 0).result()": 5_000,
    "queue.submit_barrier()": 6_000,
    "queue.submit_barrier().wait()": 7_000,
    "record(event)": 8_000,
    "record(event); wait()": 9_000,
    "empty(size)": 10_000,
    "empty(size, kind)": 20_000,
    "empty(size, dtype=kind)": 30_000,
    "copy(target, source, size)": 40_000,
    "empty(512, byte)": 50_000,
    "ones(16, byte)": 60_000,
    "empty(512)": 55_000,
    "launch(memset, first, 0, byte)": 65_000,
    "launch(nothing, 1)": 66_000,
    "first.copy_(second, True)": 67_000,
    "gemm(64)": 70_000,
    "gemm(64); free()": 80_000,
}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Run each timed statement once; it takes its number, its size and its rounds, in ns a round.

    The result lists the statements and their rounds.
    """
    found = Runs()

    def timed(timer: Timer, number: int = 1) -> float:
        inner = cast("Any", timer).inner
        (statement,) = re.findall(r"for _i in _it:\n +(.*)", cast("Any", timer).src)
        inner(itertools.repeat(None, 1), time.perf_counter)
        found.append((statement, number))
        names = inner.__globals__
        is_ours = "accelrt" in str(handler_name())
        ns = STATEMENTS[statement] + names.get("size", 0) + 100_000 * is_ours + number
        return float(number * ns / 1e9)

    monkeypatch.setattr(Timer, "timeit", timed)
    monkeypatch.setattr(measure, "_REPETITIONS", 1)
    monkeypatch.setattr(quiet, "_is_quiet", lambda: True)
    return found


class Queue:
    """Stands in for a SYCL queue."""

    def submit_barrier(self) -> "Queue":
        return self

    def wait(self) -> None:
        pass


@host_cores
def test_launches_whole_rows(monkeypatch: pytest.MonkeyPatch, runs: Runs) -> None:
    constants(monkeypatch, launches, _LAUNCHES=8, _BLOCKS=2, _PIPELINED=30, _PEER_TASKS=50)
    constants(monkeypatch, launches, _PEER_TRIPS=16)
    constants(monkeypatch, sycl, _BARRIERS=70, _TRIPS=24, _BLOCKS=1, _queue=Queue)
    calls = list[None]()

    def first(work: Any) -> float:
        calls.append(work())
        return 77.0

    monkeypatch.setattr(launches, "ns_of_first_after_idleness", first)
    assert rows(launches.measure()) == {
        "Q2": (1008, None, None),
        "Q2.executor": (1008, "ThreadPoolExecutor", 4050),
        "Q2.dpctl": (1008, "dpctl barrier", 6070),
        "Q2.two": (2008, None, None),
        "Q2.beside": (1030, None, None),
        "Q2.two.beside": (2030, None, None),
        "Q3.python": (3008, None, None),
        "Q3.python.executor": (3008, "ThreadPoolExecutor", 5016),
        "Q3.python.dpctl": (3008, "dpctl barrier", 7024),
        "Q3.python.first": (77, None, None),
    }
    assert calls == [None, None]
    # Each block is warmed up by an eighth of its rounds; those of the other threads are not.
    assert runs.count(("launch(nothing)", 1)) == runs.count(("launch(nothing)", 8)) == 4
    assert runs.count(("launch(nothing)", 30)) == 2


@host_cores
def test_native_functions_have_their_arguments() -> None:
    stream = accelrt.Stream()
    for function, count in ((native.without_arguments(), 0), (native.with_two_arguments(), 2)):
        stream.launch(function, *range(count))
        for wrong in {0, 1, 2} - {count}:
            with pytest.raises(TypeError):
                stream.launch(function, *range(wrong))
    stream.synchronize()


@host_cores
def test_launches_alone_run_later(monkeypatch: pytest.MonkeyPatch, runs: Runs) -> None:
    stream, seen = accelrt.Stream(), list[str]()
    monkeypatch.setattr(launches, "_names", lambda _: {"launch": launch, "nothing": "late"})

    def launch(name: str) -> None:
        stream.launch_host(seen.append, name)
        time.sleep(0.01)
        seen.append("enqueued")

    launches._alone(stream, "launch(nothing)")(quiet.Watch(quiet.Patience(0)))
    per_block = ["enqueued", "enqueued", "late", "late"]
    assert seen == per_block * launches._BLOCKS
    assert len(runs) == 2 * launches._BLOCKS


def test_first_after_idleness_is_a_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    slept, now, calls = list[float](), itertools.count(0, 10), list[None]()
    clock = SimpleNamespace(sleep=slept.append, perf_counter_ns=lambda: next(now))
    monkeypatch.setattr(measure, "time", clock)
    assert measure.ns_of_first_after_idleness(lambda: calls.append(None)) == 10
    assert slept == [1e-3] * 20
    assert len(calls) == 20


@host_cores
def test_gate_opens_after_an_error() -> None:
    stream, seen = accelrt.Stream(), list[int]()

    def fails() -> None:
        with gate.held(stream):
            stream.launch_host(seen.append, 1)
            raise LookupError

    with pytest.raises(LookupError):
        fails()
    assert seen == [1]


@host_cores
@pytest.mark.parametrize(
    ("source", "tick"),
    [
        ("tsc", {"E2": (3, None, None), "E2.clock": (None, "the TSC keeps time here", None)}),
        (
            "hpet",
            {
                "E2": (None, "the TSC does not keep time here", None),
                "E2.clock": (3, "step of CLOCK_MONOTONIC", 2),
            },
        ),
    ],
)
def test_events_whole_rows(
    monkeypatch: pytest.MonkeyPatch, runs: Runs, source: str, tick: Rows
) -> None:
    constants(monkeypatch, events, _RECORDS=16, _BLOCKS=2, _PIPELINED=30, _TIMED_RECORDS=4)
    moments = itertools.chain([0, 7, 10, 15], itertools.count(20, 9))  # between: 7, 5, 9, 9
    constants(
        monkeypatch,
        events,
        clock_source=lambda: source,
        _neighbours_ns=lambda _: [10, -3, 0, 4, 4, -3],
        _drift_ns=lambda _: 12.5,
        time=SimpleNamespace(monotonic_ns=lambda: next(moments)),
    )
    assert rows(events.measure()) == {
        "E1.python": (8016, None, None),
        "E1.python.beside": (8030, None, None),
        **tick,
        "E2.negative": (2, None, None),
        "E3": (12.5, None, None),
    }
    assert runs.count(("record(event)", 2)) == 4


@host_cores
def test_drift_is_of_the_tightest_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([0, 90, 200, 204, 300, 390, 1000, 1080, 2000, 2006, 3000, 3100])
    slept, recorded = list[float](), list[Any]()
    clock = SimpleNamespace(monotonic_ns=lambda: next(moments), sleep=slept.append)
    constants(monkeypatch, events, _BRACKETS=3, time=clock)
    stream = SimpleNamespace(record_event=recorded.append)

    def event(*, enable_timing: bool) -> object:
        assert enable_timing
        number = len(recorded)
        return SimpleNamespace(
            synchronize=lambda: None,
            # Of the second and the fifth, in ms: 1 us, where the clock said 1801 ns.
            elapsed_time=lambda end: 1e-3 if (number, recorded.index(end)) == (1, 4) else 99.0,
        )

    monkeypatch.setattr(accelrt, "Event", event)
    assert events._drift_ns(cast("Any", stream)) == 801
    assert slept == [1]
    assert len(recorded) == 6


@host_cores
def test_neighbours_in_nanoseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_TIMED_RECORDS", 5)
    acts = list[object]()

    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing

        def elapsed_time(self, end: object) -> float:
            assert acts[-1] == "waited"
            place = acts.index(self)
            return 1e-6 * 10**place if acts.index(end) == place + 1 else 99.0

    monkeypatch.setattr(accelrt, "Event", Event)
    stream = SimpleNamespace(record_event=acts.append, synchronize=lambda: acts.append("waited"))
    assert events._neighbours_ns(cast("Any", stream)) == [1, 10, 100, 1_000]
    assert len(acts) == 6


def test_idle_counts_other_threads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(measure, "_REPETITIONS", 1)
    monkeypatch.setattr(quiet, "_is_quiet", lambda: True)
    used = {threading.get_native_id(): 7, 1: 100, 2: 2000}
    slept = list[float]()

    def write() -> None:
        for number, ns in used.items():
            (tmp_path / str(number)).mkdir(exist_ok=True)
            (tmp_path / str(number) / "schedstat").write_text(f"{ns} 5 6\n")

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        for number in used:
            used[number] += 30
        write()

    write()
    now = itertools.count(0, 60_000)
    clock = SimpleNamespace(monotonic_ns=lambda: next(now), sleep=sleep)
    constants(monkeypatch, idle, time=clock, _TASKS=tmp_path, _SCHEDULING=tmp_path / "1/schedstat")
    assert idle._other_threads_ns() == 2100
    assert rows(idle.measure()) == {"Q7": (60, None, None)}
    assert slept == [1, 1]
    monkeypatch.setattr(idle, "_SCHEDULING", tmp_path / "none")
    reason = "the kernel does not say what each thread used"
    assert rows(idle.measure()) == {"Q7": (None, reason, None)}


@host_cores
def test_buffers_whole_rows(monkeypatch: pytest.MonkeyPatch, runs: Runs) -> None:
    sizes = (("A4.512B", 512), ("A4.64KiB", 600))
    constants(monkeypatch, buffers, _SIZES=sizes, _ROUNDS=8, _BLOCKS=2)
    torch = SimpleNamespace(empty=lambda size, dtype: (size, dtype), uint8="uint8")
    peers = {"numpy": np, "torch": torch}
    monkeypatch.setattr(buffers, "optional", peers.get)
    assert rows(buffers.measure()) == {
        "A4.512B": (10_520, "np.empty", 20_520),
        "A4.512B.torch": (10_520, "torch.empty", 30_520),
        "A4.64KiB": (10_608, "np.empty", 20_608),
        "A4.64KiB.torch": (10_608, "torch.empty", 30_608),
    }
    assert runs.count(("empty(size)", 8)) == 2 * 2 * 2
    del peers["numpy"]
    assert rows(buffers.measure())["A4.512B"] == (10_520, "np.empty", None)
    assert rows(buffers.measure())["A4.512B.torch"] == (10_520, "torch.empty", 30_520)
    del peers["torch"]
    assert rows(buffers.measure())["A4.64KiB.torch"] == (10_608, "torch.empty", None)


@host_cores
def test_copies_whole_rows(monkeypatch: pytest.MonkeyPatch, runs: Runs) -> None:
    constants(monkeypatch, copies, _SIZES=(("4KiB", 256, 2, 8), ("1MiB", 512, 1, 16)))
    real, timer, now, seconds = copies._copy_all, copies._memcpy, [0], list[float]()
    copied, buffers = list[tuple[int, int]](), set[tuple[int, int, int]]()

    def memcpy(target: accelrt.Buffer, source: accelrt.Buffer) -> Timer:
        buffers.add((source.nbytes, target.data_ptr(), source.data_ptr()))
        return timer(target, source)

    def copy_all(target: accelrt.Buffer, source: accelrt.Buffer, count: int) -> None:
        copied.append((target.nbytes, count))
        buffers.add((source.nbytes, target.data_ptr(), source.data_ptr()))
        now[0] += count * target.nbytes
        source.fill_(count)
        real(target, source, count)
        host = bytearray(target.nbytes)
        target.copy_to(host)
        assert host == bytes([count]) * target.nbytes

    def progress_ns(sleep: Any) -> float:
        sleep(0.001)
        seconds.append(0.001)
        return 5.0 if sleep is native.sleep_with_gil else 6.0

    clock = SimpleNamespace(perf_counter_ns=lambda: now[0], sleep=time.sleep)
    constants(monkeypatch, copies, time=clock, _copy_all=copy_all, _progress_ns=progress_ns)
    monkeypatch.setattr(copies, "_memcpy", memcpy)
    assert rows(copies.measure()) == {
        "C1.python.4KiB": (256, "memcpy", 40_264),
        "C1.python.1MiB": (512, "memcpy", 40_528),
        "C2": (5, "GIL left", 6),
    }
    assert len(buffers) == 2  # one direction of each size, by both and while warming up
    assert copied == [(256, 1), (256, 8)] * 4 + [(512, 2), (512, 16)] * 2
    assert runs.count(("copy(target, source, size)", 8)) == 4


@host_cores
def test_copies_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    constants(monkeypatch, copies, _GIL_COPY_BYTES=64, _GIL_COPIES=3)
    assert 0 < copies._progress_ns(lambda _: accelrt.accelerator.synchronize()) < 100e6
    slept = list[float]()
    monkeypatch.setattr(accelrt.Event, "query", lambda _: False)
    assert copies._progress_ns(slept.append) == 100e6
    assert slept == [0.1]


def test_imports_whole_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_REPETITIONS", 1)
    monkeypatch.setattr(quiet, "_is_quiet", lambda: True)
    known = {
        "pass": 10.0,
        "import accelrt": 31.0,
        "import accelrt; accelrt.Stream().synchronize()": 32.5,
        "import numpy": 90.0,
    }
    monkeypatch.setattr(imports, "_ms_of", known.__getitem__)
    specs = {"numpy": "found"}
    monkeypatch.setattr(importlib.util, "find_spec", specs.get)
    assert rows(imports.measure()) == {
        "I1": (21, None, None),
        "I1.stream": (1.5, None, None),
        "I1.numpy": (21, "numpy", 80),
        "I1.torch": (None, "torch is missing", None),
    }


def test_imports_time_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    ran, now = list[tuple[object, bool]](), iter([1.0, 1.25])

    def run(command: list[str], *, check: bool) -> None:
        ran.append((command, check))

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(imports, "time", SimpleNamespace(perf_counter=lambda: next(now)))
    assert imports._ms_of("pass") == 250
    assert ran == [([sys.executable, "-c", "pass"], True)]


@host_cores
def test_xpu_whole_rows(monkeypatch: pytest.MonkeyPatch, runs: Runs) -> None:
    constants(monkeypatch, xpu, _RECORDS=20, _TRIPS=16, _BLOCKS=2)
    constants(monkeypatch, sycl, _BARRIERS=70, _TRIPS=24, _BLOCKS=1)
    monkeypatch.setattr(accelrt.xpu, "is_available", lambda: False)
    reason = "no OpenCL runtime with unified shared memory"
    missing = (None, reason, None)
    assert rows(xpu.measure()) == {"D1.python": missing, "D2.python": missing}
    assert runs == []
    monkeypatch.setattr(accelrt.xpu, "is_available", lambda: True)
    stream, event = accelrt.Stream("cpu"), accelrt.Event("cpu")
    monkeypatch.setattr(accelrt, "Stream", {"xpu": stream}.__getitem__)
    monkeypatch.setattr(accelrt, "Event", {"xpu": event}.__getitem__)
    monkeypatch.setattr(sycl, "_queue", lambda: None)
    assert rows(xpu.measure()) == {
        "D1.python": (8020, "dpctl barrier", None),
        "D2.python": (9016, "dpctl barrier", None),
    }
    monkeypatch.setattr(sycl, "_queue", Queue)
    assert rows(xpu.measure()) == {
        "D1.python": (8020, "dpctl barrier", 6070),
        "D2.python": (9016, "dpctl barrier", 7024),
    }


@host_cores
def test_arrays_whole_rows(monkeypatch: pytest.MonkeyPatch, runs: Runs) -> None:
    arrays = (("H1.512B", "empty(512, byte)", 2, 8), ("H1.2MiB.ones", "ones(16, byte)", 1, 16))
    monkeypatch.setattr(allocators, "_ARRAYS", arrays)
    # Ours is within `accelrt.numpy_memory()`, the peer is not.
    assert rows(allocators._of_arrays()) == {
        "H1.512B": (150_008, "NumPy's own", 50_008),
        "H1.2MiB.ones": (160_016, "NumPy's own", 60_016),
    }
    assert runs.count(("empty(512, byte)", 8)) == 2 * 2 * 2
    monkeypatch.setattr(allocators, "optional", lambda _: None)
    missing = (None, "numpy is missing", None)
    assert rows(allocators._of_arrays()) == {"H1.512B": missing, "H1.2MiB.ones": missing}


class Process:
    """Stands in for a process that has oneMKL multiply with one allocator."""

    refusals: ClassVar[dict[str | None, str]] = {}

    def __init__(self, allocator: str | None) -> None:
        self.allocator = allocator

    def submit(self, function: Any, *arguments: Any) -> Any:
        if function == allocators._Products.refusal:
            found: object = self.refusals.get(self.allocator)
        else:
            assert function == allocators._Products.measure
            statement, rounds = arguments
            of_allocator = {"accelrt": 1, None: 2, "mimalloc": 3}[self.allocator]
            found = float(STATEMENTS[statement] + rounds + of_allocator)
        return SimpleNamespace(result=lambda: found)


@contextmanager
def process(allocator: str | None) -> Iterator[Process]:
    yield Process(allocator)


@pytest.mark.parametrize(
    ("refusals", "figures"),
    [
        ({}, [(70_301, "oneMKL's own", 70_302), (70_301, "mimalloc", 70_303)]),
        (
            {"mimalloc": "not installed"},
            [(70_301, "oneMKL's own", 70_302), (70_301, "mimalloc", None)],
        ),
        ({None: "no"}, [(70_301, "oneMKL's own", None), (70_301, "mimalloc", 70_303)]),
        ({"accelrt": "too late"}, [(None, "too late", None)] * 2),
    ],
)
def test_products_whole_rows(
    monkeypatch: pytest.MonkeyPatch,
    refusals: dict[str | None, str],
    figures: list[tuple[float | None, str | None, float | None]],
) -> None:
    monkeypatch.setattr(measure, "_REPETITIONS", 1)
    monkeypatch.setattr(quiet, "_is_quiet", lambda: True)
    monkeypatch.setattr(Process, "refusals", refusals)
    constants(monkeypatch, allocators, _process=process, _PRODUCTS=(("H2.64", "gemm(64)", 300),))
    monkeypatch.setattr(mkl, "is_available", lambda: True)
    names = "H2.64", "H2.64.mimalloc"
    assert rows(allocators._of_products()) == dict(zip(names, figures, strict=True))
    monkeypatch.setattr(mkl, "is_available", lambda: False)
    missing = (None, "oneMKL is missing", None)
    assert rows(allocators._of_products()) == dict.fromkeys(names, missing)


@pytest.mark.parametrize("allocator", [None, "accelrt", "mimalloc"])
def test_products_use_their_allocator(
    monkeypatch: pytest.MonkeyPatch, runs: Runs, allocator: str | None
) -> None:
    used, calls = list[str](), list[tuple[Any, ...]]()

    def use_allocator(name: str) -> None:
        used.append(name)
        if name == "mimalloc":
            message = "cannot load mimalloc"
            raise RuntimeError(message)

    library = SimpleNamespace(
        MKL_Set_Num_Threads=lambda count: calls.append(("threads", count)),
        MKL_Free_Buffers=lambda: calls.append(("free",)),
        cblas_dgemm=lambda *arguments: calls.append(arguments),
    )
    loaded = {"/opt/libmkl_rt.so.2": library}
    maps = "7f00-7f01 r-xp 0 08:01 1 /lib/libc.so.6\n7f02-7f03 r-xp 0 08:01 2 /opt/libmkl_rt.so.2\n"
    monkeypatch.setattr(allocators, "open", lambda *_, **__: io.StringIO(maps), raising=False)
    monkeypatch.setattr(ctypes, "CDLL", loaded.__getitem__)
    constants(monkeypatch, mkl, version=lambda: "1", use_allocator=use_allocator)
    monkeypatch.setattr(allocators._Products, "reason", None)
    monkeypatch.setattr(allocators._Products, "names", {}, raising=False)
    allocators._Products.begin(allocator)
    assert used == ([] if allocator is None else [allocator])
    refusal = "cannot load mimalloc" if allocator == "mimalloc" else None
    assert allocators._Products.refusal() == refusal
    assert allocators._Products.measure("gemm(64); free()", 3) == pytest.approx(80_003)
    assert runs == [("gemm(64); free()", 3)]
    threads, gemm, free = calls
    assert (threads, free) == (("threads", 1), ("free",))
    # Row-major, not transposed, three sizes; one and zero times; the length of each row.
    assert gemm[:6] == (101, 111, 111, 64, 64, 64)
    assert (gemm[6].value, gemm[8], gemm[10], gemm[11].value, gemm[13]) == (1, 64, 64, 0, 64)
    matrices = [gemm[place] for place in (7, 9, 12)]
    assert [len(matrix) for matrix in matrices] == [512 * 512] * 3
    assert len(set(map(id, matrices))) == 3


@pytest.mark.usefixtures("runs")
def test_histories_whole_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_PAIRS", 1)
    monkeypatch.setattr(histories, "_ROUNDS", 8)
    states, timeit = list[tuple[Any, ...]](), Timer.timeit

    def record(enabled: str | None = "all", **options: object) -> None:
        states.append((enabled, *options.values()))

    def timed(timer: Timer, number: int = 1) -> float:
        assert sum(it.function == "_below" for it in inspect.stack()) == 11
        enabled, context, *_ = *(states[-1] if states else (None,)), None
        more_ns = 0 if enabled is None else 5 if context is None else 9
        return timeit(timer, number) + more_ns * number / 1e9

    monkeypatch.setattr(accelrt.accelerator, "record_memory_history", record)
    monkeypatch.setattr(Timer, "timeit", timed)
    measured = list(histories.measure())
    assert rows(measured) == {
        "V2.empty": (55_013, "off", 55_008),
        "V2.empty.stacks": (55_017, "off", 55_008),
    }
    assert [round(it.excess_ns or 0, 3) for it in measured] == [5, 9]
    assert states == [("all", None, 10), (None,)] * 2 + [("all", "alloc", 10), (None,)] * 2


@pytest.mark.usefixtures("runs")
def test_sanitizers_whole_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_PAIRS", 1)
    monkeypatch.setattr(sanitizers, "_ROUNDS", 8)
    watches, timeit = list[object](), Timer.timeit

    @contextmanager
    def watch() -> Iterator[None]:
        watches.append(None)
        yield
        watches.pop()

    def timed(timer: Timer, number: int = 1) -> float:
        assert sum(it.function == "_below" for it in inspect.stack()) == sanitizers._FRAMES + 1
        return timeit(timer, number) + 5 * len(watches) * number / 1e9

    monkeypatch.setattr(accelrt.sanitizer, "watch", watch)
    monkeypatch.setattr(Timer, "timeit", timed)
    measured = list(sanitizers.measure())
    assert rows(measured) == {
        "S1": (65_013, "off", 65_008),
        "S1.number": (66_013, "off", 66_008),
        "S1.copy": (67_013, "off", 67_008),
    }
    assert [round(it.excess_ns or 0, 3) for it in measured] == [5, 5, 5]
