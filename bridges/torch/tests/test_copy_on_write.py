"""Tensors that are copied when one of them is written: `torch._lazy_clone`.

Goal: a lazy clone shares memory until a write, and never shows another tensor's write. Method:
every way to write, on each of the two, with the values and addresses that follow.
"""

from collections.abc import Callable

import pytest
import torch

from gates import Gate

_lazy_clone: Callable[[torch.Tensor], torch.Tensor] = vars(torch)["_lazy_clone"]
_address: Callable[[torch.Tensor], int] = vars(torch._C)["_data_address"]  # noqa: SLF001
_is_shared: Callable[[torch.Tensor], bool] = vars(torch._C)["_is_cow_tensor"]  # noqa: SLF001
Write = Callable[[torch.Tensor], object]

WRITES: dict[str, Write] = {
    "operator": lambda x: x.add_(1),
    "copy": lambda x: x.copy_(torch.full((4,), 9.0)),
    "copy of the device": lambda x: x.copy_(torch.full((4,), 9.0, device=x.device)),
    "out": lambda x: torch.mul(torch.ones(4, device=x.device), 3, out=x),
    "list": lambda x: torch._foreach_mul_([x], 2.0),
    "part": lambda x: x[1:3].zero_(),
    "index": lambda x: x.__setitem__(torch.tensor([0, 2]), 5.0),
    "random": lambda x: x.uniform_(5, 6),
}


@pytest.fixture
def tensor() -> torch.Tensor:
    return torch.arange(4.0).to("accelrt:1")


@pytest.mark.parametrize("is_clone", [True, False])
@pytest.mark.parametrize("way", WRITES)
def test_write_to_lazy_clone_copies(tensor: torch.Tensor, way: str, is_clone: bool) -> None:  # noqa: FBT001
    clone = _lazy_clone(tensor)
    assert _address(clone) == _address(tensor)
    written, other = (clone, tensor) if is_clone else (tensor, clone)
    WRITES[way](written)
    assert other.tolist() == [0, 1, 2, 3]
    assert written.tolist() != [0, 1, 2, 3]
    WRITES[way](other)  # the last one has the memory
    assert other.device == written.device == torch.device("accelrt:1")


def test_read_of_lazy_clone_does_not_copy(tensor: torch.Tensor) -> None:
    clone = _lazy_clone(tensor)
    assert (clone + 1).tolist() == [1, 2, 3, 4]
    assert clone.cpu().tolist() == [0, 1, 2, 3]
    assert _is_shared(clone)
    assert _is_shared(tensor)


def test_lazy_clone_returns_its_memory() -> None:
    torch.accelrt.synchronize()
    before = torch.accelrt.memory_allocated()
    tensor = torch.ones(1 << 18, device="accelrt")
    clones = [_lazy_clone(tensor) for _ in range(3)]
    clones[0].add_(1)
    del tensor, clones
    torch.accelrt.synchronize()
    assert torch.accelrt.memory_allocated() == before


def test_lazy_clone_copies_in_stream_order() -> None:
    tensor = torch.zeros(4, device="accelrt")
    with Gate():
        tensor.add_(1)
        clone = _lazy_clone(tensor)
        clone.add_(1)
        tensor.add_(5)
    assert (tensor.tolist(), clone.tolist()) == ([6] * 4, [2] * 4)


def test_recorded_stream_keeps_lazy_clone() -> None:
    side = torch.Stream("accelrt")
    tensor = torch.ones(1 << 16, device="accelrt")
    clone = _lazy_clone(tensor)
    torch.accelerator.synchronize()
    with Gate(side):
        with side:
            total = clone.sum()
        clone.record_stream(side)
        del clone, tensor
        torch.full((1 << 16,), 7.0, device="accelrt")  # would take the memory
    side.synchronize()
    assert total.item() == 1 << 16
