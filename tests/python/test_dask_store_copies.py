"""Copies of a dask worker's values between device and host, also such that fail or take long.

Goal: a move ends after its copy. A copy that fails changes nothing, a request goes on with the next
value, and a callable that requests memory does not wait for its own end. Method: a store without a
cluster, and callables before the copies that fail or wait.
"""

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest

import accelrt
from accelrt.dask import DeviceStore
from accelrt.dask.failures import DefaultStream
from accelrt.dask.files import Files, SpilledFile
from accelrt.dask.frames import OnHost
from accelrt.dask.worker import StreamThreadPoolExecutor
from bounded import bounded
from dask_stores import LIMIT_S, VALUE_BYTES, fill, full, made_store
from kinds import KIND
from processes import output_of

pytestmark = [
    pytest.mark.longer(600),
    pytest.mark.skipif(KIND != "cpu", reason="the stores are of cpu devices"),
    pytest.mark.filterwarnings("default"),  # those of other packages
]


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


def copied_behind(patch: pytest.MonkeyPatch, method: str, call: Callable[[], object]) -> None:
    """Have a callable run on the stream of each copy before the copy."""
    copy = getattr(OnHost, method)

    def enqueue(*given: Any) -> Any:
        accelrt.accelerator.current_stream().launch_host(call)
        return copy(*given)

    patch.setattr(OnHost, method, enqueue)


def fail() -> None:
    raise ZeroDivisionError


def wait_after(has_begun: threading.Event, gate: threading.Event) -> None:
    has_begun.set()
    assert gate.wait(LIMIT_S)


def places(store: DeviceStore) -> list[int]:
    return [store.numbers()[it] for it in ("on_device", "on_host", "on_disk")]


def content(value: object) -> set[int]:
    with memoryview(value) as memory:  # type: ignore[arg-type]
        return set(memory)


