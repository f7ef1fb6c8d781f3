"""torch's own list of operators, each with torch's samples of arguments, as the CPU computes them.

Goal: what the tests of this project did not think of. Method: every operator of torch's database is
called with its samples on the CPU and on the device, also in place, in four types. Both raise, or
the results are equal in shape and type and near in numbers. Samples are torch's, so that a newer
torch brings new ones.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

Arguments = tuple[object, tuple[object, ...], dict[str, object]]


class Sample(Protocol):
    """Arguments of a call."""

    input: object
    args: tuple[object, ...]
    kwargs: dict[str, object]


class Info(Protocol):
    """What torch's database has of an operator."""

    name: str
    op: Callable[..., object]
    inplace_variant: Callable[..., object] | None

    def supports_dtype(self, dtype: torch.dtype, device: str) -> bool:
        """Whether the kernels of a device have the type."""

    def sample_inputs(self, device: str, dtype: torch.dtype) -> Iterable[Sample]:
        """Make the samples."""


TYPES = (torch.float32, torch.int64, torch.complex64, torch.bool)
SAMPLES = 4  # of an operator and type

# Whose results are of chance, or of no meaning.
_UNKNOWN = """
    bernoulli cauchy empty empty_like empty_permuted empty_strided exponential geometric log_normal
    multinomial new_empty new_empty_strided nn.functional.alpha_dropout nn.functional.dropout
    nn.functional.dropout2d nn.functional.dropout3d nn.functional.feature_alpha_dropout
    nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d nn.functional.rrelu
    nn.functional.multi_head_attention_forward nn.functional.scaled_dot_product_attention normal
    pca_lowrank rand_like randint randint_like randn randn_like svd_lowrank uniform
"""
UNKNOWN = frozenset(_UNKNOWN.split())
EXPLAINED = {
    "addbmm": "in place it grows a tensor that is too small, on the CPU alone",
    "sparse.mm": "sparse tensors are refused",
    "sparse.sampled_addmm": "sparse tensors are refused",
    "to_sparse": "sparse tensors are refused",
    "tensor_split": "its indices are the host's, as on CUDA",
}


@pytest.fixture(scope="module")
def database() -> list[Info]:
    methods = pytest.importorskip("torch.testing._internal.common_methods_invocations")
    return list(methods.op_db)


def _on_device(values: Arguments) -> Arguments:
    def place(value: object) -> object:
        if isinstance(value, torch.Tensor):
            return value.detach().clone().to("accelrt")
        is_cpu = value == "cpu" or (isinstance(value, torch.device) and value.type == "cpu")
        return torch.device("accelrt") if is_cpu else value

    return tree_map(place, values)


def _copied(values: Arguments) -> Arguments:
    return tree_map(lambda it: it.detach().clone() if isinstance(it, torch.Tensor) else it, values)


def _outcome(operator: Callable[..., object], arguments: Arguments) -> list[object] | None:
    """Return the results as the host has them; `None` where the call or its task has failed."""
    first, others, named = arguments
    try:
        results = tree_leaves(operator(first, *others, **named))
        torch.accelerator.synchronize()
    except (RuntimeError, TypeError, ValueError, IndexError, AssertionError):
        return None
    return [it.cpu() if isinstance(it, torch.Tensor) else it for it in results]


def _calls(info: Info) -> Iterator[tuple[str, Callable[..., object], Arguments]]:
    for dtype in TYPES:
        if info.supports_dtype(dtype, "cpu"):
            samples = info.sample_inputs("cpu", dtype)
            for _, sample in zip(range(SAMPLES), samples, strict=False):
                arguments = (sample.input, sample.args, sample.kwargs)
                for operator in (info.op, info.inplace_variant):
                    if operator is not None:
                        yield f"{info.name} {dtype} {arguments}", operator, arguments


def _compare(said: str, expected: list[object] | None, found: list[object] | None) -> None:
    assert (found is None) == (expected is None), said
    for theirs, ours in zip(expected or [], found or [], strict=True):
        if not isinstance(theirs, torch.Tensor) or theirs.layout != torch.strided:
            continue
        assert isinstance(ours, torch.Tensor), said
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype), said
        if theirs.dtype != torch.complex32:  # whose numbers the CPU does not compare
            torch.testing.assert_close(ours, theirs, equal_nan=True, rtol=1e-4, atol=1e-5, msg=said)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(8))
def test_operators_make_of_torchs_samples_what_the_cpu_makes(
    database: list[Info], part: int
) -> None:
    torch.manual_seed(part)
    compared = 0
    for info in database[part::8]:
        if info.name in EXPLAINED:
            continue
        for said, operator, arguments in _calls(info):
            expected = _outcome(operator, _copied(arguments))
            found = _outcome(operator, _on_device(arguments))
            if info.name in UNKNOWN:
                assert (found is None) == (expected is None), said
            else:
                _compare(said, expected, found)
            compared += 1
    assert compared > 500
