"""What workers of dask.distributed with devices are started with, and what is refused.

Goal: arguments that make no sense are refused at once, in words that name them, and a profile
leaves no recorder behind. Method: no cluster is started.
"""

import re
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import dask.config
import pytest
from click.testing import CliRunner

import accelrt
from accelrt.cli import dask_worker as command_line
from accelrt.dask import LocalCluster, profile, store_of
from accelrt.dask.cluster import Workers
from accelrt.dask.worker import _choose, environment_name
from kinds import KIND

pytestmark = [
    pytest.mark.longer(600),
    pytest.mark.skipif(KIND != "cpu", reason="the clusters are of cpu devices"),
    pytest.mark.filterwarnings("default"),  # those of other packages
]

MIB = 1 << 20


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["tcp://127.0.0.1:1", "--devices", "0,99"],
            "devices=[99]: valid numbers of cpu devices are 0 to 2",
        ),
        (["tcp://127.0.0.1:1", "--devices", "0,a"], "'0,a' is no list of numbers"),
        (["tcp://127.0.0.1:1", "--device-memory", "much"], "'much' is no number of bytes"),
        (["tcp://127.0.0.1:1", "--device-memory", "-5"], "'-5' is no number of bytes"),
        (["tcp://127.0.0.1:1", "--device-memory", ""], "'' is no number of bytes"),
        (["tcp://127.0.0.1:1", "--host-memory", "1e400"], "'1e400' is no number of bytes"),
        (["tcp://127.0.0.1:1", "--kind", "nope"], "device string: nope"),
        (["tcp://127.0.0.1:1", "--nthreads", "0"], "0 is not in the range"),
        ([], "no scheduler: give its ADDRESS or --scheduler-file"),
    ],
)
def test_a_command_that_makes_no_sense_is_refused(arguments: list[str], told: str) -> None:
    refused = CliRunner().invoke(command_line.main, arguments)
    assert (refused.exit_code, told in refused.output) == (2, True), refused


def test_a_cpu_devices_memory_is_not_counted_twice() -> None:
    """The process of a worker, which dask counts, has the memory of a cpu device."""
    limits = [
        Workers("cpu", [0], device_bytes, "600MiB").options(0, {})["memory_limit"]
        for device_bytes in (1 << 30, 3 << 30)
    ]
    assert limits[1] - limits[0] == 2 << 30
    assert limits[0] - (1 << 30) >= 1000 * MIB
    given = Workers("cpu", [0], 1 << 30, "600MiB").options(0, {"memory_limit": 5})
    assert given["memory_limit"] == 5


def test_a_device_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match=r"devices=\[3, -1\]: valid numbers of cpu devices are"):
        LocalCluster(devices=[0, 3, 2, -1])


def test_a_new_worker_has_the_device_that_has_fewest() -> None:
    """Also when another than the last one has gone."""
    cluster = LocalCluster.__new__(LocalCluster)  # without processes
    cluster._workers = Workers("cpu", [0, 2], None, None)
    vars(cluster).update(worker_spec={}, new_spec={"options": {}}, _i=0)

    def come() -> str:
        ((name, spec),) = cluster.new_worker_spec().items()
        cluster.worker_spec[name] = spec
        device: str = spec["options"]["env"][environment_name("accelrt.device")]
        return device

    assert [come() for _ in range(4)] == ["0", "2", "0", "2"]
    for first in list(cluster.worker_spec)[:3]:
        del cluster.worker_spec[first]
    assert [come() for _ in range(3)] == ["0", "0", "2"]


@pytest.mark.parametrize(
    ("devices", "indices"),
    [
        (None, [0, 1, 2]),
        (1, [0]),
        (2, [0, 1]),
        (3, [0, 1, 2]),
        ([2], [2]),
        ((2, 0, 2), [2, 0, 2]),
        (iter([1]), [1]),
        (range(1, 3), [1, 2]),
    ],
)
def test_devices_are_a_count_or_numbers(devices: Any, indices: list[int]) -> None:
    """As in `LocalCluster("cpu", 2)`."""
    assert Workers("cpu", devices, None, None).devices == indices


