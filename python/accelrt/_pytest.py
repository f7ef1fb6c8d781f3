"""The plug-in of pytest, for tests of kinds of device and of programs.

`pytest --accelrt-kind npu` tests a kind. The tests stand in `accelrt._promises`: what a program may
rely on whatever the kind is. Files and folders of the command line are collected as well; without
any, only the promises are. `--accelrt-schedules 20` runs each test under 20 schedules of the cpu
devices, `--accelrt-sanitize` fails those whose uses of memory nothing orders, and the fixture
`accelrt_faults` lets calls of devices fail. Without these the plug-in does nothing.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType

import pytest

TYPE_CHECKING = False  # not imported: every run of pytest imports this file
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from accelrt.sanitizer import Report
    from accelrt.testing import faults

STRATEGIES = ("random", "pct", "starve", "invert")
UNORDERED = "accelrt_unordered: what the test does is not ordered, which --accelrt-sanitize allows"
PROMISES = Path(__file__).with_name("_promises.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("accelrt", "kinds of device for accelrt")
    group.addoption(
        "--accelrt-kind",
        metavar="KIND",
        help="test what accelrt promises of every kind of device, on this kind",
    )
    group.addoption(
        "--accelrt-library",
        metavar="FILE",
        help="load the kind from this library first, as accelrt.load_kind and ACCELRT_KINDS do",
    )
    group.addoption(
        "--accelrt-schedules",
        metavar="N",
        type=int,
        default=0,
        help="run each test under N schedules of the cpu devices, as accelrt.testing.schedule",
    )
    group.addoption(
        "--accelrt-sanitize",
        action="store_true",
        help="fail each test in which accelrt.sanitizer finds something, but those with the mark"
        " accelrt_unordered",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Load the kind and make it the accelerator, before anything uses a device; add schedules."""
    config.addinivalue_line("markers", UNORDERED)
    if config.getoption("--accelrt-sanitize"):
        config.pluginmanager.register(Sanitized())
    count = config.getoption("--accelrt-schedules")
    if count < 0:
        message = f"--accelrt-schedules must be at least 0, not {count}"
        raise pytest.UsageError(message)
    if count > 0:
        config.pluginmanager.register(schedules(count))
    kind, library = config.getoption("--accelrt-kind"), config.getoption("--accelrt-library")
    if kind is None:
        if library is not None:
            message = "--accelrt-library needs --accelrt-kind"
            raise pytest.UsageError(message)
        return
    os.environ["ACCELRT_ACCELERATOR"] = kind
    module_of(kind, library)
    is_asked_for_more = config.args_source is pytest.Config.ArgsSource.ARGS
    config.args = [*(config.args if is_asked_for_more else []), str(PROMISES)]


def module_of(kind: str, library: str | None) -> ModuleType:
    """Return the module of the kind; what is wrong with it is a wrong use of pytest."""
    import accelrt  # noqa: PLC0415  not where no kind is tested

    try:
        if library is not None:
            name = accelrt.load_kind(library)
            if name != kind:
                message = f"{library} brings the kind {name}, not {kind}"
                raise pytest.UsageError(message)
        return accelrt.get_device_module(kind)
    except (RuntimeError, TypeError, ValueError) as error:
        message = f"--accelrt-kind {kind}: {error}"
        raise pytest.UsageError(message) from error


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say which device the promises are tested on."""
    kind = config.getoption("--accelrt-kind")
    if kind is None:
        return []
    module = module_of(kind, None)
    names = {module.get_device_name(index) for index in range(module.device_count())}
    return [f"accelrt kind: {kind}, {module.device_count()} devices: {', '.join(sorted(names))}"]


@pytest.fixture(scope="session")
def accelrt_kind(request: pytest.FixtureRequest) -> ModuleType:
    """Return the module of the kind that is tested, as `accelrt.cpu`."""
    kind = request.config.getoption("--accelrt-kind")
    if kind is None:
        pytest.skip("needs --accelrt-kind")
    return module_of(kind, None)


def schedules(count: int) -> ModuleType:
    """Return a plug-in with a fixture of every test: one schedule after the other.

    Tests of `unittest` take no parameters: they run once, without a schedule.
    """
    params = [(seed, STRATEGIES[seed % len(STRATEGIES)]) for seed in range(count)]
    names = [f"{name}-{seed}" for seed, name in params]

    def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
        metafunc.parametrize("accelrt_schedule", params, ids=names, indirect=True)

    @pytest.fixture(autouse=True)
    def accelrt_schedule(request: pytest.FixtureRequest) -> Iterator[None]:
        from accelrt import testing  # noqa: PLC0415  not where no schedule is asked for

        if not hasattr(request, "param"):
            yield
            return
        seed, strategy = request.param
        with testing.schedule(seed, strategy=strategy):
            yield

    plug_in = ModuleType("accelrt_schedules")
    vars(plug_in).update(
        accelrt_schedule=accelrt_schedule, pytest_generate_tests=pytest_generate_tests
    )
    return plug_in


class Sanitized:
    """A plug-in that watches the order of each test's uses of memory, those of fixtures too."""

    def __init__(self) -> None:
        """Know of no test."""
        self._report: Report | None = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Watch the test and its fixtures."""
        from accelrt import sanitizer  # noqa: PLC0415  not where nothing is watched

        if item.get_closest_marker("accelrt_unordered") is not None:
            return (yield)
        with sanitizer.watch() as report:
            self._report = report
            try:
                return (yield)
            finally:
                self._report = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Fail the test when something was found; add it to what else has failed."""
        try:
            result = yield
        except BaseException:
            if self._findings() > 0:
                item.add_report_section("call", "accelrt sanitizer", str(self._report))
            raise
        self._tell(0)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Generator[None, object, object]:
        """Fail when its fixtures have made new findings behind the test."""
        num_told = self._findings()
        result = yield
        self._tell(num_told)
        return result

    def _findings(self) -> int:
        return 0 if self._report is None else len(self._report.findings)

    def _tell(self, num_told: int) -> None:
        if self._findings() > num_told:
            pytest.fail(str(self._report), pytrace=False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Prepare for faults before anything uses a device."""
    if any("accelrt_faults" in getattr(item, "fixturenames", ()) for item in items):
        import accelrt.testing  # noqa: F401, PLC0415  the import prepares


@pytest.fixture
def accelrt_faults() -> Iterator[Callable[[str], faults]]:
    """Return a function that puts a plan of `accelrt.testing.faults` in force until the end."""
    from accelrt import testing  # noqa: PLC0415  not where no test asks for it

    with ExitStack() as plans:
        yield lambda plan: plans.enter_context(testing.faults(plan))
