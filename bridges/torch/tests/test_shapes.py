"""Shapes and types of results, which are kept from call to call.

Goal: what is kept answers the calls that it was made for, and no others. Method: calls that differ
in one thing alone, one behind the other, with the CPU's types and strides; the counts.
"""

from collections.abc import Callable, Iterator

import pytest
import torch

Call = Callable[[str], torch.Tensor]

ALIKE: dict[str, list[Call]] = {
    "a number and a tensor without a dimension": [
        lambda device: torch.tensor(2.0, device=device) * 2.5,
        lambda device: torch.tensor(2.0, device=device) * torch.tensor(2.5, dtype=torch.float64),
        lambda device: torch.tensor(3, device=device) + 1,
        lambda device: torch.tensor(3, dtype=torch.int32, device=device) + 1,
        lambda device: torch.tensor(3, dtype=torch.int32, device=device) + torch.tensor(1),
    ],
    "types of a number": [
        lambda device: torch.arange(4, device=device).pow(2),
        lambda device: torch.arange(4, device=device).pow(0.5),
        lambda device: torch.arange(4, device=device).pow(1j),
        lambda device: torch.arange(4, device=device).bool().pow(2),
    ],
    "strides": [
        lambda device: torch.ones(3, 4, 5, device=device).exp(),
        lambda device: torch.ones(5, 4, 3, device=device).permute(2, 1, 0).exp(),
        lambda device: torch.ones(4, 3, 5, device=device).transpose(0, 1).exp(),
    ],
}


@pytest.mark.parametrize("name", ALIKE)
def test_calls_that_differ_in_one_thing_have_results_of_their_own(name: str) -> None:
    for call in ALIKE[name]:
        here, there = call("accelrt"), call("cpu")
        assert (here.dtype, here.stride()) == (there.dtype, there.stride())
        torch.testing.assert_close(here.cpu(), there, equal_nan=True)


@pytest.fixture
def _the_default_type() -> Iterator[None]:
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("_the_default_type")
def test_results_have_the_default_type_that_is_set_at_their_call() -> None:
    calls: list[Call] = [
        lambda device: torch.arange(1, 7, device=device).sin(),
        lambda device: torch.arange(1, 7, device=device) / 2,
        lambda device: torch.arange(1, 7, device=device) * 2.5,
        lambda device: torch.arange(1.0, 7.0, device=device),
        lambda device: torch.full((2,), 1.5, device=device),
    ]
    for dtype in (torch.float32, torch.float64, torch.float32):
        torch.set_default_dtype(dtype)
        for call in calls:
            here, there = call("accelrt"), call("cpu")
            assert here.dtype == there.dtype == dtype
            torch.testing.assert_close(here.cpu(), there)


def test_shapes_that_never_come_again_are_forgotten() -> None:
    def ask(count: int) -> None:
        torch.hardshrink(torch.empty(count, device="accelrt"))

    for count in range(1, 1_100):
        ask(count)
    hits, misses = torch.accelrt.shape_cache_counts()
    ask(1_099)
    assert torch.accelrt.shape_cache_counts() == (hits + 1, misses)
    ask(1)
    assert torch.accelrt.shape_cache_counts() == (hits + 1, misses + 1)
