"""The machine: what its figures depend on, and nothing that names it."""

import os
import platform
from pathlib import Path

_CLOCK_SOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
_PROCESSORS = Path("/proc/cpuinfo")


def clock_source() -> str:
    """Return what the kernel keeps time by."""
    return _CLOCK_SOURCE.read_text().strip() if _CLOCK_SOURCE.is_file() else "unknown"


def facts(**more: str) -> str:
    """Return processors, system and versions in one line."""
    known = {
        "cpu": _model(),
        "cpus": str(len(os.sched_getaffinity(0))),
        "kernel": platform.release(),
        "clock": clock_source(),
        "Python": platform.python_version(),
        **more,
    }
    return "; ".join(f"{name} {fact}" for name, fact in known.items())


def _model() -> str:
    lines = _PROCESSORS.read_text().splitlines() if _PROCESSORS.is_file() else []
    models = (line.partition(": ")[2] for line in lines if line.startswith("model name"))
    return next(models, platform.machine())
