"""Tensors of the device as values of dask.distributed's workers.

Goal: they are what buffers are there: frames without a copy, read behind the work that uses them,
received on the worker's own device, and elsewhere while its memory is needed. Method: serialisation
and stores in this process, and a cluster of two workers.
"""

import ctypes
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from distributed import Client, wait
from distributed.protocol.serialize import deserialize, serialize

import accelrt
from accelrt import testing
from accelrt.dask import DeviceStore, LocalCluster, store_of
from accelrt.dask.frames import STORING, Receiving
from accelrt_torch.dask import TensorOnHost

if TYPE_CHECKING:
    from distributed import Worker

pytestmark = [
    pytest.mark.longer(600),
    pytest.mark.filterwarnings("default"),  # those of other packages
]

LIMIT_S = 300
COUNT = 1 << 19
BYTES = 4 * COUNT


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DeviceStore]:
    """On a device with room for three values, and a host for two."""
    torch.accelerator.synchronize(1)
    torch.accelrt.empty_cache()
    total = accelrt.cpu.mem_get_info(1)[1]
    accelrt.cpu.set_per_process_memory_fraction(3 * BYTES / total, 1)
    made = DeviceStore(str(tmp_path), accelrt.device("cpu:1"), host_limit=2 * BYTES)
    yield made
    made.close()
    made.clear()
    accelrt.cpu.set_per_process_memory_fraction(1.0, 1)


