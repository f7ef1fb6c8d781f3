"""Goal: a device that goes away is lost for good on a real driver too, and nobody waits for it.

Method: a small library in C (`lost_opencl.c`, compiled here) stands between accelrt and the loader
of this machine; from a call on it answers as a driver does whose device is gone. The device is
idle then: it goes on in truth, and memory of a lost device is given back at once. The fake OpenCL
shows the losses of a busy device (`tests/xpu_fake/loss.rs`).
"""

import ctypes.util
import os
import subprocess
from pathlib import Path

import pytest

from kinds import needs_a_compiler, needs_xpu
from processes import run

pytestmark = [needs_xpu, needs_a_compiler]

SOURCE = Path(__file__).with_name("lost_opencl.c")

BEGIN = """
import ctypes, os, threading
import accelrt

def told(call):
    try:
        call()
    except accelrt.DeviceLost as error:
        assert "xpu:0 is lost" in str(error), error
        return "lost"
    except accelrt.StreamError as error:
        assert "xpu:0 is lost" in str(error), error
        return "lost"
    return "went on"

stream, event = accelrt.Stream("xpu:0"), accelrt.Event()
buffer = accelrt.zeros(1 << 20, device="xpu:0")
shared = accelrt.empty_shared(1 << 20, device="xpu:0").fill_(7)
stream.record_event(event)
accelrt.xpu.synchronize()
lose = ctypes.CDLL(os.environ["ACCELRT_OPENCL_LIBRARY"]).lose
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Compile the library that loses the device; return its path."""
    loader = os.environ.get("ACCELRT_OPENCL_LIBRARY") or ctypes.util.find_library("OpenCL")
    assert loader is not None, "the tests of xpu run where there is a loader"
    link = loader if "/" in loader else f"-l:{loader}"
    target = tmp_path_factory.mktemp("lost") / "liblost_opencl.so"
    flags = ["-std=c11", "-O1", "-shared", "-fPIC", "-Wl,--no-as-needed"]
    subprocess.run(["cc", *flags, "-o", str(target), str(SOURCE), link], check=True)  # noqa: S603, S607
    return str(target)


def said(library: str, code: str) -> list[str]:
    """Return the lines that code prints on the device that can be lost; it must exit well.

    What failed is told once more at the exit where no synchronise could end it.
    """
    settings = {"ACCELRT_OPENCL_LIBRARY": library, "ACCELRT_ACCELERATOR": "xpu"}
    ended = run("-c", BEGIN + code, **settings)
    assert ended.returncode == 0, ended
    others = [line for line in ended.stderr.splitlines() if "xpu:0 is lost" not in line]
    assert others == [], ended
    return ended.stdout.splitlines()


def test_the_library_changes_nothing_before_the_loss(library: str) -> None:
    code = "print(told(accelrt.xpu.synchronize), bytes(shared[:2]), buffer.nbytes)"
    assert said(library, code) == ["went on b'\\x07\\x07' 1048576"]


def test_everything_that_needs_a_lost_device_raises_for_good(library: str) -> None:
    code = """
lose()
calls = [
    lambda: buffer.copy_to(bytearray(1 << 20)),
    stream.synchronize,
    accelrt.xpu.synchronize,
    lambda: accelrt.empty(64 << 20, device="xpu:0"),
    lambda: accelrt.empty_shared(64 << 20, device="xpu:0"),
    lambda: accelrt.Stream("xpu:0", dedicated=True),
    lambda: (stream.record_event(), stream.synchronize()),
]
for _ in range(3):
    print(*(told(call) for call in calls))
"""
    assert said(library, code) == [" ".join(["lost"] * 7)] * 3


def test_memory_goes_and_the_process_exits_while_the_device_is_lost(library: str) -> None:
    code = """
event.synchronize()  # it was done before
lose()
told(lambda: buffer.copy_to(bytearray(1 << 20)))
told(accelrt.xpu.synchronize)
print(told(buffer.release), told(shared.release), told(accelrt.xpu.empty_cache))
thread = threading.Thread(target=lambda: print(told(accelrt.xpu.synchronize)))
thread.start()
thread.join()
print(bytes(accelrt.zeros(2, device="cpu")), "the cpu goes on")
"""
    assert said(library, code) == [
        "went on went on went on",
        "lost",
        "b'\\x00\\x00' the cpu goes on",
    ]
