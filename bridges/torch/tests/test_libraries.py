"""Operators of a program's own libraries, which come and go.

Goal: what is called is the operator that there is, whatever had its name or its place before.
Method: libraries that are made and destroyed, between calls and before a task has run.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch

NAMESPACE = "accelrt_tests"


class _Library:
    """An operator of its own for the time of a `with` statement."""

    def __init__(self, name: str, schema: str, kernel: Callable[..., object]) -> None:
        self._library = torch.library.Library(NAMESPACE, "FRAGMENT")
        self._library.define(name + schema)
        self._library.impl(name, kernel, "CPU")
        if schema.endswith("-> Tensor"):  # of the shape that the kernel makes
            self._library.impl(name, kernel, "Meta")
        self._name = name

    def __enter__(self) -> Callable[..., object]:
        return getattr(getattr(torch.ops, NAMESPACE), self._name)

    def __exit__(self, *_exception: object) -> None:
        torch.accelerator.synchronize()
        self._library._destroy()  # noqa: SLF001 - as torch's own tests do
        vars(getattr(torch.ops, NAMESPACE)).pop(self._name, None)


def test_an_operator_in_the_place_of_one_that_is_gone_is_called_itself() -> None:
    ones = torch.ones(2, device="accelrt")
    for number in range(20):  # the dispatcher's memory is used again
        name = f"operator_{number // 4}"  # and so are names
        with _Library(name, "(Tensor x) -> Tensor", lambda x: x * 2) as twice:
            assert twice(ones).tolist() == [2.0] * 2
        with _Library(name, "(Tensor x) -> int", lambda x: int(x.sum())) as total:
            assert total(ones) == 2
        with _Library(name, "(Tensor x, Tensor y) -> Tensor", lambda x, y: x - y) as difference:
            assert difference(ones, ones).tolist() == [0.0] * 2


def test_a_kernel_that_comes_after_the_first_call_is_found() -> None:
    ones = torch.ones(2, device="accelrt")
    library = torch.library.Library(NAMESPACE, "FRAGMENT")
    library.define("late(Tensor x) -> Tensor")
    for _ in range(2):
        try:
            torch.ops.accelrt_tests.late(ones)
        except NotImplementedError as error:
            assert "no operator accelrt_tests::late" in str(error)  # noqa: PT017 - twice
    library.impl("late", lambda x: x * 2, "CPU")
    assert torch.ops.accelrt_tests.late(ones).tolist() == [2.0] * 2


def test_a_task_whose_library_is_gone_fails_by_its_name() -> None:
    program = """
import torch
from gates import Gate
library = torch.library.Library("gone", "FRAGMENT")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x * 2, "CPU")
library.impl("twice", torch.empty_like, "Meta")
ones = torch.ones(2, device="accelrt")
with Gate():
    torch.ops.gone.twice(ones)
    library._destroy()
try:
    torch.accelerator.synchronize()
except torch.AcceleratorError as error:
    print(error)
print((ones + 1).tolist())
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=Path(__file__).parent, timeout=60
    )
    assert "gone::twice: its library is gone" in done.stdout, done.stderr
    assert done.stdout.endswith("[2.0, 2.0]\n")
