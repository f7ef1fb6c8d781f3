"""`python -m accelrt info`: the available kinds and libraries, and why others are missing."""

import os
import platform
import sys

import accelrt
from accelrt import _core
from accelrt.cli.terminal import Style

_IGNORED = "ignored: no setting has this name"


def run() -> int:
    """Print the findings; return the exit status."""
    style = Style.of(sys.stdout)
    lines = [
        style.bold(f"accelrt {accelrt.__version__}"),
        f"Python {platform.python_version()} on {platform.platform()}",
        f"accelerator: {style.bold(_accelerator())}",
        "",
        style.bold("devices"),
        *(line for kind in _core.kind_names() for line in _devices(kind, style)),
        "",
        style.bold("settings"),
        *(_setting(name, value, style) for name, value in _core.settings().items()),
        *(style.doubtful(f"  {name:<22} {_IGNORED}") for name in _unknown_settings()),
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _accelerator() -> str:
    try:
        return str(_core.current_accelerator())
    except RuntimeError as error:  # a kind that was named is missing
        return f"none: {error}"


def _devices(kind: str, style: Style) -> list[str]:
    reason = _core.unavailable_reason(kind)
    if reason is not None:
        return [style.faint(f"  {kind:<7} none: {reason}")]
    used = [_device(kind, index, style) for index in range(_core.device_count(kind))]
    unused = (f"{name}: {reason}" for name, reason in _core.left_out_devices(kind))
    return used + [style.doubtful(f"  {kind:<7} not used: {why}") for why in unused]


def _setting(name: str, value: str | int | None, style: Style) -> str:
    shown = _shown(name, value)
    if "default" not in shown and not os.environ.get(name):
        shown += " (default)"
    return f"  {name:<22} {style.faint(shown) if 'default' in shown else shown}"


def _device(kind: str, index: int, style: Style) -> str:
    known = _core.get_device_properties(kind, index)
    free_bytes, total_bytes = _core.get_memory_info(kind, index)
    caches = ", ".join(f"{size >> 10} KiB" for size in known.cache_bytes)
    huge = f"{known.huge_page_bytes >> 10} KiB" if known.huge_page_bytes else "none"
    return (
        f"  {style.good(f'{kind}:{index:<3}')} {known.name}; {known.core_count} cores; "
        f"{_size(free_bytes)} of {_size(total_bytes)} free; "
        f"caches {caches or 'unknown'}; pages {known.page_bytes >> 10} KiB, huge {huge}; "
        f"{'' if known.has_shared_memory else 'no '}memory shared with the host"
    )


def _size(size_bytes: int) -> str:
    """Return a size in the largest unit that it has a tenth of."""
    units = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
    for unit_bytes, unit in units:
        if size_bytes * 10 >= unit_bytes:
            return f"{size_bytes / unit_bytes:.1f} {unit}"
    return f"{size_bytes} B"


def _shown(name: str, value: str | int | None) -> str:
    if value not in (None, ""):
        return str(value)
    if name == "ACCELRT_ALLOC_CONF":
        return "policy:native (default)"
    if name == "ACCELRT_CPU_MEMORY":
        return f"{_core.get_memory_info('cpu', 0)[1]} (default)"
    if name == "ACCELRT_CPU_THREADS":
        cores = _core.get_device_properties("cpu", 0).core_count
        return f"{max(2, cores // _core.device_count('cpu'))} (default)"
    return "default"


def _unknown_settings() -> list[str]:
    """Return the unknown variables with accelrt's prefix, such as misspelt ones."""
    known = _core.settings()
    given = [name for name in os.environ if name.startswith("ACCELRT_")]
    return sorted(name for name in given if name not in known and "_TEST_" not in name)
