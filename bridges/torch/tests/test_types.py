"""Types: those that a device says it has, and those of CUDA's kernels that the CPU's lack.

Goal: each type that is listed can be used, and programs in half precision run as on CUDA. Method:
conversions to and from each type; operators beside the same in single precision.
"""

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

Operator = Callable[[torch.Tensor], torch.Tensor]

NARROW: dict[str, tuple[Operator, tuple[torch.dtype, ...]]] = {
    "abs": (torch.abs, (torch.bool,)),
    "histc": (lambda x: torch.histc(x, 4, min=0, max=8), (torch.int32, torch.int64, torch.uint8)),
    "fft": (torch.fft.fft, (torch.float16, torch.bfloat16, torch.complex32)),
    "rfft": (torch.fft.rfft2, (torch.float16, torch.bfloat16)),
    "irfft": (torch.fft.irfft, (torch.float16, torch.complex32)),
    "sin": (torch.sin, (torch.complex32,)),
    "sigmoid": (torch.sigmoid, (torch.complex32,)),
    "sum": (torch.sum, (torch.complex32,)),
    "divide": (lambda x: x / 2, (torch.complex32,)),
    "polygamma": (lambda x: torch.polygamma(1, x + 1), (torch.float16,)),
    "pool": (
        lambda x: functional.avg_pool3d(x.view(1, 2, 2, 4), 2),
        (torch.float16, torch.bfloat16),
    ),
    "resized": (
        lambda x: functional.interpolate(
            x.view(1, 1, 4, 4), size=(3, 3), mode="bilinear", antialias=True
        ),
        (torch.float16, torch.bfloat16),
    ),
    "margin": (
        lambda x: functional.multi_margin_loss(x, torch.tensor([0, 1], device=x.device)),
        (torch.float16, torch.bfloat16),
    ),
}
pytestmark = pytest.mark.filterwarnings(
    "ignore:ComplexHalf", "ignore:Casting complex", "ignore:BComplex"
)
CASES = [(name, dtype) for name, (_, types) in NARROW.items() for dtype in types]
WIDE = {
    torch.complex32: torch.complex64,
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.bool: torch.uint8,
}


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_types_of_cuda_are_converted(name: str, dtype: torch.dtype) -> None:
    operator = NARROW[name][0]
    numbers = (torch.arange(16) % 7).view(2, 8).to(dtype)
    wide = WIDE.get(dtype, torch.float64)
    wanted = operator(numbers.to(wide))
    found = operator(numbers.to("accelrt"))
    half = {torch.float32: torch.float16, torch.complex64: torch.complex32}
    halves = dtype in (torch.float16, torch.complex32)
    expected = half.get(wanted.dtype, wanted.dtype) if halves else wanted.dtype
    is_kept = dtype in (torch.bool, torch.bfloat16) and "fft" not in name
    if name == "histc" or is_kept:
        expected = dtype
    assert found.dtype == expected
    torch.testing.assert_close(found.cpu().to(wanted.dtype), wanted, rtol=2e-2, atol=2e-2)


def test_half_precision_transform_has_gradient() -> None:
    rows = torch.linspace(-1, 1, 8).half()
    here = rows.float().requires_grad_()
    there = rows.to("accelrt").requires_grad_()
    torch.fft.rfft(here).abs().sum().backward()
    torch.fft.rfft(there).abs().sum().backward()
    assert there.grad is not None
    assert there.grad.dtype == torch.float16
    torch.testing.assert_close(there.grad.cpu().float(), here.grad, rtol=1e-2, atol=1e-2)


def test_listed_types_are_those_of_tensors() -> None:
    listed = torch.accelrt.get_device_capability()["supported_dtypes"]
    every = {it for it in vars(torch).values() if isinstance(it, torch.dtype)}
    usable = set()
    for dtype in every:
        try:
            tensor = torch.ones(3, device="accelrt").to(dtype)
            assert torch.equal(tensor.to(torch.float32).cpu(), torch.ones(3))
        except RuntimeError:
            continue
        usable.add(dtype)
    assert listed == usable
