"""Goal: a history says what the allocators did, when, for what, and which line made them.

Method: each way to request and to free memory is a function of one line, which has to be the
innermost line of what is recorded; snapshots are compared with torch's schema key by key.
"""

import gc
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import accelrt
from accelrt import accelerator, profiler
from accelrt.cli.replay.errors import TraceError
from accelrt.cli.replay.snapshots import read
from accelrt.cli.view import snapshot
from histories import Entry, line_of, trace
from kinds import KIND, host_cores, several_devices
from processes import output_of, run

pytestmark = pytest.mark.usefixtures("no_history")


def place(entry: Entry) -> tuple[str, int]:
    """Return the innermost frame of an entry."""
    assert entry["frames"], entry
    frame = entry["frames"][0]
    return frame["filename"], frame["line"]


REQUESTS: dict[str, Callable[[accelrt.Buffer], object]] = {
    "empty": lambda _: accelrt.empty(1000),
    "empty on a device": lambda _: accelrt.empty(1000, device=f"{KIND}:0"),
    "empty with an alignment": lambda _: accelrt.empty(1000, alignment=4096),
    "a large one": lambda _: accelrt.empty(3 << 20),
    "zeros": lambda _: accelrt.zeros(1000),
    "zeros on a device": lambda _: accelrt.zeros(1000, device=f"{KIND}:0"),
    "clone": lambda buffer: buffer.clone(),
    "deepcopy": lambda buffer: buffer.__deepcopy__({}),
    "DLPack, copied": lambda buffer: buffer.__dlpack__(copy=True),
}


@pytest.mark.parametrize("way", REQUESTS)
def test_each_way_to_request_memory_is_recorded_with_its_line(way: str) -> None:
    source = accelrt.zeros(1000)
    accelerator.record_memory_history()
    kept = [REQUESTS[way](source) for _ in range(3)]
    found = [place(entry) for entry in trace("alloc")]
    assert (found, len(kept)) == ([line_of(REQUESTS[way])] * 3, 3)


def staged(target: accelrt.View) -> None:
    target.fill_(7)


@host_cores
def test_memory_that_a_copy_takes_for_itself_is_recorded_with_the_line_of_the_copy() -> None:
    target = accelrt.as_buffer(bytearray(8))
    accelerator.record_memory_history()
    staged(target)
    file, line = line_of(staged)
    assert [place(entry) for entry in trace("alloc")] == [(file, line + 1)]
    assert [place(entry) for entry in trace("free_requested")] == [(file, line + 1)]


def empty() -> accelrt.Buffer:
    return accelrt.empty(1000)


def exposed_alone() -> list[Any]:
    """Return a view of memory that its buffer does not have any more, and the buffer."""
    buffer = empty()
    view = memoryview(buffer)
    buffer.data = empty()
    return [view, buffer]


# What is made before the history, and the line that frees it.
FREES: dict[str, tuple[Callable[[], list[Any]], Callable[[list[Any]], object]]] = {
    "a buffer": (lambda: [empty()], lambda made: made.clear()),
    "release": (lambda: [empty()], lambda made: made[0].release()),
    "the end of a with": (lambda: [empty()], lambda made: made[0].__exit__(None, None, None)),
    "other data": (lambda: [empty(), empty()], lambda made: setattr(made[0], "data", made[1])),
    "a slice": (lambda: [empty()[:10]], lambda made: made.clear()),
    "a view": (lambda: [empty().view("uint8")], lambda made: made.clear()),
    "a capsule": (lambda: [empty().__dlpack__(copy=True)], lambda made: made.clear()),
    "an object that has it": (lambda: [{"inner": [empty()]}], lambda made: made.clear()),
    "a mark": (lambda: [accelrt.reads(empty())], lambda made: made.clear()),
}
HOST_FREES = {
    "a memoryview": (lambda: [memoryview(empty())], lambda made: made.clear()),
    "a released memoryview": (exposed_alone, lambda made: made[0].release()),
}


@pytest.mark.parametrize(
    "way", [*FREES, *(pytest.param(way, marks=host_cores) for way in HOST_FREES)]
)
@pytest.mark.accelrt_unordered
def test_each_way_to_free_memory_is_recorded_with_its_line(way: str) -> None:
    make, free = (FREES | HOST_FREES)[way]
    gc.collect()  # else the collector may free buffers of earlier tests here
    made = make()
    accelerator.record_memory_history()
    free(made)
    assert [place(entry) for entry in trace("free_requested")] == [line_of(free)]


