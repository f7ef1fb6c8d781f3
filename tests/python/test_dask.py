"""Workers of dask.distributed with devices.

Goal: values are right wherever they have been in between, errors are those of their tasks, a
worker that is killed takes nothing along, all workers are seen as one timeline. Method: clusters
of two processes, each with a small cpu device; `test_dask_store.py` has stores on their own,
`test_dask_options.py` what is refused. Which worker runs what is said where it matters, and what
does not end fails with the stack of its wait. `TEST_LONG=1` has what takes minutes: 10,000 tasks,
five kills in a row, and plain dask beside the example.
"""

import gc
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask.config
import pytest
from distributed import Client, Future, get_client, get_worker, wait, worker_client
from distributed import LocalCluster as PlainCluster

import accelrt
from accelrt import cli
from accelrt.dask import Devices, LocalCluster, device_of, frames, profile, store_of
from accelrt.dask.files import Files
from accelrt.dask.frames import OnHost
from accelrt.dask.worker import environment_name
from bounded import bounded
from clusters import (
    IS_LONG,
    LIMIT_S,
    TIMEOUTS,
    VALUE_BYTES,
    allocated,
    gathered,
    make,
    numbers,
    on_both,
    sum_of_ends,
    wait_until_empty,
    workers_of,
)
from kinds import KIND
from processes import run

if TYPE_CHECKING:
    from distributed import Worker

pytestmark = [
    pytest.mark.longer(1500),
    pytest.mark.skipif(KIND != "cpu", reason="the clusters are of cpu devices"),
    pytest.mark.filterwarnings("default"),  # those of other packages
]

MIB = 1 << 20
DEVICE_BYTES = 4 * MIB
HOST_BYTES = 2 * MIB
VALUES = 40


@pytest.fixture(autouse=True)
def bounded_test() -> Iterator[None]:
    """Bound each test."""
    with bounded(LIMIT_S):
        yield


@pytest.fixture(scope="module", autouse=True)
def patient() -> Iterator[None]:
    """Have dask wait for slow machines."""
    with dask.config.set(TIMEOUTS):
        yield


