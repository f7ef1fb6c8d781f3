"""Goal: `accelrt.xpu` is what `accelrt.cpu` is, and its memory goes to others without the host.

Method: everything runs on an xpu device, where `ACCELRT_TEST_KIND` names it. Results are brought
back by copies: no test reads device memory by its address.
"""

import os
from pathlib import Path

import numpy as np
import pytest

import accelrt
from kinds import content, needs_a_compiler, needs_xpu
from processes import output_of, run

pytestmark = needs_xpu

ONE_API = 14


def zeros(nbytes: int) -> accelrt.Buffer:
    return accelrt.zeros(nbytes, device="xpu")


def test_the_module_is_that_of_every_kind() -> None:
    assert set(accelrt.xpu.__all__) - set(accelrt.cpu.__all__) == {"Kernel", "Program"}
    assert accelrt.xpu.is_available()
    assert accelrt.xpu.device_count() >= 1
    assert accelrt.get_device_module("xpu") is accelrt.xpu
    known = accelrt.xpu.get_device_properties()
    assert accelrt.xpu.get_device_name(0) == known.name
    free, total = accelrt.xpu.mem_get_info()
    assert 0 < free <= total == known.total_memory
    with accelrt.xpu.device(0):
        assert accelrt.xpu.current_device() == 0


def test_streams_and_events_order_copies_and_tell_times() -> None:
    least, greatest = accelrt.Stream.priority_range("xpu:0")
    assert greatest <= 0 <= least
    first, second = accelrt.Stream("xpu"), accelrt.Stream("xpu")
    assert first.native_handle != second.native_handle
    assert (first.device_type, first.device) == (12, accelrt.device("xpu:0"))
    start, end = (accelrt.Event(enable_timing=True) for _ in range(2))
    with first:
        source = accelrt.empty(1 << 20, device="xpu").fill_(3)
        start.record()
    second.wait_event(start)
    with second:
        target = accelrt.empty(1 << 20, device="xpu").copy_(source, non_blocking=True)
        end.record()
    end.synchronize()
    assert start.query()
    assert start.elapsed_time(end) >= 0
    assert content(target) == bytes([3]) * (1 << 20)
    accelrt.xpu.synchronize()


def test_memory_comes_back_and_too_much_is_refused() -> None:
    size = 64 << 20  # a segment of its own
    accelrt.xpu.empty_cache()
    _, total = accelrt.xpu.mem_get_info()

    def reserved() -> int:
        # What is free may be less than what is left: where the host has its memory, all use that.
        bytes_of_ours = accelrt.xpu.memory_reserved()
        free, found = accelrt.xpu.mem_get_info()
        assert (found, free <= total - bytes_of_ours) == (total, True)
        return bytes_of_ours

    before = reserved()
    buffer = zeros(size)
    assert reserved() == before + size
    del buffer
    assert reserved() == before + size, "kept for the next request"
    accelrt.xpu.empty_cache()
    assert reserved() == before
    with pytest.raises(
        accelrt.OutOfMemoryError, match=r"XPU out of memory\. Tried to allocate .* xpu:0 has"
    ):
        accelrt.empty(total + 1, device="xpu")


def test_callables_run_in_order_with_copies() -> None:
    stream, seen = accelrt.Stream("xpu"), list[bytes]()
    with stream:
        buffer = accelrt.empty(4, device="xpu").fill_(9)
        target = bytearray(4)
        buffer.copy_to(target, non_blocking=True)
        stream.launch_host(lambda: seen.append(bytes(target)))
        buffer.fill_(1)
    stream.synchronize()
    assert seen == [bytes([9]) * 4]


@pytest.mark.parametrize("view", [False, True])
def test_the_host_is_told_to_copy(view: bool) -> None:  # noqa: FBT001  a parameter of the test
    memory = zeros(8).view("int32") if view else zeros(8)
    text = "the host does not reach memory of xpu:0: copy_to brings the bytes"
    with pytest.raises(BufferError, match=text):
        memoryview(memory)
    with pytest.raises(BufferError, match=text):
        _ = memory.__array_interface__
    with pytest.raises(BufferError, match=text):
        np.asarray(memory)


def test_dlpack_goes_out_and_comes_in_without_the_host() -> None:
    buffer = zeros(24)
    view = buffer.view("float32", (2, 3))
    assert view.__dlpack_device__() == buffer.__dlpack_device__() == (ONE_API, 0)
    again = accelrt.from_dlpack(view)
    assert (again.shape, again.dtype, again.device) == ((2, 3), "float32", buffer.device)
    assert again.data_ptr() == buffer.data_ptr()
    with pytest.raises(BufferError, match="cannot be released: 1 exports"):
        buffer.release()
    with pytest.raises(BufferError, match="the host does not reach memory of xpu:0"):
        memoryview(again)
    copy = zeros(24).fill_(7)
    copy.copy_(again)
    assert content(copy) == bytes(24)
    with pytest.raises(BufferError, match="is copied into xpu buffers only, not into one of cpu:0"):
        accelrt.zeros(24, device="cpu").copy_(again)
    del again
    buffer.release()