def test_failed_copy_off_the_device_has_no_effect(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing keeps the value in use afterwards, also before a collection."""
    fill(store, 2)
    gc.collect()
    gc.disable()
    try:
        with monkeypatch.context() as patch:
            copied_behind(patch, "of", fail)
            assert (store._spill({}), places(store)) == (None, [2, 0, 0])
        assert [store._spill({}) for _ in range(3)] == [VALUE_BYTES, VALUE_BYTES, None]
    finally:
        gc.enable()
    assert [content(store[f"x-{number}"]) for number in range(2)] == [{0}, {1}]


def test_request_goes_on_after_a_failed_copy(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [fail]
    copied_behind(monkeypatch, "of", lambda: failures.pop()() if failures else None)
    fill(store, 3)
    assert accelrt.empty(VALUE_BYTES, device="cpu:1").nbytes == VALUE_BYTES
    assert (failures, list(store.memory)) == ([], ["x-1"])
    assert [content(store[f"x-{number}"]) for number in (0, 2)] == [{0}, {2}]


def test_failed_copy_to_the_device_is_raised_once(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader gets the error, the next read tries again, and tasks that run later succeed."""
    fill(store, 1)
    assert store._spill({}) == VALUE_BYTES
    with monkeypatch.context() as patch:
        copied_behind(patch, "on", fail)
        with pytest.raises(accelrt.StreamError, match="ZeroDivisionError"):
            store["x-0"]
    assert (list(store.memory), places(store)) == (["x-0"], [0, 1, 0])
    executor = StreamThreadPoolExecutor(store, 1, WeakSet(), DefaultStream(store.device))
    assert executor.submit(lambda: content(store["x-0"])).result(LIMIT_S) == {0}
    executor.shutdown()
    assert places(store) == [1, 0, 0]


def test_failed_copy_is_raised_in_its_call(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read() -> object:
        return store["x-0"]

    fill(store, 1)
    assert store._spill({}) == VALUE_BYTES
    with monkeypatch.context() as patch:
        copied_behind(patch, "on", fail)
        with pytest.raises(accelrt.StreamError, match="ZeroDivisionError"):
            asyncio.run(store.during(["x-0"], read))
    assert content(asyncio.run(store.during(["x-0"], read))) == {0}


def test_failed_copy_fails_no_other_copy(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads bring values at the same time, and the copy of one fails."""
    fill(store, 2)
    assert [store._spill({}) for _ in range(2)] == [VALUE_BYTES] * 2
    come, both = OnHost.on, threading.Barrier(2)

    def enqueue(host: OnHost, device: accelrt.device) -> Any:
        is_bad = content(host.pinned) == {0}
        if is_bad:
            accelrt.accelerator.current_stream().launch_host(fail)
        both.wait(LIMIT_S)
        try:
            return come(host, device)
        finally:
            both.wait(LIMIT_S)

    with ThreadPoolExecutor(2) as threads, monkeypatch.context() as patch:
        patch.setattr(OnHost, "on", enqueue)
        found = [threads.submit(store.__getitem__, f"x-{number}") for number in range(2)]
        assert isinstance(found[0].exception(LIMIT_S), accelrt.StreamError)
        assert content(found[1].result(LIMIT_S)) == {1}
    assert content(store["x-0"]) == {0}


def test_planned_faults_of_copies_lose_no_value(tmp_path: Path) -> None:
    """The device's own copies fail; in a process of its own, which is prepared for faults."""
    code = f"""
import logging
import accelrt
from accelrt import testing

logging.disable()
with testing.faults("copy:1000000"):
    pass
from accelrt.dask import DeviceStore

store = DeviceStore({str(tmp_path)!r}, accelrt.device("cpu:0"), host_limit=1 << 30)
value = accelrt.empty(1 << 20, device="cpu:0").fill_(7)
accelrt.cpu.synchronize()
store["x"] = value
del value
with testing.faults("copy:1"):
    print(store._spill({{}}))
print(store._spill({{}}))
with testing.faults("copy:1"):
    try:
        store["x"]
    except accelrt.StreamError as error:
        print("failed")
print(set(memoryview(store["x"])))
store.close()
"""
    assert output_of(code).splitlines() == ["None", str(1 << 20), "failed", "{7}"]


def test_move_off_the_device_ends_after_its_copy(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, has_begun = threading.Event(), threading.Event()
    copied_behind(monkeypatch, "of", lambda: wait_after(has_begun, gate))
    fill(store, 1)
    with ThreadPoolExecutor(1) as thread:
        moved = thread.submit(store._spill, {})
        assert has_begun.wait(LIMIT_S)
        with pytest.raises(TimeoutError):
            moved.result(0.2)
        assert places(store) == [1, 0, 0]
        assert store._lock.acquire(timeout=LIMIT_S)  # the thread waits without it
        store._lock.release()
        gate.set()
        assert moved.result(LIMIT_S) == VALUE_BYTES
    assert (places(store), content(store["x-0"])) == ([0, 1, 0], {0})


def test_read_keeps_a_leaving_value_on_the_device(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the copy. The value's memory would not come free, so that the value stays."""
    gate, has_begun, has_waited = threading.Event(), threading.Event(), threading.Event()
    copied_behind(monkeypatch, "of", lambda: wait_after(has_begun, gate))
    wait_for_change = store._settled.wait

    def wait(timeout: float | None = None) -> bool:
        has_waited.set()
        return wait_for_change(timeout)

    monkeypatch.setattr(store._settled, "wait", wait)
    fill(store, 1)
    with ThreadPoolExecutor(2) as threads:
        moved = threads.submit(store._spill, {})
        assert has_begun.wait(LIMIT_S)
        found = threads.submit(store.__getitem__, "x-0")
        assert has_waited.wait(LIMIT_S)
        gate.set()
        assert moved.result(LIMIT_S) is None
        assert content(found.result(LIMIT_S)) == {0}
    assert (places(store), store.numbers()["device_to_host"]) == ([1, 0, 0], 0)
    del found
    assert store._spill({}) == VALUE_BYTES


def test_read_takes_over_while_a_place_is_made(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy is complete, and the host full: the read waits for no file."""
    write, found = Files.write, list[object]()

    def read_meanwhile(*given: Any, **named: Any) -> SpilledFile:
        if not found:
            thread = threading.Thread(target=lambda: found.append(store["x-2"]), daemon=True)
            thread.start()
            thread.join(LIMIT_S)
        return write(*given, **named)

    fill(store, 3)
    assert [store._spill({}) for _ in range(2)] == [VALUE_BYTES] * 2
    monkeypatch.setattr(Files, "write", read_meanwhile)
    assert (store._spill({}), store.numbers()["on_device"]) == (None, 1)
    assert content(found.pop()) == {2}


def test_reader_receives_no_failure_of_a_move(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy off the device fails while a value is read, which is what it was."""
    gate, has_begun = threading.Event(), threading.Event()

    def fail_after() -> None:
        wait_after(has_begun, gate)
        fail()

    copied_behind(monkeypatch, "of", fail_after)
    fill(store, 1)
    with ThreadPoolExecutor(2) as threads:
        moved = threads.submit(store._spill, {})
        assert has_begun.wait(LIMIT_S)
        found = threads.submit(lambda: content(store["x-0"]))
        with suppress(TimeoutError):
            found.result(0.1)
        gate.set()
        assert (moved.result(LIMIT_S), found.result(LIMIT_S)) == (None, {0})


def test_read_ends_after_its_copy(store: DeviceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read returns after its copy, so any stream can use the value."""
    gate, has_begun = threading.Event(), threading.Event()
    fill(store, 1)
    assert store._spill({}) == VALUE_BYTES
    copied_behind(monkeypatch, "on", lambda: wait_after(has_begun, gate))
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(store.__getitem__, "x-0")
        assert has_begun.wait(LIMIT_S)
        with pytest.raises(TimeoutError):
            found.result(0.2)
        assert store._lock.acquire(timeout=LIMIT_S)  # the thread waits without it
        store._lock.release()
        gate.set()
        assert content(found.result(LIMIT_S)) == {0}


def test_value_with_queued_work_stays(store: DeviceStore) -> None:
    """As a task returns one whose own stream it has not waited for; the copy is behind the work."""
    fill(store, 2)
    gate, stream = threading.Event(), accelrt.Stream("cpu:1", dedicated=True)
    stream.launch_host(gate.wait, LIMIT_S)
    with stream:
        store["x-0"].fill_(7)  # type: ignore[attr-defined]
    store["x-1"]  # so the other one would be the first to leave
    assert (store._spill({}), list(store.memory)) == (VALUE_BYTES, ["x-1"])
    assert store._spill({}) is None
    gate.set()
    stream.synchronize()
    assert store._spill({}) == VALUE_BYTES
    assert content(store["x-0"]) == {7}


def test_value_of_failed_work_keeps_its_failure(store: DeviceStore) -> None:
    """The store receives no failure of a program's stream."""
    stream = accelrt.Stream("cpu:1", dedicated=True)
    value = accelrt.empty(VALUE_BYTES, device="cpu:1")
    with stream:
        stream.launch_host(fail)
        value.fill_(1)
    while not stream.query():
        pass
    store["x"] = value
    del value
    assert (store._spill({}), places(store)) == (None, [1, 0, 0])
    with pytest.raises(accelrt.StreamError, match="ZeroDivisionError"):
        memoryview(store["x"])  # type: ignore[arg-type]
    stream.launch_host(fail)
    with pytest.raises(accelrt.StreamError, match="ZeroDivisionError"):
        stream.synchronize()
    assert store._spill({}) == VALUE_BYTES


def test_released_value_blocks_no_other(store: DeviceStore) -> None:
    fill(store, 2)
    store["x-0"].release()  # type: ignore[attr-defined]
    store["view"] = accelrt.empty(16, device="cpu:1").view("int32")
    released = accelrt.empty(16, device="cpu:1")
    store["released"] = released.view("int32")
    released.release()
    store["x-1"]
    assert [store._spill({}) for _ in range(3)] == [16, VALUE_BYTES, None]
    assert list(store.memory) == ["view", "x-1"]
    for key in ("x-0", "released"):
        with pytest.raises(BufferError, match="was released"):
            memoryview(store[key])  # type: ignore[arg-type]


class Packed:
    """Waits for a stream while it is pickled, as a tensor does that is copied to the host first."""

    def __init__(self, stream: accelrt.Stream) -> None:
        self.stream = stream

    def __reduce__(self) -> tuple[type, tuple[int]]:
        self.stream.synchronize()
        return bytes, (1,)


def test_callable_requests_during_a_write(store: DeviceStore) -> None:
    """The write waits for the callable, and the callable for memory that other values have."""
    stream, is_written = accelrt.Stream("cpu:1", dedicated=True), threading.Event()
    requested = list[int]()

    def request() -> None:
        assert is_written.wait(LIMIT_S)
        requested.append(accelrt.empty(VALUE_BYTES, device="cpu:1").nbytes)

    fill(store, 3)
    stream.launch_host(request)
    store["packed"] = Packed(stream)
    store["host"] = bytes(VALUE_BYTES * 3 // 2)  # so the host has no room either
    with ThreadPoolExecutor(1) as thread:
        written = thread.submit(store.evict)
        while store._table.values["packed"].state.name != "WRITING":
            assert not written.done()
        is_written.set()
        assert written.result(LIMIT_S) > 0
    assert requested == [VALUE_BYTES]
    assert "packed" in store.disk


def test_callable_moves_no_value_of_its_own_later_work(store: DeviceStore) -> None:
    """The value that was not used for longest has work behind the callable: another one leaves."""
    stream, is_queued = accelrt.Stream("cpu:1", dedicated=True), threading.Event()
    requested = list[int]()

    def request() -> None:
        assert is_queued.wait(LIMIT_S)
        requested.append(accelrt.empty(VALUE_BYTES, device="cpu:1").nbytes)

    fill(store, 3)
    stream.launch_host(request)
    with stream:
        store._table.on_device["x-0"].fill_(7)
    is_queued.set()
    stream.synchronize()
    assert (requested, list(store.memory)) == ([VALUE_BYTES], ["x-1"])
    assert content(store["x-0"]) == {7}


def test_callable_reads_a_value_from_the_host(store: DeviceStore) -> None:
    stream, found = accelrt.Stream("cpu:1", dedicated=True), list[set[int]]()
    fill(store, 4)
    assert list(store.memory) == ["x-0"]
    stream.launch_host(lambda: found.append(content(store["x-0"])))
    stream.synchronize()
    assert found == [{0}]


def test_callable_without_room_fails_and_ends(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread moves the only value, whose copy needs the end of the callable."""
    monkeypatch.setattr(accelrt._patience, "LOOKS", 1)
    held = [accelrt.empty(VALUE_BYTES, device="cpu:1") for _ in range(2)]
    fill(store, 1)
    ended, is_leaving = threading.Event(), threading.Event()
    stream, errors = accelrt.Stream("cpu:1", dedicated=True), list[Exception]()

    def request() -> None:
        assert is_leaving.wait(LIMIT_S)
        try:
            accelrt.empty(VALUE_BYTES, device="cpu:1")
        except accelrt.OutOfMemoryError as error:
            errors.append(error)
        ended.set()

    copied_behind(monkeypatch, "of", lambda: wait_after(is_leaving, ended))
    stream.launch_host(request)
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(store._spill, {}).result(LIMIT_S) == VALUE_BYTES
    stream.synchronize()
    assert (len(errors), len(held)) == (1, 2)


def test_loop_requests_write_no_file_on_the_loop(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do they copy there: a thread does both."""
    owner, write, copy = threading.get_ident(), Files.write, OnHost.of
    on_loop = list[bool]()

    def write_seen(*given: Any, **named: Any) -> SpilledFile:
        on_loop.append(threading.get_ident() == owner)
        return write(*given, **named)

    def copy_seen(value: accelrt.Buffer) -> OnHost:
        on_loop.append(threading.get_ident() == owner)
        return copy(value)

    async def request() -> list[accelrt.Buffer]:
        return [accelrt.empty(VALUE_BYTES, device="cpu:1") for _ in range(3)]

    async def read() -> list[set[int]]:
        return [content(store[f"x-{number}"]) for number in range(3)]

    fill(store, 3)
    monkeypatch.setattr(Files, "write", write_seen)
    monkeypatch.setattr(OnHost, "of", copy_seen)
    assert len(asyncio.run(request())) == 3
    assert (places(store), on_loop) == ([0, 2, 1], [False] * 4)
    assert asyncio.run(read()) == [{0}, {1}, {2}]
    assert not any(on_loop)


def test_closed_store_brings_values(store: DeviceStore) -> None:
    fill(store, 1)
    assert store._spill({}) == VALUE_BYTES
    store.close()
    assert content(store["x-0"]) == {0}
    with suppress(KeyError):
        del store["x-0"]
    store["x-0"] = full(3)
    assert content(store["x-0"]) == {3}
