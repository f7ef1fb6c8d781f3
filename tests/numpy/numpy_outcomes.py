"""A pytest plugin that notes the outcome of each test, with or without accelrt's memory.

`suite.py` gives it to NumPy's own tests. Inside of the scope the arrays of the main thread come
from the host cache; what each test took from there is noted beside its outcome.
"""

import json
from collections.abc import Generator
from pathlib import Path
from typing import TextIO, cast

import pytest

import accelrt

OPTIONS = pytest.StashKey["Outcomes"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take where the outcomes go, and whether the memory is accelrt's."""
    parser.addoption("--outcomes", type=Path, required=True)
    parser.addoption("--numpy-memory", action="store_true")


def pytest_configure(config: pytest.Config) -> None:
    """Enter the scope before NumPy's tests are imported: some make arrays then."""
    config.stash[OPTIONS] = outcomes = Outcomes(config.getoption("outcomes"))
    config.pluginmanager.register(outcomes)
    if config.getoption("numpy_memory"):
        accelrt.numpy_memory().__enter__()


class Outcomes:
    """A line of JSON for each test: its name, how it ended, how many arrays were the cache's."""

    def __init__(self, path: Path) -> None:
        """Begin the file."""
        self.file: TextIO = path.open("w", encoding="utf-8")
        self.phases: dict[str, str] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Run a test, and note what came of it."""
        self.phases, before = {}, requests()
        result = yield
        line = {"test": item.nodeid, "phases": self.phases, "requests": requests() - before}
        self.file.write(json.dumps(line) + "\n")
        self.file.flush()  # also when a test ends the process
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a phase: an expected failure is one of its own."""
        expected = " as expected" if hasattr(report, "wasxfail") else ""
        self.phases[report.when or ""] = report.outcome + expected


def requests() -> int:
    """Return how often memory was taken from the host cache."""
    return cast("int", accelrt.accelerator.host_memory_stats()["active_requests.allocated"])
