"""The store of a dask worker: values whose memory others hold.

Goal: a value leaves the device only if its memory comes free then, and goes to disk only with what
its users have written. Method: keep a slice, a view or an export of a stored value, and request
more memory than the device has left, or evict.
"""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import accelrt
from accelrt import _core
from accelrt.dask import DeviceStore
from bounded import bounded
from dask_stores import LIMIT_S, VALUE_BYTES, fill, full, made_store
from kinds import KIND

pytestmark = [
    pytest.mark.longer(600),
    pytest.mark.skipif(KIND != "cpu", reason="the stores are of cpu devices"),
    pytest.mark.filterwarnings("default"),  # those of other packages
]

ALIASES: dict[str, Callable[[accelrt.Buffer], Any]] = {
    "slice": lambda value: value[:4],
    "detach": lambda value: value.detach(),
    "data": lambda value: value.data,
    "view": lambda value: value.view("uint8"),
    "slice of a view": lambda value: value.view("uint8")[:8],
    "memoryview": memoryview,
    "NumPy": lambda value: np.asarray(value.view("uint8")),
    "array interface": lambda value: np.asarray(_Interface(value.view("uint8"))),
    "DLPack": np.from_dlpack,
    "read-only view": lambda value: accelrt.from_dlpack(value, readonly=True),
}


class _Interface:
    """An object with only NumPy's array interface."""

    def __init__(self, view: accelrt.View) -> None:
        self.view = view

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self.view.__array_interface__


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


def places(store: DeviceStore) -> tuple[int, int]:
    """Return how many values are on the device and on the host."""
    numbers = store.numbers()
    return numbers["on_device"], numbers["on_host"]


def request(nbytes: int) -> bool:
    """Request memory, and free it; return whether there was any."""
    try:
        accelrt.empty(nbytes, device="cpu:1").release()
    except accelrt.OutOfMemoryError:
        return False
    return True


@pytest.mark.parametrize("how", ALIASES)
@pytest.mark.parametrize("is_view", [False, True])
def test_value_with_an_alias_stays(
    store: DeviceStore,
    how: str,
    is_view: bool,  # noqa: FBT001
) -> None:
    """A write through the alias is read from the store, and the next value leaves instead."""
    fill(store, 3)
    value = store["x-0"]
    assert isinstance(value, accelrt.Buffer)
    if is_view:
        store["x-0"] = value.view("uint8", (2, -1))
    alias = ALIASES[how](value)
    del value
    assert store["x-1"] is not None
    assert store["x-2"] is not None
    assert request(VALUE_BYTES)
    assert list(store.memory) == ["x-1"], "the least recently used value without an alias"
    assert not request(3 * VALUE_BYTES)
    assert places(store) == (1, 2)
    if how != "read-only view":
        memoryview(alias)[0] = 99
    else:
        assert alias.readonly
    found: Any = store["x-0"]
    assert memoryview(found).cast("B")[0] == (0 if how == "read-only view" else 99)
    del alias, found
    assert request(3 * VALUE_BYTES)
    assert places(store)[0] == 0


def test_values_that_share_memory_leave(store: DeviceStore) -> None:
    """Parts of one buffer under keys of their own, which nothing else holds."""
    whole, half = full(1), VALUE_BYTES // 2
    part = whole[:half]
    store["first"], store["second"] = part, whole[half:]
    store["third"], store["whole"] = whole.view("uint8"), whole
    del whole
    assert not request(3 * VALUE_BYTES), "a program holds a part"
    assert places(store) == (4, 0)
    del part
    assert request(3 * VALUE_BYTES)
    assert places(store)[0] == 0
    for key in ("first", "second", "third", "whole"):
        found: Any = store[key]
        assert set(memoryview(found)) == {1}
        del found, store[key]


def test_parts_of_a_view_leave(store: DeviceStore) -> None:
    """They share the buffer that counts their writes, and the program may hold it."""
    whole = full(2)
    view = whole.view("uint8")
    store["first"], store["second"] = view[:8], view[8:]
    store["again"] = store["first"]
    del view
    assert not request(3 * VALUE_BYTES)
    del whole
    assert request(3 * VALUE_BYTES)
    assert places(store)[0] == 0


def test_value_whose_interface_was_read_leaves(store: DeviceStore) -> None:
    """The view keeps its export, which is no use by others."""
    value = full(3).view("uint8")
    assert value.__array_interface__
    store["x"] = value
    del value
    assert request(3 * VALUE_BYTES)
    assert places(store) == (0, 1)


