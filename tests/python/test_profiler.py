"""The profiler: what it tells of tasks, ranges and waits, and the trace that it writes.

Method: profiles around tasks whose order gates decide; the trace is read back and its parts are
found by name. Times are compared with each other, never with a clock.
"""

import asyncio
import ctypes
import gzip
import inspect
import json
import os
import random
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import accelrt
from accelrt import profiler
from kinds import KIND, host_cores
from processes import output_of, run

SETTINGS = {"ACCELRT_ACCELERATOR": KIND} | {
    name: os.environ[name] for name in ("ACCELRT_OPENCL_LIBRARY",) if name in os.environ
}


def work(run: Callable[[accelrt.Stream], object], stream: accelrt.Stream) -> profiler.profile:
    """Profile what `run` enqueues on a stream, until it is done."""
    with profiler.profile() as recorded:
        run(stream)
        stream.synchronize()
    return recorded


def rows(recorded: profiler.profile) -> dict[str, profiler.KeyAverage]:
    return {row.key: row for row in recorded.key_averages()}


def events(recorded: profiler.profile, path: Path) -> list[dict[str, Any]]:
    recorded.export_chrome_trace(path)
    trace = json.loads(path.read_text())
    assert trace["otherData"] == {"dropped_records": 0}
    found: list[dict[str, Any]] = trace["traceEvents"]
    return found


def named(found: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event for event in found if event["name"] == name]


def test_rows_have_names_counts_times_and_bytes() -> None:
    def first() -> None:
        """Do nothing, under this name."""

    def run(stream: accelrt.Stream) -> None:
        with stream:
            buffer = accelrt.empty(4096)
            buffer.fill_(1)
            buffer.fill_(2)
        for _ in range(3):
            stream.launch_host(first)

    found = rows(work(run, accelrt.Stream(dedicated=True)))
    fills, calls = found["fill"], found[first.__qualname__]
    assert (fills.count, fills.bytes, fills.is_range) == (2, 8192, False)
    assert calls.count == 3
    assert fills.self_ms == fills.total_ms > 0
    assert fills.mean_ms == pytest.approx(fills.total_ms / 2)


@host_cores
def test_native_functions_have_their_names() -> None:
    libc = ctypes.CDLL(None)

    def run(stream: accelrt.Stream) -> None:
        stream.launch(libc.abs, 1)
        stream.launch(libc.labs, 1, check=True)
        stream.launch(libc.abs, 2)

    stream = accelrt.Stream(dedicated=True)
    with profiler.profile() as recorded:
        run(stream)
        stream.launch_host(int)
        with pytest.raises(accelrt.StreamError):  # labs(1) is no success
            stream.synchronize()
    assert rows(recorded)["abs"].count == 1
    assert recorded.num_skipped_tasks == 2


def test_a_range_counts_its_time_and_the_tasks_enqueued_inside() -> None:
    @profiler.record_function("step")
    def step(stream: accelrt.Stream) -> None:
        with profiler.record_function("inner"):
            stream.launch_host(int)
        stream.synchronize()

    stream = accelrt.Stream(dedicated=True)
    with profiler.profile() as recorded:
        for _ in range(4):
            step(stream)
    found = rows(recorded)
    outer, inner = found["step"], found["inner"]
    assert (outer.count, inner.count, outer.is_range) == (4, 4, True)
    assert outer.self_ms == pytest.approx(outer.total_ms - inner.total_ms)
    assert outer.stream_ms == inner.stream_ms == pytest.approx(found["int"].total_ms)


def test_ranges_of_tasks_of_an_event_loop_share_its_time() -> None:
    async def program() -> None:
        first, second = asyncio.Event(), asyncio.Event()

        async def task(name: str, wanted: asyncio.Event, opened: asyncio.Event) -> None:
            with profiler.record_function(name):
                opened.set()
                await wanted.wait()

        both = task("first", second, first), task("second", first, second)
        await asyncio.gather(*both)

    with profiler.profile() as recorded, profiler.record_function("all"):
        asyncio.run(program())
    found = rows(recorded)
    assert all(row.self_ms >= 0 for row in found.values()), found
    assert sum(row.self_ms for row in found.values()) == pytest.approx(found["all"].total_ms)


def test_a_range_may_have_the_name_of_any_file() -> None:
    with profiler.record_function("\udcff"):
        pass  # no profile is on
    with profiler.profile() as recorded, profiler.record_function("a\udcff"):
        pass
    (key,) = rows(recorded)
    assert key.startswith("a\ufffd")


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="max_records"):
        profiler.profile(max_records=-1).start()
    with pytest.raises(TypeError, match="max_records"):
        profiler.profile(max_records="many").start()  # type: ignore[arg-type]
    with profiler.profile() as recorded:
        pass
    with pytest.raises(ValueError, match="count"):
        recorded.longest_waits(-1)
    with pytest.raises(TypeError, match="the name of a range must be a str, not int"):
        profiler.record_function(5)  # type: ignore[arg-type]


