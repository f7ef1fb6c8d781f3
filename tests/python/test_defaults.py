"""Goal: what is not given is the documented default: of functions, and of the command line.

Method: all public functions in Python with a default other than None, and whole namespaces.
"""

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from accelrt import cli

MODULES = (
    *("accelrt", "accelrt.accelerator", "accelrt.accelerator.memory", "accelrt.profiler"),
    *("accelrt.sanitizer", "accelrt.testing", "accelrt.backends.mkl", "accelrt.backends.mkldnn"),
    "accelrt.dask",
)
DEFAULTS = """\
accelrt.MemoryReport.table(row_limit=20)
accelrt.fork_rng(enabled=True)
accelrt.host_access(writes=True)
accelrt.inference_mode(mode=True)
accelrt.verbose(capture=False)
accelrt.accelerator.MemPool(use_on_oom=False, no_split=False)
accelrt.accelerator.current_accelerator(check_available=False)
accelrt.accelerator.index_of(optional=True)
accelrt.accelerator.memory.Memory.dump_snapshot(path='dump_snapshot.pickle')
accelrt.accelerator.memory.Memory.memory_summary(abbreviated=False)
accelrt.accelerator.memory.Memory.record_memory_history(enabled='all', context='all', \
stacks='all', max_entries=100000, clear_history=False, compile_context=False, \
global_record_annotations=False, max_frames=32)
accelrt.profiler.KeyAverages.table(row_limit=100)
accelrt.profiler.profile(verbose=False, profile_memory=False)
accelrt.profiler.profile.longest_waits(count=10)
accelrt.sanitizer.Report(suppress=())
accelrt.sanitizer.watch(suppress=(), action='report')
accelrt.testing.each_fault(call='any')
accelrt.testing.schedule(strategy='random', depth=3, steps=1000)
accelrt.backends.mkl.verbose(capture=False)
accelrt.backends.mkldnn.verbose(capture=False)
accelrt.dask.DeviceStore(max_spill=False)
accelrt.dask.DeviceStore.during(is_sent=False)
accelrt.dask.LocalCluster(threads_per_worker=1)
accelrt.dask.profile(memory_history=False)
"""


def functions(owner: object, prefix: str) -> Iterator[tuple[str, object]]:
    """Yield the functions in Python of a module or a class, with their names."""
    if inspect.ismodule(owner):
        for name in dir(owner):
            getattr(owner, name)  # what is loaded at its first use
    for name, value in sorted(vars(owner).items()):
        if not str(getattr(value, "__module__", "")).startswith("accelrt"):
            continue
        if inspect.isclass(value) and not name.startswith("_"):
            yield from functions(value, f"{prefix}.{name}")
        elif inspect.isfunction(value) and name == "__init__":
            yield prefix, value
        elif inspect.isfunction(value) and not name.startswith("_"):
            yield f"{prefix}.{name}", value


def test_defaults_of_functions() -> None:
    pytest.importorskip("distributed")
    lines = dict[object, str]()
    for name in MODULES:
        for called, function in functions(importlib.import_module(name), name):
            parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
            given = [it for it in parameters if it.default not in {inspect.Parameter.empty, None}]
            texts = ", ".join(f"{it.name}={it.default!r}" for it in given)
            if texts:
                lines.setdefault(function, f"{called}({texts})")
    assert list(lines.values()) == DEFAULTS.splitlines()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("info", {}),
        (
            "replay t.csv",
            {"traces": [Path("t.csv")]}
            | dict.fromkeys(("policy", "config", "capacity", "granularity", "json", "plot"))
            | dict.fromkeys(("real", "check", "minimum", "recommend"), False),
        ),
        (
            "view t.csv",
            {"files": [Path("t.csv")], "output": None, "policy": None}
            | dict.fromkeys(("open", "compare"), False),
        ),
        (
            "sanitize a.py",
            {"report": None, "suppress": [], "script": Path("a.py"), "arguments": []},
        ),
        ("verbose f", {"file": Path("f"), "sort_by": "total", "json": None}),
        ("demo", {"file": None, "in_flight": 3, "chunk": 256 << 10}),
        ("bench", {"json": None, "rows": "", "patience": 3.0, "traces": None}),
        (
            "explore a.py",
            {
                "n": 200,
                "seed": None,
                "strategy": "random",
                "depth": 3,
                "timeout": 60,
                "output": None,
                "script": Path("a.py"),
                "arguments": [],
            },
        ),
    ],
)
def test_defaults_of_commands(arguments: str, expected: dict[str, object]) -> None:
    given = vars(cli._parser().parse_args(arguments.split()))
    command, *_ = arguments.split()
    assert given == {"command": command} | expected
