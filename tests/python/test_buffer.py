"""Buffers: memory, copies, slices, and their bytes on the host."""

import array
import gc
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import accelrt
from accelrt import _core
from gates import NATIVE, Gate, libc
from kinds import KIND, content, host_cores
from kinds import module as kind_module
from processes import output_of


def test_sizes_and_names() -> None:
    buffer = accelrt.empty(100, device=f"{KIND}:0")
    assert (buffer.nbytes, len(buffer)) == (100, 100)
    assert buffer.device == accelrt.device(f"{KIND}:0")
    assert buffer.stream == accelrt.accelerator.current_stream()
    assert buffer.data_ptr() % 512 == 0
    assert repr(buffer) == f"accelrt.Buffer(nbytes=100, device='{KIND}:0', done)"
    assert accelrt.empty_pinned(10).nbytes == 10
    assert accelrt.empty_shared(10).nbytes == 10
    assert content(accelrt.empty(0)) == b""


@pytest.mark.parametrize("make", [accelrt.empty, accelrt.zeros])
@pytest.mark.parametrize("is_named", [False, True])
def test_alignment_is_that_of_the_request(
    make: Callable[..., accelrt.Buffer], *, is_named: bool
) -> None:
    # An unaligned neighbour precedes each buffer. Free memory of earlier tests would hide an
    # alignment that is ignored, because its blocks may be aligned by chance.
    gc.collect()
    accelrt.accelerator.synchronize()
    accelrt.accelerator.empty_cache()
    device = {"device": KIND} if is_named else {}
    kept, wrong = [], []
    for shift in range(22):
        for _ in range(3):
            buffer = make(700, alignment=1 << shift, **device)
            kept += [accelrt.empty(700), buffer]
            if buffer.data_ptr() % (1 << shift):
                wrong.append(shift)
    assert not wrong
    assert make(0, alignment=4096, **device).data_ptr() == 0


def test_aligned_zeros_are_zeros() -> None:
    for shift in range(22):
        accelrt.empty(700, alignment=1 << shift).fill_(7)
        assert content(accelrt.zeros(700, alignment=1 << shift)) == bytes(700)


# Kinds guarantee fewer bytes for host memory than for their own.
LEAST_ALIGNED = [
    (accelrt.empty, 512),
    (accelrt.zeros, 512),
    (accelrt.empty_shared, 512),
    (accelrt.empty_pinned, 64),
]


@pytest.mark.parametrize(("make", "align_bytes"), LEAST_ALIGNED)
def test_default_alignments(make: Callable[[int], accelrt.Buffer], align_bytes: int) -> None:
    sizes = (1, 511, 512, 513, 700, 4097, (1 << 20) + 1, (2 << 20) + 1)
    kept = [make(size) for size in sizes for _ in range(3)]
    assert [buffer.nbytes for buffer in kept if buffer.data_ptr() % align_bytes] == []


@pytest.mark.parametrize("wrong", [0, -1, 3, 48, 4 << 20, 1 << 70])
def test_alignments_that_are_not_allowed(wrong: int) -> None:
    said = rf'alignment="{wrong}" is not valid: allowed is a power of two up to 2097152'
    for make in (accelrt.empty, accelrt.zeros):
        with pytest.raises(ValueError, match=said):
            make(1, alignment=wrong)


@pytest.mark.parametrize("nbytes", [-1, 1 << 70])
def test_bad_sizes(nbytes: Any) -> None:
    with pytest.raises(ValueError, match="nbytes"):
        accelrt.empty(nbytes)


def test_wrong_types() -> None:
    text: Any = "4"
    number: Any = 4
    buffer = accelrt.zeros(4)
    with pytest.raises(TypeError, match="nbytes must be an integer, not str"):
        accelrt.empty(text)
    with pytest.raises(TypeError, match=r"source must be .* not int"):
        buffer.copy_(number)
    with pytest.raises(TypeError, match=r"target must be .* not str"):
        buffer.copy_to(text)
    with pytest.raises(TypeError, match="slice, not int"):
        buffer[number]
    with pytest.raises(ValueError, match="0 to 255, not 256"):
        buffer.fill_(256)
    with pytest.raises(accelrt.OutOfMemoryError):
        accelrt.empty(1 << 60)


def test_copies_between_buffers_and_the_host() -> None:
    source, target = accelrt.empty(5), accelrt.empty(5)
    assert source.copy_(b"hello") is source
    target.copy_(source)
    out = bytearray(5)
    target.copy_to(out)
    assert out == b"hello"
    source.fill_(7).copy_to(target)
    assert content(target) == b"\x07" * 5


