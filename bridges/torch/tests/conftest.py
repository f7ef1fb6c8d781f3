"""Four devices for every test, each with what the test before has left: nothing."""

import os

# Before the runtime's first use, which `import torch` is not.
os.environ.setdefault("ACCELRT_CPU_DEVICES", "4")

from collections.abc import Iterator

import pytest
import torch

import accelrt.testing  # noqa: F401 - before the first use of a device, for its schedules


@pytest.fixture(autouse=True)
def _a_quiet_device() -> Iterator[None]:
    """Begin with no waits noted, and end with an error of a stream that no test has expected."""
    torch.accelrt.clear_sync_report()
    torch.accelerator.set_device_index(0)
    yield
    for index in range(torch.accelerator.device_count()):
        torch.accelerator.synchronize(index)
    torch.accelerator.set_device_index(0)


@pytest.fixture
def seed() -> int:
    """Return a seed, which repeats the test: SEED=… in the environment sets it."""
    chosen = int(os.environ.get("SEED", "0")) or int.from_bytes(os.urandom(4))
    print(f"SEED={chosen} repeats this test")  # noqa: T201 - pytest shows it when the test fails
    torch.manual_seed(chosen)
    return chosen
