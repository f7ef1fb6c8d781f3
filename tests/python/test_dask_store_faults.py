"""Disks of a dask worker that fail, and values that cannot be written.

Goal: a value stays where it was or its error names it, and no other value is lost. Method: a store
of the host's values, without a cluster, and faults at one call of the disk.
"""

import asyncio
import errno
import io
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.worker_memory import WorkerMemoryManager

import accelrt
from accelrt.dask import DeviceStore, frames
from accelrt.dask.files import Files, SpilledFile
from accelrt.dask.frames import OnHost
from accelrt.dask.values import Move, ValueState, ValueTable
from bounded import bounded
from dask_stores import LIMIT_S, VALUE_BYTES, fill, made_store
from kinds import KIND

pytestmark = [
    pytest.mark.skipif(KIND != "cpu", reason="the stores are of cpu devices"),
    pytest.mark.filterwarnings("default"),  # those of other packages
]

OTHER = b"other" * 1_000


@pytest.fixture(autouse=True)
def bounded_test() -> Iterator[None]:
    """Bound each test."""
    with bounded(LIMIT_S):
        yield


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DeviceStore]:
    """On a device with room for three values, and a host for two."""
    with made_store(tmp_path) as made:
        yield made


def files_of(store: DeviceStore) -> list[Path]:
    return list(Path(store._files.directory).iterdir())


