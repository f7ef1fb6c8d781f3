"""Memory: accelrt's allocator behind torch's functions.

Goal: torch's statistics are the allocator's, memory is reused in stream order, a request that has
no room is an OutOfMemoryError after which work goes on. Method: figures around a known request.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import accelrt
from gates import Gate, resident_bytes

MIB = 1 << 20


def test_the_statistics_are_those_of_the_allocator() -> None:
    before = torch.accelerator.memory_allocated(1)
    tensor = torch.empty(4 * MIB, device="accelrt:1", dtype=torch.uint8)
    assert torch.accelerator.memory_allocated(1) == before + 4 * MIB
    assert torch.accelrt.memory_allocated(1) == accelrt.cpu.memory_allocated(1)
    assert torch.accelerator.memory_stats(1)["allocated_bytes.all.current"] == before + 4 * MIB
    assert torch.accelerator.memory_reserved(1) >= torch.accelerator.memory_allocated(1)
    del tensor
    torch.accelerator.synchronize(1)
    assert torch.accelerator.memory_allocated(1) == before


def test_every_statistic_is_the_allocators() -> None:
    kept = [torch.empty(size, device="accelrt:2", dtype=torch.uint8) for size in (700, 3 * MIB + 1)]
    torch.empty(5 * MIB, device="accelrt:2", dtype=torch.uint8)
    torch.accelerator.synchronize(2)
    ours, torchs = accelrt.cpu.memory_stats(2), torch.accelerator.memory_stats(2)
    both = ours.keys() & torchs.keys()
    assert len(both) > 80
    assert {key: torchs[key] for key in both} == {key: ours[key] for key in both}
    assert len({ours[f"{name}_bytes.all.current"] for name in ("active", "inactive_split")}) == 2
    assert kept


def test_peaks_and_sums_are_reset() -> None:
    tensor = torch.empty(8 * MIB, device="accelrt", dtype=torch.uint8)
    del tensor
    torch.accelerator.synchronize()
    torch.accelerator.reset_peak_memory_stats()
    peak = torch.accelerator.max_memory_allocated()
    assert peak == torch.accelerator.memory_allocated()
    torch.accelerator.reset_accumulated_memory_stats()
    assert torch.accelerator.memory_stats()["num_device_alloc"] == 0


def test_free_memory_goes_back_to_the_device() -> None:
    torch.empty(64 * MIB, device="accelrt", dtype=torch.uint8)
    torch.accelerator.synchronize()
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_reserved() < 64 * MIB
    free, total = torch.accelerator.get_memory_info()
    assert 0 < free <= total


def test_a_request_without_room_is_out_of_memory_and_work_goes_on() -> None:
    kept = torch.ones(1000, device="accelrt")
    with pytest.raises(torch.OutOfMemoryError, match="memory"):
        torch.empty(1 << 55, device="accelrt", dtype=torch.uint8)
    assert kept.sum().item() == 1000
    assert torch.accelerator.memory_stats()["num_ooms"] >= 1


def test_memory_of_a_dead_tensor_waits_for_the_stream_that_was_recorded() -> None:
    side = torch.Stream("accelrt")
    torch.accelerator.synchronize()
    tensor = torch.full((MIB,), 7, device="accelrt", dtype=torch.uint8)
    torch.accelerator.current_stream().synchronize()
    address = tensor.data_ptr()
    with Gate(side):
        with side:
            copy = tensor.clone()
        tensor.record_stream(side)
        del tensor
        others = [torch.empty(MIB, device="accelrt", dtype=torch.uint8) for _ in range(8)]
        assert address not in {other.data_ptr() for other in others}
        for other in others:
            other.fill_(9)
        torch.accelerator.current_stream().synchronize()
    side.synchronize()
    assert copy.unique().tolist() == [7]


def test_memory_is_used_again_in_the_order_of_its_stream() -> None:
    torch.accelerator.synchronize()
    with Gate():
        tensor = torch.full((3 * MIB,), 7, device="accelrt", dtype=torch.uint8)
        total, address = tensor.sum(), tensor.data_ptr()
        del tensor
        again = torch.zeros(3 * MIB, device="accelrt", dtype=torch.uint8)
        assert again.data_ptr() == address
    assert total.item() == 7 * 3 * MIB
    assert again.sum().item() == 0


def test_many_operators_leave_no_memory_behind() -> None:
    tensor = torch.zeros(64, device="accelrt")

    def add(count: int) -> None:
        nonlocal tensor
        for number in range(count):
            tensor = tensor + 1
            if number % 1_000 == 0:  # what is queued is memory, too
                torch.accelerator.synchronize()
        torch.accelerator.synchronize()

    add(10_000)
    before, resident = torch.accelerator.memory_allocated(), resident_bytes()
    add(100_000)
    assert torch.accelerator.memory_allocated() <= before
    assert resident_bytes() <= resident + 4 * MIB  # 40 bytes an operator
    assert tensor[0].item() == 110_000


def test_a_tensor_that_grows_keeps_what_was_enqueued_before() -> None:
    with Gate():
        tensor = torch.full((4,), 3.0, device="accelrt")
        tensor.resize_(4096)
        tensor[4:] = 1
        other = torch.zeros(2, device="accelrt")
        torch.cat([tensor, tensor], out=other.resize_(0))
    assert tensor[:5].tolist() == [3.0] * 4 + [1.0]
    assert other.sum().item() == 2 * (12 + 4092)


def test_poisoned_memory_shows_what_nothing_has_written() -> None:
    torch.accelrt.memory.poison()
    try:
        assert torch.empty(100, device="accelrt").isnan().all().item()
        assert torch.zeros(100, device="accelrt").sum().item() == 0
    finally:
        torch.accelrt.memory.poison(False)  # noqa: FBT003 - a switch


def test_what_nothing_has_written_is_filled_where_all_is_to_be_deterministic() -> None:
    torch.use_deterministic_algorithms(True)  # noqa: FBT003 - torch's
    try:
        grown = torch.zeros(2, device="accelrt").resize_(4)
        assert torch.empty(3, device="accelrt").isnan().all()
        assert torch.empty_strided((3,), (2,), device="accelrt").isnan().all()
        assert grown.isnan().tolist() == [False, False, True, True]
        most = torch.iinfo(torch.int32).max
        assert torch.empty(1, device="accelrt", dtype=torch.int32).tolist() == [most]
    finally:
        torch.use_deterministic_algorithms(False)  # noqa: FBT003 - torch's


def test_a_snapshot_has_the_lines_that_allocated(tmp_path: Path) -> None:
    torch.accelrt.memory._record_memory_history()  # noqa: SLF001 - torch's name
    try:
        tensor = torch.empty(3 * MIB, device="accelrt", dtype=torch.uint8) + 1
        torch.accelrt.memory._dump_snapshot(tmp_path / "snapshot.pickle")  # noqa: SLF001
        del tensor
    finally:
        torch.accelrt.memory._record_memory_history(None)  # noqa: SLF001
    snapshot = pickle.loads((tmp_path / "snapshot.pickle").read_bytes())  # noqa: S301 - our own
    files = {
        frame["filename"]
        for segment in snapshot["segments"]
        for block in segment["blocks"]
        if block["size"] >= 3 * MIB
        for frame in block["frames"]
    }
    assert __file__ in files
    assert any(entry["action"] == "alloc" for entry in snapshot["device_traces"][0])
    assert torch.accelrt.memory_snapshot()


def test_pinned_memory_is_accelrts_and_copies_from_it_do_not_wait() -> None:
    source = torch.arange(100_000.0).pin_memory()
    assert source.is_pinned()
    assert torch.empty(3, pin_memory=True).is_pinned()
    assert not torch.empty(3).is_pinned()
    target = torch.empty(100_000, pin_memory=True)
    with Gate():
        there = source.to("accelrt", non_blocking=True)
        target.copy_(there, non_blocking=True)
        assert not torch.accelerator.current_stream().query()
    torch.accelerator.synchronize()
    assert torch.equal(source, target)
    assert torch.accelrt.sync_report() == []


def test_a_small_copy_from_the_host_does_not_wait_and_takes_the_bytes_at_once() -> None:
    source = torch.ones(100)
    with Gate():
        there = source.to("accelrt")
        source.zero_()
    assert there.sum().item() == 100


def test_a_loaders_pinned_batches_are_the_devices() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(20.0).view(10, 2))
    loader = torch.utils.data.DataLoader(data, 5, pin_memory=True)
    batches = [batch for (batch,) in loader]
    assert all(batch.is_pinned() for batch in batches)
    total = sum(batch.to("accelrt", non_blocking=True).sum().item() for batch in batches)
    assert total == sum(range(20))


def test_a_storage_that_shrinks_keeps_what_it_has_room_for() -> None:
    parts = [torch.full((512,), 7, device="accelrt", dtype=torch.uint8) for _ in range(64)]
    whole = torch.full((4096,), 1, device="accelrt", dtype=torch.uint8)
    del parts[1::2]
    torch.accelerator.synchronize()
    whole.untyped_storage().resize_(512)  # into a hole between two others
    assert whole.untyped_storage().nbytes() == 512
    torch.accelerator.synchronize()
    assert {part.unique().item() for part in parts} == {7}
    assert whole.set_(whole.untyped_storage(), 0, (512,)).unique().tolist() == [1]


def test_a_view_that_grows_has_room_behind_its_offset() -> None:
    whole = torch.ones(8, device="accelrt")
    part = whole[6:]
    part.resize_(8)
    assert whole.untyped_storage().nbytes() == part.untyped_storage().nbytes() == 14 * 4
    part[2:] = 5
    assert part.tolist() == [1, 1, 5, 5, 5, 5, 5, 5]


def test_a_tensor_that_grows_stays_on_its_device() -> None:
    tensor, bare = torch.ones(4, device="accelrt:1"), torch.ones(4, device="accelrt:1")
    bare.set_()
    before = [torch.accelerator.memory_allocated(index) for index in range(2)]
    tensor.resize_(MIB)
    assert tensor.untyped_storage().device == torch.device("accelrt:1")
    torch.accelerator.synchronize(1)
    after = [torch.accelerator.memory_allocated(index) for index in range(2)]
    assert [now - was >= MIB for was, now in zip(before, after, strict=True)] == [False, True]
    assert bare.untyped_storage().device == bare.device == torch.device("accelrt:1")


def test_a_wait_that_notes_its_line_keeps_nothing_of_its_caller() -> None:
    def read() -> float:
        tensor = torch.ones(MIB, device="accelrt", dtype=torch.uint8)
        return tensor[0].item()

    read()
    torch.accelerator.synchronize()
    before = torch.accelerator.memory_allocated()
    for _ in range(3):
        read()
    torch.accelerator.synchronize()
    assert torch.accelerator.memory_allocated() == before


def test_a_summary_is_of_the_device_that_is_asked_for() -> None:
    tensor = torch.empty(3 * MIB, device="accelrt:3", dtype=torch.uint8)
    for asked in (3, "accelrt:3", torch.device("accelrt:3")):
        assert torch.accelrt.memory_summary(asked) == accelrt.cpu.memory_summary(3)
    torch.accelerator.set_device_index(3)
    for asked in (None, "accelrt"):
        assert torch.accelrt.memory_summary(asked) == accelrt.cpu.memory_summary(3)
    assert accelrt.cpu.memory_summary(3) != accelrt.cpu.memory_summary(0)
    del tensor


@pytest.mark.parametrize(
    "grow",
    [
        lambda tensor, _: tensor.resize_(1 << 40),
        lambda tensor, other: tensor.set_(other.untyped_storage(), 0, (1 << 40,)),
        lambda tensor, other: torch.add(other[:1].expand(1 << 40), 1, out=tensor),
    ],
)
def test_a_tensor_that_finds_no_room_is_as_it_was(grow: Callable[..., object]) -> None:
    tensor, other = torch.zeros(0, device="accelrt"), torch.ones(4, device="accelrt")
    with pytest.raises(torch.OutOfMemoryError):
        grow(tensor, other)
    assert (tensor.shape, tensor.stride()) == ((0,), (1,))
    assert tensor.untyped_storage().nbytes() == 0
    assert tensor.resize_(4).fill_(2).tolist() == [2.0] * 4
    assert other.tolist() == [1.0] * 4


def test_a_storage_without_room_lets_functions_of_python_run() -> None:
    program = """