@pytest.mark.parametrize("is_read_only", [False, True])
def test_memory_of_other_libraries_stays(
    tmp_path: Path,
    is_read_only: bool,  # noqa: FBT001
) -> None:
    """No request of the device gets it, and what the store returns is the same memory."""
    store = DeviceStore(str(tmp_path), accelrt.device("cpu:0"), host_limit=VALUE_BYTES)
    array = np.arange(1000, dtype="float32")
    array.flags.writeable = not is_read_only
    store["x"] = accelrt.from_dlpack(array)
    assert store._spill({}) is None
    assert places(store) == (1, 0)
    found: Any = store["x"]
    store.close()
    assert found.readonly is is_read_only
    assert found.data_ptr() == array.ctypes.data


def test_only_holder_has_no_aliases() -> None:
    buffer = accelrt.empty(16, device="cpu:0")
    view, is_only_holder = buffer.view("uint8"), _core.is_only_holder
    assert (is_only_holder(buffer), is_only_holder(view)) == (False, False), (
        "each is an alias of the other"
    )
    assert _core.keys_of_shared_memory({"a": buffer, "b": view}) == ["a", "b"], "used by this test"
    assert _core.keys_of_shared_memory({"a": None, "b": accelrt.empty(1)}) == []
    del buffer
    assert is_only_holder(view)
    detached = accelrt.zeros(8).detach()
    assert is_only_holder(detached)
    lent = accelrt.as_buffer(b"lent")
    assert not is_only_holder(lent)
    assert _core.keys_of_shared_memory({1: lent}) == [1]
    with pytest.raises(TypeError, match="expected a Buffer or a View, not bytes"):
        is_only_holder(b"")  # type: ignore[arg-type]


def shared_memory(nbytes: int) -> accelrt.Buffer:
    return accelrt.empty_shared(nbytes, device="cpu:1")


def pinned_memory(nbytes: int) -> accelrt.Buffer:
    with accelrt.device("cpu:1"):
        return accelrt.empty_pinned(nbytes)


def complete(request: Callable[[int], accelrt.Buffer], byte: int) -> accelrt.Buffer:
    value = request(VALUE_BYTES)
    memoryview(value)[:] = bytes([byte]) * VALUE_BYTES
    return value


MEMORY = pytest.mark.parametrize("memory", [pinned_memory, shared_memory])


def wait_for_disk(store: DeviceStore, count: int) -> None:
    """Wait until the thread of the store has written values."""
    give_up = time.monotonic() + LIMIT_S / 2
    while store.numbers()["on_disk"] < count:
        assert time.monotonic() < give_up, store.numbers()
        time.sleep(0.001)


