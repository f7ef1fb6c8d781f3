"""Requests of a dask worker that find no room: for what they wait, and for what not.

Goal: a request fails only when nothing more can come. Method: a store without a cluster, on a
device with room for three values, and a look at each wait.
"""

import asyncio
import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from distributed.protocol.serialize import deserialize, serialize

import accelrt
from accelrt.dask import DeviceStore
from accelrt.dask.frames import RECEIVING, STORING, OnHost, Receiving
from bounded import bounded
from dask_stores import LIMIT_S, VALUE_BYTES, fill, limited, made_store
from kinds import KIND

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


def test_a_request_waits_for_what_another_task_gives_back(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accelrt._patience, "LOOKS", LIMIT_S / accelrt._patience.LOOK_S)
    monkeypatch.setattr(store, "_owner", 0)  # this thread is a task's
    held = [accelrt.empty(VALUE_BYTES, device="cpu:1") for _ in range(3)]
    looked, wait_for_more = threading.Event(), store._lock.wait

    def wait(timeout: float) -> bool:
        looked.set()
        return wait_for_more(timeout)

    monkeypatch.setattr(store._lock, "wait", wait)
    thread = threading.Thread(target=lambda: looked.wait(LIMIT_S) and held.pop())
    thread.start()
    assert accelrt.empty(VALUE_BYTES, device="cpu:1").nbytes == VALUE_BYTES
    thread.join(LIMIT_S)
    assert len(held) == 2


def test_what_came_free_before_the_store_was_asked_is_not_waited_for(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that has no processor for a while hears late that its request found no room."""
    monkeypatch.setattr(store, "_owner", 0)  # this thread is a task's
    held = [accelrt.empty(VALUE_BYTES, device="cpu:1") for _ in range(3)]
    waits: list[float] = []
    monkeypatch.setattr(store._lock, "wait", waits.append)
    monkeypatch.setattr(store, "_spill", lambda _refused: held.clear())  # the first that it does
    assert accelrt.empty(VALUE_BYTES, device="cpu:1").nbytes == VALUE_BYTES
    assert (held, waits) == ([], [])


@pytest.fixture
def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DeviceStore]:
    """Have neither on the device nor on the host nor on the disk room for a value."""
    with limited(1):
        device = accelrt.device("cpu:1")
        store = DeviceStore(str(tmp_path), device, host_limit=VALUE_BYTES, max_spill=1)
        monkeypatch.setattr(store, "_owner", 0)  # all threads are tasks'
        store["host"] = bytes(VALUE_BYTES // 2)
        fill(store, 3)
        yield store
        store.close()


def test_what_the_host_has_no_room_for_is_tried_once_by_each_request(
    full: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tries of one are no news for another, of which both would wait for ever."""
    tries, copy = list[int](), OnHost.of

    def count(value: accelrt.Buffer) -> OnHost:
        tries.append(value.data_ptr())
        assert len(tries) < 100, "they try for ever"
        return copy(value)

    monkeypatch.setattr(OnHost, "of", count)
    with ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(accelrt.empty, VALUE_BYTES, device="cpu:1") for _ in range(2)]
        errors = [it.exception(LIMIT_S) for it in asked]
    assert [type(it) for it in errors] == [accelrt.OutOfMemoryError] * 2
    assert len(tries) <= 2 * len(set(tries)) == 6
    assert full.numbers()["on_device"] == 3