def test_memory_that_goes_back_to_the_device_is_recorded_with_the_line_that_empties_the_cache() -> (
    None
):
    def give_back() -> None:
        accelerator.empty_cache()

    accelerator.record_memory_history()
    accelrt.empty(3 << 20).release()
    give_back()
    found = [*trace("segment_unmap"), *trace("segment_free")]
    file, line = line_of(give_back)
    # The innermost frame is of accelrt's own module, as torch has it.
    assert found
    assert {(file, line + 1)} == {
        (entry["frames"][1]["filename"], entry["frames"][1]["line"]) for entry in found
    }


def test_a_stack_has_its_frames_innermost_first_with_file_line_and_name() -> None:
    def inner() -> accelrt.Buffer:
        return accelrt.empty(1000)

    def call(function: Callable[[], accelrt.Buffer]) -> accelrt.Buffer:
        return function()

    class Layer:
        def forward(self) -> accelrt.Buffer:
            return call(inner)

    accelerator.record_memory_history()
    buffer = Layer().forward()
    frames = trace("alloc")[0]["frames"]
    assert [frame["name"] for frame in frames[:4]] == [
        "inner",
        "call",
        "forward",
        "test_a_stack_has_its_frames_innermost_first_with_file_line_and_name",
    ]
    assert {frame["filename"] for frame in frames[:4]} == {__file__}
    assert frames[0] == {"filename": __file__, "line": line_of(inner)[1] + 1, "name": "inner"}
    assert buffer.nbytes == 1000


def test_two_calls_in_one_function_have_their_own_lines() -> None:
    accelerator.record_memory_history()
    kept = [accelrt.empty(100)]
    kept.append(accelrt.empty(200))
    lines = {entry["size"]: place(entry)[1] for entry in trace("alloc")}
    assert (lines[200] - lines[100], len(kept)) == (1, 2)


def test_a_stack_has_at_most_as_many_frames_as_are_asked_for() -> None:
    def deep(depth: int) -> accelrt.Buffer:
        return deep(depth - 1) if depth else accelrt.empty(1000)

    for most, expected in ((1, 1), (3, 3), (256, 256)):
        accelerator.record_memory_history(max_frames=most, clear_history=True)
        deep(300)
        assert len(trace("alloc")[0]["frames"]) == expected


def test_a_generator_and_a_coroutine_have_their_frames() -> None:
    def generate() -> Iterator[accelrt.Buffer]:
        yield accelrt.empty(1000)

    accelerator.record_memory_history()
    list(generate())
    assert trace("alloc")[0]["frames"][0]["name"] == "generate"


