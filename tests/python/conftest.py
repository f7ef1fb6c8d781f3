"""Three cpu devices for every test, and each test starts with device 0 and default streams.

The runtime reads its settings at the first call, not at the import, so setting them here is early
enough. Tests that are about settings, forks or exits start processes of their own.
"""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

for name in [name for name in os.environ if name.startswith("ACCELRT_")]:
    del os.environ[name]
os.environ["ACCELRT_CPU_DEVICES"] = "3"

import accelrt  # noqa: E402  after the settings

# No test depends on a clock; what fails prints how to repeat it.
settings.register_profile("accelrt", deadline=None, print_blob=True)
settings.load_profile("accelrt")


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
