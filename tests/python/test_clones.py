"""Buffers that are cloned, copied deeply, and freed by `with`."""

import copy
import copyreg
import pickle
from typing import Any

import numpy as np
import pytest

import accelrt as _accelrt
from gates import Gate
from kinds import KIND, bytes_of, content, host_cores

accelrt: Any = _accelrt  # what a clone is of is looked at


def test_a_clone_has_the_bytes_and_memory_of_its_own() -> None:
    buffer = accelrt.empty(8).copy_(b"accelrt!")
    clone = buffer.clone()
    assert (clone.nbytes, clone.device) == (8, buffer.device)
    assert clone.data_ptr() != buffer.data_ptr()
    buffer.fill_(0)
    assert content(clone) == b"accelrt!"
    assert content(accelrt.empty(0).clone()) == b""
    assert content(buffer[2:4].copy_(b"ab").clone()) == b"ab"


def test_a_clone_has_a_version_of_its_own() -> None:
    buffer = accelrt.zeros(8).fill_(1).fill_(2)
    clone = buffer.clone()
    assert (buffer._version, clone._version) == (2, 0)
    clone.fill_(3)
    assert (buffer._version, clone._version) == (2, 1)
    with accelrt.inference_mode():
        made = accelrt.zeros(8)
    clone = made.clone()  # a way out of the mode
    assert not clone.is_inference()
    clone.fill_(1)
    with accelrt.inference_mode():
        clone = buffer.clone()  # and a way into it
    assert clone.is_inference()


@pytest.mark.parametrize("deep", [False, True])
def test_a_clone_is_a_task_of_the_current_stream(deep: bool) -> None:  # noqa: FBT001
    buffer, stream = accelrt.zeros(8), accelrt.Stream(dedicated=True)
    buffer.stream.synchronize()
    gate = Gate(stream)
    with stream:
        buffer.fill_(7)
        clone = copy.deepcopy(buffer) if deep else buffer.clone()
    assert clone.stream == stream
    assert not stream.query()  # nobody waited
    gate.open()
    stream.synchronize()
    gate.close()
    assert content(clone) == b"\7" * 8


@pytest.mark.parametrize("make", [accelrt.empty, accelrt.empty_pinned, accelrt.empty_shared])
def test_a_clone_is_of_the_same_kind_of_memory(make: Any) -> None:
    buffer = make(64).fill_(5)

    def used() -> tuple[int, int, int]:
        return (
            accelrt.accelerator.memory_allocated(),
            accelrt.accelerator.host_memory_stats()["allocated_bytes.current"],
            accelrt._core.shared_memory_stats(KIND, 0)["allocated_bytes.all.current"],
        )

    before = used()
    clone = buffer.clone()
    grown = [is_more > was for is_more, was in zip(used(), before, strict=True)]
    first = used()
    other = make(64)
    assert grown == [is_more > was for is_more, was in zip(used(), first, strict=True)]
    assert content(clone) == b"\5" * 64
    del other


def test_what_is_copied_deeply_together_is_one_copy() -> None:
    buffer = accelrt.zeros(8).fill_(1)
    held = copy.deepcopy({"weights": [buffer, buffer]})
    first, second = held["weights"]
    assert first is second
    assert first is not buffer
    assert content(first) == b"\1" * 8


@pytest.mark.parametrize("of_others", [False, True])
def test_view_copies_have_their_own_memory(of_others: bool) -> None:  # noqa: FBT001
    given = bytes(range(24))
    view = accelrt.empty(24).copy_(given).view("int32", (2, 3))
    if of_others:
        view = accelrt.as_buffer(np.frombuffer(given, "int32").reshape(2, 3).copy())
    first, second = copy.deepcopy([view, view])
    shared = copy.copy(view)
    assert first is second
    for other in first, shared:
        assert (other.dtype, other.shape, other.device) == ("int32", (2, 3), view.device)
    view.fill_(-1)
    accelrt.accelerator.synchronize()
    assert bytes_of(first) == given
    assert bytes_of(shared) == b"\xff" * 24
    first.fill_(1)  # also of memory that is read-only elsewhere
    assert accelrt.Buffer is not type(copy.deepcopy(view[1:]))
    assert copy.deepcopy(view[1:]).shape == (1, 3)
    empty = copy.deepcopy(accelrt.empty(0).view("int8", (0, 4)))
    assert (empty.shape, empty.nbytes) == ((0, 4), 0)


def test_copy_of_a_buffer_shares_its_memory() -> None:
    buffer = accelrt.zeros(8)
    shared = copy.copy(buffer)
    assert shared is not buffer
    shared.fill_(3)
    assert content(buffer) == b"\3" * 8
    assert buffer._version == shared._version == 1
    view = buffer.view("uint8")
    copy.deepcopy(view).fill_(4)
    copy.copy(view).fill_(5)
    assert (content(buffer), buffer._version) == (b"\5" * 8, 2)


def test_memory_cannot_be_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    for memory in accelrt.zeros(8), accelrt.zeros(8).view("int8"):
        monkeypatch.delitem(copyreg.dispatch_table, type(memory), raising=False)  # accelrt.dask's
        with pytest.raises(TypeError, match=f"cannot pickle 'accelrt.{type(memory).__name__}'"):
            pickle.dumps(memory)


def test_with_frees_the_memory_at_its_end() -> None:
    before = accelrt.accelerator.memory_allocated()
    with accelrt.zeros(1 << 20) as buffer:
        part = buffer[:4]
        assert accelrt.accelerator.memory_allocated() > before
    buffer.stream.synchronize()
    assert accelrt.accelerator.memory_allocated() == before
    for use in (buffer.data_ptr, part.data_ptr, buffer.clone, buffer.__enter__):
        with pytest.raises(BufferError, match="was released"):
            use()


def test_with_frees_behind_the_work_that_uses_the_memory() -> None:
    stream = accelrt.Stream(dedicated=True)
    gate = Gate(stream)
    with stream, accelrt.empty(1 << 20) as buffer:
        buffer.fill_(3)
        target = bytearray(1 << 20)
        buffer.copy_to(target, non_blocking=True)
    assert not stream.query()  # nobody waited
    gate.open()
    stream.synchronize()
    gate.close()
    assert target == b"\3" * (1 << 20)


def test_with_frees_the_memory_when_its_body_raises() -> None:
    def fail() -> None:
        with accelrt.zeros(8) as buffer:
            buffers.append(buffer)
            raise ZeroDivisionError

    buffers: list[Any] = []
    with pytest.raises(ZeroDivisionError):
        fail()
    assert "released" in repr(buffers[0])


@host_cores
def test_with_says_who_has_the_bytes_still() -> None:
    buffer = accelrt.zeros(8)
    with pytest.raises(BufferError, match="1 exports"), buffer:
        lent = memoryview(buffer)
    assert lent.tobytes() == bytes(8)
    lent.release()
    with buffer:  # released by hand before the end
        buffer.release()


@host_cores
def test_with_lets_an_exception_pass_whoever_has_the_bytes_still() -> None:
    def fail() -> None:
        with buffer:
            lent.append(memoryview(buffer))
            raise ZeroDivisionError

    buffer, lent = accelrt.zeros(8), list[memoryview]()
    with pytest.raises(ZeroDivisionError):
        fail()
    assert lent[0].tobytes() == bytes(8)
    lent[0].release()
    buffer.release()
