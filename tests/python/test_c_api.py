"""The capsule of the C interface: its table is that of the header, over this process's runtime.

Goal: an extension module needs no library of accelrt beside Python's. Method: C code includes the
header with the capsule's table in place of the functions, and works on streams and buffers that
Python has made; a second copy of the library in a process is one that ctypes loads.
"""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

import accelrt
from accelrt import _core
from processes import run

INCLUDE = Path(__file__).parents[2] / "include"

SOURCE = r"""
static const void *table_address;
#define ACCELRT_TABLE ((const accelrt_table *)table_address)
#include <accelrt.h>
#include <string.h>

const char *begin(const void *table)
{
    table_address = table;
    if (ACCELRT_TABLE->abi != ACCELRT_ABI_VERSION || ACCELRT_TABLE->size != sizeof(accelrt_table))
        return "another table";
    return ACCELRT_TABLE_HAS(ACCELRT_TABLE, stream_launch) ? accelrt_version() : "no launch";
}

static int32_t invert(void *data, char *error_text, size_t error_capacity)
{
    unsigned char *byte = data;
    if (*byte == 0xff)
        strncpy(error_text, "it is inverted", error_capacity);
    return *byte == 0xff ? 1 : (*byte = ~*byte, 0);
}

int launch(uint64_t id, uint64_t address)
{
    accelrt_device device = {ACCELRT_CPU, 0};
    accelrt_stream *stream;
    accelrt_status status = accelrt_stream_find(device, id, &stream);
    if (status)
        return status;
    status = accelrt_stream_launch(stream, invert, (void *)(uintptr_t)address, NULL, NULL, 0);
    accelrt_stream_destroy(stream);
    return status;
}

int look(uint64_t id)
{
    accelrt_device device = {ACCELRT_CPU, 0};
    accelrt_stream *stream;
    accelrt_stream_info info = {.size = sizeof info};
    int status = accelrt_stream_find(device, id, &stream);
    if (status || (status = accelrt_stream_get_info(stream, &info)))
        return -status;
    accelrt_stream_destroy(stream);
    return info.is_quiet;
}

const char *last_error(void)
{
    return accelrt_error_text();
}
"""


@pytest.fixture(scope="module")
def extension(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("c_api")
    source, library = folder / "extension.c", folder / "extension.so"
    source.write_text(SOURCE)
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-shared", "-fPIC"]
    command = ["cc", *flags, "-I", str(INCLUDE), "-o", str(library), str(source)]
    subprocess.run(command, check=True)  # noqa: S603  the compiler of the house
    loaded = ctypes.CDLL(str(library))
    loaded.begin.restype = loaded.last_error.restype = ctypes.c_char_p
    loaded.begin.argtypes = [ctypes.c_void_p]
    loaded.launch.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
    loaded.look.argtypes = [ctypes.c_uint64]
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = pointer_of(_core._C_API, b"accelrt._core._C_API")
    assert loaded.begin(table) == accelrt.__version__.encode()
    return loaded


@pytest.mark.host_cores
def test_c_code_works_on_streams_and_memory_of_python(extension: ctypes.CDLL) -> None:
    stream, buffer = accelrt.Stream(dedicated=True), accelrt.zeros(1)
    stream.wait_stream(accelrt.accelerator.current_stream())
    assert extension.launch(stream.stream_id, buffer.data_ptr()) == 0
    stream.synchronize()
    assert bytes(memoryview(buffer)) == b"\xff"
    assert extension.launch(stream.stream_id, buffer.data_ptr()) == 0
    with pytest.raises(accelrt.StreamError, match="it is inverted"):
        stream.synchronize()
    assert extension.launch(10**9, 0) == 9, "ACCELRT_STATUS_NOT_FOUND"
    assert b"1000000000" in extension.last_error()


@pytest.mark.host_cores
@pytest.mark.accelrt_unordered
def test_a_look_at_a_stream_is_no_wait_for_the_sanitizer(extension: ctypes.CDLL) -> None:
    # What creates a stream's wrapper asks for its numbers, and has waited for nothing.
    first, second, buffer = accelrt.Stream(dedicated=True), accelrt.Stream(), accelrt.zeros(64)
    accelrt.accelerator.synchronize()
    with accelrt.sanitizer.watch() as report:
        with first:
            buffer.fill_(1)
        while not extension.look(first.stream_id):
            pass
        with second:
            buffer.fill_(2)
    assert [finding.kind for finding in report.findings] == ["race"]
    accelrt.accelerator.synchronize()


def test_a_second_runtime_in_the_process_is_told_of_once(tmp_path: Path) -> None:
    copy = shutil.copy(_core.__file__, tmp_path / "libaccelrt_copy.so")
    code = f"""
import ctypes
import accelrt
copy = ctypes.CDLL({str(copy)!r})
accelrt.accelerator.device_count()
print([copy.accelrt_runtime_begin() for _ in range(2)])
"""
    ended = run("-c", code)
    assert (ended.returncode, ended.stdout) == (0, "[0, 0]\n"), ended
    assert ended.stderr.count("\n") == 1
    assert ended.stderr.startswith("accelrt: another copy of accelrt has a runtime")