def test_a_non_blocking_copy_holds_the_exporter() -> None:
    stream = accelrt.Stream(dedicated=True)
    size = 1 << 22
    source = bytearray(b"x" * size)
    buffer = accelrt.empty(size)
    gate = Gate(stream)
    with stream:
        buffer.copy_(source, non_blocking=True)
    with pytest.raises(BufferError):
        source.append(1)
    gate.open()
    stream.synchronize()
    gate.close()
    source.append(1)  # given back
    assert content(buffer) == b"x" * size


def test_refused_copies_give_the_exporter_back() -> None:
    buffer, source = accelrt.zeros(4), bytearray(5)
    with pytest.raises(ValueError, match="Cannot copy 5 bytes into 4"):
        buffer.copy_(source)
    source.append(1)
    with pytest.raises(BufferError):
        buffer.copy_to(b"read")
    with pytest.raises((BufferError, ValueError), match="contiguous"):
        buffer.copy_to(np.zeros(8, np.uint8)[::2])
    with pytest.raises(ValueError, match="overlap"):
        buffer[:3].copy_(buffer[1:])
    if NATIVE:
        with pytest.raises(ValueError, match="overlap"):
            buffer.copy_(np.asarray(buffer))
        with pytest.raises(ValueError, match="overlap"):
            buffer[:3].copy_to(np.asarray(buffer)[1:])


@host_cores
def test_memory_that_touches_a_buffer_does_not_overlap_it() -> None:
    buffer = accelrt.empty(6).copy_(b"abcdef")
    below, above = np.asarray(buffer)[:2], np.asarray(buffer)[4:]
    buffer[2:4].copy_(below)
    assert content(buffer) == b"ababef"
    buffer[2:4].copy_(above)
    assert content(buffer) == b"abefef"
    buffer[2:4].fill_(0).copy_to(below)
    buffer[2:4].copy_to(above)
    assert content(buffer) == bytes(6)


def test_slices() -> None:
    buffer = accelrt.empty(10).copy_(bytes(range(10)))
    assert content(buffer[-3:-1]) == bytes([7, 8])
    assert content(buffer[2:][1:3]) == bytes([3, 4])
    assert len(buffer[8:2]) == 0
    assert len(buffer[5:100]) == 5
    with pytest.raises(ValueError, match="step 1"):
        buffer[::2]
    part = buffer[4:6]
    del buffer
    gc.collect()
    assert content(part) == bytes([4, 5])


@host_cores
def test_release() -> None:
    buffer = accelrt.zeros(4)
    part = buffer[:2]
    view = memoryview(part)
    with pytest.raises(BufferError, match="1 exports"):
        buffer.release()
    view.release()
    buffer.release()
    buffer.release()
    assert "released" in repr(buffer)
    for use in (buffer.data_ptr, lambda: bytes(part), lambda: buffer.fill_(1), lambda: buffer[:1]):
        with pytest.raises(BufferError, match="was released"):
            use()


@host_cores
def test_numpy_reads_and_writes_our_memory() -> None:
    buffer = accelrt.zeros(8)
    values = np.asarray(buffer)
    assert values.ctypes.data == buffer.data_ptr()
    assert values.dtype == np.uint8
    assert values.flags.writeable
    values[:] = 3
    assert bytes(buffer) == b"\x03" * 8
    view = memoryview(buffer)
    assert (view.format, view.shape, view.strides, view.readonly) == ("B", (8,), (1,), False)


@host_cores
def test_host_access_waits_for_uses() -> None:
    buffer = accelrt.empty(1 << 24)
    for byte in range(10):
        with accelrt.Stream() as stream:
            buffer.record_stream(stream)
        buffer.fill_(byte)
    assert bytes(buffer[-1:]) == b"\x09"


def test_copy_runs_on_the_current_stream() -> None:
    buffer, stream = accelrt.empty(array.array("d", [1.5]).itemsize), accelrt.Stream()
    with stream:
        buffer.copy_(array.array("d", [1.5]), non_blocking=True)
        out = array.array("d", [0])
        buffer.copy_to(out, non_blocking=True)
    stream.synchronize()
    assert out[0] == 1.5


@host_cores
@pytest.mark.accelrt_unordered
def test_numpy_is_told_that_the_bytes_failed() -> None:
    # NumPy drops what `memoryview` raises, and would make an array of one object.
    buffer, stream = accelrt.zeros(8), accelrt.Stream()
    stream.launch(libc.abs, 3, check=True)
    stream.launch(libc.memset, buffer, 1, 8)
    with pytest.raises(accelrt.StreamError, match="returned status 3"):
        np.asarray(buffer)
    stream.synchronize()  # the receipt has ended the failure
    assert np.asarray(buffer).tolist() == [0] * 8


