"""Buffers that are cloned, copied deeply, and freed by `with`."""

import copy
from typing import Any

import pytest

import accelrt as _accelrt
from gates import Gate
from kinds import KIND, content, host_cores

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