def test_a_range_inside_of_itself_ends_before_the_outer_one(tmp_path: Path) -> None:
    range_ = profiler.record_function("again")
    with profiler.profile() as recorded, range_, range_:
        pass
    outer, inner = sorted(
        named(events(recorded, tmp_path / "a.json"), "again"),
        key=lambda it: it["dur"],
        reverse=True,
    )
    assert outer["ts"] <= inner["ts"]
    assert inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + 0.001


def test_a_table_is_torchs() -> None:
    recorded = work(lambda stream: stream.launch_host(len, "x"), accelrt.Stream(dedicated=True))
    lines = recorded.key_averages().table(sort_by="count", row_limit=1).splitlines()
    assert " ".join(lines[1].split()) == "Name Self % Self Total % Total Time avg # of Calls"
    assert lines[3].split()[0] == "len"
    assert lines[-1].startswith("Self time total: ")
    with pytest.raises(ValueError, match='not "name"'):
        recorded.key_averages().table(sort_by="name")


def test_a_wait_and_what_it_waited_for_are_told(tmp_path: Path) -> None:
    def slow() -> None:
        """Wait until the test says so."""
        gate.wait()

    gate = threading.Event()
    held, waiting = accelrt.Stream(dedicated=True), accelrt.Stream(dedicated=True)
    with profiler.profile() as recorded:
        held.launch_host(slow)
        waiting.wait_event(held.record_event())
        waiting.launch_host(int)
        gate.set()
        waiting.synchronize()
        held.synchronize()
    waits = [wait for wait in recorded.longest_waits() if "stream" in wait.waiter]
    assert [(wait.stream_id, wait.awaited) for wait in waits] == [
        (held.stream_id, slow.__qualname__)
    ]
    assert waits[0].waiter == f"{KIND}:0 stream {waiting.stream_id}"
    found = events(recorded, tmp_path / "trace.json")
    (start,), (end,) = ([event for event in found if event["ph"] == phase] for phase in "sf")
    assert start["id"] == end["id"]
    assert (start["tid"], end["tid"]) == (held.stream_id, waiting.stream_id)
    for arrow, name in ((start, "record"), (end, "wait")):
        (slice_,) = [it for it in named(found, name) if it["tid"] == arrow["tid"]]
        assert slice_["ts"] <= arrow["ts"] <= slice_["ts"] + slice_["dur"] + 0.001


@pytest.mark.parametrize("method", ["result", "exception"])
def test_wait_for_a_callable_is_recorded(method: str) -> None:
    gate, stream = threading.Event(), accelrt.Stream(dedicated=True)
    with profiler.profile() as recorded:
        call = stream.launch_host(gate.wait)
        with pytest.raises(TimeoutError):
            getattr(call, method)(timeout=0.01)
    gate.set()
    stream.synchronize()
    with profiler.profile() as recorded_later:
        getattr(call, method)()
    waits = [it for it in recorded.longest_waits() if it.waiter.startswith("thread")]
    assert [it.ms >= 10 for it in waits if it.stream_id == stream.stream_id] == [True], waits
    assert not recorded_later.longest_waits(), "the callable has ended"


def test_a_trace_has_tracks_tasks_and_arrows_from_their_enqueues(tmp_path: Path) -> None:
    def run(stream: accelrt.Stream) -> None:
        with profiler.record_function('a "range"'), stream:
            accelrt.zeros(64)

    stream = accelrt.Stream(dedicated=True)
    found = events(work(run, stream), tmp_path / "trace.json")
    tracks = {
        (event["name"], event["pid"], event["tid"]): event["args"]["name"]
        for event in found
        if event["ph"] == "M" and event["name"] != "thread_sort_index"
    }
    places = {
        event["tid"]: event["args"]["sort_index"] for event in named(found, "thread_sort_index")
    }
    assert places[stream.stream_id] == stream.stream_id, "viewers take tracks as they come else"
    (task,), (call,) = named(found, "fill"), named(found, "enqueue fill")
    assert tracks["process_name", task["pid"], 0] == f"{KIND}:0"
    assert tracks["thread_name", task["pid"], task["tid"]] == f"stream {stream.stream_id}"
    assert tracks["process_name", call["pid"], 0] == "host threads"
    assert ("thread_name", call["pid"], call["tid"]) in tracks
    assert task["bind_id"] == call["bind_id"]
    assert (task["flow_in"], call["flow_out"], task["args"]["bytes"]) == (True, True, 64)
    assert call["ts"] <= task["ts"] + task["dur"]
    (range_,) = named(found, 'a "range"')
    assert range_["ts"] <= call["ts"] <= range_["ts"] + range_["dur"]
    assert (range_["pid"], range_["tid"]) == (call["pid"], call["tid"])