import accelrt, torch
from gates import Gate
import threading
tensor = torch.empty(40 << 20, dtype=torch.uint8, device="accelrt")
side = torch.Stream("accelrt")
gate = Gate(side)
with side:
    tensor.add_(1)
tensor.record_stream(side)
del tensor
threading.Timer(0.1, gate.open).start()
print(torch.UntypedStorage(40 << 20, device="accelrt").nbytes() >> 20)  # torch has the GIL
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
        env=os.environ | {"ACCELRT_CPU_MEMORY": "64M"},
        timeout=60,
    )
    assert done.stdout == "40\n", done.stderr


def test_a_stream_that_is_recorded_before_its_use_keeps_the_memory() -> None:
    side = torch.Stream("accelrt")
    tensor = torch.full((MIB,), 7, device="accelrt", dtype=torch.uint8)
    side.wait_stream(torch.accelerator.current_stream())
    torch.accelerator.synchronize()
    tensor.record_stream(side)  # as loaders that run ahead do, for what comes behind
    with Gate(side):
        with side:
            copy = tensor.clone()
        del tensor
        others = [torch.full_like(copy, 9) for _ in range(8)]
        torch.accelerator.current_stream().synchronize()
    side.synchronize()
    assert copy.unique().tolist() == [7]
    assert others