@pytest.fixture(scope="module", name="shared")
def shared_client() -> Iterator[Client]:
    """Two workers, each with a device of two values and a host of one."""
    with ExitStack() as stack:
        with bounded(LIMIT_S):
            # A cluster closes what was lost for so long, also when it came back and was lost again.
            stack.enter_context(dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"}))
            cluster = LocalCluster(
                devices=[0, 2],
                device_memory=DEVICE_BYTES,
                host_memory=HOST_BYTES,
                dashboard_address=":0",
                env={"ACCELRT_CPU_DEVICES": "3"},
            )
            client = stack.enter_context(Client(stack.enter_context(cluster)))
        yield client
        with bounded(LIMIT_S):
            stack.close()


@pytest.fixture
def client(shared: Client) -> Iterator[Client]:
    """Have workers without values, also when the test before failed."""
    yield shared
    gc.collect()  # errors have frames, whose futures and actors live until they are collected
    shared.cancel([Future(key, shared) for key in shared.futures], force=True)
    wait_until_empty(shared)


def test_ten_times_the_devices_memory_is_right_and_was_on_disk(client: Client) -> None:
    values = on_both(client, make, range(VALUES))
    wait(values)  # the first ones have left the devices by now
    sums = gathered(client, on_both(client, sum_of_ends, values, turn=2))
    assert [number for number, _ in sums] == [2 * number for number in range(VALUES)]
    assert {device for _, device in sums} == {"cpu:0", "cpu:2"}
    found = client.run(numbers)
    for of_worker in found.values():
        assert of_worker["on_device_bytes"] <= DEVICE_BYTES
        assert of_worker["on_disk"] > 0, of_worker
        assert min(of_worker["device_to_host"], of_worker["host_to_device"]) > 0, of_worker
    sent = gathered(client, values[:3])
    assert [set(memoryview(buffer)) for buffer in sent] == [{0}, {1}, {2}]


def test_views_keep_their_type_and_shape_between_workers(client: Client) -> None:
    def ones() -> accelrt.View:
        return accelrt.empty(24).fill_(1).view("int16", (3, 4))

    def seen(view: accelrt.View) -> tuple[str, tuple[int, ...], str, int]:
        return view.dtype, view.shape, str(device_of()), memoryview(view)[2, 3]

    first, second = workers_of(client)
    view = client.submit(ones, workers=[first])
    seen_by = [client.submit(seen, view, workers=[it], pure=False) for it in (first, second)]
    there = gathered(client, seen_by)
    assert {it[:2] for it in there} == {("int16", (3, 4))}
    assert {it[3] for it in there} == {257}
    assert len({it[2] for it in there}) == 2
    assert view.result().shape == (3, 4)
    assert client.submit(lambda: accelrt.empty(0)).result().nbytes == 0


def test_a_task_has_a_stream_of_its_own_and_its_errors(client: Client) -> None:
    def fails() -> str:
        stream = accelrt.accelerator.current_stream()
        stream.launch_host(lambda: 1 / 0)
        return "enqueued"

    def is_own() -> bool:
        stream, default = (
            accelrt.accelerator.current_stream(),
            accelrt.cpu.default_stream(device_of()),
        )
        return stream.device == device_of() and stream != default

    assert client.submit(is_own, pure=False).result()
    raised = client.submit(fails, pure=False).exception()
    assert isinstance(raised, accelrt.StreamError)
    assert "division by zero" in str(raised)
    assert client.submit(is_own, pure=False).result()


class Keeps:
    """An actor."""

    def __init__(self) -> None:
        self.kept = make(3)

    def places(self) -> tuple[set[str], bool]:
        made, stream = accelrt.empty(16), accelrt.accelerator.current_stream()
        devices = {str(it) for it in (self.kept.device, made.device, stream.device, device_of())}
        return devices, stream == accelrt.cpu.default_stream(device_of())

    def fails(self) -> None:
        accelrt.accelerator.current_stream().launch_host(lambda: 1 / 0)

    def sum_of_ends(self, buffer: accelrt.Buffer) -> int:
        return sum_of_ends(buffer)[0]


def test_an_actor_has_the_workers_device_and_a_stream_with_its_errors(client: Client) -> None:
    for worker in workers_of(client):
        actor: Any = client.submit(Keeps, actor=True, workers=[worker], pure=False).result()
        (devices, is_default) = actor.places().result()
        assert (len(devices), is_default) == (1, False), devices
        with pytest.raises(accelrt.StreamError, match="division by zero"):
            actor.fails().result()
        assert actor.sum_of_ends(make(4)).result() == 8


def test_what_fails_on_the_default_stream_is_its_tasks_and_the_worker_goes_on(
    client: Client,
) -> None:
    def fails() -> None:
        accelrt.cpu.default_stream(device_of()).launch_host(lambda: 1 / 0)

    async def fails_as_coroutine() -> accelrt.Buffer:
        fails()
        return accelrt.empty(16)

    async def fails_without_a_value() -> None:
        fails()

    async def made_by_coroutine() -> accelrt.Buffer:
        return accelrt.empty(16)

    for worker in workers_of(client):
        for function in (fails, fails_as_coroutine, fails_without_a_value):
            raised = client.submit(function, workers=[worker], pure=False).exception()
            assert isinstance(raised, accelrt.StreamError)
        device = client.submit(made_by_coroutine, workers=[worker], pure=False)
        assert client.submit(lambda it: it.device == device_of(), device, pure=False).result()
        value = client.submit(make, 5, pure=False)
        received = client.submit(sum_of_ends, value, workers=[worker], pure=False)
        assert received.result(timeout=LIMIT_S)[0] == 10


def test_a_coroutine_ends_behind_its_work_for_which_the_event_loop_does_not_wait(
    client: Client,
) -> None:
    async def wait_for_gate(number: int) -> accelrt.Buffer:
        gate = vars(get_worker())["gate"] = threading.Event()
        stream = accelrt.accelerator.current_stream()
        stream.launch_host(lambda: gate.wait(LIMIT_S / 4) or 1 / 0)
        return make(number)

    def open_gate(dask_worker: "Worker") -> None:  # as the event loop's
        vars(dask_worker)["gate"].set()

    def is_complete(buffer: accelrt.Buffer) -> tuple[bool, int]:
        return accelrt.cpu.default_stream(device_of()).query(), sum_of_ends(buffer)[0]

    for worker in workers_of(client):
        value = client.submit(wait_for_gate, 3, workers=[worker], pure=False)
        with pytest.raises(TimeoutError):
            wait([value], timeout=0.5)
        client.run(open_gate, workers=[worker])
        complete = client.submit(is_complete, value, workers=[worker], pure=False)
        assert complete.result(timeout=LIMIT_S) == (True, 6)


def test_buffers_inside_of_a_users_objects_go_between_workers(client: Client) -> None:
    class Box:
        def __init__(self, number: int) -> None:
            self.view = make(number).view("uint8", (2, -1))

    def seen(box: Any) -> tuple[tuple[int, ...], int, bool]:
        return box.view.shape, memoryview(box.view)[1, 7], box.view.device == device_of()

    first, second = workers_of(client)
    box = client.submit(Box, 6, workers=[first], pure=False)
    by_other = client.submit(seen, box, workers=[second], pure=False).result(timeout=LIMIT_S)
    assert by_other == ((2, VALUE_BYTES // 2), 6, True)
    assert memoryview(box.result().view)[0, 0] == 6
    assert client.submit(sum_of_ends, make(7)).result()[0] == 14  # within the graph


def test_what_a_task_fetches_itself_is_a_buffer_also_where_it_has_no_room(client: Client) -> None:
    def fetch() -> list[tuple[str, int]]:
        held = [make(number) for number in range(2)]  # all of the device
        future = get_client().get_dataset("fetched")
        fetched = [future.result(), *get_client().gather([future])]
        return [(type(it).__name__, sum_of_ends(it)[0]) for it in fetched][: len(held)]

    first, second = workers_of(client)
    future = client.submit(make, 8, workers=[first], pure=False)
    client.publish_dataset(fetched=future)
    try:
        found = client.submit(fetch, workers=[second], pure=False).result()
    finally:
        client.unpublish_dataset("fetched")
    assert found == [("Buffer", 16)] * 2


def test_values_are_replicated_also_where_they_have_no_room(client: Client) -> None:
    values = [client.submit(make, number, pure=False) for number in range(6)]
    wait(values)
    client.amm.stop()  # which removes replicas every two seconds
    try:
        client.replicate(values, n=2)
        assert set(map(len, client.who_has(values).values())) == {2}
    finally:
        client.amm.start()
    for worker in workers_of(client):
        sums = [client.submit(sum_of_ends, it, workers=[worker], pure=False) for it in values]
        assert [it for it, _ in gathered(client, sums)] == [2 * number for number in range(6)]
    client.rebalance(values)
    assert [memoryview(it)[0] for it in gathered(client, values)] == list(range(6))


def test_threads_that_have_left_their_pool_leave_no_stream(client: Client) -> None:
    def leaves() -> int:
        with worker_client():
            return accelrt.empty(16).nbytes

    def streams(dask_worker: "Worker") -> int:
        executor: Any = dask_worker.executors["default"]
        return len(executor._streams)

    tasks = [client.submit(leaves, pure=False) for _ in range(40)]
    assert gathered(client, tasks) == [16] * 40
    give_up = time.monotonic() + LIMIT_S / 2
    while max(client.run(streams).values()) > 5:
        assert time.monotonic() < give_up, client.run(streams)


def test_the_heartbeat_has_numbers_of_the_device(client: Client) -> None:
    def beat(dask_worker: "Worker") -> dict[str, int]:
        measured: dict[str, int] = dask_worker.metrics["accelrt"](dask_worker)
        return measured | {"total": dask_worker.metrics["gpu-memory-total"](dask_worker)}

    for found in client.run(beat).values():
        assert found["allocated_bytes"] <= found["reserved_bytes"] <= DEVICE_BYTES + 2 * MIB
        assert found["total"] == accelrt.cpu.mem_get_info()[1]
    resources = [it["resources"] for it in workers_of(client).values()]
    assert resources == [{"accelerator": 1}] * 2


def test_files_and_copies_are_no_work_of_the_event_loop(client: Client) -> None:
    """Where each copy, write and read runs is seen: no clock says so on a busy machine."""
    watched: tuple[tuple[Any, str], ...] = (
        (Files, "write"),
        (Files, "read"),
        (OnHost, "of"),
        (OnHost, "on"),
        (frames, "_frames"),  # what is sent
        (frames, "_put"),  # and received
    )

    def watch(dask_worker: "Worker") -> None:
        found = vars(dask_worker)["on_loop"] = []
        loop = threading.get_ident()
        for owner, name in watched:
            vars(dask_worker).setdefault("watched", []).append((owner, name, getattr(owner, name)))
            setattr(owner, name, told(getattr(owner, name), name, loop, found))

    def told(
        function: Callable[..., Any], name: str, loop: int, found: list[tuple[str, bool]]
    ) -> Callable[..., Any]:
        def work(*args: Any, **options: Any) -> Any:
            found.append((name, threading.get_ident() == loop))
            return function(*args, **options)

        return work

    def seen(dask_worker: "Worker") -> set[tuple[str, bool]]:
        for owner, name, function in vars(dask_worker).pop("watched"):
            setattr(owner, name, function)
        return set(vars(dask_worker).pop("on_loop"))

    client.run(watch)
    values = on_both(client, make, range(VALUES))
    wait(values)
    first, second = workers_of(client)
    for worker in (first, second):  # half of them from the other one
        sums = [client.submit(sum_of_ends, it, workers=[worker], pure=False) for it in values]
        assert [it for it, _ in gathered(client, sums)] == [2 * it for it in range(VALUES)]
    for of_worker in client.run(seen).values():
        assert of_worker == {(name, False) for _, name in watched}


def test_a_profile_has_all_workers_on_one_timeline(client: Client, tmp_path: Path) -> None:
    with profile(client, memory_history=True) as recorded:
        values = on_both(client, make, range(VALUES))
        wait(values)
        gathered(client, on_both(client, sum_of_ends, values, turn=2))
    trace, page = tmp_path / "trace.json", tmp_path / "page.html"
    recorded.export_chrome_trace(trace)
    records = json.loads(trace.read_text())["traceEvents"]
    pids = {it["args"]["name"]: it["pid"] for it in records if it["name"] == "process_name"}
    assert len(set(pids.values())) == len(pids)
    seen = {
        name: {it["name"] for it in records if it["pid"] == pid and it["ph"] in "XC"}
        for name, pid in pids.items()
    }
    for worker in workers_of(client):
        address = worker.rpartition("/")[2]
        threads = seen.pop(f"{address}: host threads")
        assert {"make", "sum_of_ends", "leave the device", "write to disk"} < threads
        assert {"come to the device", "read from disk"} < threads
        devices = [names for name, names in seen.items() if name.startswith(address)]
        assert {"copy", "fill", "memory"} <= set().union(*devices)
    snapshots = recorded.dump_snapshots(tmp_path)
    assert len(snapshots) == 2
    assert cli.main(["view", *map(str, (trace, *snapshots)), "-o", str(page)]) == 0
    assert page.stat().st_size > 10_000


def test_two_profiles_of_a_cluster_have_what_both_see(client: Client) -> None:
    with profile(client) as outer, profile(client) as inner:
        gathered(client, on_both(client, sum_of_ends, on_both(client, make, range(4))))
    assert set(outer._found) == set(inner._found)
    assert len(outer._found) == len(workers_of(client))


def test_workers_come_later_and_retire_with_what_they_have(client: Client) -> None:
    cluster: Any = client.cluster
    before = set(workers_of(client))
    with profile(client) as recorded:
        cluster.scale(3)
        client.wait_for_workers(3)
        (late,) = set(workers_of(client)) - before
        values = [client.submit(make, n, workers=[late], pure=False) for n in range(8)]
        sums = gathered(client, [client.submit(sum_of_ends, it, pure=False) for it in values])
        assert [number for number, _ in sums] == [2 * number for number in range(8)]
    assert late.rpartition("/")[2] in recorded._found
    client.retire_workers([late])
    cluster.scale(2)
    sums = gathered(client, [client.submit(sum_of_ends, it, pure=False) for it in values])
    assert [number for number, _ in sums] == [2 * number for number in range(8)]


def test_many_small_tasks_leave_nothing_behind(client: Client) -> None:
    count = 10_000 if IS_LONG else 500

    def small(number: int) -> accelrt.Buffer:
        return accelrt.empty(64).fill_(number % 251)

    def total(*buffers: accelrt.Buffer) -> int:
        return sum(memoryview(buffer)[63] for buffer in buffers)

    values = client.map(small, range(count), pure=False)
    parts = [client.submit(total, *values[at : at + 50]) for at in range(0, count, 50)]
    assert sum(gathered(client, parts)) == sum(number % 251 for number in range(count))
    del values, parts
    wait_until_empty(client)


def test_what_a_failed_task_was_given_is_free_again(client: Client) -> None:
    """It asked for more than the device has; the worker's logs keep the error."""
    values = [client.submit(make, number, pure=False) for number in range(3)]
    too_many = client.submit(lambda *buffers: len(buffers), *values, pure=False)
    assert isinstance(too_many.exception(), accelrt.OutOfMemoryError)
    key = too_many.key
    del values, too_many

    def errors(dask_worker: "Worker") -> list[tuple[str, bool, str]]:
        of_part = logging.getLogger("distributed.worker.memory")
        of_part.error("of another part", exc_info=ValueError())
        records = [it for it in dask_worker._deque_handler.deque if it.exc_info or it.exc_text]
        return [(it.getMessage(), it.exc_info is None, str(it.exc_text)) for it in records]

    found = [it for of_worker in client.run(errors).values() for it in of_worker]
    assert sum(message == "of another part" for message, _, _ in found) == 2
    # What the frames of a traceback have would stay as long as the logs do.
    assert all(has_no_frames for _, has_no_frames, _ in found), found
    (text,) = [text for message, _, text in found if key in message]
    assert "execute" in text, found
    assert "OutOfMemoryError" in text, found

    give_up = time.monotonic() + LIMIT_S / 2
    while any(client.run(allocated).values()):
        assert time.monotonic() < give_up, client.run(numbers)


def test_what_a_task_had_that_raises_is_free_without_a_collection(client: Client) -> None:
    def fails(number: int) -> None:
        made = make(number)
        raise ValueError(made.nbytes)

    client.run(gc.disable)
    try:
        failed = [client.submit(fails, number, pure=False) for number in range(8)]
        assert [str(it.exception()) for it in failed] == [str(VALUE_BYTES)] * 8
        del failed
        give_up = time.monotonic() + LIMIT_S / 2
        while any(client.run(allocated).values()):
            assert time.monotonic() < give_up, client.run(numbers)
    finally:
        client.run(gc.enable)


@pytest.mark.parametrize("turn", range(5 if IS_LONG else 1))
@pytest.mark.parametrize("moment", ["holds", "spills"])
def test_the_values_of_a_killed_worker_are_made_again(
    client: Client, moment: str, turn: int
) -> None:
    def directory(dask_worker: "Worker") -> str:
        return str(dask_worker.local_directory)

    values = [client.submit(make, number, pure=False) for number in range(VALUES)]
    wait(values if moment == "holds" else values[:8])
    directories = client.run(directory)
    victim, pid = next(iter(client.run(os.getpid).items()))
    os.kill(pid, signal.SIGKILL)
    sums = gathered(client, [client.submit(sum_of_ends, it, pure=False) for it in values])
    assert [number for number, _ in sums] == [2 * number for number in range(VALUES)], turn
    client.wait_for_workers(2)
    assert not Path(directories[victim]).exists(), "its files went with it"


def test_a_running_cluster_gets_devices_by_the_plug_in() -> None:
    with (
        PlainCluster(n_workers=1, threads_per_worker=2, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        before = client.submit(lambda: b"made before", pure=False)
        assert before.result() == b"made before"
        client.register_plugin(Devices())
        made = [client.submit(make, number) for number in (3, 4)]
        sums = gathered(client, [client.submit(sum_of_ends, value) for value in made])
        assert sums == [(6, "cpu:0"), (8, "cpu:0")]
        assert client.submit(len, before).result() == 11
        assert [it["device_to_host"] for it in client.run(numbers).values()] == [0]


def test_a_plug_in_that_is_registered_again_or_removed_leaves_the_device() -> None:
    def spill(dask_worker: "Worker") -> int:
        store, moved = store_of(dask_worker), 0
        while store._spill({}) is not None:
            moved += 1
        return moved

    with (
        PlainCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(Devices())
        values = [client.submit(make, number) for number in (3, 4)]
        wait(values)
        for change in (
            lambda: client.register_plugin(Devices()),
            lambda: client.unregister_worker_plugin("accelrt"),
        ):
            change()
            assert list(client.run(spill).values()) == [2]
            sums = [client.submit(sum_of_ends, value, pure=False) for value in values]
            assert [it.result(timeout=LIMIT_S)[0] for it in sums] == [6, 8]


def test_a_product_of_four_times_the_memory_is_right_and_its_spilling_is_seen(
    tmp_path: Path,
) -> None:
    example, trace = Path(__file__).parents[2] / "examples/out_of_core.py", tmp_path / "trace.json"
    options = ["--block", "512", "--trace", str(trace), *([] if IS_LONG else ["--alone"])]
    ended = run("-W", "error", str(example), *options, **in_environment(TIMEOUTS))
    # Dask tells of a busy machine in lines of its log.
    told = [line for line in ended.stderr.splitlines() if " - distributed." not in line]
    assert (ended.returncode, told) == (0, []), ended
    assert ("checked: " in ended.stdout, "plain dask" in ended.stdout) == (True, IS_LONG)
    seen = {it["name"] for it in json.loads(trace.read_text())["traceEvents"]}
    assert {"add_product", "leave the device", "write to disk", "read from disk", "copy"} < seen


def in_environment(configuration: dict[str, str]) -> dict[str, str]:
    return {environment_name(name): value for name, value in configuration.items()}


def test_a_command_starts_a_worker_for_each_device() -> None:
    with (
        PlainCluster(n_workers=0, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        command = [sys.executable, "-m", "dask", "accelrt-worker", cluster.scheduler_address]
        limits = ["--devices", "0,2", "--device-memory", "8MiB", "--host-memory", "4MiB"]
        path = {"ACCELRT_CPU_DEVICES": "3", "PYTHONPATH": str(Path(__file__).parent)}
        environment = os.environ | in_environment(TIMEOUTS) | path
        with subprocess.Popen([*command, *limits], env=environment) as started:  # noqa: S603
            try:
                client.wait_for_workers(2)
                resources = [it["resources"] for it in workers_of(client).values()]
                assert resources == [{"accelerator": 1}] * 2
                values = on_both(client, make, range(8))
                sums = gathered(client, [client.submit(sum_of_ends, value) for value in values])
                assert [number for number, _ in sums] == [2 * number for number in range(8)]
                devices = client.run(lambda dask_worker: str(device_of(dask_worker)))
                assert sorted(devices.values()) == ["cpu:0", "cpu:2"]
                started.terminate()
                assert started.wait() == 0
            finally:
                started.kill()  # what has not ended; its workers end with it
