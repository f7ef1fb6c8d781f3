"""The store of a dask worker against a model, with several threads on few keys.

Goal: no value is lost and none is stale, in whichever order threads write, read, take, delete and
spill the same keys, and while the disk and the copies of the device fail. Method: each write of a
key has a version, and each value says its key and version. A clock counts when an operation begins
and ends. A read must return a version that was current at some moment of the read: see `History`.
"""

import asyncio
import errno
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

import accelrt
from accelrt.dask import DeviceStore
from accelrt.dask import files as files_module
from accelrt.dask.files import Files, SpilledFile
from accelrt.dask.frames import OnHost
from bounded import bounded
from dask_stores import LIMIT_S, limited
from kinds import KIND
from seeds import SEED

pytestmark = [
    pytest.mark.skipif(KIND != "cpu", reason="the stores are of cpu devices"),
    pytest.mark.filterwarnings("default"),  # those of other packages
]

OPERATIONS, THREADS, KEYS = 100_000, 5, 6
Draw = random.Random  # what repeats it is printed
HOST_LIMIT = 20_000
SIZES = [100, 4_000, HOST_LIMIT // 2, HOST_LIMIT - 1_000, HOST_LIMIT + 5_000]  # the last: disk only


@dataclass
class Change:
    """A write, or a delete where the version is None; `end` is None while it goes on."""

    version: int | None
    begin: int
    end: int | None = None


@dataclass
class History:
    """The changes of one key.

    A change is *overwritten* at a time if another one has begun after its end, and ended by then.
    A read may return each version that was not overwritten when the read began, and had begun when
    it ended. `KeyError` is the version of a delete, and of the time before the first write.
    """

    changes: list[Change] = field(default_factory=lambda: [Change(None, 0, 0)])

    def find_current(self, begin: int) -> list[Change]:
        """Return the changes that were not overwritten at a time."""
        latest_begin = max(it.begin for it in self.changes if it.end is not None and it.end < begin)
        return [it for it in self.changes if it.end is None or it.end >= latest_begin]


class Model:
    """The histories of all keys, and the clock."""

    def __init__(self) -> None:
        self.lock, self.clock = threading.Lock(), count(1)
        self.histories = [History() for _ in range(KEYS)]
        self.versions = count(1)
        self.running: set[int] = set()  # when the reads that go on have begun

    def begin_change(self, key: int, *, is_write: bool) -> Change:
        with self.lock:
            change = Change(next(self.versions) if is_write else None, next(self.clock))
            self.histories[key].changes.append(change)
            return change

    def end_change(self, key: int, change: Change, *, has_effect: bool = True) -> None:
        with self.lock:
            change.end = next(self.clock)
            history = self.histories[key]
            if not has_effect:
                history.changes.remove(change)
            history.changes = history.find_current(min(self.running, default=change.end + 1))

    @contextmanager
    def reading(self, key: int, own: Change | None = None) -> Iterator[list[int | None]]:
        """Check the last version that the body adds to the list; `own` is the body's change."""
        with self.lock:
            begin = next(self.clock)
            self.running.add(begin)
        found = list[int | None]()
        try:
            yield found
        finally:
            with self.lock:
                self.running.discard(begin)
                current = self.histories[key].find_current(begin)
                allowed = {it.version for it in current if it is not own}
        assert not found or found[-1] in allowed, f"x-{key}: {found[-1]}, not one of {allowed}"


def made(key: int, version: int, nbytes: int) -> bytes:
    """Return a value that says which one it is."""
    mark = f"{key}:{version};".encode()
    return mark + bytes(nbytes - len(mark))


def version_of(key: int, value: object) -> int:
    """Return the version that a value says, and check the rest of it."""
    with memoryview(value) as memory:  # type: ignore[arg-type]
        content = bytes(memory)
    mark, _, rest = content.partition(b";")
    of_key, _, version = mark.partition(b":")
    assert (int(of_key), rest.count(0)) == (key, len(rest)), f"x-{key}: the value of x-{of_key!r}"
    return int(version)


class Faults:
    """Fails one in `every` writes, one in `every` reads, and four in `every` copies."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, files: Files, every: int, seed: int
    ) -> None:
        self.every, self.draw, self.counts = every, Draw(seed), Counter[str]()
        self._write, self._content = files.write, files_module._content
        monkeypatch.setattr(files, "write", self.write)
        monkeypatch.setattr(files_module, "_content", self.content)
        self._of, self._on = OnHost.of, OnHost.on
        monkeypatch.setattr(OnHost, "of", self.of)

        def on(host: OnHost, device: accelrt.device) -> object:
            self.fail_copies("copy on")
            return self._on(host, device)

        monkeypatch.setattr(OnHost, "on", on)

    def of(self, value: accelrt.Buffer) -> OnHost:
        self.fail_copies("copy off")
        return self._of(value)

    def fail_copies(self, name: str) -> None:
        """Fail the current stream, which skips the copies that are enqueued next."""
        if self.draw.randrange(max(self.every // 4, 1)) == 0:
            self.counts[name] += 1
            accelrt.accelerator.current_stream().launch_host(self.fail)

    @staticmethod
    def fail() -> None:
        raise OSError(errno.EIO, "planted")

    def write(self, value: object, weight: int, *, is_pinned: bool) -> SpilledFile:
        if self.draw.randrange(self.every) == 0:
            self.counts["write"] += 1
            raise OSError(errno.ENOSPC, "planted")
        return self._write(value, weight, is_pinned=is_pinned)

    def content(self, file: SpilledFile) -> object:
        if self.draw.randrange(self.every) == 0:
            self.counts["read"] += 1
            raise OSError(errno.EIO, "planted")
        return self._content(file)


@contextmanager
def may_fail(found: list[int | None]) -> Iterator[None]:
    """Note that there is no value; a disk or a copy that fails gives no answer."""
    try:
        yield
    except KeyError:
        found.append(None)
    except RuntimeError as error:
        assert "planted" in str(error)  # noqa: PT017  others end the test


@dataclass
class Program:
    """Threads that use the same keys of a store."""

    store: DeviceStore
    model: Model
    faults: Faults
    errors: list[BaseException] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    taken: set[int | None] = field(default_factory=set)

    def run(self, seed: int, operations: int) -> None:
        """Run a thread's operations, until one of any thread fails."""
        draw = Draw(seed)
        names = ["read"] * 9 + ["write"] * 5 + ["write_host"] * 5 + ["delete"] * 2
        names += ["take", "send", "call", "spill", "evict", "look", "set_default", "write_queued"]
        done = Counter[str]()
        try:
            for _ in range(operations):
                if self.errors:
                    return
                name = draw.choice(names)
                getattr(self, name)(draw, draw.randrange(KEYS))
                done[name] += 1
        except BaseException as error:  # noqa: BLE001  the main thread raises it
            self.errors.append(error)
        with self.model.lock:
            self.done += done

    def read(self, _draw: Draw, key: int) -> None:
        with self.model.reading(key) as found, may_fail(found):
            found.append(version_of(key, self.store[f"x-{key}"]))

    def write_host(self, draw: Draw, key: int) -> None:
        change = self.model.begin_change(key, is_write=True)
        assert change.version is not None
        self.store[f"x-{key}"] = made(key, change.version, draw.choice(SIZES))
        self.model.end_change(key, change)

    def write(self, draw: Draw, key: int) -> None:
        change = self.model.begin_change(key, is_write=True)
        assert change.version is not None
        content = made(key, change.version, draw.choice(SIZES))
        buffer = accelrt.empty(len(content), device="cpu:1")
        memoryview(buffer)[:] = content
        self.store[f"x-{key}"] = buffer
        self.model.end_change(key, change)

    def write_queued(self, draw: Draw, key: int) -> None:
        """Write a value whose bytes a queued copy brings: it leaves only after the copy."""
        change = self.model.begin_change(key, is_write=True)
        assert change.version is not None
        content = made(key, change.version, draw.choice(SIZES))
        buffer, stream = accelrt.empty(len(content), device="cpu:1"), accelrt.Stream("cpu:1")
        with stream:
            stream.launch_host(time.sleep, 0.001)
            buffer.copy_(content, non_blocking=True)
        self.store[f"x-{key}"] = buffer
        self.model.end_change(key, change)

    def set_default(self, draw: Draw, key: int) -> None:
        change = self.model.begin_change(key, is_write=True)
        assert change.version is not None
        default, has_effect = made(key, change.version, draw.choice(SIZES)), False
        with self.model.reading(key, change) as found, may_fail(found):
            value = self.store.setdefault(f"x-{key}", default)
            if not (has_effect := value is default):
                found.append(version_of(key, value))
        self.model.end_change(key, change, has_effect=has_effect)

    def delete(self, _draw: Draw, key: int) -> None:
        change = self.model.begin_change(key, is_write=False)
        with self.model.reading(key, change) as found:
            try:
                del self.store[f"x-{key}"]
            except KeyError:
                found.append(None)
        self.model.end_change(key, change, has_effect=not found)

    def take(self, _draw: Draw, key: int) -> None:
        change = self.model.begin_change(key, is_write=False)
        with self.model.reading(key, change) as found, may_fail(found):
            found.append(version_of(key, self.store.pop(f"x-{key}")))
        has_effect = bool(found) and found[0] is not None
        self.model.end_change(key, change, has_effect=has_effect)
        if has_effect:
            assert found[0] not in self.taken, f"x-{key}: {found[0]} was taken twice"
            self.taken.add(found[0])

    def send(self, _draw: Draw, key: int) -> None:
        async def call() -> object:
            return self.store[f"x-{key}"]

        with self.model.reading(key) as found, may_fail(found):
            sent = asyncio.run(self.store.during([f"x-{key}"], call, is_sent=True))
            found.append(version_of(key, sent.pinned if isinstance(sent, OnHost) else sent))

    def call(self, _draw: Draw, key: int) -> None:
        """Read inside a call of dask, whose values may be out of date."""

        async def read() -> None:
            await asyncio.sleep(0)
            with self.model.reading(key) as found, may_fail(found):
                found.append(version_of(key, self.store[f"x-{key}"]))

        asyncio.run(self.store.during([f"x-{key}"], read))

    def spill(self, _draw: Draw, _key: int) -> None:
        self.store._spill({})

    def evict(self, _draw: Draw, _key: int) -> None:
        self.store.evict()

    def look(self, _draw: Draw, key: int) -> None:
        """Look for a key: a value that moves is in the store at each moment."""
        with self.model.reading(key) as found:
            if f"x-{key}" not in self.store:
                found.append(None)

    def check_end(self) -> None:
        """Check each key, and that nothing is left over, once no thread runs."""
        self.faults.every = sys.maxsize
        self.store._thread.submit(lambda: None).result(LIMIT_S)
        for key in range(KEYS):
            self.read(Draw(), key)
        table, directory = self.store._table, Path(self.store._files.directory)
        assert len(list(directory.iterdir())) == len(table.on_disk)
        assert table.host_bytes == sum(it.weight for it in table.on_host.values())
        sizes = [it.file.size.disk for it in table.on_disk.values() if it.file is not None]
        assert (table.spilled.disk, len(sizes)) == (sum(sizes), len(table.on_disk))
        assert len(table.on_device) + len(table.on_host) + len(table.on_disk) == len(table.values)
        self.store.clear()
        assert list(directory.iterdir()) == []
        assert (table.host_bytes, table.spilled, self.store._leaving) == (0, (0, 0), {})


@pytest.fixture(autouse=True)
def quick_switches() -> Iterator[None]:
    """Have threads interrupt each other often."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    with bounded(LIMIT_S):
        yield
    sys.setswitchinterval(interval)


@pytest.mark.parametrize("every", [20, sys.maxsize], ids=["faults", "no faults"])
def test_store_returns_a_current_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    print(f"TEST_SEED={SEED}")  # noqa: T201  shown where the test fails
    monkeypatch.setattr(accelrt._patience, "LOOKS", 1)
    with limited(1):
        store = DeviceStore(str(tmp_path), accelrt.device("cpu:1"), host_limit=HOST_LIMIT)
        faults = Faults(monkeypatch, store._files, every, SEED)
        program = Program(store, Model(), faults)
        share = OPERATIONS // 2 // THREADS
        threads = [
            threading.Thread(target=program.run, args=(SEED + number, share), daemon=True)
            for number in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        store_numbers = store.numbers()
        if not program.errors:
            program.check_end()
        store.close()
    with suppress(IndexError):
        raise program.errors[0]
    assert program.done.total() == OPERATIONS // 2
    assert min(program.done.values()) > 0
    assert min(store_numbers["device_to_host"], store_numbers["host_to_device"]) > 100
    kinds = ["write", "read", "copy off", "copy on"]
    assert (min(faults.counts[it] for it in kinds) > 20) == (every == 20)
