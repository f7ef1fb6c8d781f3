"""Functions of C that a program calls from Python: their callers' lines.

Goal: what an extension does by the table of functions has the program's line, in a history of
memory and in what the sanitizer finds, although it has not the GIL. Method: ctypes calls the
module's functions, as an extension would, without the GIL.
"""

import ctypes
from collections.abc import Iterator

import pytest

import accelrt
from accelrt import _core
from kinds import default_stream

CPU = 0


class _Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("index", ctypes.c_int32))


class _Range(ctypes.Structure):
    _fields_ = (
        ("address", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("access", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    )


class _Description(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("ranges", ctypes.POINTER(_Range)),
        ("range_count", ctypes.c_size_t),
    )


WRITES = 2


@pytest.fixture
def library() -> Iterator[ctypes.CDLL]:
    loaded = ctypes.CDLL(_core.__file__)
    yield loaded
    accelrt.cpu.synchronize()


def _create(library: ctypes.CDLL, size: int) -> ctypes.c_void_p:
    buffer = ctypes.c_void_p()
    device = _Device(CPU, 0)
    assert library.accelrt_buffer_create(device, ctypes.c_size_t(size), ctypes.byref(buffer)) == 0
    return buffer


def test_a_buffer_has_the_line_of_its_caller_in_a_history(library: ctypes.CDLL) -> None:
    accelrt.cpu.record_memory_history()
    try:
        buffer = _create(library, 3 << 20)
        blocks = [
            block
            for segment in accelrt.cpu.memory_snapshot()
            for block in segment["blocks"]
            if block["state"] == "active_allocated" and block["size"] >= 3 << 20
        ]
        assert library.accelrt_buffer_destroy(buffer) == 0
        traces = accelrt.cpu.take_memory_snapshot()["device_traces"][0]
    finally:
        accelrt.cpu.record_memory_history(None)
    assert [block["frames"][0]["filename"] for block in blocks] == [__file__]
    assert blocks[0]["frames"][0]["name"] == "_create"
    freed = [entry for entry in traces if entry["action"].startswith("free")]
    assert freed[0]["frames"][0]["filename"] == __file__


@pytest.mark.accelrt_unordered
def test_a_task_has_the_line_of_its_caller_in_a_finding(library: ctypes.CDLL) -> None:
    function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)
    task = function(lambda _data, _text, _capacity: 0)
    streams = [accelrt.Stream(device="cpu") for _ in range(2)]
    with accelrt.sanitizer.watch() as report:
        buffer = accelrt.zeros(64, device="cpu")
        used = _Range(buffer.data_ptr(), 64, WRITES, 0)
        size = ctypes.sizeof(_Description)
        description = _Description(size, b"write", ctypes.pointer(used), 1)
        accelrt.cpu.synchronize()
        for stream in streams:
            handle = ctypes.c_void_p()
            device, number = _Device(CPU, 0), ctypes.c_uint64(stream.stream_id)
            assert library.accelrt_stream_find(device, number, ctypes.byref(handle)) == 0
            status = library.accelrt_stream_launch_described(
                handle, task, None, None, ctypes.byref(description)
            )
            assert status == 0
        accelrt.cpu.synchronize()
    (finding,) = report.findings
    assert finding.first is not None
    assert (finding.first.name, finding.second.name) == ("write", "write")
    assert {finding.first.file, finding.second.file} == {__file__}
    assert finding.first.line == finding.second.line > 0
    assert finding.second.thread == "MainThread"


def _destroy(library: ctypes.CDLL, buffer: ctypes.c_void_p) -> None:
    assert library.accelrt_buffer_destroy(buffer) == 0


@pytest.mark.accelrt_unordered
@pytest.mark.parametrize("has_history", [False, True])
def test_free_in_a_finding_has_its_callers_line(library: ctypes.CDLL, *, has_history: bool) -> None:
    memset = ctypes.CDLL(None).memset
    memset.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
    if has_history:
        accelrt.cpu.record_memory_history()
    try:
        with accelrt.sanitizer.watch() as report:
            buffer = _create(library, 64)
            address = ctypes.c_uint64()
            assert library.accelrt_buffer_get_address(buffer, ctypes.byref(address)) == 0
            _destroy(library, buffer)
            default_stream(0).launch(memset, address.value, 0, 64)
            accelrt.cpu.synchronize()
    finally:
        accelrt.cpu.record_memory_history(None)
    (finding,) = report.findings
    assert finding.kind == "use-after-free"
    assert finding.first is not None
    assert (finding.first.name, finding.first.file) == ("free", __file__)
    assert finding.first.line == _destroy.__code__.co_firstlineno + 1
