"""Copies: between devices, and between a device and the host, pinned or not.

Goal: a copy is ordered behind both of its ends, and whoever may go on before it is over keeps the
memory that it uses. Method: gates in the streams, the sanitizer, and the list of waits.
"""

import threading
import time

import pytest
import torch

import accelrt
from gates import Gate

COUNT = 100_000  # numbers of four bytes: more than a copy takes at its call


def source_and_target() -> tuple[torch.Tensor, torch.Tensor]:
    source, target = (
        torch.full((COUNT,), 1.0 - index, device=f"accelrt:{index}") for index in range(2)
    )
    for index in range(2):
        torch.accelerator.synchronize(index)
    return source, target


def test_a_copy_to_another_device_is_behind_what_the_target_has() -> None:
    with accelrt.sanitizer.watch() as report:
        source, target = source_and_target()
        with Gate(torch.accelerator.current_stream(1)):
            target.fill_(5)
            target.copy_(source)
        torch.accelerator.synchronize(1)
    assert report.findings == []
    assert target.unique().tolist() == [1]


def test_what_uses_the_target_of_a_copy_from_another_device_is_behind_it() -> None:
    with accelrt.sanitizer.watch() as report:
        source, target = source_and_target()
        with Gate(torch.accelerator.current_stream(0)):
            target.copy_(source)
            result = target + 1
        torch.accelerator.synchronize(1)
    assert report.findings == []
    assert result.unique().tolist() == [2]


@pytest.mark.parametrize("is_pinned", [False, True])
@pytest.mark.parametrize("non_blocking", [False, True])
@pytest.mark.parametrize("direction", ["from", "to"])
def test_a_copy_does_not_wait_where_it_is_asked_not_to_and_the_hosts_memory_is_pinned(
    direction: str,
    non_blocking: bool,  # noqa: FBT001 - a parameter of the test
    is_pinned: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    on_host = torch.zeros(COUNT, pin_memory=is_pinned)
    on_device = torch.zeros(COUNT, device="accelrt")
    torch.accelerator.synchronize()
    gate = Gate()
    with gate:
        waits = not (non_blocking and is_pinned)
        timer = threading.Timer(0.1 if waits else 10, gate.open)
        timer.start()
        if direction == "from":
            on_device.copy_(on_host, non_blocking=non_blocking)
        else:
            on_device.fill_(1)
            on_host.copy_(on_device, non_blocking=non_blocking)
        assert torch.accelerator.current_stream().query() == waits
        timer.cancel()
    if waits and direction == "to":
        assert on_host.unique().tolist() == [1]
    rows = [row.operator for row in torch.accelrt.sync_report()]
    assert rows == ([f"aten::copy_ {direction} the host"] if waits else [])


def test_a_small_blocking_copy_from_pinned_memory_takes_the_bytes_at_once() -> None:
    source = torch.ones(100, pin_memory=True)
    with Gate():
        there = source.to("accelrt")
        source.zero_()
    assert there.sum().item() == 100


def test_negated_and_conjugated_tensors_are_copied_as_they_read() -> None:
    pairs = torch.arange(1.0, 7.0).view(3, 2)
    for there in ("cpu", "accelrt:1", "accelrt:0"):
        numbers = torch.view_as_complex(pairs.to("accelrt:0")).conj()
        assert numbers.to(there).tolist() == [1 - 2j, 3 - 4j, 5 - 6j]
        assert numbers.imag.is_neg()
        assert numbers.imag.to(there, copy=True).tolist() == [-2, -4, -6]
        numbers.imag.copy_(torch.ones(3, device=there))
        assert numbers.tolist() == [1 + 1j, 3 + 1j, 5 + 1j]


@pytest.mark.parametrize("direction", ["from", "to"])
def test_pinned_memory_that_dies_stays_until_its_copy_is_over(direction: str) -> None:
    on_device, side = torch.zeros(COUNT, device="accelrt"), torch.Stream("accelrt")
    torch.accelerator.synchronize()
    with Gate(side):
        pinned = torch.ones(COUNT).pin_memory()
        address = pinned.data_ptr()
        with side:
            if direction == "from":
                on_device.copy_(pinned, non_blocking=True)
            else:
                pinned.copy_(on_device, non_blocking=True)
        del pinned
        others = [torch.full((COUNT,), 2.0).pin_memory() for _ in range(4)]
        assert address not in [other.data_ptr() for other in others]
    side.synchronize()
    assert on_device.unique().tolist() == [float(direction == "from")]
    assert all(other.unique().tolist() == [2] for other in others)


def test_a_number_is_read_behind_the_work_of_its_own_device() -> None:
    tensor = torch.zeros(1, device="accelrt:1")
    torch.accelerator.synchronize(1)
    gate = Gate(torch.accelerator.current_stream(1))
    with gate:
        tensor += 1
        threading.Timer(0.1, gate.open).start()
        begin = time.monotonic()
        assert torch.accelerator.current_device_index() == 0
        assert tensor.item() == 1
        assert time.monotonic() - begin < 10


def test_an_index_of_the_host_may_be_changed_behind_the_call() -> None:
    rows, index = torch.arange(4.0, device="accelrt"), torch.tensor([1, 2])
    with Gate():
        found = rows[index]
        index.zero_()
    assert found.tolist() == [1, 2]
