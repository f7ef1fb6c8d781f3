"""Four devices for every test, each with what the test before has left: nothing."""

import faulthandler
import os

# Before the runtime's first use, which `import torch` is not.
os.environ.setdefault("ACCELRT_CPU_DEVICES", "4")

from collections.abc import Iterator

import pytest
import torch
from _pytest.faulthandler import fault_handler_stderr_fd_key

import accelrt.testing  # noqa: F401 - before the first use of a device, for its schedules


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start the watchdog of a longer test anew, with its time."""
    if longer := item.get_closest_marker("longer"):
        errors = item.config.stash[fault_handler_stderr_fd_key]
        faulthandler.dump_traceback_later(longer.args[0], file=errors, exit=True)


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