@pytest.mark.parametrize(
    ("devices", "told"),
    [
        (0, "devices=0: expected 1 to 3, the number of cpu devices"),
        (-1, "devices=-1: expected 1 to 3, the number of cpu devices"),
        (4, "devices=4: expected 1 to 3, the number of cpu devices"),
        (1 << 100, f"devices={1 << 100}: expected 1 to 3, the number of cpu devices"),
        ([], "devices is empty: pass at least one number"),
        ([2, 3], "devices=[3]: valid numbers of cpu devices are 0 to 2"),
        ([-1, 0], "devices=[-1]: valid numbers of cpu devices are 0 to 2"),
        (True, "devices=True is neither a number of devices nor a list"),
        ([True], "devices=[True] is neither"),
        (2.0, "devices=2.0 is neither"),
        ([1.0], "devices=[1.0] is neither"),
        ("2", "devices='2' is neither"),
        (["cpu:1"], "devices=['cpu:1'] is neither"),
    ],
)
def test_wrong_devices_are_named(devices: Any, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        LocalCluster("cpu", devices)


def worker_named(name: object) -> Any:
    return SimpleNamespace(name=name)


@pytest.mark.parametrize(
    ("name", "index"),
    [
        (0, 0),
        ("2", 2),
        (3, 0),
        (4, 1),
        ("007", 1),
        ("9" * 18, 0),
        ("1" + "0" * 17, 1),
        ("1" + "0" * 18, 0),  # no number of a worker
        ("7" * 5_000, 0),
        ("", 0),
        ("-1", 0),
        ("1.0", 0),
        ("²", 0),
        ("tcp://somewhere", 0),
    ],
)
def test_device_follows_from_the_workers_name(name: object, index: int) -> None:
    """By turns, as there may be more workers than devices; other names have the first one."""
    assert _choose(worker_named(name)) == accelrt.device("cpu", index)
    with dask.config.set({"accelrt.device": None}):
        assert _choose(worker_named(name)) == accelrt.device("cpu", index)


@pytest.mark.parametrize("index", range(3))
def test_device_setting_precedes_the_name(index: int) -> None:
    with dask.config.set({"accelrt.device": index}):
        assert _choose(worker_named("1")) == accelrt.device("cpu", index)


@pytest.mark.parametrize(
    "index", [-1, 3, 1 << 70, 0.0, 1.0, True, False, "0", "cpu:0", "", [0], b"0"]
)
def test_wrong_device_setting_is_named(index: object) -> None:
    told = f"accelrt.device: {index!r}: there are 3 devices of cpu, from 0"
    with (
        dask.config.set({"accelrt.device": index}),
        pytest.raises(ValueError, match=f"^{re.escape(told)}$"),
    ):
        _choose(worker_named("1"))


@pytest.mark.parametrize("setting", [None, 0])
def test_machine_without_devices_is_named(
    monkeypatch: pytest.MonkeyPatch, setting: int | None
) -> None:
    monkeypatch.setattr(accelrt.accelerator, "device_count", lambda: 0)
    with (
        dask.config.set({"accelrt.device": setting}),
        pytest.raises(ValueError, match="there are 0 devices of cpu"),
    ):
        _choose(worker_named("1"))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"devices": []}, "devices is empty: pass at least one number"),
        ({"device_memory": "much"}, "'much' is no number of bytes"),
        ({"host_memory": -1}, "-1 is no number of bytes"),
        ({"processes": False}, "argument 'processes'"),
        ({"n_workers": 2}, "n_workers is not supported: each device runs one worker"),
        ({"kind": 2}, "kind=2 must be a device type such as 'cpu'"),
    ],
)
def test_a_cluster_that_makes_no_sense_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises((TypeError, ValueError), match=told):
        LocalCluster(**options)


def test_what_a_user_preloads_is_preloaded_too() -> None:
    workers = Workers("cpu", [0], None, None)
    assert workers.options(0, {"preload": "json"})["preload"] == ["accelrt.dask", "json"]
    with dask.config.set({"distributed.worker.preload": ["csv"]}):
        assert workers.options(0, {})["preload"] == ["accelrt.dask", "csv"]


def test_outside_of_such_a_worker_there_is_no_store() -> None:
    class Worker:
        data: dict[str, object] = {}  # noqa: RUF012  never written

    with pytest.raises(TypeError, match="preload accelrt"):
        store_of(Worker())  # type: ignore[arg-type]


def test_without_distributed_the_package_imports_and_says_what_lacks() -> None:
    code = "import sys; sys.modules['distributed'] = None; import accelrt; import accelrt.dask"
    ended = subprocess.run(  # noqa: S603  the interpreter of this test
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "accelrt.dask needs the extra `dask`" in ended.stderr


@pytest.mark.parametrize("fails", [False, True])
def test_profile_leaves_the_workers(*, fails: bool) -> None:
    """A worker that has ended is left out, and the recorder is removed from all others."""
    recorders = list[str]()

    def run(_: object, name: str, *, on_error: str) -> dict[str, str]:
        assert ([name], on_error) == (recorders, "ignore")
        if fails:
            raise TimeoutError
        return {"tcp://10.0.0.1:5": "first", "inproc://10.0.0.1/7/8": "second"}

    client: Any = SimpleNamespace(
        register_plugin=lambda plugin: recorders.append(plugin.name),
        run=run,
        unregister_worker_plugin=recorders.remove,
    )
    recorded: Any = profile(client)
    with pytest.raises(TimeoutError) if fails else nullcontext(), recorded:
        assert len(recorders) == 1
    assert recorders == []
    if not fails:
        assert recorded._found == {"10.0.0.1:5": "first", "8": "second"}