@host_cores
def test_the_array_interface_forbids_the_release() -> None:
    buffer = accelrt.empty(4).copy_(b"abcd")
    interface = buffer.__array_interface__
    assert (interface["shape"], interface["typestr"]) == ((4,), "|u1")
    assert bytes(interface["data"]) == b"abcd"
    with pytest.raises(BufferError, match="1 exports"):
        buffer.release()
    del interface
    buffer.release()
    with pytest.raises(BufferError, match="was released"):
        _ = buffer.__array_interface__


def test_the_host_reaches_shared_memory_on_every_kind() -> None:
    # Goal: NumPy writes where the device reads and reads what the device wrote, with no copy of
    # ours. Method: each looks at what the other one wrote, behind queued work.
    shared = accelrt.empty_shared(4096, device=KIND)
    array_of = np.asarray(shared)
    assert array_of.ctypes.data == shared.data_ptr()
    array_of[:] = np.arange(4096) % 251
    del array_of
    target = accelrt.empty(4096, device=KIND).copy_(shared)
    assert content(target) == bytes(place % 251 for place in range(4096))
    shared[16:32].fill_(9)
    assert bytes(memoryview(shared)[15:33]) == bytes([15, *[9] * 16, 32])
    assert shared.view("int32", (32, 32)).__dlpack_device__() == shared.__dlpack_device__()
    assert np.asarray(shared.view("int32")).shape == (1024,)


def test_pinned_memory_is_the_hosts_own() -> None:
    pinned = accelrt.empty_pinned(8)
    pinned.fill_(3)
    assert np.asarray(pinned).tolist() == [3] * 8


def test_shared_memory_takes_from_the_capacity_of_its_device() -> None:
    code = """
        import accelrt
        a = accelrt.accelerator
        free = [a.get_memory_info()[0]]
        shared = accelrt.empty_shared(40 << 20)
        free.append(a.get_memory_info()[0])
        shared.release()
        a.empty_cache()
        free.append(a.get_memory_info()[0])
        print([(free[0] - now) >> 20 for now in free])
    """
    settings = {"ACCELRT_ACCELERATOR": KIND}
    if KIND in ("cpu", "xpu"):  # the example kind has 256 MiB
        settings[f"ACCELRT_{KIND.upper()}_MEMORY"] = "256M"
    if (library := os.environ.get("ACCELRT_OPENCL_LIBRARY")) is not None:
        settings["ACCELRT_OPENCL_LIBRARY"] = library
    assert output_of(code, **settings) == "[0, 40, 0]\n"


def test_shared_memory_is_counted_apart_and_against_the_device() -> None:
    module, size = accelrt.accelerator, 40 << 20
    assert kind_module.get_device_properties().has_shared_memory
    module.empty_cache()
    before = module.memory_stats()
    shared = accelrt.empty_shared(size, device=KIND)
    counted = module.shared_memory_stats()
    assert list(counted) == [key for key in before if not key.startswith("tags.")]
    assert counted["allocated_bytes.all.current"] == size
    assert (
        module.memory_stats()["allocated_bytes.all.current"]
        == (before["allocated_bytes.all.current"])
    )
    lent = memoryview(shared)
    with pytest.raises(BufferError, match="cannot be released"):
        shared.release()
    lent.release()
    shared.release()
    module.empty_cache()
    module.reset_peak_memory_stats()
    assert module.shared_memory_stats()["allocated_bytes.all.peak"] == 0


@host_cores
def test_work_state_receives_no_failure() -> None:
    stream, gate = accelrt.Stream(KIND, dedicated=True), threading.Event()
    buffer = accelrt.empty(8, device=KIND)
    view = buffer[4:].view("uint8")

    def states() -> list[str]:
        return [_core.work_state(it) for it in (buffer, view)]

    assert states() == ["done", "done"]
    stream.launch_host(gate.wait)
    with stream:
        buffer.fill_(1)
    assert states() == ["pending", "pending"]
    stream.launch_host(lambda: 1 / 0)
    with stream:
        buffer.fill_(2)
    gate.set()
    while not stream.query():
        pass
    assert states() == ["failed", "failed"]
    with pytest.raises(accelrt.StreamError, match="division by zero"):
        stream.synchronize()
    assert states() == ["done", "done"]
    buffer.release()
    assert states() == ["released", "released"]
    assert _core.work_state(accelrt.as_buffer(b"lent")) == "done"
    with pytest.raises(TypeError, match="expected a Buffer or a View, not bytes"):
        _core.work_state(b"")  # type: ignore[arg-type]


@host_cores
def test_callables_must_not_wait() -> None:
    stream = accelrt.Stream(KIND, dedicated=True)
    assert not _core.must_not_wait()
    assert stream.launch_host(_core.must_not_wait).result()
