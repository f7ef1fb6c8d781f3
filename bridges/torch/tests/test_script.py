"""TorchScript: functions that `torch.jit` scripts or traces.

Goal: a script has the results of the function, also where it indexes by lists that torch makes.
Method: each way to index, scripted and traced, on the device and on the CPU.
"""

from collections.abc import Callable

import pytest
import torch

Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

# torch deprecates it in favour of what accelrt has, too.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit")


def _rows(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return x[index]


def _columns(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return x[:, index]


def _elements(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return x[index, index]


def _mask(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return x[x > index.sum()]


def _assigned(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[index] = 7.0
    return y


def _assigned_columns(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, index] = x[:, index] * 2
    return y


@pytest.mark.parametrize("is_traced", [True, False])
@pytest.mark.parametrize(
    "function", [_rows, _columns, _elements, _mask, _assigned, _assigned_columns]
)
def test_compiled_index_matches_the_cpu(function: Function, is_traced: bool) -> None:  # noqa: FBT001
    x, index = torch.arange(12.0).view(3, 4), torch.tensor([2, 0])
    there = (x.to("accelrt"), index.to("accelrt"))
    compiled = torch.jit.trace(function, there) if is_traced else torch.jit.script(function)
    for _ in range(3):  # the later calls are optimised
        assert torch.equal(compiled(*there).cpu(), function(x, index))