def full(value: int, device: str = "accelrt:1") -> torch.Tensor:
    return torch.full((2, COUNT // 2), value, dtype=torch.float32, device=device)


def test_tensors_leave_the_device_when_its_memory_is_needed_and_come_back(
    store: DeviceStore,
) -> None:
    for number in range(6):
        store[f"x-{number}"] = full(number)
    places = [store.numbers()[it] for it in ("on_device", "on_host", "on_disk")]
    assert places == [3, 2, 1]
    for number in (5, 0, 3, 1, 4, 2):
        tensor = store[f"x-{number}"]
        assert isinstance(tensor, torch.Tensor)
        assert (tensor.device, tensor.dtype) == (torch.device("accelrt:1"), torch.float32)
        assert torch.equal(tensor.cpu(), full(number, "cpu"))


def test_a_tensor_with_a_gradient_stays_and_is_what_it_was(store: DeviceStore) -> None:
    weight = full(2).requires_grad_()
    store["x"] = product = weight * 3
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(3 * COUNT, device="accelrt:1")
    assert store["x"] is product


def test_a_frame_is_the_tensors_memory_behind_the_work_that_uses_it() -> None:
    gate = threading.Event()
    stream = accelrt.Stream("cpu:1")
    with stream:
        tensor = full(1)
        stream.launch_host(gate.wait, LIMIT_S)
        tensor.fill_(2)
    held = [tensor]
    found = list[Any]()
    thread = threading.Thread(target=lambda held: found.extend(serialize(held[0])[1]), args=[held])
    thread.start()
    assert found == []
    gate.set()
    thread.join(LIMIT_S)
    address = ctypes.addressof(ctypes.c_char.from_buffer(found[0]))
    assert (address, found[0].nbytes) == (tensor.data_ptr(), BYTES)
    del held, tensor, thread  # the frame keeps its memory
    assert set(memoryview(found[0]).cast("B").cast("f")) == {2.0}


def test_tensors_of_every_kind_arrive_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Receiving, "device", accelrt.device("cpu:2"))
    grid = torch.arange(12, device="accelrt:1").view(3, 4)
    sent = [
        grid.t(),
        grid[1:, ::2],
        grid.to(torch.complex64).conj(),
        grid > 5,
        grid.to(torch.bfloat16),
        grid.sum(),
        grid[:0],
        torch.ones(3, device="accelrt:1").requires_grad_(),
    ]
    for tensor in sent:
        arrived = deserialize(*serialize(tensor))
        assert (arrived.device.index, arrived.dtype, arrived.shape) == (
            2,
            tensor.dtype,
            tensor.shape,
        )
        assert torch.equal(arrived.cpu(), tensor.cpu())
        assert arrived.requires_grad == tensor.requires_grad
    on_host = deserialize(*serialize(torch.ones(2)))
    assert (on_host.device.type, on_host.tolist()) == ("cpu", [1, 1])


def test_a_frame_of_a_view_is_read_behind_its_own_copy() -> None:
    torch.accelrt.memory.poison()
    try:
        grid = torch.ones(1_000, 1_000, device="accelrt:1")
        torch.accelerator.synchronize(1)
        with testing.schedule(1):  # without a wait no task has run
            _, frames = serialize(grid.t())
            numbers = torch.frombuffer(frames[0], dtype=torch.float32).clone()
    finally:
        torch.accelrt.memory.poison(False)  # noqa: FBT003 - a switch
    assert numbers.unique().tolist() == [1]


def test_a_tensor_that_comes_in_parts_is_put_together() -> None:
    header, (frame,) = serialize(torch.arange(12, device="accelrt:1"))
    memory = memoryview(frame).cast("B")
    arrived = deserialize(header, [memory[:20], memory[20:20], memory[20:90], memory[90:]])
    assert arrived.tolist() == list(range(12))


def test_a_tensor_without_room_is_received_on_the_host(
    store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Receiving, "device", store.device)
    held = [full(0) for _ in range(3)]
    token = STORING.set(lambda: None)
    received = deserialize(*serialize(TensorOnHost.sending(full(5, "accelrt:0"))))
    STORING.reset(token)
    assert isinstance(received, TensorOnHost)
    fetched = deserialize(*serialize(TensorOnHost.sending(full(4, "accelrt:0"))))
    assert (fetched.device.type, fetched[1, 7].item()) == ("cpu", 4)  # by a task: no store either
    inside = deserialize(*serialize(full(6, "accelrt:0")))  # of another value, which has no store
    assert (inside.device.type, inside[1, 7].item()) == ("cpu", 6)
    store["x"] = received
    assert list(store.memory) == ["x"]
    held.clear()
    tensor = store["x"]
    assert isinstance(tensor, torch.Tensor)
    assert torch.equal(tensor.cpu(), full(5, "cpu"))
    assert isinstance(deserialize(*serialize(received.sent())), torch.Tensor)


def test_workers_pass_tensors_from_device_to_device() -> None:
    def make(number: int) -> torch.Tensor:
        current = torch.accelerator.current_device_index()
        return torch.full((COUNT,), number, dtype=torch.float32, device=f"accelrt:{current}")

    def mean(tensor: torch.Tensor) -> tuple[float, str]:
        return tensor.mean().item(), str(tensor.device)

    def numbers(dask_worker: "Worker") -> dict[str, int]:
        return store_of(dask_worker).numbers()

    with (
        LocalCluster(
            devices=[0, 2],
            device_memory=2 * BYTES,
            host_memory=2 * BYTES,
            dashboard_address=":0",
            env={"ACCELRT_CPU_DEVICES": "3"},
        ) as cluster,
        Client(cluster) as client,
    ):
        workers = sorted(client.nthreads())
        values = [client.submit(make, n, workers=[workers[n % 2]], pure=False) for n in range(20)]
        wait(values)
        assert min(it["on_disk"] for it in client.run(numbers).values()) > 0
        for worker in workers:
            means = [client.submit(mean, it, workers=[worker], pure=False) for it in values]
            gathered: list[tuple[float, str]] = client.gather(means)
            assert [it for it, _ in gathered] == list(range(20))
            assert len({device for _, device in gathered}) == 1
        found = client.run(numbers)
        assert sum(it["host_to_device"] for it in found.values()) > 0, found
        assert all(it["on_device_bytes"] <= 2 * BYTES for it in found.values()), found
