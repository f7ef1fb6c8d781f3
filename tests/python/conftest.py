"""Three cpu devices for every test, and each test starts with device 0 and default streams.

`ACCELRT_TEST_KIND` names another kind, which is the accelerator then; it must be there.

The runtime reads its settings at the first call, not at the import, so setting them here is early
enough. Tests that are about settings, forks or exits start processes of their own.
"""

import asyncio
import faulthandler
import os
import signal
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import settings

import accelrt
import seeds
from kinds import KIND, default_stream, module, why_not
from loops import LOOPS, Run

KEPT = (
    *("ACCELRT_TEST_KIND", "ACCELRT_TEST_TRACES", "ACCELRT_TEST_SNAPSHOTS"),
    *("ACCELRT_OPENCL_LIBRARY", "ACCELRT_KINDS"),
)
for name in [name for name in os.environ if name.startswith("ACCELRT_")]:
    if name not in KEPT:
        del os.environ[name]
os.environ["ACCELRT_CPU_DEVICES"] = "3"
if KIND != "cpu":
    os.environ["ACCELRT_ACCELERATOR"] = KIND

# Read by type checkers, never run.
collect_ignore = ["typed_uses.py"]

# A shell has what it runs in the background ignore SIGINT, and what that starts: tests of Ctrl-C,
# and their processes, would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No test depends on a clock; what fails prints how to repeat it.
settings.register_profile("accelrt", deadline=None, print_blob=True)
settings.load_profile("accelrt")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Assert the kind, and say which device the tests run on."""
    if config.getoption("accelrt_kind", None) is not None:
        return []  # the plug-in's tests, on a kind that it says itself
    found = accelrt.accelerator.current_accelerator()
    assert found == accelrt.device(KIND), f"the accelerator is {found}, not {KIND}"
    count, name = module.device_count(), module.get_device_name(0)
    return [f"accelerator: {KIND}, {count} devices, {name}", f"TEST_SEED={seeds.SEED}"]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what the kind cannot run; start the watchdog of a longer test anew, with its time."""
    if longer := item.get_closest_marker("longer"):
        errors = item.config.stash[fault_handler_stderr_fd_key]
        faulthandler.dump_traceback_later(longer.args[0], file=errors, exit=True)
    if reason := why_not(item):
        pytest.skip(reason)


@pytest.fixture(autouse=True)
def fresh_current_state() -> Iterator[None]:
    """Start and end with what a new thread has."""
    reset()
    yield
    reset()


@pytest.fixture(params=LOOPS, name="run")
def run_on_a_loop(request: pytest.FixtureRequest) -> Run:
    """Run a coroutine on a loop of asyncio, and on one of uvloop."""

    def run(main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(main)

    return run


def reset() -> None:
    """Make device 0 current, and the default stream of each device."""
    for index in reversed(range(accelrt.cpu.device_count())):
        accelrt.cpu.set_stream(accelrt.Stream(0, index, 0))
    for index in reversed(range(module.device_count())):
        module.set_stream(default_stream(index))


@pytest.fixture
def no_history() -> Iterator[None]:
    """Start and end without a history of memory."""
    accelrt.accelerator.record_memory_history(None)
    yield
    accelrt.accelerator.record_memory_history(None)


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Say where long bytes differ: the comparison pytest makes in CI takes minutes."""
    if op != "==" or not (isinstance(left, bytes | bytearray) and isinstance(right, bytes)):
        return None
    if len(left) != len(right) or len(left) < 4096:
        return None
    place = next(place for place in range(len(left)) if left[place] != right[place])
    return [f"byte {place} of {len(left)} is {left[place]}, not {right[place]}"]
