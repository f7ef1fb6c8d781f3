"""Goal: what an OpenCL device may refuse is a clear exception in Python, and never a crash.

Method: programs in processes of their own, over the fake OpenCL of the crate accelrt-opencl, which
is compiled here. Its device memory cannot be read by the host.
"""

import subprocess
from pathlib import Path

import pytest

from processes import output_of, run

FAKE = Path(__file__).parents[2] / "crates/accelrt-opencl/tests/fake_opencl"
FLAGS = ["-std=c11", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread"]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Compile the fake; return its path."""
    target = tmp_path_factory.mktemp("fake") / "libfake_opencl.so"
    sources = [str(path) for path in sorted(FAKE.glob("*.c")) if path.name != "self_test.c"]
    subprocess.run(["cc", *FLAGS, "-o", str(target), *sources], check=True)  # noqa: S603, S607
    return str(target)


def said(library: str, fake: str, code: str) -> str:
    """Return what code prints where the fake is the accelerator."""
    text = f"import accelrt\n{code}"
    return output_of(
        text, ACCELRT_OPENCL_LIBRARY=library, ACCELRT_ACCELERATOR="xpu", FAKE_OPENCL=fake
    )


def raised(library: str, fake: str, statement: str) -> str:
    """Return name and text of what a statement raises."""
    code = f"try:\n    {statement}\nexcept Exception as error:\n"
    return said(library, fake, f"{code}    print(type(error).__name__, error)")


def test_bytes_go_through_memory_that_the_host_cannot_read(library: str) -> None:
    code = """
buffer, stream = accelrt.zeros(16, device="xpu"), accelrt.xpu.current_stream()
buffer[4:8].fill_(7)
add = accelrt.xpu.Program("kernel void add(global int* numbers, int number) {}").kernel("add")
stream.launch(add, buffer, 1, global_size=4)
target = bytearray(16)
buffer.copy_to(target)
print(target.hex())
"""
    assert said(library, "", code) == "01000000080707070100000001000000\n"


def test_a_copy_by_dlpack_is_read_only_if_it_was_asked_to_be(library: str) -> None:
    code = """
buffer = accelrt.zeros(8, device="xpu").fill_(5)
copy = accelrt.from_dlpack(buffer, copy=True, readonly=True)
print(copy.readonly, accelrt.from_dlpack(buffer, copy=True).readonly)
print(copy.device, copy.data_ptr() != buffer.data_ptr())
target = bytearray(8)
buffer.fill_(1).copy_(copy).copy_to(target)
print(target.hex())
try:
    copy.fill_(1)
except BufferError as error:
    print(error)
"""
    lines = said(library, "", code).splitlines()
    assert lines[:3] == ["True False", "xpu:0 True", "0505050505050505"]
    assert lines[3] == "the view's 8 bytes of xpu:0 are read-only"


def test_a_build_that_fails_has_the_compilers_words(library: str) -> None:
    text = raised(library, "", "accelrt.xpu.Program('kernel void other(global int* x) {}')")
    assert text.startswith("RuntimeError")
    assert "unknown kernel 'other'" in text


def test_an_empty_program_is_a_build_failure(library: str) -> None:
    assert "no kernel in this source" in raised(library, "", "accelrt.xpu.Program('')")


@pytest.mark.parametrize(
    ("fake", "reason"),
    [
        ("platforms=0", "CL_PLATFORM_NOT_FOUND_KHR"),
        ("devices=0", "no device"),
        ("usm=0", "cl_intel_unified_shared_memory"),
        ("missing=clEnqueueMemcpyINTEL", "clEnqueueMemcpyINTEL"),
        ("fail=clGetPlatformIDs:1+:-6", "CL_OUT_OF_HOST_MEMORY"),
    ],
)
def test_no_device_is_no_error_of_a_query_and_a_reason_for_who_needs_one(
    library: str, fake: str, reason: str
) -> None:
    assert said(library, fake, "print(accelrt.xpu.device_count())") == "0\n"
    text = raised(library, fake, "accelrt.zeros(1, device='xpu')")
    assert text.startswith("RuntimeError No xpu device is available")
    assert reason in text


def test_shared_memory_is_the_hosts_and_a_device_without_it_says_so(library: str) -> None:
    code = "print(bytes(accelrt.empty_shared(4, device='xpu').fill_(7)).hex())"
    assert said(library, "", code) == "07070707\n"
    text = raised(library, "shared=0", "accelrt.empty_shared(1, device='xpu')")
    assert text == "TypeError xpu devices do not support memory that the host shares with them\n"
    for fake, expected in (("", "; memory shared"), ("shared=0", "; no memory shared")):
        ended = run("-m", "accelrt", "info", ACCELRT_OPENCL_LIBRARY=library, FAKE_OPENCL=fake)
        (device,) = [line for line in ended.stdout.splitlines() if "xpu:0" in line]
        assert expected in device


def test_too_much_memory_is_an_out_of_memory_error_with_numbers(library: str) -> None:
    for fake in ("memory=64M", "memory=64M,most_alloc=32M"):
        text = raised(library, fake, "accelrt.empty(65 << 20, device='xpu')")
        assert text.startswith("OutOfMemoryError XPU out of memory. Tried to allocate")
        assert "64.00 MiB" in text


def test_a_lost_device_is_lost_for_good_and_the_process_ends(library: str) -> None:
    code = """
for _ in range(3):
    try:
        accelrt.zeros(16, device="xpu").copy_to(bytearray(16))
        accelrt.xpu.synchronize()
    except RuntimeError as error:
        print("lost" in str(error))
"""
    ended = run(
        "-c",
        f"import accelrt\n{code}",
        ACCELRT_OPENCL_LIBRARY=library,
        ACCELRT_ACCELERATOR="xpu",
        FAKE_OPENCL="lose=after:1",
    )
    assert (ended.returncode, ended.stdout) == (0, "True\n" * 3), ended


@pytest.mark.parametrize("first", ["", "libm.so.6"])
def test_intels_runtime_is_found_in_the_environment_where_no_loader_has_a_device(
    library: str, tmp_path: Path, first: str
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libintelocl.so").symlink_to(library)
    code = f"""
import sys
sys.prefix = {str(tmp_path)!r}
import accelrt
print(accelrt.xpu.device_count(), bytes(accelrt.empty_shared(2, device="xpu").fill_(7)).hex())
"""
    # A loader of this machine finds no vendor there.
    empty = dict.fromkeys(["OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH"], str(tmp_path / "none"))
    settings = {"ACCELRT_OPENCL_LIBRARY": first, "FAKE_OPENCL": "type=cpu", **empty}
    ended = run("-c", code, **settings)
    if first:  # a library that is named is the only one
        assert ended.returncode == 1, ended
        assert "clGetPlatformIDs" in ended.stderr
    else:
        assert (ended.returncode, ended.stdout) == (0, "1 0707\n"), ended


def test_a_device_of_type_cpu_is_used_only_when_it_is_named(library: str) -> None:
    code = "import accelrt; print(accelrt.accelerator.current_accelerator())"
    for kind, expected in (("gpu", "xpu\n"), ("cpu", "cpu\n")):
        found = output_of(code, ACCELRT_OPENCL_LIBRARY=library, FAKE_OPENCL=f"type={kind}")
        assert found == expected
    code = "print(accelrt.accelerator.current_accelerator())"
    assert said(library, "type=cpu", code) == "xpu\n"
