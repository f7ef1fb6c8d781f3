"""The plug-in of pytest: `pytest --accelrt-kind npu` tests a kind of device.

The tests stand in `accelrt._promises`: what a program may rely on whatever the kind is. Without
`--accelrt-kind` the plug-in does nothing. Files and folders of the command line are collected as
well; without any, only the promises are.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

TYPE_CHECKING = False  # not imported: every run of pytest imports this file
if TYPE_CHECKING:
    from types import ModuleType

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


def pytest_configure(config: pytest.Config) -> None:
    """Load the kind and make it the accelerator, before anything uses a device."""
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
