"""The real oneMKL and oneDNN, which `make peers` installs.

Without them a test is skipped and says so, unless `TEST_NEEDS_MATH` is set, as `.ci/run` does: then
it fails.
"""

import ctypes
import os
from pathlib import Path

import pytest

MATH = Path(__file__).parents[2] / ".venv-math"


def missing(what: str) -> str:
    """Skip, or fail where nothing may be missing."""
    message = f"{what} is not installed: make peers does that"
    if os.environ.get("TEST_NEEDS_MATH"):
        pytest.fail(message)
    pytest.skip(message)


def of_wheel(pattern: str) -> str:
    """Return a library that a wheel brought."""
    found = sorted(MATH.glob(f"lib/{pattern}"))
    return str(found[-1]) if found else missing(pattern)


def of_system(name: str) -> str:
    """Return a library that the loader finds."""
    try:
        ctypes.CDLL(name)
    except OSError:
        return missing(name)
    return name


def mkl() -> str:
    return of_wheel("libmkl_rt.so.?")


def onednn_3() -> str:
    return of_wheel("libdnnl.so.3")


def onednn_2() -> str:
    return of_system("libdnnl.so.2")
