"""Interrupts of a store of dask's values: exceptions of signal handlers at any point.

Goal: each key is readable or gone, no value keeps a state of a move, and no lock is held. Method:
`sys.settrace` raises `KeyboardInterrupt` at the n-th line of the modules that move values, for each
n. `sys.setprofile` raises it where a signal handler can: after each call, and at the start of each
function, of this package and of the standard library.
"""

import errno
import linecache
import opcode
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from pathlib import Path
from types import FrameType
from typing import Any, Self

import pytest

import accelrt
from accelrt.dask import DeviceStore, files
from accelrt.dask.frames import RECEIVING
from bounded import bounded
from dask_stores import LIMIT_S, limited
from kinds import KIND

pytestmark = [
    pytest.mark.skipif(KIND != "cpu", reason="the stores are of cpu devices"),
    pytest.mark.filterwarnings("ignore"),  # of interrupts that are reported, and of other packages
]

VALUE_BYTES = 4096
LINES_OF = tuple(f"dask/{name}.py" for name in ("store", "evictions", "copies"))
STEP = 3  # of the points of `sys.setprofile`: there are thousands


class Interrupt:
    """Raises at the n-th point inside of a `with`."""

    def __init__(self, last: int) -> None:
        self.left = last

    def point(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


class AtLine(Interrupt):
    """At the lines of the modules that move values."""

    def __enter__(self) -> Self:
        sys.settrace(self.enter)
        return self

    def __exit__(self, *_raised: object) -> None:
        sys.settrace(None)

    def enter(self, frame: FrameType, _event: str, _given: object) -> Any:
        return self.line if frame.f_code.co_filename.endswith(LINES_OF) else None

    def line(self, frame: FrameType, event: str, _given: object) -> Any:
        if event == "line" and not is_end_of_with(frame):
            self.point()
        return self.line


def is_end_of_with(frame: FrameType) -> bool:
    """Return whether a line event is at the end of a `with`, where no signal handler is called.

    The line is that of the `with`, which comes a second time, and its code is `None, None, None`.
    """
    code = frame.f_code
    after = [it for it in code.co_code[frame.f_lasti : frame.f_lasti + 6 : 2] if it]
    if not linecache.getline(code.co_filename, frame.f_lineno).lstrip().startswith("with "):
        return False
    return set(after) == {opcode.opmap["LOAD_CONST"]}


class AtCall(Interrupt):
    """At the start of functions, and after calls of functions in C."""

    def __enter__(self) -> Self:
        sys.setprofile(self.event)
        return self

    def __exit__(self, *_raised: object) -> None:
        sys.setprofile(None)

    def event(self, _frame: FrameType, event: str, called: object) -> None:
        if event in {"call", "c_return"} and called is not sys.setprofile:
            self.point()


@contextmanager
def new_store(directory: Path) -> Iterator[DeviceStore]:
    store = DeviceStore(str(directory), accelrt.device("cpu:1"), host_limit=3 * VALUE_BYTES)
    try:
        yield store
    finally:
        store.close()


def put(store: DeviceStore) -> None:
    """Store values on the device, on the host and on disk."""
    for key in "ab":
        store[key] = value_of(key)
    store["c"] = bytes(VALUE_BYTES)
    store["d"] = bytes(VALUE_BYTES)
    store.evict()


def value_of(key: str) -> accelrt.Buffer:
    value = accelrt.empty(VALUE_BYTES, device="cpu:1").fill_(ord(key))
    accelrt.cpu.synchronize(1)
    return value


def use(store: DeviceStore) -> None:
    """Move values in all directions."""
    store._spill({})
    store._spill({})
    store.evict()
    store.evict()
    for key in "abcd":
        store[key]
    store.pop("c")
    store["d"] = bytes(VALUE_BYTES // 2)
    del store["b"]


def fail_to_read(store: DeviceStore) -> None:
    """Read values whose files cannot be read."""
    store._spill({})
    store.evict()
    for key in "abcd":
        with suppress(RuntimeError):
            store[key]


def no_content(_file: object) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def check(store: DeviceStore) -> None:
    """Check that each value is readable or gone, and that nothing moves or is held."""
    table = store._table
    states = {key: stored.state.name for key, stored in table.values.items()}
    assert set(states.values()) <= {"DEVICE", "HOST", "DISK"}, states
    assert (store._leaving, store._sends, store._is_relieving) == ({}, set(), False)
    places = [*table.on_device, *table.on_host, *table.on_disk]
    assert sorted(places) == sorted(table.values)
    assert sum(stored.weight for stored in table.on_host.values()) == table.host_bytes
    assert table.excess_bytes() == table.host_bytes - table.host_limit
    disk_bytes = sum(stored.file.size.disk for stored in table.on_disk.values() if stored.file)
    assert (table.spilled.disk, store._files._used_bytes) == (disk_bytes, disk_bytes)
    for key in list(store):
        found = store[key]
        byte = ord(str(key)) if isinstance(found, accelrt.Buffer) else 0
        assert set(bytes(found)) == {byte}  # type: ignore[call-overload]
    assert store._spill({}) in {None, VALUE_BYTES}
    store.clear()
    assert (table.host_bytes, table.spilled, store._files._used_bytes) == (0, (0, 0), 0)
    assert not table.on_device


@pytest.mark.parametrize("work", [use, fail_to_read])
@pytest.mark.parametrize(("interrupt", "step"), [(AtLine, 1), (AtCall, STEP)])
def test_interrupt_leaves_no_value_moving(
    work: Callable[[DeviceStore], None],
    interrupt: type[AtLine | AtCall],
    step: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with bounded(5 * LIMIT_S), limited(1), ThreadPoolExecutor(1) as thread:
        last, has_raised = 1, True
        while has_raised:
            with new_store(tmp_path / str(last)) as store:
                put(store)
                if work is fail_to_read:
                    monkeypatch.setattr(files, "_content", no_content)
                current = interrupt(last)
                # Code of distributed replaces some, and Python reports those of destructors.
                with suppress(KeyboardInterrupt, Exception), current:
                    copy_context().run(work, store)  # an interrupted meter of distributed stays
                has_raised = current.left <= 0
                monkeypatch.undo()
                assert not store._evictions.moving.is_on
                # Another thread needs the locks that an interrupted call has left.
                thread.submit(check, store).result(LIMIT_S)
            last += step
    assert last > 100


def test_interrupted_receipt_is_over() -> None:
    last, has_raised = 1, True
    while has_raised:
        current = AtCall(last)
        with suppress(KeyboardInterrupt), current:
            RECEIVING.allocate(lambda device: accelrt.empty(64, device=device))
        has_raised = current.left <= 0
        assert not RECEIVING.is_on
        last += 1
    assert last > 3
