"""The kind that the suite runs on, from `ACCELRT_TEST_KIND`: the accelerator of every test.

Two marks say what a test needs; where that is not there it is skipped with the reason:
`host_cores` for what is about the host's cores and memory, `several_devices` for three devices.
"""

import os

import pytest

import accelrt

KIND = os.environ.get("ACCELRT_TEST_KIND", "cpu")
# Torch's code of the kind; the example kind's, which `ACCELRT_KINDS` brings.
TYPE = {"cpu": 0, "xpu": 12, "npu": 64}[KIND]
os.environ.setdefault("ACCELRT_CPU_DEVICES", "3")  # before the first use; a child has its own
module = accelrt.get_device_module(KIND) if KIND == "npu" else getattr(accelrt, KIND)

needs_xpu = pytest.mark.skipif(KIND != "xpu", reason="needs ACCELRT_TEST_KIND=xpu")
only_without_xpu = pytest.mark.skipif(KIND == "xpu", reason="there is an xpu device")
needs_a_compiler = pytest.mark.skipif(
    "FAKE_OPENCL" in os.environ, reason="the fake OpenCL has kernels of its own alone"
)
host_cores = pytest.mark.host_cores
several_devices = pytest.mark.several_devices


def default_stream(index: int) -> accelrt.Stream:
    """Return the default stream of a device."""
    return accelrt.Stream(0, index, TYPE)


def bytes_of(view: accelrt.View) -> bytes:
    """Return the bytes of a view."""
    return content(accelrt.empty(view.nbytes, device=view.device).copy_(view))


def content(buffer: accelrt.Buffer) -> bytes:
    """Return the bytes of a buffer, brought by a copy: the host may not reach them."""
    target = bytearray(buffer.nbytes)
    buffer.copy_to(target)
    return bytes(target)


def why_not(item: pytest.Item) -> str | None:
    """Return why a test cannot run on this kind, if it cannot."""
    if item.get_closest_marker("host_cores") and KIND != "cpu":
        return f"about native functions or memory of the host, which {KIND} does not have"
    count = module.device_count()
    if item.get_closest_marker("several_devices") and count < 3:
        return f"needs three {KIND} devices, there are {count}"
    return None