def no_room(*_given: object, **_named: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class HalfFile(io.BytesIO):
    """Takes a part of what is written."""

    def writelines(self, lines: Any) -> None:
        self.write(bytes(next(iter(lines)))[:1])
        no_room()


class NotPickled:
    """Cannot be written until `is_ready`."""

    is_ready = False

    def __reduce__(self) -> tuple[Any, ...]:
        if not self.is_ready:
            raise TypeError(type(self))
        return NotPickled, ()


@pytest.mark.parametrize("call", ["mkstemp", "writelines"])
def test_failed_write_keeps_value_on_host(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    store["old"], store["other"] = b"old" * 1_000, OTHER
    with monkeypatch.context() as patch:
        if call == "mkstemp":
            patch.setattr(tempfile, "mkstemp", no_room)
        else:
            patch.setattr("builtins.open", lambda *_given: HalfFile())
        assert store.evict() == -1
    assert store.memory == {"old": b"old" * 1_000, "other": OTHER}
    assert (files_of(store), store.spilled_total) == ([], (0, 0))
    assert store.evict() == 3_000
    assert (list(store.disk), len(files_of(store))) == (["old"], 1)
    assert (store["old"], files_of(store)) == (b"old" * 1_000, [])


class UnprintableError(Exception):
    """An exception without a text."""

    def __str__(self) -> str:
        raise LookupError


def fail_without_text() -> None:
    raise UnprintableError


class NeverRead:
    """Can be written, but its file raises an exception without a text."""

    def __reduce__(self) -> tuple[Any, ...]:
        return fail_without_text, ()


def test_unprintable_error_of_read_names_key(store: DeviceStore) -> None:
    store["odd"] = NeverRead()
    assert store.evict() > 0
    with pytest.raises(
        RuntimeError, match=r"cannot read the value of 'odd'.*<exception str"
    ) as raised:
        store["odd"]
    assert isinstance(raised.value.__cause__, UnprintableError)


def damage_length(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def damage_longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def damage_header(path: Path) -> None:
    path.write_bytes(b"\xff" * path.stat().st_size)


@pytest.mark.parametrize("damage", [damage_length, damage_longer, damage_header, Path.unlink])
@pytest.mark.parametrize("is_buffer", [False, True])
def test_damaged_file_is_named_and_alone(
    store: DeviceStore,
    damage: Callable[[Path], None],
    is_buffer: bool,  # noqa: FBT001
) -> None:
    """The value is listed until it is deleted or replaced, and other values are what they were."""
    if is_buffer:
        fill(store, 1)
        assert store._spill({}) == VALUE_BYTES
    else:
        store["x-0"] = bytes(1_000)
    assert store.evict() > 0
    store["other"] = OTHER
    assert store.evict() > 0
    path = Path(store._table.values["x-0"].file.path)  # type: ignore[union-attr]
    damage(path)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=f"cannot read the value of 'x-0'.*{path}") as raised:
            store["x-0"]
        assert raised.value.__cause__ is not None
    assert list(store) == ["x-0", "other"]
    assert store["other"] == OTHER
    store["x-0"] = "new"
    assert (store["x-0"], files_of(store)) == ("new", [])


def test_read_after_a_failed_read_succeeds(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 1)
    store._spill({})
    store.evict()
    with monkeypatch.context() as patch:
        patch.setattr(accelrt, "empty_pinned", no_room)
        with pytest.raises(RuntimeError, match="No space left"):
            store["x-0"]
    value = store["x-0"]
    assert isinstance(value, accelrt.Buffer)
    assert (set(memoryview(value)), files_of(store)) == ({0}, [])


def test_failed_copy_keeps_value_on_disk(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 1)
    store._spill({})
    store.evict()
    with monkeypatch.context() as patch:
        patch.setattr(OnHost, "on", no_room)
        with pytest.raises(OSError, match="No space left"):
            store["x-0"]
    assert (list(store.disk), len(files_of(store))) == (["x-0"], 1)
    value = store["x-0"]
    assert isinstance(value, accelrt.Buffer)
    assert set(memoryview(value)) == {0}


def test_failed_copy_keeps_value_on_device(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_value: object) -> None:
        raise accelrt.OutOfMemoryError

    fill(store, 1)
    with monkeypatch.context() as patch:
        patch.setattr(OnHost, "of", fail)
        assert store._spill({}) is None
    assert (store.numbers()["on_device"], store.memory, store._leaving) == (1, {}, {})
    assert store._spill({}) == VALUE_BYTES


def test_unwritable_value_blocks_no_other(store: DeviceStore) -> None:
    """It is tried after the others from then on."""
    store["bad"] = bad = NotPickled()
    store["good"], store["other"] = bytes(1_000), OTHER
    assert store.evict() > 0
    assert list(store.disk) == ["good"]
    assert list(store.memory) == ["other", "bad"]
    assert store.evict() > 0
    assert store.evict() == -1
    assert store["bad"] is bad
    bad.is_ready = True
    del bad
    assert store.evict() > 0
    assert isinstance(store["bad"], NotPickled)


def test_long_key_goes_to_disk(store: DeviceStore) -> None:
    key = ("/", "x" * 5_000)
    store[key] = OTHER
    assert store.evict() > 0
    assert (list(store.disk), store[key]) == ([key], OTHER)


@pytest.mark.parametrize("is_replaced", [False, True])
@pytest.mark.parametrize("move", ["write", "read"])
def test_file_of_a_dropped_value_is_removed(
    store: DeviceStore,
    monkeypatch: pytest.MonkeyPatch,
    move: str,
    is_replaced: bool,  # noqa: FBT001
) -> None:
    """The thread that moves the value removes its file, and its read returns the value."""
    store["x"] = OTHER
    if move == "read":
        store.evict()
    work = getattr(Files, move)

    def change_meanwhile(*given: Any, **named: bool) -> object:
        done = work(*given, **named)
        if is_replaced:
            store["x"] = "new"
        else:
            del store["x"]
        return done

    monkeypatch.setattr(Files, move, change_meanwhile)
    assert (store["x"] if move == "read" else store.evict()) in {OTHER, len(OTHER)}
    assert store.memory == ({"x": "new"} if is_replaced else {})
    assert (store.disk, files_of(store), store.spilled_total) == ({}, [], (0, 0))


def test_read_takes_over_from_a_write(store: DeviceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for no disk; the file is removed."""
    write, found = Files.write, list[object]()

    def read_meanwhile(*given: Any, **named: Any) -> SpilledFile:
        thread = threading.Thread(target=lambda: found.append(store["x-0"]), daemon=True)
        thread.start()
        thread.join(LIMIT_S)
        return write(*given, **named)

    fill(store, 1)
    store._spill({})
    monkeypatch.setattr(Files, "write", read_meanwhile)
    assert store.evict() == VALUE_BYTES
    assert [type(it) for it in found] == [accelrt.Buffer]
    places = [store.numbers()[it] for it in ("on_device", "on_host", "on_disk")]
    assert (places, files_of(store)) == ([1, 0, 0], [])


def test_value_in_use_is_not_read_again(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that has it and the store share one copy."""
    store["x"] = used = NotPickled()
    used.is_ready = True
    store.evict()
    monkeypatch.setattr(Files, "read", no_room)
    assert store["x"] is used
    assert (list(store.memory), files_of(store)) == (["x"], [])


@pytest.mark.parametrize("is_above", [False, True])
def test_value_above_the_limit_stays_on_disk(
    store: DeviceStore,
    is_above: bool,  # noqa: FBT001
) -> None:
    """Nothing else makes room for it; what has the size of the host comes back."""
    large = bytes(2 * VALUE_BYTES + is_above)
    store["small"], store["large"] = OTHER, large
    store._thread.submit(lambda: None).result(LIMIT_S)
    before, after = ("small", "large") if is_above else ("large", "small")
    assert (list(store.memory), list(store.disk)) == ([before], [after])
    assert store["large"] == large
    assert (list(store.memory), list(store.disk)) == ([before], [after])
    assert store["small"] == OTHER
    assert (list(store.memory), list(store.disk)) == (["small"], ["large"])
    assert store["large"] == large
    assert list(store.memory) == [before]


def test_max_spill_is_reached_exactly(store: DeviceStore) -> None:
    def write(key: str) -> int:
        store[key] = OTHER
        return store.evict()

    write("x-0")
    file_bytes = store.spilled_total.disk
    store._files.max_bytes = 2 * file_bytes
    assert (write("x-1"), store.spilled_total) == (len(OTHER), (2 * len(OTHER), 2 * file_bytes))
    assert (write("x-2"), list(store.memory)) == (-1, ["x-2"])
    del store["x-0"]
    assert store.evict() == len(OTHER)
    store._files.max_bytes = 3 * file_bytes - 1
    assert write("x-3") == -1


def test_metrics_count_reads_and_writes(store: DeviceStore) -> None:
    store["x"] = OTHER
    store.evict()
    disk_bytes = store.spilled_total.disk
    for _ in range(3):  # once from the disk
        assert store["x"] == OTHER
    found = store.cumulative_metrics
    assert {key: value for key, value in found.items() if key[1] != "seconds"} == {
        ("disk-write", "count"): 1,
        ("disk-write", "bytes"): disk_bytes,
        ("disk-read", "count"): 1,
        ("disk-read", "bytes"): disk_bytes,
        ("memory-read", "count"): 2,
        ("memory-read", "bytes"): 2 * len(OTHER),
    }


def test_failed_value_raises_in_its_call(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread has tried; the event loop reads no file."""
    store["x"] = OTHER
    store.evict()
    readers = list[int]()

    def fail(*_given: object) -> None:
        readers.append(threading.get_ident())
        raise RuntimeError(errno.EIO)

    async def read() -> object:
        return store["x"]

    monkeypatch.setattr(Files, "read", fail)
    with pytest.raises(RuntimeError, match=str(errno.EIO)):
        asyncio.run(store.during(["x"], read))
    assert len(readers) == 1
    assert readers[0] != threading.get_ident()
    assert list(store.disk) == ["x"]


def test_closed_store_takes_values(store: DeviceStore) -> None:
    store.close()
    for number in range(3):
        store[f"x-{number}"] = bytes(VALUE_BYTES)
    assert len(store.memory) == 3
    assert store.evict() == VALUE_BYTES
    store.clear()
    assert (len(store), files_of(store)) == (0, [])


@pytest.mark.parametrize("error", [RuntimeError, MemoryError])
def test_failed_look_of_the_monitor_is_over(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """A closed store raises a RuntimeError, which the event loop does not receive."""

    def fail(*_: object) -> None:
        raise error

    async def look() -> int:
        return store.evict()

    store["x"] = OTHER
    with monkeypatch.context() as patch:
        patch.setattr(store._thread, "submit", fail)
        with nullcontext() if error is RuntimeError else pytest.raises(error):
            assert asyncio.run(look()) == -1
    assert asyncio.run(look()) == -1
    store._thread.submit(int).result()
    assert list(store.disk) == ["x"]


def test_clear_while_a_key_is_deleted(store: DeviceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    drop = store._drop
    for key in "abc":
        store[key] = OTHER
    monkeypatch.setattr(store, "_drop", lambda key: drop(key) and key != "b")
    store.clear()
    assert len(store) == 0


def test_memory_that_comes_free_is_notified(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request waits for stored values, which can leave, and for those that left."""
    act, notified = "stores", list[str]()
    monkeypatch.setattr(store._lock, "notify_all", lambda: notified.append(act))
    fill(store, 1)
    act = "leaves"
    assert store._spill({}) == VALUE_BYTES
    act = "comes"
    (key,) = store
    assert isinstance(store[key], accelrt.Buffer)
    assert notified == ["stores", "leaves", "comes"]


def test_values_being_written_are_no_excess() -> None:
    table, left = ValueTable(15), list[Any]()
    for key in "ab":
        table.add_to_host(key, OTHER, 10, left)
    assert table.excess_bytes() == 5
    table.begin(Move(), table.values["a"], ValueState.WRITING)
    assert table.excess_bytes() == -5
    table.begin(Move(), table.values["b"], ValueState.WRITING)
    assert table.excess_bytes() == -15
    table.begin(read := Move(), table.values["a"], ValueState.COMING)
    assert table.excess_bytes() == -5
    table.end(read, ValueState.DEVICE, OTHER)
    assert (table.host_bytes, table.excess_bytes()) == (10, -15)
    table.drop("b", left)
    assert (table.host_bytes, table.excess_bytes()) == (0, -15)


def test_value_without_room_outside_of_a_worker_fails() -> None:
    """A client without room for a result is told, and does not get pinned memory instead."""
    value = accelrt.empty(64 << 20, device="cpu:0")  # whole pages
    header, sent = frames._serialize(value)
    accelrt.cpu.empty_cache()
    accelrt.cpu.set_per_process_memory_fraction(0.0, 0)
    try:
        with pytest.raises(accelrt.OutOfMemoryError):
            frames._deserialize(header, [bytes(frame) for frame in sent])
    finally:
        accelrt.cpu.set_per_process_memory_fraction(1.0, 0)
    received = frames._deserialize(header, [bytes(frame) for frame in sent])
    assert isinstance(received, accelrt.Buffer)
    assert received.device == accelrt.device("cpu:0")


def test_taken_value_is_returned_once(store: DeviceStore) -> None:
    store["x"] = OTHER
    store.evict()
    assert (store.pop("x"), files_of(store)) == (OTHER, [])
    assert store.pop("x", None) is None
    with pytest.raises(KeyError, match="x"):
        store.pop("x")


def test_pop_returns_the_value_it_deletes(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value that another thread writes meanwhile is not deleted unread."""
    find = store._find

    def write_meanwhile(key: str) -> Any:
        found = find(key)
        if found.value == "old":
            store["x"] = "new"
        return found

    store["x"] = "old"
    monkeypatch.setattr(store, "_find", write_meanwhile)
    assert (store.pop("x"), len(store)) == ("new", 0)


def test_large_value_blocks_no_smaller_one(store: DeviceStore) -> None:
    """One file alone would exceed the limit of all; it is tried after the others from then on."""
    store["large"], store["small"] = bytes(range(256)) * 100, OTHER
    store["other"] = OTHER
    store._files.max_bytes = 20_000
    assert [store.evict() for _ in range(3)] == [len(OTHER), len(OTHER), -1]
    assert (list(store.memory), list(store.disk)) == (["large"], ["small", "other"])
    store._files.max_bytes = None
    assert store.evict() == 25_600


def test_files_of_several_threads_keep_the_limit(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are written at the same time, and only one of them has room."""
    store["x-0"], store["x-1"] = OTHER, OTHER
    both, reserve = threading.Barrier(2), Files._reserve

    def reserve_both(files: Files, file: SpilledFile) -> None:
        both.wait(LIMIT_S)
        reserve(files, file)

    store.evict()
    store._files.max_bytes = store.spilled_total.disk
    assert store["x-0"] == OTHER
    monkeypatch.setattr(Files, "_reserve", reserve_both)
    with ThreadPoolExecutor(2) as threads:
        written = [threads.submit(store.evict) for _ in range(2)]
        assert sorted(it.result(LIMIT_S) for it in written) == [-1, len(OTHER)]
    assert (len(store.disk), len(store.memory), len(files_of(store))) == (1, 1, 1)


def test_memory_monitor_writes_on_a_thread(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks every 0.1 s; each look ends at once, and the values are on disk after some."""
    writers, write = set[int](), Files.write

    def write_seen(*given: Any, **named: Any) -> SpilledFile:
        writers.add(threading.get_ident())
        return write(*given, **named)

    worker: Any = SimpleNamespace(
        monitor=SimpleNamespace(get_process_memory=lambda: 0 if len(store.disk) == 3 else 100),
        local_directory=store._files.directory,
        periodic_callbacks={},
        status=None,
        digest_metric=lambda *_: None,
    )

    async def watch() -> int:
        manager = WorkerMemoryManager(worker, nthreads=1, memory_limit=100, data={})
        manager.data = store
        for look in range(1_000):
            if (memory := worker.monitor.get_process_memory()) == 0:
                return look
            await manager._maybe_spill(worker, memory)
            await asyncio.sleep(0.01)
        return -1

    monkeypatch.setattr(Files, "write", write_seen)
    for number in range(3):
        store[f"x-{number}"] = OTHER
    assert asyncio.run(watch()) > 0
    assert (len(store.disk), len(store.memory)) == (3, 0)
    assert threading.get_ident() not in writers
    assert not store._is_relieving