def test_a_trace_has_the_memory_of_the_device_over_time_when_it_is_asked_for(
    tmp_path: Path,
) -> None:
    mebibyte = 1 << 20
    accelrt.accelerator.empty_cache()
    with profiler.profile() as without, profiler.profile(profile_memory=True) as recorded:
        before = accelrt.accelerator.memory_allocated()
        first = accelrt.empty(3 * mebibyte)
        second = accelrt.empty(5 * mebibyte)
        between = accelrt.accelerator.memory_allocated()
        del first
        accelrt.accelerator.synchronize()
        del second
        accelrt.accelerator.empty_cache()
    found = events(recorded, tmp_path / "a.json")
    name = f"{KIND}:{accelrt.accelerator.current_device_index()}"
    (process,) = (it["pid"] for it in named(found, "process_name") if it["args"]["name"] == name)
    counters = [event for event in found if event["ph"] == "C" and event["pid"] == process]
    allocated = [event["args"]["allocated bytes"] for event in counters]
    reserved = [event["args"]["reserved bytes"] for event in counters]
    assert allocated[0] == allocated[-1] == before
    assert max(allocated) == between >= before + 8 * mebibyte
    assert max(reserved) >= between
    assert reserved[-1] == accelrt.accelerator.memory_reserved()
    assert [event["ts"] for event in counters] == sorted(event["ts"] for event in counters)
    assert not [event for event in events(without, tmp_path / "b.json") if event["ph"] == "C"]


def fail_if(fails: bool) -> None:  # noqa: FBT001  a task has positional arguments
    """Raise an error if asked."""
    if fails:
        raise ValueError


@settings(max_examples=12, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=6))
def test_trace_marks_exactly_the_tasks_that_failed(outcomes: list[bool]) -> None:
    stream = accelrt.Stream()
    with profiler.profile() as recorded:
        for fails in outcomes:
            stream.launch_host(fail_if, fails).exception()
        stream.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        recorded.export_chrome_trace(path)
        found = json.loads(path.read_text())["traceEvents"]
    ran = sorted(named(found, "fail_if"), key=lambda event: float(event["ts"]))
    assert [event["args"].get("failed", False) for event in ran] == outcomes


@host_cores
def test_streams_that_run_at_once_overlap() -> None:
    # Each of the two tasks ends when the other one has begun.
    both = threading.Barrier(2)
    streams = [accelrt.Stream(dedicated=True) for _ in range(2)]
    with profiler.profile() as recorded:
        for stream in streams:
            stream.launch_host(both.wait)
        for stream in streams:
            stream.synchronize()
    (device,) = recorded.devices()
    assert device.device == accelrt.device(f"{KIND}:0")
    assert 0 < device.overlap_percent <= 100
    assert device.busy_ms < device.stream_ms
    used = {one.stream_id: one for one in recorded.streams()}
    assert [used[stream.stream_id].num_tasks for stream in streams] == [1, 1]


def test_profiles_nest_and_record_for_themselves() -> None:
    stream = accelrt.Stream(dedicated=True)
    outer, inner = profiler.profile(), profiler.profile()
    with outer:
        stream.launch_host(int)
        stream.synchronize()
        with inner:
            stream.launch_host(len, "x")
            stream.synchronize()
        stream.launch_host(str)
        stream.synchronize()
    assert set(rows(inner)) == {"len"}
    assert {"int", "len", "str"} <= set(rows(outer))
    with inner:  # once more, from nothing
        pass
    assert not rows(inner)


def test_what_does_not_fit_is_counted() -> None:
    stream = accelrt.Stream(dedicated=True)
    with profiler.profile(max_records=5) as recorded:
        for _ in range(100):
            stream.record_event()
        stream.synchronize()
    assert recorded.num_dropped_records > 100


def test_the_limit_counts_no_thread() -> None:
    for limit, expected in ((9, 9), (10, 10), (11, 10)):
        with profiler.profile(max_records=limit) as recorded:
            for _ in range(10):
                with profiler.record_function("range"):
                    pass
        assert rows(recorded)["range"].count == expected
        assert recorded.num_dropped_records == 10 - expected


