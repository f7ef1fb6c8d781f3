"""Warnings of kernels: Python's, as on the CPU.

Goal: a warning reaches `warnings`, once for each call, and is never printed by C++. Method:
operators that warn for their arguments, of small tensors, which are probed, and of large ones.
"""

import subprocess
import sys
import warnings
from collections.abc import Iterator

import pytest
import torch

SMALL, LARGE = (3, 3), (300, 300)  # a probe finds the warning of the first, the task of the other


def _collect(shape: tuple[int, int]) -> list[str]:
    tensor = torch.ones(*shape, device="accelrt", dtype=torch.cfloat)
    out = torch.empty(shape, device="accelrt")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        out.copy_(tensor)
        torch.accelerator.synchronize()
    return [str(warning.message) for warning in caught]


@pytest.fixture(autouse=True)
def _warns_always() -> Iterator[None]:
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


@pytest.mark.parametrize("shape", [SMALL, LARGE])
def test_kernel_warning_is_pythons(
    shape: tuple[int, int], capfd: pytest.CaptureFixture[str]
) -> None:
    (text,) = _collect(shape)
    assert "discards the imaginary part" in text
    assert capfd.readouterr().err == ""


def test_warning_as_error_raises() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="degrees of freedom"):
            torch.ones(1, device="accelrt").std().item()
    assert torch.ones(2, device="accelrt").std().item() == 0


def test_each_call_warns_once() -> None:
    for _ in range(3):  # the first call finds the warning, the others know it
        assert len(_collect(SMALL)) == 1


def test_warning_of_once_is_issued_once() -> None:
    script = """
import torch, warnings
rows, values = torch.arange(6.0), torch.arange(8.0).view(4, 2).T
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(3):
        torch.searchsorted(rows.to(DEVICE), values.to(DEVICE).T.contiguous().T)
    rows.to(DEVICE).cpu()
print([str(warning.message).split("(Triggered")[0] for warning in caught])
"""
    printed = []
    for device in ("cpu", "accelrt"):
        command = [sys.executable, "-c", script.replace("DEVICE", repr(device))]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout + done.stderr)
    assert "non-contiguous" in printed[0]
    assert printed[1] == printed[0]
