"""The store of a dask worker: which values leave the device, and where they are then.

Goal: the least recently used value leaves first, what is used or read stays, nothing comes back
that was replaced, and a full disk fails the request. Method: a store of its own, without a
cluster, on a device with room for three values.
"""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.comm import utils as comm_utils
from distributed.core import Status
from distributed.protocol.serialize import deserialize, serialize

import accelrt
from accelrt.dask import Devices, DeviceStore
from accelrt.dask.failures import DefaultStream
from accelrt.dask.files import Files, SpilledFile
from accelrt.dask.frames import STORING, OnHost, Receiving, Sent
from accelrt.dask.worker import _bring_by_a_thread
from bounded import bounded
from dask_stores import LIMIT_S, VALUE_BYTES, fill, full, limited, made_store
from kinds import KIND
from processes import LIMIT_SECONDS

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


def test_what_was_not_used_for_longest_leaves_first(store: DeviceStore, tmp_path: Path) -> None:
    fill(store, 3)
    assert store["x-0"] is not None
    store["x-3"] = full(3)
    assert list(store.memory) == ["x-1"]
    fill(store, 6)
    assert [(it, store.numbers()[it]) for it in ("on_device", "on_host", "on_disk")] == [
        ("on_device", 3),
        ("on_host", 2),
        ("on_disk", 1),
    ]
    assert len(store) == len(set(store)) == 6
    for number in (5, 0, 3, 1, 4, 2):
        value = store[f"x-{number}"]
        assert isinstance(value, accelrt.Buffer)
        assert set(memoryview(value)) == {number}
    places = [store.numbers()[it] for it in ("on_device", "on_host", "on_disk")]
    assert sum(places) == 6, "what came to the device is nowhere else"
    for name in ("device_to_host", "host_to_device"):
        moved, nbytes = store.numbers()[name], store.numbers()[f"{name}_bytes"]
        assert nbytes == moved * VALUE_BYTES > 0
    for key in list(store):
        del store[key]
    assert (len(store), list((tmp_path / "storage").iterdir())) == (0, [])
    with pytest.raises(KeyError, match="x-0"):
        del store["x-0"]
    with pytest.raises(KeyError, match="x-0"):
        store["x-0"]


def test_moved_bytes_are_the_device_values(tmp_path: Path) -> None:
    """With a host limit of 1 byte, each value that leaves the device goes straight to disk."""
    with limited(1):
        store = DeviceStore(str(tmp_path), accelrt.device("cpu:1"), host_limit=1)
        fill(store, 4)
        assert isinstance(store["x-0"], accelrt.Buffer)
        numbers = store.numbers()
        store.close()
    for name in ("device_to_host", "host_to_device"):
        assert numbers[f"{name}_bytes"] == numbers[name] * VALUE_BYTES > 0


def test_popitem_empties_the_store(store: DeviceStore) -> None:
    fill(store, 4)
    keys = sorted(str(store.popitem()[0]) for _ in range(4))
    assert (keys, len(store)) == (["x-0", "x-1", "x-2", "x-3"], 0)
    with pytest.raises(KeyError, match="empty"):
        store.popitem()