def test_each_of_many_names_has_a_row() -> None:
    with profiler.profile() as recorded:
        for number in range(70_000):
            with profiler.record_function(f"name {number}"):
                pass
    assert {row.count for row in recorded.key_averages()} == {1}
    assert len(recorded.key_averages()) == 70_000


def test_a_profile_is_used_in_order() -> None:
    recorded = profiler.profile()
    with pytest.raises(RuntimeError, match="after stop"):
        recorded.key_averages()
    with pytest.raises(RuntimeError, match="not started"):
        recorded.stop()
    recorded.start()
    with pytest.raises(RuntimeError, match="started already"):
        recorded.start()
    recorded.stop()
    with pytest.raises(RuntimeError, match="has been stopped already"):
        recorded.stop()
    with pytest.raises(FileNotFoundError, match=r"\[Errno 2\] .*: '/nowhere/trace.json'"):
        recorded.export_chrome_trace("/nowhere/trace.json")


# What fails is not made smaller: that would take minutes.
@settings(max_examples=30, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(
    names=st.lists(st.text(max_size=300) | st.sampled_from(["again", "a" * 70_000]), max_size=30),
    seed=st.integers(0, 1 << 32),
)
def test_a_trace_is_packed_where_its_name_says_so(names: list[str], seed: int) -> None:
    # Noise packs badly, and names of 400 KB are longer than the piece that is packed at once.
    noise = random.Random(seed)  # noqa: S311  what repeats it is printed
    with profiler.profile() as recorded:
        for name in [*names, "".join(chr(noise.randrange(32, 1 << 16)) for _ in range(100_000))]:
            with profiler.record_function(name):
                pass
    with tempfile.TemporaryDirectory() as folder:
        plain, packed = Path(folder) / "trace.json", Path(folder) / "trace.json.gz"
        recorded.export_chrome_trace(plain)
        recorded.export_chrome_trace(packed)
        assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()


def test_a_program_that_cannot_be_changed_is_profiled_to_its_end(tmp_path: Path) -> None:
    body = """
        import accelrt
        stream = accelrt.Stream()
        with stream:
            accelrt.zeros(64)
        stream.launch_host(len, "not waited for")
    """
    path = tmp_path / "trace.json"
    output_of(body, **SETTINGS, ACCELRT_PROFILE=str(path))
    found = json.loads(path.read_text())["traceEvents"]
    assert [len(named(found, name)) for name in ("fill", "len")] == [1, 1]
    packed = tmp_path / "trace.json.gz"
    output_of(body, **SETTINGS, ACCELRT_PROFILE=str(packed))
    found = json.loads(gzip.decompress(packed.read_bytes()))["traceEvents"]
    assert [len(named(found, name)) for name in ("fill", "len")] == [1, 1]


def test_a_process_that_does_nothing_leaves_the_profile_of_another_as_it_is(
    tmp_path: Path,
) -> None:
    # With verbose lines of a library wanted, too: commands that read files capture none.
    path = tmp_path / "trace.json"
    settings = SETTINGS | {"ACCELRT_PROFILE": str(path), "MKL_VERBOSE": "1"}
    output_of("import accelrt; accelrt.zeros(64)", **settings)
    before = path.read_bytes()
    assert b'"fill"' in before
    for code in ("import accelrt", "import accelrt; accelrt.Stream(); accelrt.empty(64)"):
        output_of(code, **settings)
        assert path.read_bytes() == before
    page = str(tmp_path / "page.html")
    table = str(Path(__file__).parents[1] / "data/own_gpt_fixed.ops.csv")
    for command in (
        ("view", str(path), "-o", page),
        ("info",),
        ("verbose", str(path)),
        ("replay", "--policy", "native", table),
        ("replay", "--real", "--policy", "native", table),
    ):
        ended = run("-m", "accelrt", *command, **settings)
        assert ended.returncode in {0, 1}, ended  # the trace has no verbose line
        assert path.read_bytes() == before, command
    ended = run("-m", "accelrt", "view", str(path), "-o", page, ACCELRT_PROFILE="/nowhere/a.json")
    assert (ended.returncode, ended.stderr) == (0, ""), "it starts no profile"


def test_a_profile_that_cannot_be_written_is_told_at_the_begin_and_at_the_end() -> None:
    body = "import accelrt; accelrt.Stream(); print('begun', file=sys.stderr); accelrt.zeros(64)"
    ended = run("-c", f"import sys; {body}", **SETTINGS, ACCELRT_PROFILE="/nowhere/trace.json")
    early, begun, late = ended.stderr.splitlines()
    assert early.startswith(
        "accelrt: the profile cannot be written to /nowhere/trace.json: No such"
    )
    assert begun == "begun"
    assert late.startswith("accelrt: the profile could not be written to /nowhere/trace.json: ")
    assert ended.returncode == 0


def test_a_child_of_a_profiled_parent_records_nothing() -> None:
    body = """
        import os, warnings
        import accelrt
        from accelrt import profiler
        warnings.simplefilter("ignore")
        accelrt.zeros(64).stream.synchronize()
        with profiler.profile() as recorded:
            with profiler.record_function("here"):
                child = os.fork()
                if child == 0:
                    with profiler.record_function("child"):
                        pass
            if child == 0:
                recorded.stop()
                os._exit(len(recorded.key_averages()))
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print([row.key for row in recorded.key_averages()])
    """
    assert output_of(body, **SETTINGS).splitlines() == ["0", "['here']"]


def test_a_decorated_coroutine_function_is_a_range_from_its_begin_to_its_end() -> None:
    @profiler.record_function("serve")
    async def serve(is_ready: asyncio.Event) -> int:
        with profiler.record_function("inside"):
            await is_ready.wait()
        return 7

    async def main() -> list[int]:
        is_ready = asyncio.Event()
        tasks = [asyncio.create_task(serve(is_ready)) for _ in range(3)]
        await asyncio.sleep(0)
        is_ready.set()
        return await asyncio.gather(*tasks)

    with profiler.profile() as recorded:
        assert asyncio.run(main()) == [7] * 3
    of = rows(recorded)
    assert (of["serve"].count, of["inside"].count) == (3, 3)
    assert of["serve"].total_ms > of["inside"].total_ms > 0
    assert inspect.iscoroutinefunction(serve)


def test_a_decorated_generator_function_is_a_range_at_each_of_its_steps() -> None:
    @profiler.record_function("generate")
    def generate() -> Iterator[int]:
        with profiler.record_function("inside"):
            pass
        yield 1
        yield 2

    with profiler.profile() as recorded:
        for number in generate():
            with profiler.record_function(f"between {number}"):
                pass
    of = rows(recorded)
    assert {key: row.count for key, row in of.items()} == {
        "generate": 3,  # the last one ends it
        "inside": 1,
        "between 1": 1,
        "between 2": 1,
    }
    assert of["generate"].total_ms >= of["inside"].total_ms
    slices = recorded_slices(recorded)
    inside = [span for span in slices if span[0] == "generate"]
    for name, begin, end in slices:
        if name.startswith("between"):
            assert all(end <= start or stop <= begin for _, start, stop in inside)


def recorded_slices(recorded: profiler.profile) -> list[tuple[str, float, float]]:
    with tempfile.TemporaryDirectory() as folder:
        found = events(recorded, Path(folder) / "trace.json")
    slices = [event for event in found if event["ph"] == "X"]
    return [(it["name"], it["ts"], it["ts"] + it["dur"]) for it in slices]


def test_a_range_is_left_once_and_decorates_no_asynchronous_generator() -> None:
    span = profiler.record_function("a range")
    with pytest.raises(RuntimeError, match="a range was left that had not been entered"):
        span.__exit__(None, None, None)

    async def generate() -> AsyncIterator[int]:
        yield 1

    with pytest.raises(TypeError, match="record_function decorates no asynchronous generator"):
        span(generate)


def test_a_table_says_what_it_lacks_and_refuses_what_it_does_not_know() -> None:
    stream = accelrt.Stream()
    with profiler.profile(max_records=9) as recorded:
        for _ in range(10):
            stream.launch_host(len, "")
        stream.synchronize()
    table = recorded.key_averages().table
    missing = recorded.num_dropped_records
    assert missing > 0
    assert table().splitlines()[-1] == f"Not complete: {missing} records found no room"
    assert table(row_limit=1 << 70) == table(row_limit=-1)
    for wrong in ("10", 1.5, None, True):
        message = f"row_limit must be an integer, not {type(wrong).__name__}"
        with pytest.raises(TypeError, match=message):
            table(row_limit=wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="sort_by must be a str, not int"):
        table(sort_by=5)  # type: ignore[arg-type]


def test_streams_and_devices_are_shown_with_their_numbers() -> None:
    stream = accelrt.Stream()
    recorded = work(lambda it: it.launch_host(len, ""), stream)
    (use,) = recorded.streams()
    (device,) = recorded.devices()
    expected = f"StreamUse({stream.device} stream {use.stream_id}, num_tasks=1, busy_ms="
    assert repr(use).startswith(expected)
    assert repr(device).startswith(f"DeviceUse({stream.device}, busy_ms=")