@MEMORY
@pytest.mark.parametrize("is_view", [False, True])
def test_host_memory_counts_as_the_hosts(
    store: DeviceStore,
    memory: Callable[[int], accelrt.Buffer],
    is_view: bool,  # noqa: FBT001
) -> None:
    """It goes to disk and comes back as the same kind; no request of the device moves it."""
    for number in range(3):
        value: Any = complete(memory, number)
        kind = _core.memory_kind(value)
        store[f"x-{number}"] = value.view("int16", (2, -1)) if is_view else value
        del value
    wait_for_disk(store, 1)
    assert places(store) == (0, 2)
    assert request(3 * VALUE_BYTES)
    assert store.numbers()["device_to_host"] == 0
    before = accelrt.cpu.memory_allocated(1)
    found: Any = store["x-0"]
    assert type(found) is (accelrt.View if is_view else accelrt.Buffer)
    assert (_core.memory_kind(found), str(found.device)) == (kind, "cpu:1")
    assert set(memoryview(found).cast("B")) == {0}
    assert accelrt.cpu.memory_allocated(1) == before
    layout = getattr(found, "dtype", None), getattr(found, "shape", None)
    assert layout == (("int16", (2, VALUE_BYTES // 4)) if is_view else (None, None))


@MEMORY
def test_empty_host_memory_comes_back(
    store: DeviceStore, memory: Callable[[int], accelrt.Buffer]
) -> None:
    store["empty"] = memory(0)
    assert store._evictions.evict_one() == 0
    found: Any = store["empty"]
    assert found.nbytes == 0


@MEMORY
def test_host_memory_with_an_alias_stays(
    store: DeviceStore, memory: Callable[[int], accelrt.Buffer]
) -> None:
    value = complete(memory, 0)
    alias = value[:4]
    store["aliased"] = value
    del value
    for number in range(2):
        store[f"x-{number}"] = complete(memory, number)
    wait_for_disk(store, 1)
    memoryview(alias)[0] = 99
    assert "aliased" in store.memory
    found: Any = store["aliased"]
    assert memoryview(found)[0] == 99


@MEMORY
def test_host_memory_with_queued_work_stays(
    store: DeviceStore, memory: Callable[[int], accelrt.Buffer]
) -> None:
    """Nothing waits for it: the work may be queued behind the callable that requests memory."""
    go_on = threading.Event()
    value = complete(memory, 0)
    stream = accelrt.Stream("cpu:1", dedicated=True)
    stream.launch_host(go_on.wait, LIMIT_S / 4)
    with stream:
        value.fill_(7)
    store["queued"] = value
    del value
    for number in range(2):
        store[f"x-{number}"] = complete(memory, number)
    try:
        wait_for_disk(store, 1)
        assert "queued" in store.memory
    finally:
        go_on.set()
    stream.synchronize()
    assert store._evictions.evict_one() == VALUE_BYTES


def test_memory_kinds_are_named() -> None:
    device, pinned = accelrt.empty(8, device="cpu:0"), accelrt.empty_pinned(8)
    shared = accelrt.empty_shared(8, device="cpu:0")
    values: list[Any] = [
        device,
        device[:4],
        pinned.view("uint8"),
        shared.detach(),
        accelrt.as_buffer(b"a"),
    ]
    named = ["device", "device", "pinned", "shared", "foreign"]
    assert list(map(_core.memory_kind, values)) == named
    with pytest.raises(TypeError, match="expected a Buffer or a View, not bytes"):
        _core.memory_kind(b"")  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [accelrt.empty_pinned, accelrt.empty_shared])
def test_value_read_while_written_stays_on_host(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch, make: Callable[[int], accelrt.Buffer]
) -> None:
    """The reader writes to the value when its bytes are already in the file."""
    write = store._files._write

    def write_and_read(*arguments: Any) -> Any:
        written = write(*arguments)
        memoryview(store["x"])[:] = bytes([2] * 16)  # type: ignore[arg-type]
        return written

    store["x"] = make(16)
    monkeypatch.setattr(store._files, "_write", write_and_read)
    store.evict()
    assert (list(store.disk), list(Path(store._files.directory).iterdir())) == ([], [])
    assert bytes(memoryview(store["x"])) == bytes([2] * 16)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64", "complex128"])
@pytest.mark.parametrize("count", [1, 10, 64, 1000])
def test_typed_view_of_pinned_memory_comes_back(store: DeviceStore, dtype: Any, count: int) -> None:
    view = accelrt.empty_pinned(16 * count).view(dtype)
    written = bytes(number % 251 for number in range(16 * count))
    memoryview(view).cast("B")[:] = written
    store["x"] = view
    del view
    store.evict()
    assert list(store.disk) == ["x"]
    found: Any = store["x"]
    assert memoryview(found).cast("B") == written
    assert (found.dtype, found.data_ptr() % 64) == (dtype, 0)


@pytest.mark.parametrize("make", [accelrt.empty_pinned, accelrt.empty_shared])
def test_value_that_a_reader_has_stays_on_host(
    store: DeviceStore, make: Callable[[int], accelrt.Buffer]
) -> None:
    store["x"] = make(16)
    reader: Any = store["x"]
    assert store.evict() == -1
    memoryview(reader)[:] = bytes([2] * 16)
    del reader
    assert store.evict() > 0
    assert bytes(memoryview(store["x"])) == bytes([2] * 16)  # type: ignore[arg-type]


def test_value_with_a_buffer_in_use_is_not_written(
    store: DeviceStore, caplog: pytest.LogCaptureFixture
) -> None:
    """An eviction neither waits for queued work nor receives its failure."""
    stream, gate = accelrt.Stream("cpu:1", dedicated=True), threading.Event()

    def fail() -> None:
        assert gate.wait(LIMIT_S)
        message = "of the list"
        raise ValueError(message)

    with stream:
        store["x"] = [accelrt.zeros(16, device="cpu:1")]
        stream.launch_host(fail)
        store["x"][0].fill_(1)  # type: ignore[index]
    assert store.evict() == -1
    gate.set()
    while not stream.query():
        pass
    assert store.evict() == -1
    assert (list(store.disk), caplog.records) == ([], [])
    with pytest.raises(accelrt.StreamError, match="of the list"):
        stream.synchronize()