def test_a_value_that_had_no_room_leaves_when_another_one_has_left_the_host(
    full: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = itertools.count()

    def wait(_timeout: float) -> bool:
        if next(waits) == 3:  # each has been tried
            del full["host"]
        return False

    monkeypatch.setattr(full._lock, "wait", wait)
    assert accelrt.empty(VALUE_BYTES, device="cpu:1").nbytes == VALUE_BYTES
    assert full.numbers()["on_device"] == 2


def test_a_request_waits_until_what_leaves_by_another_one_has_left(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accelrt._patience, "LOOKS", 0)
    monkeypatch.setattr(store, "_owner", 0)  # the threads below are tasks'
    held = [accelrt.empty(VALUE_BYTES, device="cpu:1") for _ in range(2)]
    fill(store, 1)
    waits, copy, wait_for_more = itertools.count(), OnHost.of, store._lock.wait
    has_begun, looked = threading.Event(), threading.Event()

    def leave(value: accelrt.Buffer) -> OnHost:
        has_begun.set()
        assert looked.wait(LIMIT_S)
        return copy(value)

    def wait(timeout: float) -> bool:
        if next(waits) == 3:  # so it is no accident that it goes on
            looked.set()
        return wait_for_more(timeout)

    monkeypatch.setattr(OnHost, "of", leave)
    monkeypatch.setattr(store._lock, "wait", wait)
    half = partial(accelrt.empty, VALUE_BYTES // 2, device="cpu:1")
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(half)
        assert has_begun.wait(LIMIT_S)
        second = threads.submit(half)
        second.add_done_callback(lambda _: looked.set())
        assert {it.result(LIMIT_S).nbytes for it in (first, second)} == {VALUE_BYTES // 2}
    assert len(held) == 2


@pytest.mark.parametrize("is_shared", [False, True])
def test_memory_that_the_device_shares_with_the_host_counts_as_its_own(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch, *, is_shared: bool
) -> None:
    """Each allocator is the other one's room; what neither frees is not claimed to be there."""
    monkeypatch.setattr(accelrt._patience, "LOOKS", LIMIT_S / accelrt._patience.LOOK_S)
    monkeypatch.setattr(store, "_owner", 0)  # this thread is a task's
    accelrt.cpu.set_per_process_memory_fraction(1.0, 1)
    most = accelrt.cpu.mem_get_info(1)[1] * 5 // 8
    makes = [accelrt.empty, accelrt.empty_shared]
    held = [makes[not is_shared](most, device="cpu:1")]
    waits: list[float] = []

    def wait(timeout: float) -> bool:
        waits.append(timeout)
        held.clear()
        return False

    monkeypatch.setattr(store._lock, "wait", wait)
    assert makes[is_shared](most, device="cpu:1").nbytes == most
    assert len(waits) == 1


def test_no_more_leaves_than_a_request_lacks(store: DeviceStore) -> None:
    fill(store, 2)
    assert accelrt.empty(2 * VALUE_BYTES, device="cpu:1").nbytes == 2 * VALUE_BYTES
    assert store.numbers()["on_device"] == 1


def test_a_request_waits_until_what_is_sent_has_arrived(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accelrt._patience, "LOOKS", 0)
    monkeypatch.setattr(store, "_owner", 0)  # the thread below is a task's
    looked, wait_for_more = threading.Event(), store._lock.wait

    def wait(timeout: float) -> bool:
        looked.set()
        return wait_for_more(timeout)

    monkeypatch.setattr(store._lock, "wait", wait)
    fill(store, 3)

    async def send() -> "asyncio.Future[accelrt.Buffer]":
        request = asyncio.to_thread(accelrt.empty, VALUE_BYTES, device="cpu:1")
        enqueued = asyncio.ensure_future(request)
        has_looked = asyncio.ensure_future(asyncio.to_thread(looked.wait, LIMIT_S))
        await asyncio.wait([enqueued, has_looked], return_when=asyncio.FIRST_COMPLETED)
        looked.set()
        return enqueued

    async def main() -> accelrt.Buffer:
        enqueued: asyncio.Future[accelrt.Buffer]
        enqueued = await store.during(list(store), send, is_sent=True)
        return await enqueued

    assert asyncio.run(main()).nbytes == VALUE_BYTES


def test_a_request_waits_until_what_arrives_is_stored(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value is used until the last one of its message has come."""
    monkeypatch.setattr(accelrt._patience, "LOOKS", 0)
    monkeypatch.setattr(store, "_owner", 0)  # the thread below is a task's
    monkeypatch.setattr(Receiving, "device", store.device)
    frames = serialize(OnHost.sending(accelrt.empty(VALUE_BYTES, device="cpu:0")))
    held = [accelrt.empty(VALUE_BYTES, device="cpu:1") for _ in range(2)]
    waits, wait_for_more = itertools.count(), store._lock.wait
    looked = threading.Event()

    def wait(timeout: float) -> bool:
        if next(waits) == 3:  # so it is no accident that it goes on
            looked.set()
        return wait_for_more(timeout)

    monkeypatch.setattr(store._lock, "wait", wait)

    async def receive() -> "asyncio.Future[accelrt.Buffer]":
        assert not store._arrivals, "nothing has come yet"
        received = await asyncio.to_thread(deserialize, *frames)
        request = asyncio.to_thread(accelrt.empty, VALUE_BYTES, device="cpu:1")
        enqueued = asyncio.ensure_future(request)
        has_looked = asyncio.ensure_future(asyncio.to_thread(looked.wait, LIMIT_S))
        await asyncio.wait([enqueued, has_looked], return_when=asyncio.FIRST_COMPLETED)
        looked.set()
        store["x"] = received
        return enqueued

    async def main() -> accelrt.Buffer:
        enqueued: asyncio.Future[accelrt.Buffer] = await store.storing(receive)
        return await enqueued

    assert asyncio.run(main()).nbytes == VALUE_BYTES
    assert (len(held), list(store.memory), store._arrivals) == (2, ["x"], set())


def test_what_is_put_behind_its_call_holds_up_nothing(store: DeviceStore) -> None:
    """Threads put what nobody waits for any more, where a call was cancelled."""

    async def call() -> object:
        return STORING.get()

    arrive = asyncio.run(store.storing(call))
    arrive()
    assert not store._arrivals


@pytest.mark.parametrize("who", ["the loop", "what receives"])
def test_who_cannot_wait_for_other_tasks_does_not(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    """What the loop does not store and drop meanwhile never comes free."""
    waits: list[float] = []
    monkeypatch.setattr(store._lock, "wait", waits.append)
    if who == "what receives":  # on a thread of its own
        monkeypatch.setattr(store, "_owner", 0)
        monkeypatch.setattr(RECEIVING, "is_on", True)
    held = [accelrt.empty(VALUE_BYTES, device="cpu:1") for _ in range(3)]
    with pytest.raises(accelrt.OutOfMemoryError):
        accelrt.empty(VALUE_BYTES, device="cpu:1")
    assert (len(held), waits) == (3, [])