def test_a_copy_by_dlpack_is_memory_of_its_own() -> None:
    buffer = zeros(8).fill_(5)
    copy = accelrt.from_dlpack(buffer.__dlpack__(copy=True, max_version=(1, 0)))
    assert copy.data_ptr() != buffer.data_ptr()
    assert content(zeros(8).copy_(copy)) == bytes([5]) * 8


def test_dlpack_of_xpu_takes_no_stream_and_no_other_device() -> None:
    buffer = zeros(8)
    buffer.__dlpack__(stream=-1)
    with pytest.raises(AssertionError, match="stream should be None on xpu"):
        buffer.__dlpack__(stream=1)
    with pytest.raises(BufferError, match="exported where it is, on no other device"):
        buffer.__dlpack__(dl_device=(1, 0))
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(buffer)


@needs_a_compiler
def test_dlpack_memory_of_others_is_a_kernels_pointer() -> None:
    text = "kernel void up(global int* x) { x[get_global_id(0)] += 1; }"
    buffer = zeros(16)
    lent = accelrt.from_dlpack(buffer.view("int32"))
    stream = accelrt.xpu.current_stream()
    stream.launch(accelrt.xpu.Program(text).kernel("up"), lent, global_size=4)
    assert np.frombuffer(content(buffer), "int32").tolist() == [1, 1, 1, 1]


@needs_a_compiler
def test_a_kernel_and_numpy_work_on_the_same_shared_memory() -> None:
    text = "kernel void up(global int* x) { x[get_global_id(0)] += 1; }"
    shared = accelrt.empty_shared(4096, device="xpu")
    numbers = np.asarray(shared.view("int32"))
    numbers[:] = np.arange(1024)
    stream = accelrt.xpu.current_stream()
    stream.launch(accelrt.xpu.Program(text).kernel("up"), shared, global_size=1024)
    assert np.asarray(shared.view("int32")).tolist() == list(range(1, 1025))
    assert numbers[-1] == 1024, "the same memory"
    interface = shared.view("int32").__sycl_usm_array_interface__
    assert interface["data"] == (shared.data_ptr(), False)
    lent = accelrt.from_dlpack(shared.view("int32"))
    assert (lent.device, lent.data_ptr()) == (shared.device, shared.data_ptr())


@pytest.mark.parametrize(("used", "asked"), [("cpu", "xpu"), ("xpu", "cpu")])
def test_a_child_of_a_process_with_one_kind_is_refused_the_other(used: str, asked: str) -> None:
    # Goal: what the parent initialised decides, not which kind; nothing hangs. Method: the child is
    # killed by a signal if it does; the parent goes on.
    code = f"""
        import os, signal, warnings
        import accelrt
        from children import outcome

        warnings.simplefilter("ignore")  # Python 3.12 warns of forks beside threads
        accelrt.zeros(4, device="{used}").release()
        accelrt.{used}.synchronize()
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            print(outcome(lambda: accelrt.zeros(4, device="{asked}")))
            print(outcome(lambda: accelrt.Stream("{asked}")))
            print(outcome(accelrt.{asked}.synchronize))
            print(outcome(lambda: accelrt.{asked}.device_count() > 0), flush=True)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        accelrt.zeros(4, device="{asked}").copy_to(bytearray(4))
    """
    library = {name: os.environ[name] for name in ("ACCELRT_OPENCL_LIBRARY",) if name in os.environ}
    lines = output_of(code, ACCELRT_ACCELERATOR=used, **library).splitlines()
    refused = "RuntimeError: Cannot re-initialize accelrt in forked subprocess."
    assert [line.startswith(refused) for line in lines] == [True] * 3 + [False], lines
    assert lines[3] == "True"


def test_sycl_libraries_are_told_where_the_memory_is() -> None:
    buffer = zeros(24)
    view = buffer.view("float32", (2, 3))
    interface = view.__sycl_usm_array_interface__
    assert interface["data"] == (buffer.data_ptr(), False)
    assert (interface["shape"], interface["typestr"]) == ((2, 3), "<f4")
    assert (interface["version"], interface["strides"], interface["offset"]) == (1, None, 0)
    assert interface["syclobj"].startswith("opencl:")
    with pytest.raises(BufferError, match="cannot be released"):
        buffer.release()
    assert buffer.__sycl_usm_array_interface__["shape"] == (24,)
    assert not hasattr(accelrt.zeros(4, device="cpu"), "__sycl_usm_array_interface__")


@needs_a_compiler
def test_the_demo_is_right_on_the_device(tmp_path: Path) -> None:
    file = tmp_path / "content"
    file.write_bytes(bytes(range(256)) * 4000 + b"odd")
    ended = run("-m", "accelrt", "demo", str(file), "--chunk", "100003", ACCELRT_ACCELERATOR="xpu")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("device      xpu:0 (")
    assert "checked     every byte and checksum of both runs" in ended.stdout