def test_each_thread_has_its_own_stack() -> None:
    started = threading.Barrier(4)

    def work(size: int) -> None:
        started.wait()
        for _ in range(200):
            accelrt.empty(size).release()

    def other(size: int) -> None:
        work(size)

    accelerator.record_memory_history()
    threads = [
        threading.Thread(target=target, args=(1000 * (number + 1),))
        for number, target in enumerate((work, other, work, other))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    entries = [*trace("alloc"), *trace("free_requested")]
    callers = {(entry["size"], entry["frames"][1]["name"]) for entry in entries}
    assert callers == {(1000, "run"), (2000, "other"), (3000, "run"), (4000, "other")}
    assert len(entries) == 2 * 4 * 200


def test_a_free_while_an_exception_is_raised_is_recorded_and_the_exception_goes_on() -> None:
    def fail() -> None:
        buffer = accelrt.empty(1000)
        message = f"of {buffer.nbytes} bytes"
        raise KeyError(message)

    def fail_beside() -> list[object]:
        empty: dict[str, object] = {}
        return [accelrt.empty(2000), empty["what is not there"]]

    accelerator.record_memory_history()
    with pytest.raises(KeyError, match="of 1000 bytes"):
        fail()
    with pytest.raises(KeyError, match="what is not there"):
        fail_beside()
    gc.collect()  # the traceback has the frame, and that the buffer
    freed = {entry["size"]: entry["frames"][0]["name"] for entry in trace("free_requested")}
    assert freed.keys() == {1000, 2000}
    assert freed[2000] == "fail_beside"


@pytest.mark.accelrt_unordered
def test_the_stack_of_a_free_is_recorded_only_with_all_contexts() -> None:
    # Tested of torch by test_memory_plots_free_stack.
    for context, expected in {
        None: (False, False, False),
        "state": (True, False, False),
        "alloc": (True, True, False),
        "all": (True, True, True),
    }.items():
        accelerator.record_memory_history(context=context, clear_history=True)
        kept, gone = accelrt.empty(1000), accelrt.empty(2000)
        del gone
        blocks = [
            block
            for segment in accelerator.memory_snapshot()
            for block in segment["blocks"]
            if block["address"] == kept.data_ptr()
        ]
        found = [
            bool(entries[-1]["frames"])
            for entries in (blocks, trace("alloc"), trace("free_requested"))
        ]
        assert tuple(found) == expected, context


@pytest.mark.accelrt_unordered
def test_without_entries_blocks_still_have_their_stacks() -> None:
    accelerator.record_memory_history("state")
    kept = [accelrt.empty(1000) for _ in range(5)]
    blocks = [
        block
        for segment in accelerator.memory_snapshot()
        for block in segment["blocks"]
        if block["frames"]
    ]
    # The only entries are the snapshots of devices that have had memory.
    traces = accelerator.take_memory_snapshot()["device_traces"]
    assert (len(blocks), len(traces[0]), max(map(len, traces))) == (len(kept), 1, 1)


def test_the_newest_entries_are_kept_and_the_others_counted() -> None:
    accelerator.record_memory_history(max_entries=10)
    sizes = [512 * number for number in range(1, 101)]
    for size in sizes:
        accelrt.empty(size).release()
    taken = accelerator.take_memory_snapshot()
    # The trace of device 0 ends with its snapshot; each other device adds one afterwards.
    entries = taken["device_traces"][0]
    assert [entry["size"] for entry in entries[-4:-1]] == [512 * 100] * 3
    assert (len(entries), entries[-1]["action"]) == (10, "snapshot")
    assert taken["accelrt"]["num_dropped_entries"] > 200


def test_a_history_that_is_cleared_ended_or_changed() -> None:
    accelerator.record_memory_history()
    accelrt.empty(1000).release()
    accelerator.record_memory_history(context="alloc")  # goes on
    assert len(trace("alloc")) == 1
    accelerator.record_memory_history(clear_history=True)
    assert trace("alloc") == []
    accelrt.empty(1000).release()
    accelerator.record_memory_history(None)
    assert trace() == []
    accelrt.empty(1000).release()
    accelerator.record_memory_history()
    assert trace("alloc") == []


def test_actions_that_are_skipped_are_not_in_a_snapshot() -> None:
    accelerator.record_memory_history(skip_actions=["free_requested", "snapshot"])
    accelrt.empty(1000).release()
    actions = {entry["action"] for entry in trace()}
    assert "alloc" in actions
    assert not actions & {"free_requested", "snapshot"}


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"enabled": "on"}, RuntimeError, "'state', 'all', or None: enabled is 'on'"),
        ({"context": "some"}, RuntimeError, "'state', 'alloc', 'all', or None: it is 'some'"),
        ({"stacks": "c++"}, RuntimeError, "to be 'python', or 'all': it is 'c[+][+]'"),
        ({"skip_actions": ["free"]}, RuntimeError, "Unknown TraceEntry action: free"),
        ({"skip_actions": "alloc"}, TypeError, "skip_actions must be a list of actions, not str"),
        ({"skip_actions": 5}, TypeError, "skip_actions must be a list of actions, not int"),
        ({"skip_actions": [5]}, TypeError, "an action in skip_actions must be a str, not int"),
        ({"device": 99}, RuntimeError, "Device .*:99 does not exist"),
        ({"enabled": True}, TypeError, "enabled must be 'state', 'all' or None, not True"),
        ({"max_entries": "many"}, TypeError, "max_entries must be an integer, not str"),
        ({"max_entries": True}, TypeError, "max_entries must be an integer, not bool"),
        ({"max_entries": -1}, ValueError, "max_entries must be 0 to .*, not -1"),
        ({"max_frames": 0}, ValueError, "max_frames must be 1 to 256, not 0"),
        ({"clear_history": 2}, TypeError, "clear_history must be True or False, not int"),
    ],
)
def test_wrong_arguments_are_named_in_torchs_words(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        accelerator.record_memory_history(**arguments)
    assert trace() == []


FRAME = {"filename": str, "line": int, "name": str}
SEGMENT = {
    "device": int,
    "address": int,
    "total_size": int,
    "allocated_size": int,
    "active_size": int,
    "requested_size": int,
    "stream": int,
    "segment_type": str,
    "segment_pool_id": tuple,
    "is_expandable": bool,
    "frames": list,
    "blocks": list,
}
BLOCK = {"address": int, "size": int, "requested_size": int, "state": str, "frames": list}
ENTRY = {
    "action": str,
    "addr": int,
    "size": int,
    "stream": int,
    "time_us": int,
    "frames": list,
    "compile_context": str,
    "user_metadata": str,
    "pool_id": tuple,
}
SETTINGS_OF_TORCH = {
    "PYTORCH_CUDA_ALLOC_CONF": str,
    "max_split_size": int,
    "garbage_collection_threshold": float,
    "expandable_segments": bool,
    "pinned_num_register_threads": int,
    "release_lock_on_malloc": bool,
    "pinned_use_host_register": bool,
    "graph_capture_record_stream_reuse": bool,
    "roundup_power2_divisions": dict,
}


def kinds_of(entry: Entry) -> dict[str, type]:
    return {key: type(value) for key, value in entry.items()}


def test_a_snapshot_has_torchs_keys_and_types() -> None:
    before_us = time.time_ns() // 1000
    accelerator.record_memory_history(global_record_annotations=True)
    with accelrt.memory_tag("kv cache"), profiler.record_function("step"):
        kept = accelrt.empty(3 << 20)
        accelrt.empty(1000).release()
    with pytest.raises(accelrt.OutOfMemoryError):
        accelrt.empty(1 << 60)
    taken = accelerator.take_memory_snapshot()
    assert list(taken) == [
        "segments",
        "device_traces",
        "allocator_settings",
        "external_annotations",
        "accelrt",  # ours
    ]
    assert kinds_of(taken["allocator_settings"]) == SETTINGS_OF_TORCH
    assert all(kinds_of(segment) == SEGMENT for segment in taken["segments"])
    blocks = [block for segment in taken["segments"] for block in segment["blocks"]]
    assert all(kinds_of(block) == BLOCK | {"user_metadata": str} for block in blocks)
    assert len(taken["device_traces"]) == accelerator.device_count()
    entries = taken["device_traces"][0]
    shortage = {("device_free" if key == "addr" else key): of for key, of in ENTRY.items()}
    for entry in entries:
        assert kinds_of(entry) == (shortage if entry["action"] == "oom" else ENTRY)
        assert entry["compile_context"] == "N/A"
    frames = [frame for entry in (*entries, *blocks) for frame in entry["frames"]]
    assert frames
    assert all(kinds_of(frame) == FRAME for frame in frames)
    times = [entry["time_us"] for entry in entries]
    assert before_us <= times[0] <= max(times) == times[-1] <= time.time_ns() // 1000
    held = next(block for block in blocks if block["address"] == kept.data_ptr())
    assert (held["state"], held["requested_size"], held["user_metadata"]) == (
        "active_allocated",
        3 << 20,
        "kv cache",
    )
    assert {entry["user_metadata"] for entry in entries if entry["size"] == 1000} == {"kv cache"}
    marks = [mark for mark in taken["external_annotations"] if mark["device"] == 0]
    assert [(mark["stage"], mark["name"]) for mark in marks] == [("START", "step"), ("END", "step")]
    assert list(marks[0]) == ["stage", "name", "device", "time_us"]
    assert times[0] - 10_000_000 < marks[0]["time_us"] <= marks[1]["time_us"] <= times[-1]


def test_a_shortage_is_an_entry_with_what_the_device_had_free() -> None:
    accelerator.record_memory_history()
    with pytest.raises(accelrt.OutOfMemoryError):
        accelrt.empty(1 << 60)
    (entry,) = trace("oom")
    assert (entry["size"], place(entry)[0]) == (1 << 60, __file__)
    assert entry["device_free"] > 0


def test_a_dump_is_read_back_as_it_was_and_has_equal_stacks_once(tmp_path: Path) -> None:
    accelerator.record_memory_history()
    kept = [accelrt.empty(1000) for _ in range(100)]
    path = tmp_path / "memory.pickle"
    accelerator.dump_snapshot(path)
    loaded = pickle.loads(path.read_bytes())  # noqa: S301  our own
    entries = [entry for entry in loaded["device_traces"][0] if entry["action"] == "alloc"]
    assert len(entries) == len(kept)
    # A call that the interpreter has specialised stands at another instruction of its line.
    assert len({id(entry["frames"]) for entry in entries}) <= 3
    assert [path.name for path in tmp_path.iterdir()] == ["memory.pickle"]
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_dump_that_cannot_be_written_names_the_file_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere/memory\.pickle"):
        accelerator.dump_snapshot(tmp_path / "nowhere/memory.pickle")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        accelerator.dump_snapshot(tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_our_own_readers_take_a_dump(tmp_path: Path) -> None:
    accelerator.record_memory_history()
    kept = [accelrt.empty(1000 * number) for number in range(1, 50)]
    del kept[::2]
    path, page = tmp_path / "memory.pickle", tmp_path / "page.html"
    accelerator.dump_snapshot(path)
    assert len(read(path).devices) == accelerator.device_count()
    viewed = run("-m", "accelrt", "view", str(path), "-o", str(page))
    assert (viewed.returncode, viewed.stderr) == (0, ""), viewed
    assert page.stat().st_size > 10_000
    head, _ = snapshot.view(read(path), read(path).devices[0])
    assert any(name == "test_our_own_readers_take_a_dump" for name, _, _ in head["frames"])
    replayed = run("-m", "accelrt", "replay", str(path))
    assert (replayed.returncode, replayed.stderr) == (0, ""), replayed
    assert "native" in replayed.stdout


def test_a_page_has_the_tag_of_what_was_there_before_the_history(tmp_path: Path) -> None:
    with accelrt.memory_tag("before the history"):
        kept = accelrt.empty(1000)
    accelerator.record_memory_history()
    path = tmp_path / "memory.pickle"
    accelerator.dump_snapshot(path)
    head, _ = snapshot.view(read(path), read(path).devices[0])
    assert "before the history" in head["tags"]
    assert kept.nbytes == 1000


def test_a_dump_made_hostile_runs_nothing(tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
            return Path.touch, (tmp_path / "touched",)

    accelerator.record_memory_history()
    buffer = accelrt.empty(1000)
    taken = accelerator.take_memory_snapshot()
    taken["device_traces"][0][-1]["frames"] = [Hostile()]
    path = tmp_path / "memory.pickle"
    path.write_bytes(pickle.dumps(taken))
    with pytest.raises(TraceError):
        read(path)
    assert not (tmp_path / "touched").exists()
    assert buffer.nbytes == 1000


def test_stacks_beyond_the_most_are_unknown_and_counted() -> None:
    body = """
        import accelrt
        accelrt.cpu.record_memory_history()
        def branch(depth):
            if depth:
                branch(depth - 1)
                branch(depth - 1)
            else:
                accelrt.empty(0)
        branch(17)
        def deep(depth):
            return deep(depth - 1) if depth else accelrt.empty(1000, device="cpu")
        buffer = deep(25)
        taken = accelrt.cpu.take_memory_snapshot()
        lost = taken["accelrt"]["num_unknown_stacks"]
        (entry,) = [it for it in taken["device_traces"][0] if it["action"] == "alloc"]
        print(lost > 1 << 16, entry["frames"])
    """
    assert output_of(body) == "True []\n"


def test_a_child_records_nothing_and_says_so() -> None:
    body = """
        import os, warnings
        import accelrt
        warnings.simplefilter("ignore")
        accelrt.cpu.record_memory_history()
        kept = accelrt.empty(1000, device="cpu")
        if os.fork() == 0:
            with accelrt.memory_tag("child"):
                del kept
            for call in accelrt.cpu.record_memory_history, accelrt.cpu.take_memory_snapshot:
                try:
                    call()
                except RuntimeError as error:
                    print("fork" in str(error), flush=True)
            os._exit(0)
        print(os.wait()[1])
    """
    assert output_of(body) == "True\nTrue\n0\n"


def test_a_history_and_a_profile_are_on_at_once() -> None:
    accelerator.record_memory_history()
    with profiler.profile() as recorded:
        accelrt.zeros(1000).release()
        accelrt.accelerator.synchronize()
    assert len(trace("alloc")) == 1
    assert [row.key for row in recorded.key_averages() if row.key == "fill"] == ["fill"]


def test_a_history_that_was_never_asked_for_costs_no_stacks() -> None:
    kept = accelrt.empty(1000)
    with accelrt.memory_tag("kv cache"):
        tagged = accelrt.empty(2000)
    blocks = {
        block["address"]: block
        for segment in accelerator.memory_snapshot()
        for block in segment["blocks"]
    }
    assert blocks[kept.data_ptr()]["frames"] == blocks[tagged.data_ptr()]["frames"] == []
    assert blocks[tagged.data_ptr()]["user_metadata"] == "kv cache"


@several_devices
def test_snapshot_of_devices_counts_each_entry_once() -> None:
    numbers = {}
    for index in range(2):
        accelrt.empty(512, device=f"{KIND}:{index}")
    for most in (100, 3):
        accelerator.record_memory_history(max_entries=most, clear_history=True)
        for _ in range(3):
            accelrt.empty(512, device=f"{KIND}:0")
        taken = accelerator.take_memory_snapshot()
        entries = sum(map(len, taken["device_traces"]))
        numbers[most] = entries, taken["accelrt"]["num_dropped_entries"]
        accelerator.record_memory_history(None)
    # Each device after the first one adds the entry of its own snapshot.
    assert 3 <= numbers[3][0] < 3 + accelerator.device_count()
    assert sum(numbers[3]) == sum(numbers[100])