def test_popitem_finds_what_is_added_meanwhile(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is a value at each moment, although the first one is deleted."""
    store["old"], pop = "old", store.pop

    def change_before(key: str) -> object:
        monkeypatch.setattr(store, "pop", pop)
        store["new"] = "new"
        del store["old"]
        return pop(key)

    monkeypatch.setattr(store, "pop", change_before)
    assert (store.popitem(), len(store)) == (("new", "new"), 0)


@pytest.mark.parametrize("place", ["device", "host", "disk"])
@pytest.mark.parametrize("is_sent", [False, True])
def test_read_in_a_call_is_current(
    store: DeviceStore,
    place: str,
    is_sent: bool,  # noqa: FBT001
) -> None:
    """A value that was replaced after the call began is not returned, nor is a deleted one."""
    fill(store, 2)
    if place != "device":
        assert [store._spill({}) for _ in range(2)] == [VALUE_BYTES] * 2
    if place == "disk":
        assert store.evict() > 0
        assert store.evict() > 0

    async def read() -> tuple[object, object]:
        store["x-0"] = "new"
        del store["x-1"]
        return store["x-0"], store.get("x-1")

    assert asyncio.run(store.during(list(store), read, is_sent=is_sent)) == ("new", None)


def test_failed_read_in_a_call_is_current(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of a read is not raised if the value was replaced after it."""

    def fail(*_given: object) -> None:
        raise RuntimeError

    async def read() -> object:
        store["x"] = "new"
        return store["x"]

    store["x"] = b"old"
    assert store.evict() > 0
    monkeypatch.setattr(Files, "read", fail)
    assert asyncio.run(store.during(["x"], read)) == "new"


def test_what_a_call_reads_stays_where_it_is_until_it_has_read_it(store: DeviceStore) -> None:
    """So the event loop copies nothing, and sends what it has found."""
    fill(store, 3)

    async def read() -> object:
        assert store._spill({}) == VALUE_BYTES
        return store["x-0"]

    assert isinstance(asyncio.run(store.during(["x-0"], read)), accelrt.Buffer)
    assert list(store.memory) == ["x-1"]


def test_value_read_while_sent_is_sent_and_read(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task needs a value that is read from disk for another worker: it comes after that."""
    fill(store, 6)
    (key,) = store.disk
    read, wait, has_waited = Files.read, store._settled.wait, threading.Event()
    found = list[object]()
    task = threading.Thread(target=lambda: found.append(store[key]), daemon=True)

    def read_meanwhile(files: Files, name: str, file: SpilledFile) -> object:
        if not task.ident:
            task.start()
            assert has_waited.wait(LIMIT_S)
        return read(files, name, file)

    def note_wait(timeout: float | None = None) -> bool:
        has_waited.set()
        return wait(timeout)

    async def send() -> list[object]:
        return [store[key] for key in away]

    monkeypatch.setattr(Files, "read", read_meanwhile)
    monkeypatch.setattr(store._settled, "wait", note_wait)
    away = [key, *store.memory]
    sent = asyncio.run(store.during(away, send, is_sent=True))
    assert ([type(it) for it in sent], len(away)) == ([Sent] * 3, 3)
    task.join(LIMIT_S)
    assert [type(it) for it in found] == [accelrt.Buffer]


def test_value_sent_from_disk_stays_there(store: DeviceStore) -> None:
    """It takes no memory of the host that other values could have."""
    fill(store, 6)
    (key,) = store.disk

    async def send() -> object:
        return store[key]

    assert isinstance(asyncio.run(store.during([key], send, is_sent=True)), Sent)
    assert list(store.disk) == [key]
    assert isinstance(store[key], accelrt.Buffer)


@pytest.mark.parametrize("shape", [None, (0, 4)])
def test_an_empty_value_comes_back_from_disk(
    store: DeviceStore, shape: tuple[int, ...] | None
) -> None:
    empty = accelrt.empty(0, device="cpu:1")
    store["x"] = empty if shape is None else empty.view("int32", shape)
    del empty
    assert store._spill({}) == 0
    store.evict()
    assert list(store.disk) == ["x"]
    value: Any = store["x"]
    assert (value.nbytes, getattr(value, "shape", None), value.device) == (0, shape, store.device)


def test_what_is_deleted_before_it_is_sent_takes_nothing_along(store: DeviceStore) -> None:
    """Else the event loop would bring the others, to the device."""
    fill(store, 5)
    key = next(iter(store.memory))

    async def send() -> object:
        return store[key]

    assert isinstance(asyncio.run(store.during(["gone", key], send, is_sent=True)), Sent)


def test_many_values_that_are_used_are_looked_through_once(store: DeviceStore) -> None:
    """A task may have thousands."""
    looks: list[None] = []

    class Watched(OrderedDict[Any, Any]):
        def values(self) -> Any:
            looks.append(None)
            return super().values()

    store._table.on_device = Watched()
    used = [accelrt.empty(16, device="cpu:1") for _ in range(100)]
    for number, value in enumerate(used):
        store[f"x-{number}"] = value
    del value
    assert store._spill({}) is None
    assert len(looks) == 1
    store["y"] = used.pop()  # has two keys now
    assert store._spill({}) == 16


def test_another_process_is_sent_what_is_on_the_host_from_there(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And this one's own, which gets no frames but the value itself, has it on the device."""
    monkeypatch.setattr(comm_utils, "OFFLOAD_THRESHOLD", 0)

    async def get_data(_comm: object, keys: list[str]) -> list[type]:
        return [type(store[key]) for key in keys]

    names = ("execute", "gather", "gather_dep")
    worker: Any = SimpleNamespace(get_data=get_data, handlers={}, **dict.fromkeys(names))
    _bring_by_a_thread(worker, store, DefaultStream(store.device))
    fill(store, 4)
    for address, form in (("tcp://1.2.3.4:5", Sent), ("inproc://1.2.3.4/5", accelrt.Buffer)):
        comm = SimpleNamespace(peer_address=address)
        assert asyncio.run(worker.handlers["get_data"](comm, ["x-0"])) == [form]
        assert store.numbers()["host_to_device"] == (form is accelrt.Buffer)


class Packed:
    """Takes memory of the device while it is pickled, as a tensor that is not contiguous."""

    def __reduce__(self) -> tuple[type, tuple[int]]:
        return bytes, (accelrt.empty(VALUE_BYTES, device="cpu:1").nbytes,)


def test_what_needs_the_device_while_it_is_written_and_finds_no_room_stays(
    store: DeviceStore,
) -> None:
    """It cannot wait for its own end."""
    fill(store, 3)
    packed = store["packed"] = Packed()
    store["large"] = bytes(2 * VALUE_BYTES)
    store._thread.submit(lambda: None).result(LIMIT_S)
    assert store["packed"] is packed
    del store["x-0"]
    store["larger"] = bytes(2 * VALUE_BYTES)
    store._thread.submit(lambda: None).result(LIMIT_S)
    assert "packed" in store.disk


@pytest.mark.parametrize("is_replaced", [False, True])
def test_dropped_value_that_leaves_is_discarded(
    store: DeviceStore,
    monkeypatch: pytest.MonkeyPatch,
    is_replaced: bool,  # noqa: FBT001
) -> None:
    """The write and the delete do not wait until the value has left."""
    fill(store, 3)
    copy = OnHost.of

    def change_before(value: accelrt.Buffer) -> OnHost:
        if is_replaced:
            store["x-0"] = "new"
        else:
            del store["x-0"]
        return copy(value)

    monkeypatch.setattr(OnHost, "of", change_before)
    assert store._spill({}) == VALUE_BYTES
    assert store.memory == ({"x-0": "new"} if is_replaced else {})
    assert [store.numbers()[it] for it in ("on_device", "on_disk")] == [2, 0]
    assert len(store) == 2 + is_replaced


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_value_that_is_replaced_or_deleted_while_it_comes_comes_not_back(
    store: DeviceStore,
    monkeypatch: pytest.MonkeyPatch,
    is_replaced: bool,  # noqa: FBT001
) -> None:
    fill(store, 1)
    assert store._spill({}) == VALUE_BYTES
    come = OnHost.on

    def change_before(host: OnHost, device: accelrt.device) -> object:
        if is_replaced:
            store["x-0"] = "new"
        else:
            del store["x-0"]
        return come(host, device)

    monkeypatch.setattr(OnHost, "on", change_before)
    value = store["x-0"]  # who asked before has it
    assert isinstance(value, accelrt.Buffer)
    assert set(memoryview(value)) == {0}
    assert [(key, store[key]) for key in store] == ([("x-0", "new")] if is_replaced else [])


def test_a_key_has_no_memory_of_what_it_had_before(store: DeviceStore) -> None:
    """What had left the device comes back to it; what the host has under that key then does not."""
    fill(store, 1)
    assert store._spill({}) == VALUE_BYTES
    store["x-0"] = b"of the host"
    assert store["x-0"] == b"of the host"


def test_who_waits_for_a_value_that_comes_is_told(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tasks need it: one brings it, and the other one waits until it has come."""
    fill(store, 1)
    assert store._spill({}) == VALUE_BYTES
    come, waits, wait = OnHost.on, threading.Event(), store._settled.wait
    found: list[object] = []
    second = threading.Thread(target=lambda: found.append(store["x-0"]), daemon=True)

    def come_behind(host: OnHost, device: accelrt.device) -> object:
        second.start()
        assert waits.wait(LIMIT_S)
        return come(host, device)

    def told(timeout: float | None = None) -> bool:
        waits.set()
        return wait(timeout)

    monkeypatch.setattr(OnHost, "on", come_behind)
    monkeypatch.setattr(store._settled, "wait", told)
    value = store["x-0"]
    second.join(LIMIT_SECONDS / 4)
    assert len(found) == 1
    assert found[0] is value


def test_a_value_is_stored_without_a_wait_for_what_others_do(store: DeviceStore) -> None:
    """The event loop stores it, whose stream is the one that other tasks may name."""
    default, gate = accelrt.cpu.default_stream(1), threading.Event()
    value = accelrt.empty(VALUE_BYTES, device="cpu:1").fill_(1)
    default.synchronize()
    default.launch_host(gate.wait, LIMIT_S)
    store["x"] = value
    del value
    assert store._spill({}) == VALUE_BYTES
    assert not default.query()
    gate.set()
    default.synchronize()


def test_values_that_are_used_stay_and_such_under_two_keys_leave(store: DeviceStore) -> None:
    fill(store, 2)
    used = store["x-0"]
    store["y"] = store["x-1"]  # as a task returns that has nothing to do
    with accelrt.empty(2 * VALUE_BYTES, device="cpu:1"):
        assert list(store.memory) == ["x-1", "y"]
    assert store["x-0"] is used
    fill(store, 3)
    with pytest.raises(accelrt.OutOfMemoryError):
        accelrt.empty(3 * VALUE_BYTES, device="cpu:1")
    del used
    with accelrt.empty(3 * VALUE_BYTES, device="cpu:1"):
        assert store.numbers()["on_device"] == 0


def test_what_another_device_lacks_moves_no_value(store: DeviceStore) -> None:
    fill(store, 3)
    with limited(0):
        held = [accelrt.empty(VALUE_BYTES, device="cpu:0") for _ in range(3)]
        with pytest.raises(accelrt.OutOfMemoryError):
            accelrt.empty(VALUE_BYTES, device="cpu:0")
    assert (len(held), store.numbers()["on_device"]) == (3, 3)


def test_a_closed_store_is_asked_for_nothing(store: DeviceStore) -> None:
    fill(store, 3)
    worker: Any = SimpleNamespace(data=store, status=Status.closing)
    Devices().teardown(worker)
    with pytest.raises(accelrt.OutOfMemoryError):
        accelrt.empty(VALUE_BYTES, device="cpu:1")
    assert store.numbers()["on_device"] == 3


def test_values_of_the_host_go_to_disk_and_are_read_by_a_thread(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no device has had them."""
    works: list[tuple[str, bool]] = []
    owner, write, read_file = threading.get_ident(), Files.write, Files.read

    def told_write(files: Files, *given: Any, **options: bool) -> SpilledFile:
        works.append(("write", threading.get_ident() == owner))
        return write(files, *given, **options)

    def told_read(files: Files, key: str, file: SpilledFile) -> object:
        works.append(("read", threading.get_ident() == owner))
        return read_file(files, key, file)

    monkeypatch.setattr(Files, "write", told_write)
    monkeypatch.setattr(Files, "read", told_read)
    for number in range(3):
        store[f"x-{number}"] = bytes([number]) * VALUE_BYTES

    async def read() -> object:
        return store["x-0"]

    assert store._thread.submit(lambda: len(store.disk)).result(LIMIT_S) == 1
    assert store.numbers()["spilled_bytes"] > 0
    assert asyncio.run(store.during(["x-0"], read)) == bytes(VALUE_BYTES)
    assert set(works) == {("write", False), ("read", False)}


def test_what_a_call_has_read_may_leave_although_its_context_stays(store: DeviceStore) -> None:
    """A timer that the call has set keeps the call's context, with what was brought for it."""
    fill(store, 1)

    async def read() -> asyncio.TimerHandle:
        assert store["x-0"] is not None
        return asyncio.get_running_loop().call_later(LIMIT_S, list[object])

    async def spill_behind() -> tuple[int | None, bool]:
        timer = await store.during(["x-0"], read)
        return store._spill({}), timer.cancelled()

    assert asyncio.run(spill_behind()) == (VALUE_BYTES, False)


def test_frames_in_parts_are_put_one_behind_the_other() -> None:
    header, (frame,) = serialize(accelrt.empty(12).copy_(bytes(range(12))))
    parts = [frame[:5], frame[5:5], frame[5:7], frame[7:]]
    assert bytes(memoryview(deserialize(header, parts))) == bytes(range(12))


def test_a_thread_that_had_no_room_to_receive_has_values_leave_for_its_own_requests(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Receiving, "device", store.device)
    fill(store, 3)
    sent = accelrt.empty(VALUE_BYTES, device="cpu:0").fill_(1)
    token = STORING.set(lambda: None)
    assert isinstance(deserialize(*serialize(OnHost.sending(sent))), OnHost)
    STORING.reset(token)
    assert accelrt.empty(VALUE_BYTES, device="cpu:1").nbytes == VALUE_BYTES
    assert list(store.memory) == ["x-0"]


def test_what_has_no_room_on_the_device_is_received_on_the_host(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Receiving, "device", store.device)
    held = [accelrt.empty(VALUE_BYTES, device="cpu:1") for _ in range(3)]
    sent = accelrt.empty(VALUE_BYTES, device="cpu:0").fill_(5).view("int16", (2, -1))
    inside = deserialize(*serialize(sent))  # of another value, which has no store
    assert (type(inside), inside.shape, memoryview(inside)[1, 7]) == (
        accelrt.View,
        sent.shape,
        0x505,
    )
    fetched = deserialize(*serialize(OnHost.sending(sent)))  # by a task, which has none either
    assert (type(fetched), fetched.shape) == (accelrt.View, sent.shape)
    token = STORING.set(lambda: None)
    received = deserialize(*serialize(OnHost.sending(sent)))
    STORING.reset(token)
    assert isinstance(received, OnHost)
    store["x"] = received
    assert list(store.memory) == ["x"]
    with pytest.raises(accelrt.OutOfMemoryError):
        store["x"]
    held.clear()
    value = store["x"]
    assert isinstance(value, accelrt.View)
    assert (value.shape[0], value.device) == (2, store.device)
    assert memoryview(value)[1, 7] == 0x505
    assert isinstance(deserialize(*serialize(Sent(received.pinned, None))), accelrt.Buffer)


def test_what_is_received_does_not_meet_the_error_of_another_stream(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Receiving, "device", store.device)
    monkeypatch.setattr(Receiving, "stream", store.stream)
    packed = serialize(accelrt.empty(VALUE_BYTES).fill_(5))
    default = accelrt.cpu.default_stream(1)
    default.launch_host(lambda: 1 / 0)
    assert set(memoryview(deserialize(*packed))) == {5}
    with pytest.raises(accelrt.StreamError):
        default.synchronize()


def test_frames_are_read_behind_the_work_that_uses_them() -> None:
    gate = threading.Event()
    stream = accelrt.Stream("cpu:1")
    with stream:
        buffer = accelrt.empty(1 << 20).fill_(1)
        stream.launch_host(gate.wait, LIMIT_S)
        buffer.fill_(2)
    found = list[Any]()
    thread = threading.Thread(target=lambda: found.extend(serialize(buffer)[1]))
    thread.start()
    assert found == []
    gate.set()
    thread.join(LIMIT_S)
    assert set(found[0]) == {2}


def test_a_disk_without_room_keeps_values_and_the_request_fails(store: DeviceStore) -> None:
    fill(store, 3)
    store._files.max_bytes = 1
    others = [accelrt.empty(VALUE_BYTES, device="cpu:1").fill_(7) for _ in range(2)]
    fills = store.numbers()
    assert (fills["on_device"], fills["on_host"]) == (1, 2)
    with pytest.raises(accelrt.OutOfMemoryError):  # above the host's limit
        accelrt.empty(VALUE_BYTES, device="cpu:1")
    assert [set(memoryview(it)) for it in others] == [{7}, {7}]
    assert [store.numbers()[it] for it in ("on_device", "on_host", "on_disk")] == [1, 2, 0]
