"""Three cpu devices for every test, and each test starts with device 0 and default streams.

`ACCELRT_TEST_KIND` names another kind, which is the accelerator then; it must be there.

The runtime reads its settings at the first call, not at the import, so setting them here is early
enough. Tests that are about settings, forks or exits start processes of their own.
"""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from kinds import KIND

for name in [name for name in os.environ if name.startswith("ACCELRT_")]:
    if name not in ("ACCELRT_TEST_KIND", "ACCELRT_OPENCL_LIBRARY"):
        del os.environ[name]
os.environ["ACCELRT_CPU_DEVICES"] = "3"
if KIND != "cpu":
    os.environ["ACCELRT_ACCELERATOR"] = KIND

import accelrt  # noqa: E402  after the settings

# No test depends on a clock; what fails prints how to repeat it.
settings.register_profile("accelrt", deadline=None, print_blob=True)
settings.load_profile("accelrt")


def pytest_report_header() -> list[str]:
    """Assert the kind, and say which device the tests run on."""
    found = accelrt.accelerator.current_accelerator()
    assert found == accelrt.device(KIND), f"the accelerator is {found}, not {KIND}"
    return [f"accelerator: {KIND}, {accelrt.get_device_module(KIND).get_device_name(0)}"]


@pytest.fixture(autouse=True)
def fresh_current_state() -> Iterator[None]:
    """Start and end with what a new thread has."""
    reset()
    yield
    reset()


def reset() -> None:
    """Make device 0 current, and the default stream of each device."""
    for index in reversed(range(accelrt.cpu.device_count())):
        accelrt.cpu.set_stream(accelrt.Stream(0, index, 0))
    if KIND == "xpu":
        for index in reversed(range(accelrt.xpu.device_count())):
            accelrt.xpu.set_stream(accelrt.Stream(0, index, 12))
